"""Sites' keys: who they are, and how they talk through a coordinator that must not listen.

A site has one identity key (Ed25519) for life. For every circle of sites it draws a fresh key (X25519) and signs
it, so that a stolen identity key opens no old letters. Each pair of sites derives its own keys from theirs by HKDF,
bound to the circle, both fresh keys, both names and the purpose.

The identities of the others must come from somewhere else than the coordinator (a letter, a telephone call, a
policy file): whoever chooses them can sit in the middle.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from collegium.errors import ConfigError, WireError
from collegium.protocols import primitives
from collegium.protocols.errors import ProtocolError, Reused
from collegium.protocols.primitives import KEY_BYTES, Bytes, bind
from collegium.protocols.received import as_bytes

_SALT_BYTES = 32
_NONCE = bytes(12)  # every message has a key of its own, so one nonce is enough


class Once:
    """Remembers what was used, and refuses it a second time."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._used: set[tuple[str, ...]] = set()

    def use(self, party: str, *name: str) -> None:
        """Use a name for the first and last time; `party` is blamed for the second."""
        if (party, *name) in self._used:
            raise Reused(party, f"uses {self._what} {'/'.join(name)!r} a second time: take a fresh one.")
        self._used.add((party, *name))


@dataclass
class SiteKeys:
    """A site's name and identity key. Keep `secret` where only the site can read it.

    >>> keys = SiteKeys("hospital-a", new_secret())        # doctest: +SKIP
    >>> member = keys.join("run 12")                       # doctest: +SKIP
    """

    party: str
    secret: bytes = field(repr=False)
    _joined: Once = field(default_factory=lambda: Once("circle"), repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            raise ConfigError(f"The identity key of site {self.party!r} has {len(self.secret)} bytes, not {KEY_BYTES}.")

    @property
    def identity(self) -> str:
        """The public half, for the other sites to know before the run."""
        return primitives.ed25519_public(self.secret).hex()

    def join(self, circle: str) -> Member:
        """Join a circle of sites; the same name is refused the next time."""
        self._joined.use(self.party, circle)
        return Member(self, circle)


def new_secret() -> bytes:
    """A new identity key."""
    return secrets.token_bytes(KEY_BYTES)


class Member:
    """A site in a circle: says hello, meets the others, seals and opens envelopes."""

    def __init__(self, keys: SiteKeys, circle: str) -> None:
        self.party, self.circle = keys.party, circle
        self._identity = keys
        self._secret = secrets.token_bytes(KEY_BYTES)
        self._public = primitives.x25519_public(self._secret)
        self._pairs: dict[str, bytes] = {}
        self.rounds = Once("round")
        self._sealed = Once("the message context")
        self._opened = Once("the message context")

    @property
    def others(self) -> tuple[str, ...]:
        """The sites met, in the order of their names."""
        return tuple(sorted(self._pairs))

    def hello(self) -> dict[str, str]:
        """The fresh key, signed; for all others, through the coordinator."""
        signature = primitives.sign(self._identity.secret, _introduction(self.circle, self.party, self._public))
        return {"key": self._public.hex(), "signature": signature.hex()}

    def meet(self, hellos: Mapping[str, Mapping[str, Any]], identities: Mapping[str, str]) -> None:
        """Take the others' hellos, and check each against the identity known for that site."""
        for party, hello in hellos.items():
            if party == self.party:
                continue
            if party in self._pairs:
                raise Reused(party, f"says hello twice in circle {self.circle!r}: begin a new circle.")
            if party not in identities:
                raise ConfigError(f"The identity of site {party!r} is not known at site {self.party!r}: exchange it.")
            public = _hex(party, hello.get("key"), KEY_BYTES)
            signature = _hex(party, hello.get("signature"), 64)
            identity = _hex(party, identities[party], KEY_BYTES)
            if not primitives.is_signed(identity, signature, _introduction(self.circle, party, public)):
                raise ProtocolError(party, "signed its fresh key with another identity: compare identities with it.")
            try:
                shared = primitives.x25519(self._secret, public)
            except ValueError:
                raise ProtocolError(party, "sent a key that is not a point of the curve.") from None
            (low, low_key), (high, high_key) = sorted([(self.party, self._public), (party, public)])
            info = bind("collegium pair v1", self.circle, low, high)
            self._pairs[party] = primitives.hkdf(shared, info, salt=low_key + high_key)

    def key(self, party: str, purpose: str) -> bytes:
        """A key that only this site and that one have, for one purpose."""
        if party not in self._pairs:
            raise ConfigError(f"Site {self.party!r} has not met {party!r} in circle {self.circle!r}.")
        low, high = sorted([self.party, party])
        return primitives.hkdf(self._pairs[party], bind("collegium key v1", self.circle, low, high, purpose))

    def seal(self, to: str, message: Any, context: str) -> Bytes:
        """Plain data as an envelope that only `to` can open, and only as `context` (a name used once)."""
        from collegium import wire

        key = self.key(to, "envelopes")
        self._sealed.use(self.party, to, context)
        # A random salt instead of a counter: a site that is set back to an earlier state repeats no key.
        salt = secrets.token_bytes(_SALT_BYTES)
        bound = bind("collegium envelope v1", self.circle, self.party, to, context)
        content = primitives.encrypt(primitives.hkdf(key, bound, salt=salt), _NONCE, wire.pack(message).data, bound)
        return np.frombuffer(salt + content, np.uint8)

    def open(self, sender: str, envelope: Bytes, context: str) -> Any:
        """What `sender` sealed for this site as `context`; an envelope that was opened before is refused."""
        from collegium import wire

        key = self.key(sender, "envelopes")
        raw = as_bytes(sender, envelope)
        bound = bind("collegium envelope v1", self.circle, sender, self.party, context)
        key = primitives.hkdf(key, bound, salt=raw[:_SALT_BYTES])
        content = primitives.decrypt(key, _NONCE, raw[_SALT_BYTES:], bound) if len(raw) > _SALT_BYTES else None
        if content is None:
            raise ProtocolError(
                sender, f"sent an envelope that cannot be opened as {context!r}: was it changed on its way?"
            )
        self._opened.use(sender, context)
        try:
            return wire.unpack(content)
        except WireError:
            raise ProtocolError(sender, f"sealed something other than a message as {context!r}.") from None


def _introduction(circle: str, party: str, public: bytes) -> bytes:
    return bind("collegium hello v1", circle, party, public)


def _hex(party: str, text: object, size: int) -> bytes:
    try:
        raw = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        raw = b""
    if len(raw) != size:
        raise ProtocolError(party, f"has a key or signature that is not {size} bytes in hexadecimal.")
    return raw
