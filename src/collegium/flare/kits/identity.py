"""A site's own folder in its kit: the key that says who it is, and what tells this installation from a copy."""

from __future__ import annotations

import hashlib
import os
import secrets
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collegium.errors import ConfigError, StorageError
from collegium.protocols.keys import SiteKeys, new_secret
from collegium.protocols.primitives import bind
from collegium.site.ledger import storage_errors

AGENT: Final = "agent"
RUN_LEAD, RUN_ENDED = "lead", "ended"
"""Files in a run's folder: whose it is, and that the site's owner has ended it. Both hold for good."""
_KEY: Final = "identity.key"
_INSTANCE: Final = "instance"
_TURN: Final = "turn"
_MACHINE_IDS: Final = ("/etc/machine-id", "/var/lib/dbus/machine-id")


@dataclass(frozen=True)
class Installation:
    """What tells one installation of a site from another that has a copy of its kit."""

    identity: str
    """The public half of the site's key."""
    place: str
    """A hash of the kit's own number, the machine and the folder."""
    turn: str
    """What the coordinator gave it last. Of two equal copies, the one that did not answer last has an old one."""

    @property
    def name(self) -> str:
        """Short enough to be compared by telephone."""
        return hashlib.sha256(bind("collegium installation v1", self.identity, self.place, self.turn)).hexdigest()[:12]


def make_agent_folder(kit: str | Path) -> Path:
    """The agent's folder with an identity key and an instance number. What is there already stays as it is."""
    folder = Path(kit) / AGENT
    with storage_errors(folder, StorageError):
        folder.mkdir(mode=0o700, exist_ok=True)
        folder.chmod(0o700)
        for name, make in ((_KEY, new_secret), (_INSTANCE, lambda: secrets.token_hex(16).encode())):
            if not (folder / name).exists():
                write_private(folder / name, make())
    return folder


def read_keys(folder: Path, name: str) -> SiteKeys:
    """The site's identity key, in its agent's folder."""
    file = folder / _KEY
    with storage_errors(file, StorageError):
        if not file.exists():
            raise ConfigError(f"{file} not found: run `collegium site init {folder.parent}` first.")
        secret, mode = file.read_bytes(), file.stat().st_mode
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"Other users can read {file}: run `chmod 600 {file}`.")
    if len(secret) != 32:
        raise ConfigError(f"{file} is damaged: expected 32 bytes, got {len(secret)}. Restore it from a backup.")
    return SiteKeys(name, secret)


def instance(kit: Path) -> str:
    """Where this installation is: another copy of the kit, be it the whole folder, is somewhere else."""
    folder = make_agent_folder(kit).resolve()
    with storage_errors(folder, StorageError):
        own = (folder / _INSTANCE).read_text(encoding="ascii").strip()
        machine = next((path.read_text().strip() for path in map(Path, _MACHINE_IDS) if path.is_file()), "")
    return hashlib.sha256(f"{own}\0{machine}\0{folder}".encode()).hexdigest()


def read_turn(folder: Path) -> str:
    """What the coordinator gave this installation last; empty before the first time."""
    file = folder / _TURN
    with storage_errors(file, StorageError):
        return file.read_text(encoding="ascii").strip() if file.is_file() else ""


def write_turn(folder: Path, turn: str) -> None:
    """Keep what the coordinator gave this installation, whatever happens next."""
    write_private(folder / _TURN, turn.encode("ascii"))


def write_private(file: Path, content: bytes) -> None:
    """Write a whole file that only its owner can read: a killed process leaves the old one or the new one.

    Once this has returned, a power cut leaves the new one: the folder is on disk as well.
    """
    beside = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    with storage_errors(file, StorageError):
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            beside.replace(file)
            folder = os.open(file.parent, os.O_RDONLY)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        finally:
            beside.unlink(missing_ok=True)
