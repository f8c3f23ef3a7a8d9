"""Make the kits of a federation: keys, certificates, addresses, and a local policy that lets only orders in.

NVFlare's own tool makes the certificates and the start-up files. It leaves every key readable in one file, trusts
whoever has a lead's key, and keeps jobs in a folder that the whole machine can read: all of that is fixed here.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from collegium.errors import ConfigError
from collegium.flare.kits.federation_file import FederationFile, SiteSection
from collegium.flare.kits.identity import write_private
from collegium.flare.kits.kit import SETTINGS, Kind, Kit, check_certificate, days_left, read_certificate, read_kit, stem
from collegium.flare.kits.local_policy import write_policy
from collegium.flare.nvflare.issuing import issue

_AUTHORITY: Final = {"root_cert": "rootCA.pem", "root_pri_key": "rootCA.key"}
_READ_ME: Final[dict[Kind, str]] = {
    "server": "Run `collegium server start FOLDER` on {host}; sites must reach its port {port} (TCP).\n",
    "site": "Run `collegium site init FOLDER`, fill in site.toml, then `collegium site join FOLDER`.\n"
    "The site dials {host}:{port} (TCP); nothing dials the site.\n",
    "lead": "`collegium coordinate STUDY.toml` needs this folder.\n",
}


@dataclass(frozen=True)
class Provisioned:
    """What was made: the kits, and how long the authority lasts."""

    folder: Path
    kits: tuple[Kit, ...]
    authority_days: float


def provision(federation: FederationFile, out: Path, *, force: bool = False) -> Provisioned:
    """Make all kits, and an authority that signs them, in the folder `out`."""
    _check_room(out, force=force)
    out.parent.mkdir(parents=True, exist_ok=True)
    with _workshop(out.parent) as work:
        made, authority = issue(federation, federation.sites, work, None)
        fresh = work / "out"
        fresh.mkdir(mode=0o700)
        _write_authority(fresh / "ca", authority)
        for name, kind in _members(federation):
            _take(made / _source(federation, name, kind), fresh / name, kind, federation)
        if out.exists():
            shutil.rmtree(out)
        fresh.rename(out)
    for name, kind in _members(federation):
        write_policy(out / name, kind)  # again: the server's policy holds its place
        _close(out / name)
    return _described(out, *(name for name, _ in _members(federation)))


def add_site(federation: FederationFile, site: SiteSection, out: Path) -> Provisioned:
    """A kit for one more site, from the same authority. Nothing else changes; the server need not restart."""
    if (out / site.name).exists():
        raise ConfigError(f"Kit {out / site.name} already exists: --renew {site.name} makes a new certificate.")
    with _workshop(out) as work:
        made, _ = issue(federation, [site], work, read_authority(out))
        _take(made / site.name, work / "kit", "site", federation)
        (work / "kit").rename(out / site.name)
    return _described(out, site.name)


def renew(federation: FederationFile, name: str, out: Path) -> Provisioned:
    """A new key and certificate for one member, from the same authority; the rest of the kit stays as it is."""
    kinds = dict(_members(federation))
    if name not in kinds:
        raise ConfigError(f"{name!r} is not in the federation: choose one of {', '.join(kinds)}.")
    kind = kinds[name]
    with _workshop(out) as work:
        made, _ = issue(federation, federation.sites, work, read_authority(out))
        source = made / _source(federation, name, kind)
        check_certificate(source, kind)
        target = out / name
        if not target.exists():
            _take(source, work / "kit", kind, federation)
            (work / "kit").rename(target)
        for file in (f"{stem(kind)}.key", f"{stem(kind)}.crt"):
            shutil.copyfile(source / "startup" / file, target / "startup" / file)
        _close(target)
    return _described(out, name)


def _members(federation: FederationFile) -> list[tuple[str, Kind]]:
    sites: list[tuple[str, Kind]] = [(site.name, "site") for site in federation.sites]
    leads: list[tuple[str, Kind]] = [(lead.name, "lead") for lead in federation.leads]
    return [("server", "server"), *sites, *leads]


def _source(federation: FederationFile, name: str, kind: Kind) -> str:
    return federation.server.host if kind == "server" else name


def _described(out: Path, *names: str) -> Provisioned:
    kits = tuple(read_kit(out / name) for name in names)
    return Provisioned(out, kits, days_left(read_certificate(out / "ca" / "rootCA.pem")))


def _check_room(out: Path, *, force: bool) -> None:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / "ca" / "rootCA.pem").is_file():
        raise ConfigError(f"{out} contains something else: choose another folder with --out.")
    if not force:
        raise ConfigError(
            f"{out} already contains kits. --add-site adds one, --renew makes a new certificate; "
            "--force makes a new federation there, and every kit that was handed out becomes invalid."
        )


@contextlib.contextmanager
def _workshop(where: Path) -> Iterator[Path]:
    """A folder that only this user can enter, on the same disk, so that finished kits can be moved out of it."""
    if not where.is_dir():
        raise ConfigError(f"No kits in {where}: run collegium provision without --add-site or --renew first.")
    with TemporaryDirectory(prefix=".provision-", dir=where, ignore_cleanup_errors=True) as work:
        yield Path(work)


def _write_authority(folder: Path, authority: dict[str, str]) -> None:
    """The authority's key, and no member's: a member's key is in its kit only."""
    folder.mkdir(mode=0o700)
    for key, name in _AUTHORITY.items():
        write_private(folder / name, authority[key].encode())


def read_authority(out: Path) -> dict[str, str]:
    """The authority's certificate and key, where they have been brought back."""
    try:
        return {key: (out / "ca" / name).read_text() for key, name in _AUTHORITY.items()}
    except OSError as error:
        raise ConfigError(f"Cannot read the authority's key in {out / 'ca'}: {error.strerror}.") from None


def _take(made: Path, kit: Path, kind: Kind, federation: FederationFile) -> None:
    """Keep what a kit needs of what NVFlare made: no scripts that would start it without our checks."""
    (kit / "startup").mkdir(parents=True)
    for name in (SETTINGS[kind], f"{stem(kind)}.crt", f"{stem(kind)}.key", "rootCA.pem"):
        shutil.copyfile(made / "startup" / name, kit / "startup" / name)
    for folder in {"server": ("transfer", "coordinator"), "site": ("transfer", "agent"), "lead": ("transfer",)}[kind]:
        (kit / folder).mkdir()
    write_policy(kit, kind)
    text = _READ_ME[kind].format(host=federation.server.host, port=federation.server.port)
    (kit / "README.txt").write_text(f"Keep this folder private: it holds a key.\n{text}", encoding="utf-8")
    _close(kit)


def _close(kit: Path) -> None:
    """Nobody but this user enters."""
    kit.chmod(0o700)
    for path in kit.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
