"""Who is not trusted any more, by name or by a certificate's serial number: a file that is read anew when it changes.

The server's kit has one (`collegium server revoke`), and each site's (`collegium site distrust`). Nothing is restarted.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from collegium.errors import ConfigError, Refused, StorageError
from collegium.flare.kits.identity import write_private
from collegium.flare.kits.vouching import Member
from collegium.site.ledger import storage_errors

REVOKED: Final = "revoked.json"
_SERIAL: Final = re.compile(r"[0-9a-f]{16,}")


class Revoked:
    """The list in one kit."""

    def __init__(self, kit: Path) -> None:
        self.file = kit / REVOKED
        self._stamp: tuple[int, int, int] | None = None
        self._since: dict[str, str] = {}

    def require_trusted(self, member: Member) -> None:
        """Refuse a member who is on the list, or whose certificate is."""
        self.require(member.name, member.serial)

    def require(self, name: str, serial: str) -> None:
        """The same, for a name and a certificate's serial number."""
        if name in self or serial in self:
            raise Refused("revoked", f"{name} (certificate {serial}) was revoked: it is in {self.file}.")

    def __contains__(self, word: str) -> bool:
        return _plain(word) in self.words()

    def words(self) -> dict[str, str]:
        """Names and serial numbers, and since when. A list that cannot be read is an error: it may hold anybody."""
        with storage_errors(self.file, StorageError):
            try:
                found = self.file.stat()
            except FileNotFoundError:
                return {}
            stamp = (found.st_mtime_ns, found.st_ino, found.st_size)
            if stamp != self._stamp:
                try:
                    self._since = {str(word): str(since) for word, since in json.loads(self.file.read_bytes()).items()}
                except (ValueError, AttributeError):
                    raise StorageError(f"{self.file} is damaged: restore it, or write the list anew.") from None
                self._stamp = stamp
        return self._since

    def add(self, word: str) -> None:
        """Trust that name or certificate no more."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._write({_plain(word): now} | self.words())

    def remove(self, word: str) -> None:
        """Trust it again."""
        if word not in self:
            raise ConfigError(f"{word} is not in {self.file} (there: {', '.join(self.words()) or 'nobody'}).")
        self._write({each: since for each, since in self.words().items() if each != _plain(word)})

    def _write(self, words: dict[str, str]) -> None:
        write_private(self.file, json.dumps(words, indent=1).encode() + b"\n")


def _plain(word: str) -> str:
    """Names without capitals; a serial number as certificates are shown: 4F:0A or 0x4f0a is 4f0a."""
    text = word.strip().lower()
    if not text:
        raise ConfigError("Give a name or the serial number of a certificate.")
    return _digits(text).lstrip("0") if is_serial(text) else text


def is_serial(word: str) -> bool:
    """Whether this is a certificate's serial number, and not a name."""
    return _SERIAL.fullmatch(_digits(word)) is not None


def _digits(word: str) -> str:
    return word.strip().lower().removeprefix("0x").replace(":", "")
