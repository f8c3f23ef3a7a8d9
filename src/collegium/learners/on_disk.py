"""Features in files, for other processes: one pair of arrays for each time that some were computed."""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from collegium.errors import StorageError

FOLDER_VARIABLE: Final = "COLLEGIUM_FEATURES"
_KEYS, _VALUES = ".keys.npy", ".features.npy"


class FeatureFiles:
    """The files of one pre-trained model. Whoever writes names the pair anew, so that processes do not meet."""

    def __init__(self, folder: Path, width: int) -> None:
        self._folder, self._width = folder, width
        self._seen: dict[bytes, tuple[str, int]] = {}
        self._read: set[str] = set()

    @classmethod
    def at_hand(cls, name: str, width: int) -> FeatureFiles | None:
        """Those in the folder that the environment names; None if it names none."""
        named = os.environ.get(FOLDER_VARIABLE)
        if not named:
            return None
        own = hashlib.sha256(name.encode()).hexdigest()[:16]
        return cls(Path(named).expanduser() / own, width)

    def read(self, keys: Iterable[bytes]) -> tuple[list[bytes], NDArray[np.float32]]:
        """Which of these are there, and their features."""
        self._look_around()
        there = [key for key in keys if key in self._seen]
        found = np.empty((len(there), self._width), dtype=np.float32)
        by_file: dict[str, list[int]] = {}
        for row, key in enumerate(there):
            by_file.setdefault(self._seen[key][0], []).append(row)
        for file, rows in by_file.items():
            values = np.load(self._folder / (file + _VALUES), mmap_mode="r", allow_pickle=False)
            found[rows] = values[[self._seen[there[row]][1] for row in rows]]
        return there, found

    def write(self, keys: Sequence[bytes], features: NDArray[np.float32]) -> None:
        """Keep these."""
        file = uuid.uuid4().hex
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            np.save(self._folder / (file + _VALUES), features)
            part = self._folder / (file + ".part.npy")
            np.save(part, np.frombuffer(b"".join(keys), dtype=np.uint8).reshape(len(keys), -1))
            part.replace(self._folder / (file + _KEYS))  # with it, the pair is complete
        except OSError as error:
            raise StorageError(f"{FOLDER_VARIABLE} names {self._folder.parent}: {error.strerror}.") from None
        self._note(file, keys)

    def _look_around(self) -> None:
        if not self._folder.is_dir():
            return
        for path in sorted(self._folder.glob("*" + _KEYS)):
            file = path.name.removesuffix(_KEYS)
            if file not in self._read:
                keys = np.load(path, allow_pickle=False)
                self._note(file, [key.tobytes() for key in keys])

    def _note(self, file: str, keys: Sequence[bytes]) -> None:
        self._read.add(file)
        self._seen.update({key: (file, place) for place, key in enumerate(keys)})
