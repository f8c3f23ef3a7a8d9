"""What units found, in one JSON file for each table: what is there is not measured again."""

from __future__ import annotations

import json
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
        try:
            self._found: dict[str, Found] = json.loads(self._file.read_text()) if self._file.is_file() else {}
        except (OSError, ValueError):
            raise StorageError(f"{self._file} is no file of results: move it away, or choose another --out.") from None

    def get(self, unit: Unit) -> Found | None:
        """What a unit found, if it is through."""
        return self._found.get(unit.key)

    def add(self, unit: Unit, found: Found, **about: Any) -> None:
        """Keep what a unit found; the file is never half written."""
        said = {"machine": machine(), "date": date.today().isoformat()} | about
        self._found[unit.key] = found | said
        try:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            beside = self._file.with_suffix(".new")
            beside.write_text(json.dumps(self._found, indent=1, sort_keys=True) + "\n")
            beside.replace(self._file)
        except OSError as error:
            raise StorageError(f"{self._file} cannot be written: {error.strerror}.") from None

    def seconds(self, unit: Unit) -> float | None:
        """How long other seeds of the same cell took on this machine, at most."""
        alike = f"{unit.row} | {unit.column} | "
        took = [
            found["seconds"]
            for key, found in self._found.items()
            if key.startswith(alike) and found["machine"] == machine()
        ]
        return max(took, default=None)


@cache
def machine() -> str:
    """The machine, in words: its kind, not its name."""
    known = environment()
    versions = ", ".join(f"{name} {known['packages'][name]}" for name in ("numpy", "scikit-learn", "torch")
                         if name in known["packages"])  # fmt: skip
    kind = ", ".join([f"{known['cores']} cores ({processor()})", *gpus()])
    return f"{kind}; {known['system']}, Python {known['python']}, {versions}"
