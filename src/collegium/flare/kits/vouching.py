"""A member's certificate vouches for a key that signs messages.

A certificate's own key stays in its kit and is used once; what signs every message is small and quick (Ed25519). Lead
and site each show a voucher when a session begins, and the other checks it against the authority of its own kit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from collegium.errors import CollegiumError, ConfigError, Refused, WireError
from collegium.flare.kits.kit import Kind, Kit, load_key, read_certificate
from collegium.protocols.primitives import bind

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

_WRONG = "untrusted-certificate"
_TRY_SECONDS = 1.0
"""Between two looks at a certificate that does not fit its key."""


@dataclass(frozen=True)
class Member:
    """Whom a certificate names."""

    kind: Kind
    name: str
    serial: str
    until: datetime

    @property
    def expired(self) -> bool:
        """Whether the certificate is over."""
        return datetime.now(UTC) > self.until


@dataclass(frozen=True)
class Voucher:
    """A certificate, and its key's signature of another key."""

    certificate: str
    signature: bytes

    @classmethod
    def of(cls, kit: Kit, public: bytes) -> Self:
        """The kit's holder vouches for a key."""
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

        key = load_key(kit.key.read_bytes())
        if not isinstance(key, RSAPrivateKey):
            raise ConfigError(f"{kit.key} is not an RSA key: unpack the kit again.")
        statement = _statement(kit.kind, kit.name, public)
        return cls(kit.certificate.read_text(encoding="ascii"), key.sign(statement, *_padding()))

    @classmethod
    def from_plain(cls, words: Mapping[str, Any]) -> Self:
        """Undo `to_plain`."""
        try:
            return cls(str(words["certificate"]), bytes.fromhex(words["signature"]))
        except (KeyError, TypeError, ValueError):
            raise WireError("A voucher has no certificate or no signature.") from None

    def to_plain(self) -> dict[str, str]:
        """As words of a message."""
        return {"certificate": self.certificate, "signature": self.signature.hex()}


class Authority:
    """The federation's authority, as a kit has it."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit

    @cached_property
    def _root(self) -> Certificate:
        return read_certificate(self._kit.root)

    def check(self, voucher: Voucher, public: bytes) -> Member:
        """Who vouches for this key; Refused if that is no member of the federation, or no longer."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
        from cryptography.x509 import load_pem_x509_certificate

        try:
            certificate = load_pem_x509_certificate(voucher.certificate.encode())
            certificate.verify_directly_issued_by(self._root)
            member, key = _member(certificate), certificate.public_key()
            if not isinstance(key, RSAPublicKey):
                raise TypeError
            key.verify(voucher.signature, _statement(member.kind, member.name, public), *_padding())
        except (InvalidSignature, ValueError, TypeError):
            text = "A certificate is not of this federation, or did not sign the key that it came with."
            raise Refused(_WRONG, text) from None
        if member.expired or certificate.not_valid_before_utc > datetime.now(UTC):
            raise Refused(_WRONG, f"The certificate of {member.name} is not valid today: check the clock, or renew it.")
        return member


class OwnVoucher:
    """What a kit's holder shows of itself; made anew when its certificate was renewed."""

    def __init__(self, kit: Kit, public: bytes) -> None:
        self._kit, self._public = kit, public
        self._authority = Authority(kit)
        self._stamp, self._tried = self._files(), 0.0
        self.voucher = Voucher.of(kit, public)
        self._lock = threading.Lock()

    def renewed(self) -> bool:
        """Look whether there is another certificate, which is then used; one that does not fit its key is none."""
        with self._lock:
            stamp = self._files()
            if stamp == self._stamp or stamp is None or time.monotonic() < self._tried + _TRY_SECONDS:
                return False
            self._tried = time.monotonic()
            try:
                voucher = Voucher.of(self._kit, self._public)
                self._authority.check(voucher, self._public)
            except (CollegiumError, OSError, ValueError, TypeError):
                return False
            self._stamp, self.voucher, self._tried = stamp, voucher, 0.0
            return True

    def _files(self) -> tuple[tuple[int, int], ...] | None:
        try:
            found = (self._kit.certificate.stat(), self._kit.key.stat())
        except OSError:  # being replaced
            return None
        return tuple((each.st_mtime_ns, each.st_ino) for each in found)


def _member(certificate: Certificate) -> Member:
    """NVFlare's authority writes a role into the certificates of people, and into no others."""
    from cryptography.x509.oid import NameOID

    (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    roles = [each.value for each in certificate.subject.get_attributes_for_oid(NameOID.UNSTRUCTURED_NAME)]
    if roles not in ([], ["lead"]):
        raise ValueError
    kind: Kind = "lead" if roles else "site"
    return Member(kind, str(name.value), f"{certificate.serial_number:x}", certificate.not_valid_after_utc)


def _statement(kind: Kind, name: str, public: bytes) -> bytes:
    return bind("collegium voucher v1", kind, name, public)


def _padding() -> tuple[Any, Any]:
    from cryptography.hazmat.primitives.asymmetric.padding import MGF1, PSS
    from cryptography.hazmat.primitives.hashes import SHA256

    return PSS(MGF1(SHA256()), PSS.DIGEST_LENGTH), SHA256()
