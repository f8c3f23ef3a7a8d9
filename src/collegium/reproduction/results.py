"""What units found, in one JSON file for each table: what is there is not measured again."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

from collegium.errors import StorageError
from collegium.reproduction.units import Found, Unit
from collegium.runs.environment import environment, gpus, processor


class Results:
    """The results of one table."""

    def __init__(self, folder: Path, table: str) -> None:
        self._file = folder / f"{table}.json"
        self._found = self._read()

    def _read(self) -> dict[str, Found]:
        try:
            return dict(json.loads(self._file.read_text())) if self._file.is_file() else {}
        except (OSError, ValueError):
            raise StorageError(f"{self._file} is no file of results: move it away, or choose another --out.") from None

    def get(self, unit: Unit) -> Found | None:
        """What a unit found, if it is through with the settings that it has now. Old results say none."""
        found = self._found.get(unit.key)
        return None if found is None or found.get("settings", unit.digest) != unit.digest else found

    def add(self, unit: Unit, found: Found, **about: Any) -> None:
        """Keep what a unit found; the file is never half written."""
        said = {"machine": machine(), "date": date.today().isoformat(), "settings": unit.digest} | about
        self._write({unit.key: found | said})

    def _write(self, new: dict[str, Found]) -> None:
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            # Another process may add some of the table's other runs: one reads and writes at a time.
            with _alone(self._file.parent):
                self._found = self._read() | new
                beside = self._file.with_suffix(".new")
                beside.write_text(json.dumps(self._found, indent=1, sort_keys=True) + "\n")
                beside.replace(self._file)
        except OSError as error:
            raise StorageError(f"{self._file} cannot be written: {error.strerror}.") from None

    def holds(self, *, quick: bool) -> bool:
        """Whether runs of the quick form are among them, or true ones."""
        return any(found.get("quick", False) == quick for found in self._found.values())

    def seconds(self, device: str | None, unit: Unit | None = None) -> float | None:
        """How long runs took at most, on this machine or else on any with such a device (None: with any).

        Of a unit, those are the other seeds of its cell; without one, all that have a number.
        """
        alike = [
            found
            for key, found in self._found.items()
            if (found["last"] is not None if unit is None else key.startswith(f"{unit.row} | {unit.column} | "))
            and device in (None, _kind(found))
        ]
        here = [found for found in alike if found["machine"] == machine()]
        return max((found["seconds"] for found in here or alike), default=None)

    def take(self, folder: Path) -> int:
        """Add what the same table's file in another folder has and this one lacks; how many that were."""
        others = Results(folder, self._file.stem)._found
        new = {key: found for key, found in others.items() if key not in self._found}
        if new:
            self._write(new)
        return len(new)


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Others who want the same wait meanwhile."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)


def _kind(found: Found) -> str:
    """The kind of device that it was found on: "cuda" of "cuda:1"."""
    return str(found.get("device", "cpu")).partition(":")[0]


@cache
def machine() -> str:
    """The machine, in words: its kind, not its name."""
    known = environment()
    versions = ", ".join(f"{name} {known['packages'][name]}" for name in ("numpy", "scikit-learn", "torch")
                         if name in known["packages"])  # fmt: skip
    kind = ", ".join([f"{known['cores']} cores ({processor()})", *gpus()])
    return f"{kind}; {known['system']}, Python {known['python']}, {versions}"
