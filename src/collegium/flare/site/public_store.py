"""Public sets at a site: its own copy, or one fetched from the coordinator in pieces, always checked by its hash.

A set is fetched only for a run whose plan names it. Half of one is removed when no run waits for it any more, and all
together take at most `KEPT` times `public.max_bytes` on disk: sets that no run needs make room for others.
"""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any, Final

from collegium import wire
from collegium.core.public_set import PublicSet
from collegium.errors import Refused, StorageError
from collegium.site.ledger import storage_errors
from collegium.wire import tables

PIECE: Final = 8 << 20
KEPT: Final = 4


def pack_public(X: Any) -> bytes:
    """A table of public rows as bytes that hold no code."""
    header, arrays = tables.to_arrays(X)
    return wire.pack({"header": header, "arrays": arrays}).data


class PublicStore:
    """The public sets that a site has, by hash. `own` is what its owner put there."""

    def __init__(self, folder: Path, max_bytes: int, own: Any = None) -> None:
        self._folder = folder
        self._max_bytes = max_bytes
        self._lock = threading.RLock()
        self._own = {} if own is None else {(public := PublicSet(own)).digest: public}
        self._loaded: dict[str, PublicSet] = {}
        self._wanted: dict[str, str] = {}
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def get(self, sha256: str) -> PublicSet | None:
        """The set with that hash, if it is here and is what its hash says."""
        with self._lock:
            found = self._own.get(sha256) or self._loaded.get(sha256)
            file = self._file(sha256)
            if found is not None or not file.is_file():
                return found
            with storage_errors(file, StorageError):
                found = _read(file.read_bytes(), sha256)
                if found is None:  # damaged on disk: fetch it again
                    file.unlink()
                else:
                    file.touch()  # it was needed last, and makes room last
            if found is not None and sha256 in self._wanted.values():
                self._loaded[sha256] = found
            return found

    def want(self, run: str, sha256: str) -> PublicSet | None:
        """The set for a run that was reviewed. If it is not here, it may be sent from now on."""
        with self._lock:
            if self._wanted.get(run) != sha256:
                self.leave(run)
                self._wanted[run] = _checked(sha256)
            return self.get(sha256)

    def leave(self, run: str) -> None:
        """The run needs its set no longer, or not for now: let go of it, and of a half of it."""
        with self._lock:
            sha256 = self._wanted.pop(run, None)
            if sha256 is not None and sha256 not in self._wanted.values():
                self._loaded.pop(sha256, None)
                with storage_errors(self._part(sha256), StorageError):
                    self._part(sha256).unlink(missing_ok=True)

    def remove_parts(self) -> None:
        """What an earlier process did not fetch to its end."""
        for part in self._folder.glob("*.part"):
            with storage_errors(part, StorageError):
                part.unlink(missing_ok=True)

    def have(self, sha256: str) -> int:
        """How many bytes of a set that is being fetched are here."""
        part = self._part(sha256)
        return part.stat().st_size if part.is_file() else 0

    def add(self, run: str, sha256: str, offset: int, total: int, piece: bytes) -> int:
        """Take the next piece; returns how many bytes are here. With the last one the hash must match."""
        part = self._part(sha256)
        with self._lock, storage_errors(part, StorageError):
            if self._wanted.get(run) != sha256:
                raise Refused("not-open", "A public set came for a run that does not wait for it.")
            if total > self._max_bytes or offset + len(piece) > total:
                raise Refused("too-large", f"A public set of {total} bytes exceeds public.max_bytes.")
            if offset != self.have(sha256) or not piece or sha256 in self._loaded:
                return self.have(sha256)  # a piece that was lost, or came twice: the sender goes on from here
            self._make_room(len(piece))
            with part.open("ab") as file:
                file.write(piece)
            if offset + len(piece) < total:
                return offset + len(piece)
            found = _read(part.read_bytes(), sha256)
            if found is None:
                part.unlink()
                raise Refused("other-public-set", "The public set does not match its hash.")
            part.replace(self._file(sha256))
            self._loaded[sha256] = found
            return total

    def _make_room(self, size: int) -> None:
        """Remove sets that no run wants, the one that was needed longest ago first."""
        files = [(file, file.stat()) for file in self._folder.iterdir()]
        taken = sum(stat.st_size for _, stat in files)
        for file, _ in sorted(files, key=lambda each: each[1].st_mtime_ns):
            if taken + size <= KEPT * self._max_bytes:
                return
            if file.stem not in self._wanted.values():
                taken -= file.stat().st_size
                file.unlink()
        if taken + size > KEPT * self._max_bytes:
            raise Refused("no-room", f"The public sets of open runs take {KEPT} times public.max_bytes already.")

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
    except Exception:  # pandas and scipy raise many kinds on what is no table
        return None
    return public if public.digest == sha256 else None
