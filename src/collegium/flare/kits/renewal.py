"""A new certificate for a kit before the old one ends. The new key is made where it is used, and never leaves the kit.

request   the kit's holder makes a key, and a request that anybody may read
sign      whoever has the authority makes a certificate of it, which anybody may read, too
install   the holder puts both in place; programs that are running notice and go on with them
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from collegium.errors import ConfigError, StorageError
from collegium.flare.kits.federation_file import FederationFile
from collegium.flare.kits.identity import write_private
from collegium.flare.kits.kit import Kind, Kit, load_key, read_certificate, read_kit
from collegium.site.ledger import storage_errors

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.x509 import Certificate, CertificateSigningRequest

_BITS: Final = 2048
_NEXT: Final = ".key.next"


def request_renewal(folder: str | Path) -> Path:
    """Make the next key of a kit, and a request for its certificate. Asked again, the request is for the same key."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509 import CertificateSigningRequestBuilder

    kit = read_kit(folder, valid=False)
    key = _next_key(kit)
    builder = CertificateSigningRequestBuilder().subject_name(read_certificate(kit.certificate).subject)
    file = kit.folder / f"{kit.folder.name}.csr"
    write_private(file, builder.sign(key, SHA256()).public_bytes(Encoding.PEM))
    return file


def sign_renewal(federation: FederationFile, request: Path, kits: Path, out: Path | None = None) -> Path:
    """A certificate for a request of a member, by the authority beside the kits.

    Only the name and the key are taken from the request: who that is, and what it may do, the federation's file says.
    """
    from collegium.flare.kits.provision import read_authority
    from collegium.flare.nvflare.issuing import certify

    asked = _read_request(request)
    name = _common_name(asked)
    members = known_members(federation)
    if name not in members:
        raise ConfigError(f"{request} is a request of {name!r}, who is not in the federation ({', '.join(members)}).")
    kind, organisation = members[name]
    pem = certify(federation, name, kind, organisation, asked.public_key(), read_authority(kits))
    file = request.with_suffix(".crt") if out is None else out
    with storage_errors(file, StorageError):
        file.write_bytes(pem)
    return file


def install_renewal(folder: str | Path, certificate: Path) -> Kit:
    """Put the next key and its certificate in the place of the old ones.

    If this is interrupted, it can be done again: the next key is removed last.
    """
    holder, new = Path(folder).resolve(), _read_new(certificate)
    _check(new, _waiting_key(holder), holder, certificate)
    stem = _stem(holder)
    write_private(holder / "startup" / f"{stem}.key", (holder / "startup" / f"{stem}{_NEXT}").read_bytes())
    write_private(holder / "startup" / f"{stem}.crt", certificate.read_bytes())
    installed = read_kit(holder)
    with storage_errors(holder, StorageError):
        (holder / "startup" / f"{stem}{_NEXT}").unlink()
        (holder / f"{holder.name}.csr").unlink(missing_ok=True)
    return installed


def known_members(federation: FederationFile) -> dict[str, tuple[Kind, str]]:
    """The names in certificates, with what they are and whose."""
    server = federation.server
    sites: dict[str, tuple[Kind, str]] = {site.name: ("site", site.organisation) for site in federation.sites}
    leads: dict[str, tuple[Kind, str]] = {lead.name: ("lead", lead.organisation) for lead in federation.leads}
    return {server.host: ("server", server.organisation), **sites, **leads}


def _next_key(kit: Kit) -> RSAPrivateKey:
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    file = kit.key.with_suffix(_NEXT)
    if not file.is_file():
        made = rsa.generate_private_key(public_exponent=65537, key_size=_BITS)
        write_private(file, made.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption()))
    return _waiting_key(kit.folder)


def _waiting_key(kit: Path) -> RSAPrivateKey:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

    file = kit / "startup" / f"{_stem(kit)}{_NEXT}"
    try:
        key = load_key(file.read_bytes())
    except FileNotFoundError:
        raise ConfigError(
            f"{kit} has asked for no certificate: run this command without a certificate first."
        ) from None
    except (OSError, ValueError, TypeError):
        raise ConfigError(f"{file} cannot be read, or is damaged: remove it, and ask for a certificate anew.") from None
    if not isinstance(key, RSAPrivateKey):
        raise ConfigError(f"{file} is not an RSA key: remove it, and ask for a certificate anew.")
    return key


def _check(new: Certificate, key: RSAPrivateKey, kit: Path, file: Path) -> None:
    """Whether this is the certificate that was asked for: of this federation, for this holder and its next key."""
    from cryptography.exceptions import InvalidSignature

    old = read_certificate(kit / "startup" / f"{_stem(kit)}.crt")
    try:
        new.verify_directly_issued_by(read_certificate(kit / "startup" / "rootCA.pem"))
    except (ValueError, TypeError, InvalidSignature):
        raise ConfigError(f"{file} was not signed by the authority of this kit's federation.") from None
    if new.subject != old.subject:
        raise ConfigError(f"{file} is for {_common_name(new)!r}, or for another role, not for this kit's holder.")
    if new.public_key() != key.public_key():
        raise ConfigError(f"{file} is for another key: have {kit / f'{kit.name}.csr'} signed, the request of this kit.")
    if new.not_valid_after_utc < old.not_valid_after_utc:  # the same, where the authority ends first
        raise ConfigError(f"{file} ends before the certificate that is there: have the request signed anew.")


def _read_request(file: Path) -> CertificateSigningRequest:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.x509 import load_pem_x509_csr

    try:
        request = load_pem_x509_csr(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"Cannot read {file}: {error.strerror}.") from None
    except (ValueError, TypeError):
        raise ConfigError(f"{file} is not a request: `collegium site renew KIT` writes one.") from None
    key = request.public_key()
    if not request.is_signature_valid or not isinstance(key, RSAPublicKey) or key.key_size < _BITS:
        raise ConfigError(
            f"{file} is not signed by the key that it is for, or that key is too short: ask for a new one."
        )
    return request


def _read_new(file: Path) -> Certificate:
    from cryptography.x509 import load_pem_x509_certificate

    try:
        return load_pem_x509_certificate(file.read_bytes())
    except OSError as error:
        raise ConfigError(f"Cannot read {file}: {error.strerror}.") from None
    except (ValueError, TypeError):
        raise ConfigError(
            f"{file} is not a certificate: give the file that `collegium federation renew` wrote."
        ) from None


def _common_name(named: Certificate | CertificateSigningRequest) -> str:
    from cryptography.x509.oid import NameOID

    found = named.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found[0].value) if len(found) == 1 else ""


def _stem(kit: Path) -> str:
    return "server" if (kit / "startup" / "server.crt").is_file() else "client"
