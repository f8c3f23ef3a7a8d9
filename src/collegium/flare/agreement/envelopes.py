"""Signed messages between a coordinator and a site: what passes in between can read them, and change nothing.

    size of the head in four big-endian bytes; the head, JSON; a signature (Ed25519); the message

The signature covers what kind of envelope it is, the head and the message. A head names whom the envelope is for and
what it answers, so that it is good for one site, once.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from collegium.errors import WireError
from collegium.protocols.primitives import bind, is_signed, sign

REQUEST, REPLY = "collegium request v1", "collegium reply v1"
OTHER_TURN: Final = "other-turn"
"""A site's code when another coordinator has given it a turn in between: it is greeted again."""
UNKNOWN: Final = "not-greeted"
"""A site's code for a key that has not said hello to this process of its agent: the coordinator greets it again."""
_SIZE: Final = struct.Struct(">I")
_SIGNATURE: Final = 64
_LONGEST_HEAD: Final = 16384  # a certificate is about 2 kB
LONGEST_WRAPPING: Final = _SIZE.size + _LONGEST_HEAD + _SIGNATURE
"""How many bytes an envelope has beside its message, at most."""


@dataclass(frozen=True)
class Envelope:
    """What came. Nothing in it is to be believed before `is_from`."""

    head: Mapping[str, Any]
    message: bytes
    signature: bytes
    _signed: bytes

    @classmethod
    def read(cls, kind: str, raw: bytes) -> Envelope:
        """Take an envelope apart."""
        try:
            size = _SIZE.unpack_from(raw)[0]
            start = _SIZE.size + size
            if size > _LONGEST_HEAD or len(raw) < start + _SIGNATURE:
                raise ValueError
            words = raw[_SIZE.size : start]
            head = json.loads(words)
            if not isinstance(head, dict):
                raise ValueError
        except (ValueError, struct.error, RecursionError):
            raise WireError("This is not a signed message.") from None
        message = raw[start + _SIGNATURE :]
        return cls(head, message, raw[start : start + _SIGNATURE], _statement(kind, words, message))

    def is_from(self, public: bytes) -> bool:
        """Whether the holder of that key signed it."""
        return is_signed(public, self.signature, self._signed)

    def word(self, name: str) -> str:
        """A word of the head; empty where there is none."""
        value = self.head.get(name, "")
        return value if isinstance(value, str) else ""

    def key(self, name: str) -> bytes:
        """Bytes in the head, as hexadecimal digits."""
        try:
            return bytes.fromhex(self.word(name))
        except ValueError:
            raise WireError("A key in a signed message is not hexadecimal.") from None


def enclose(kind: str, secret: bytes, head: Mapping[str, Any], message: bytes) -> tuple[bytes, bytes]:
    """An envelope, and its signature, which is its name in the reply."""
    words = json.dumps(head).encode()
    if len(words) > _LONGEST_HEAD:
        raise WireError("The head of a signed message is too long.")
    signature = sign(secret, _statement(kind, words, message))
    return b"".join((_SIZE.pack(len(words)), words, signature, message)), signature


def _statement(kind: str, words: bytes, message: bytes) -> bytes:
    return bind(kind, words, hashlib.sha256(message).digest())
