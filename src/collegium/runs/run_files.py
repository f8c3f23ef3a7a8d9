"""The files of a run's folder: their names, and how they are written and read."""

from __future__ import annotations

import itertools
import json
import re
import warnings
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import cloudpickle
import numpy as np
from numpy.typing import NDArray

from collegium.core.observations import COST_COLUMNS
from collegium.errors import CollegiumWarning, StorageError
from collegium.runs.record import is_record

FORMAT: Final = 1
"""Which version of all this a folder has."""
TABLES: Final[dict[str, tuple[str, ...]]] = {
    "metrics": ("round", "party", "split", "metric", "value"),
    "releases": ("party", "round", "step", "kind", "bytes", "wire_bytes", "sha256", "entry", "protected", "privacy"),
    "costs": ("round", "party", *COST_COLUMNS),
    "refusals": ("round", "party", "step", "code"),
    "orders": ("round", "party", "steps", "bytes"),
}
"""The columns of each table that is written as Parquet."""
CONFIDENCES: Final = "consensus_confidences.npy"
MADE: Final = "public.parquet"
OPINION: Final = "opinion.parquet"
LABELS: Final = "labels.npy"
OWN_LABELS: Final = "labels.npz"
OWN_CONFIDENCES: Final = "confidences.npz"
VERDICT: Final = "tables/verdict.parquet"
STUDY: Final = "study.toml"
_ANY: Final = (LABELS, OWN_LABELS, OWN_CONFIDENCES, CONFIDENCES, VERDICT, STUDY)
"""What a run may have had that does not say which files are its own: one of an earlier version."""
_COMMON: Final = {
    "run.json", "env.json", STUDY, "report.html", "tables", "models", "sites", "audits", "events", "record",
    "ledger.db", "parties.json", "lock", "stop", "trail.jsonl",
}  # fmt: skip
"""What any run may have in its folder."""


def write_file(path: Path, write: Any) -> None:
    """All of a file or nothing: written beside it, then moved into place."""
    beside = path.with_name(path.name + ".part")
    try:
        with beside.open("wb") as file:
            write(file)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def files_of(folder: Path) -> set[str]:
    """The files that the run in this folder says are its own, of those that not every run has."""
    try:
        about = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        if "files" in about:
            return {name for name in about["files"] if isinstance(name, str) and _is_within(name)}
        return {*_ANY, *(f"models/{file}" for some in ("models", "global") for file in about[some].values())}
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        return set()  # no run, or a damaged file: nothing is known to be its own


def files_of_resumed(folder: Path) -> set[str]:
    """The same for a run that goes on; its record shows that it was here, where what it said of itself is lost."""
    if (folder / "run.json").exists() or not is_record(folder / "record"):
        return files_of(folder)
    return set(_ANY)


def _is_within(name: str) -> bool:
    return bool(name) and not Path(name).is_absolute() and ".." not in Path(name).parts


def forget_files(folder: Path, names: Iterable[str]) -> None:
    """Remove what an earlier run here had, and this one has not."""
    for name in names:
        if (folder / name).is_file():
            (folder / name).unlink()


def set_aside(file: Path) -> None:
    """Rename a file that is in the way and somebody else's: nothing is lost."""
    if not file.is_file():
        return
    places = (file.with_name(f"{file.name}.{number}") for number in itertools.count(1))
    aside = next(place for place in places if not place.exists())
    file.rename(aside)
    warnings.warn(f"{file} was not written by this run: it is now {aside.name}.", CollegiumWarning, stacklevel=2)


def name_of(folder: Path) -> str | None:
    """Which run is in a folder."""
    with suppress(OSError, ValueError, TypeError, KeyError):
        return str(json.loads((folder / "run.json").read_text(encoding="utf-8"))["about"]["run"])
    return None


def others_files(folder: Path) -> list[str]:
    """What is in a folder and no run has written there."""
    known = {Path(name).parts[0] for name in files_of(folder)} | _COMMON
    names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    return [name for name in names if not name.startswith(".") and _written_as(name) not in known]


def _written_as(name: str) -> str:
    """The name of a file that one beside it belongs to: a database's journals, or what was being written."""
    for ending in (".part", "-wal", "-shm", "-journal", ".head"):
        name = name.removesuffix(ending)
    return name


def write_models(
    folder: Path, models: Mapping[str, Any], shared: Mapping[str, Any]
) -> tuple[dict[str, str], dict[str, str]]:
    """Each model in a file of its own, the sites' and the global ones; what cannot be pickled is left out."""
    (folder / "models").mkdir(exist_ok=True)
    written: list[dict[str, str]] = []
    for prefix, some in (("", models), ("global-", shared)):
        files = {}
        for number, (name, model) in enumerate(some.items()):
            try:
                data = cloudpickle.dumps(model)
            except Exception as error:
                what = f"The model of {name!r} cannot be stored: pickling it raised {type(error).__name__}."
                warnings.warn(what, CollegiumWarning, stacklevel=2)
                continue
            clean = re.sub(r"[^\w.-]", "_", name)
            files[name] = f"{prefix}{number}-{clean}.pkl"
            write_file(folder / "models" / files[name], lambda file, d=data: file.write(d))
        written.append(files)
    return written[0], written[1]


def read_model(stored: Any) -> Any:
    """A model, from its file if it is not at hand."""
    if not isinstance(stored, Path):
        return stored
    try:
        return cloudpickle.loads(stored.read_bytes())
    except FileNotFoundError:
        raise StorageError(f"The model {stored} is missing.") from None
    except (ImportError, AttributeError):
        raise StorageError(
            f"The model {stored} needs classes that are not installed here: it was written by another version of "
            "Collegium or of a library. Read it with that version, or run again."
        ) from None


def write_by_site(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    """An array for each site, in one file."""
    marked = {f"site {party}": array for party, array in arrays.items()}  # savez has parameters with names of their own
    write_file(path, lambda file: np.savez(file, allow_pickle=False, **marked))


def read_by_site(path: Path) -> dict[str, NDArray[Any]]:
    """What `write_by_site` wrote; nothing if there is no such file."""
    if not path.is_file():
        return {}
    with np.load(path, allow_pickle=False) as stored:
        return {name.removeprefix("site "): stored[name] for name in stored.files}


def read_text(path: Path) -> str | None:
    """What a file says, if it is there."""
    return path.read_text(encoding="utf-8") if path.is_file() else None
