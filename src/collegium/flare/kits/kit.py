"""A kit: one folder for the server, a site or a lead, with a key, a certificate and the address to dial.

What a kit is, is read from its own files; a certificate that cannot work is found here, before NVFlare starts and
retries for ever.
"""

from __future__ import annotations

import hashlib
import json
import stat
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from collegium.errors import ConfigError, MissingExtra

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
    from cryptography.x509 import Certificate

T = TypeVar("T")
Kind = Literal["server", "site", "lead"]
SETTINGS: Final[dict[Kind, str]] = {"server": "fed_server.json", "site": "fed_client.json", "lead": "fed_admin.json"}
COMMANDS: Final[dict[Kind, str]] = {
    "server": "collegium server start",
    "site": "collegium site join",
    "lead": "collegium coordinate",
}
"""What each is for."""
SOON_DAYS: Final = 30
"""With fewer days left, whoever has a kit is told to have its certificate renewed."""
_DAY: Final = 86400
_ROOT: Final = "rootCA.pem"
_SOUND: Final[set[bytes]] = set()
"""Digests of the keys that this process found sound."""


@dataclass(frozen=True)
class Kit:
    """Who a kit is for, and where the server is."""

    folder: Path
    kind: Kind
    name: str
    organisation: str
    federation: str
    host: str
    port: int
    expires: float
    """When its certificate does, or its authority if that is sooner, in seconds since 1970."""

    @property
    def days_left(self) -> float:
        """Days until the certificate expires."""
        return (self.expires - time.time()) / _DAY

    @property
    def certificate(self) -> Path:
        """The holder's certificate."""
        return self.folder / "startup" / f"{stem(self.kind)}.crt"

    @property
    def key(self) -> Path:
        """The holder's private key."""
        return self.certificate.with_suffix(".key")

    @property
    def root(self) -> Path:
        """The certificate of the federation's authority."""
        return self.folder / "startup" / _ROOT

    @property
    def address(self) -> str:
        """What sites dial."""
        return f"{self.host}:{self.port}"

    def warnings(self) -> list[str]:
        """What works, but needs attention."""
        lines = []
        if self.days_left < SOON_DAYS:
            lines.append(
                f"the certificate of {self.name} expires in {self.days_left:.0f} days: "
                "have it renewed (collegium site renew, server renew)"
            )
        private = (self.folder, self.folder / "startup", self.key)
        exposed = [path for path in private if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO)]
        if exposed:
            lines.append(f"other users of this machine can access {exposed[-1]}: chmod -R go-rwx {self.folder}")
        return lines


def read_kit(folder: str | Path, kind: Kind | None = None, *, valid: bool = True) -> Kit:
    """The kit in a folder, with its certificate checked; `kind` is the kind that is needed.

    With `valid` false, a certificate that is over, or not valid yet, is no error: to look at a kit, or to renew it.
    """
    root = Path(folder).resolve()
    if not root.is_dir():
        raise ConfigError(f"Kit {folder} not found: give the folder that you received from the coordinator.")
    found = kind_of(root)
    if found is None:
        raise ConfigError(
            f"{root} is not a kit: it has no startup folder with {', '.join(SETTINGS.values())}. Give a folder that "
            "`collegium provision` made."
        )
    if kind is not None and found != kind:
        raise ConfigError(f"{folder} is a kit for a {found}, not for a {kind}: use it with `{COMMANDS[found]}`.")
    file = root / "startup" / SETTINGS[found]
    settings = _read(file, "settings file", lambda text: dict(json.loads(text)))
    certificate = check_certificate(root, found, valid=valid)
    name, organisation = _subject(certificate)
    try:
        federation, host, port, claimed = _address(found, settings)
    except (KeyError, IndexError, TypeError, ValueError):
        raise ConfigError(f"{file} was changed or is incomplete: unpack the kit again.") from None
    if claimed != name:
        raise ConfigError(
            f"{folder}: the kit is for {claimed!r}, but its certificate is for {name!r}: unpack it again."
        )
    authority = read_certificate(root / "startup" / _ROOT)
    expires = min(certificate.not_valid_after_utc, authority.not_valid_after_utc).timestamp()
    return Kit(root, found, name, organisation, federation, host, port, expires)


def kind_of(kit: Path) -> Kind | None:
    """Whose kit a folder is by its settings; None if it is no kit. Nothing is checked."""
    return next((each for each, name in SETTINGS.items() if (kit / "startup" / name).is_file()), None)


def _address(kind: Kind, settings: dict[str, Any]) -> tuple[str, str, int, str]:
    """Federation, host, port, and whose kit it says it is."""
    if kind == "lead":
        admin = settings["admin"]
        return str(admin["project_name"]), str(admin["host"]), int(admin["port"]), str(admin["username"])
    server = settings["servers"][0]
    host, _, port = str(server["service"]["target"]).rpartition(":")
    claimed = server["admin_server"] if kind == "server" else settings["client"]["fqsn"]
    return str(server["name"]), host, int(port), str(claimed)


def check_certificate(kit: Path, kind: Kind, *, valid: bool = True) -> Certificate:
    """A kit's certificate; an error if it is missing, from another federation, or, with `valid`, expired."""
    try:
        from cryptography.exceptions import InvalidSignature
    except ImportError:
        raise MissingExtra("flare", "A federation") from None
    path, authority = kit / "startup" / f"{stem(kind)}.crt", kit / "startup" / _ROOT
    certificate, root = read_certificate(path), read_certificate(authority)
    try:
        certificate.verify_directly_issued_by(root)
    except (ValueError, TypeError, InvalidSignature):
        raise ConfigError(
            f"{path} was not signed by the authority in {authority}: "
            "files of two federations were mixed. Unpack the kit again."
        ) from None
    for what, one in (("certificate", certificate), ("authority", root)) if valid else ():
        if days_left(one) <= 0:
            raise ConfigError(
                f"{kit}: the {what} expired on {one.not_valid_after_utc:%Y-%m-%d}: have it renewed (collegium "
                "site renew, server renew), by whoever provisioned the federation."
            )
        if one.not_valid_before_utc > datetime.now(UTC):
            raise ConfigError(
                f"{kit}: the {what} is not valid before {one.not_valid_before_utc:%Y-%m-%d}: check the clock."
            )
    _check_key(path.with_suffix(".key"), certificate)
    return certificate


def stem(kind: Kind) -> str:
    """What the files of a kit's key and certificate are called."""
    return "server" if kind == "server" else "client"


def read_certificate(path: Path) -> Certificate:
    """A certificate from a PEM file."""
    from cryptography.x509 import load_pem_x509_certificate

    return _read(path, "certificate", load_pem_x509_certificate)


def load_key(pem: bytes) -> PrivateKeyTypes:
    """A private key; ValueError if it is damaged.

    To find an RSA key sound takes much longer than to sign with it, and kits are read often: once for the same bytes.
    """
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    digest = hashlib.sha256(pem).digest()
    key = load_pem_private_key(pem, password=None, unsafe_skip_rsa_key_validation=digest in _SOUND)
    _SOUND.add(digest)
    return key


def _read(path: Path, what: str, parse: Callable[[bytes], T]) -> T:
    try:
        return parse(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"The {what} {path} is missing ({error.strerror}): unpack the kit again.") from None
    except (ValueError, TypeError):
        raise ConfigError(f"{path} is not a valid {what}: unpack the kit again.") from None


def days_left(certificate: Certificate) -> float:
    """Days until a certificate expires."""
    return (certificate.not_valid_after_utc - datetime.now(UTC)).total_seconds() / _DAY


def _check_key(path: Path, certificate: Certificate) -> None:
    key = _read(path, "key", load_key)
    if key.public_key() != certificate.public_key():
        raise ConfigError(f"{path} does not match its certificate: unpack the kit again.")


def _subject(certificate: Certificate) -> tuple[str, str]:
    from cryptography.x509.oid import NameOID

    def first(kind: Any) -> str:
        found = certificate.subject.get_attributes_for_oid(kind)
        return str(found[0].value) if found else ""

    return first(NameOID.COMMON_NAME), first(NameOID.ORGANIZATION_NAME)
