"""Public benchmark sets, read from a folder of files that the user has put there.

Files are read only if their checksums match, so that a truncated or modified download does not become a result.
`benchmarks.toml` lists them. Licenses are given where known; check them at the source.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

from collegium.data import readers
from collegium.data.files import sha256_of
from collegium.data.readers import Content
from collegium.errors import ConfigError

FOLDER_VARIABLE: Final = "COLLEGIUM_DATA"


@dataclass(frozen=True)
class Benchmark:
    """A data set in the data folder.

    `files` has one mapping per file, from path in the folder to sha256: the first path that exists is read. `rows` and
    `features` count the training rows.
    """

    kind: str
    rows: int
    features: int
    files: Sequence[Mapping[str, str]]
    read: Callable[..., Content]
    how: str
    about: str


def data_folder(folder: Path | None = None) -> Path:
    """The folder of benchmark files: `folder`, else the one COLLEGIUM_DATA names, else the user's cache folder."""
    if folder is not None:
        return Path(folder)
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named).expanduser() if named else cache_folder()


def cache_folder() -> Path:
    """The user's own folder for what can be had again."""
    if sys.platform == "win32":
        cache = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    else:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "collegium"


def is_available(entry: Benchmark, folder: Path | None = None) -> bool:
    """Whether all files exist. Checksums are verified when the files are read."""
    return all(_find(forms, data_folder(folder)) for forms in entry.files)


def read_benchmark(name: str, folder: Path | None = None) -> Content:
    """Features, labels and the test split, if there is one, of the set with this name."""
    entry, place = BENCHMARKS[name], data_folder(folder)
    found = [_find(forms, place) for forms in entry.files]
    missing = [" or ".join(forms) for forms, form in zip(entry.files, found, strict=True) if form is None]
    if missing:
        raise ConfigError(
            f"data: {name} needs {', and '.join(missing)} in the data folder {place}, where it was not found. "
            f"{entry.how} Put it there, or set the environment variable {FOLDER_VARIABLE} to the folder that has it."
        )
    return entry.read(*(_verified(place, *form) for form in found if form is not None))


def _find(forms: Mapping[str, str], folder: Path) -> tuple[str, str] | None:
    return next(((path, sha256) for path, sha256 in forms.items() if (folder / path).is_file()), None)


def _verified(folder: Path, path: str, sha256: str) -> Path:
    found = sha256_of(folder / path)
    if found != sha256:
        raise ConfigError(
            f"{folder / path}: unexpected content: expected a sha256 beginning with {sha256[:12]}, got {found[:12]}. "
            "It may be incomplete or another version; download it again."
        )
    return folder / path


def _listed() -> dict[str, Benchmark]:
    entries = tomllib.loads((resources.files(__package__) / "benchmarks.toml").read_text(encoding="utf-8"))
    return {name: Benchmark(read=getattr(readers, f"read_{name}"), **entry) for name, entry in entries.items()}


BENCHMARKS: Final = _listed()
