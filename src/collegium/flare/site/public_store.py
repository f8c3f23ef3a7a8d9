"""Public sets at a site: its own copy, or one fetched from the coordinator in pieces, always checked by its hash."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any, Final

from collegium import wire
from collegium.core.public_set import PublicSet
from collegium.errors import Refused, StorageError, WireError
from collegium.site.ledger import storage_errors
from collegium.wire import tables

PIECE: Final = 8 << 20


def pack_public(X: Any) -> bytes:
    """A table of public rows as bytes that hold no code."""
    header, arrays = tables.to_arrays(X)
    return wire.pack({"header": header, "arrays": arrays}).data


class PublicStore:
    """The public sets that a site has, by hash. `own` is what its owner put there."""

    def __init__(self, folder: Path, max_bytes: int, own: Any = None) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._sets = {} if own is None else {(public := PublicSet(own)).digest: public}
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def get(self, sha256: str) -> PublicSet | None:
        """The set with that hash, if it is here and is what its hash says."""
        with self._lock:
            if sha256 not in self._sets and self._file(sha256).is_file():
                with storage_errors(self._file(sha256), StorageError):
                    data = self._file(sha256).read_bytes()
                found = _read(data, sha256)
                if found is None:  # damaged on disk: fetch it again
                    self._file(sha256).unlink()
                    return None
                self._sets[sha256] = found
            return self._sets.get(sha256)

    def have(self, sha256: str) -> int:
        """How many bytes of a set that is being fetched are here."""
        part = self._part(sha256)
        return part.stat().st_size if part.is_file() else 0

    def add(self, sha256: str, offset: int, total: int, piece: bytes) -> int:
        """Take the next piece; returns how many bytes are here. With the last one the hash must match."""
        with self._lock, storage_errors(self._part(sha256), StorageError):
            if total > self._max_bytes or offset + len(piece) > total:
                raise Refused("too-large", f"A public set of {total} bytes exceeds public.max_bytes.")
            part = self._part(sha256)
            if offset != self.have(sha256):
                return self.have(sha256)  # a piece that was lost, or came twice: the sender goes on from here
            with part.open("ab") as file:
                file.write(piece)
            if offset + len(piece) < total:
                return offset + len(piece)
            data = part.read_bytes()
            found = _read(data, sha256)
            if found is None:
                part.unlink()
                raise Refused("other-public-set", "The public set does not match its hash.")
            part.replace(self._file(sha256))
            self._sets[sha256] = found
            return total

    def _file(self, sha256: str) -> Path:
        return self._folder / f"{_checked(sha256)}.table"

    def _part(self, sha256: str) -> Path:
        return self._folder / f"{_checked(sha256)}.part"


def _checked(sha256: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", sha256):
        raise Refused("bad-message", "A public set is identified by its hash: 64 hexadecimal digits.")
    return sha256


def _read(data: bytes, sha256: str) -> PublicSet | None:
    try:
        plain = wire.unpack(data)
        public = PublicSet(tables.from_arrays(dict(plain["header"]), dict(plain["arrays"])))
    except (WireError, KeyError, TypeError, ValueError):
        return None
    return public if public.digest == sha256 else None
