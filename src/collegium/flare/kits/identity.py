"""A site's own folder in its kit: the key that says who it is, and the number of this copy of the kit."""

from __future__ import annotations

import os
import secrets
import stat
from pathlib import Path
from typing import Final

from collegium.errors import ConfigError, StorageError
from collegium.protocols.keys import SiteKeys, new_secret
from collegium.site.ledger import storage_errors

AGENT: Final = "agent"
_KEY: Final = "identity.key"
_INSTANCE: Final = "instance"


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


def write_private(file: Path, content: bytes) -> None:
    """Write a whole file that only its owner can read: a killed process leaves the old one or the new one."""
    beside = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    with storage_errors(file, StorageError):
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            beside.replace(file)
        finally:
            beside.unlink(missing_ok=True)
