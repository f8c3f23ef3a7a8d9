"""``collegium site renew``, ``server renew`` and ``federation renew``: a new certificate before the old one ends."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from collegium.cli.options import KitFolder
from collegium.errors import ConfigError

New = Annotated[Path | None, typer.Argument(help="The certificate that came back.", metavar="[CERTIFICATE.crt]")]


def site_renew(kit: KitFolder, certificate: New = None) -> None:
    """Ask for a new certificate, and install the one that comes back: a site that runs goes on with it by itself.

    Without CERTIFICATE: make a new key, which stays here, and write the request for its certificate.
    """
    _renew(kit, certificate, "site")


def server_renew(kit: KitFolder, certificate: New = None) -> None:
    """The same for the server's kit, or a lead's: server and coordinators that run go on with it by themselves."""
    _renew(kit, certificate, "server", "lead")


def federation_renew(
    file: Annotated[Path, typer.Argument(help="Who takes part (TOML).", metavar="FEDERATION.toml")],
    requests: Annotated[
        list[Path], typer.Argument(help="What `collegium site renew` wrote.", metavar="REQUEST.csr...")
    ],
    kits: Annotated[Path | None, typer.Option(help="The folder with `ca` (default: kits/NAME).")] = None,
) -> None:
    """Sign requests for new certificates, with the authority's key; each certificate is written beside its request."""
    from collegium.flare.kits.federation_file import FederationFile
    from collegium.flare.kits.kit import days_left, read_certificate
    from collegium.flare.kits.renewal import sign_renewal

    federation = FederationFile.read(file)
    for request in requests:
        made = sign_renewal(federation, request, kits or Path("kits") / federation.name)
        certificate = read_certificate(made)
        typer.echo(
            f"{made}: valid for {days_left(certificate):.0f} days, serial {certificate.serial_number:x}. Nothing in it "
            "is secret: send it back, by e-mail if you like."
        )


def _renew(folder: Path, certificate: Path | None, *kinds: str) -> None:
    from collegium.flare.kits.kit import kind_of
    from collegium.flare.kits.renewal import install_renewal, request_renewal
    from collegium.flare.operations.certificates import certificate_of
    from collegium.flare.supervise.standing import is_running

    kind = kind_of(folder)
    if kind not in kinds:
        raise ConfigError(f"{folder} is not a kit for a {' or a '.join(kinds)}: give the folder that you received.")
    command = "site" if kind == "site" else "server"
    if certificate is None:
        request = request_renewal(folder)
        typer.echo(
            f"{request}: send it to whoever provisioned the federation (collegium federation renew), and read its "
            f"fingerprint out by telephone: {_fingerprint(request)}\n"
            f"With what comes back: collegium {command} renew {folder} CERTIFICATE.crt"
        )
        return
    found = certificate_of(install_renewal(folder, certificate))
    going_on = " What runs goes on with it by itself." if kind == "lead" or is_running(folder) else ""
    typer.echo(f"{folder}: the certificate is valid until {found.until[:10]}, serial {found.serial}.{going_on}")


def _fingerprint(file: Path) -> str:
    import hashlib

    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]
