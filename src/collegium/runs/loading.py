"""`load`: a run as its folder has it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from collegium.auditing.result import read_audits
from collegium.core.labels import Labels
from collegium.errors import StorageError
from collegium.runs.results import Run
from collegium.runs.run_files import (
    CONFIDENCES,
    FORMAT,
    LABELS,
    MADE,
    OPINION,
    OWN_CONFIDENCES,
    OWN_LABELS,
    STUDY,
    TABLES,
    VERDICT,
    files_of,
    read_by_site,
    read_text,
)


def load(path: str | Path) -> Run:
    """Read a run's folder, also that of a run that was killed (`run.finished` is False, and it has no models).

    Models are unpickled when first used: load only runs that you trust.
    """
    folder = Path(path)
    if not (folder / "run.json").is_file():
        hint = " One was started there: continue it with cg.run(..., resume=True), or with `collegium run --resume`."
        raise StorageError(f"There is no run in {folder}.{hint if (folder / 'record').exists() else ''}")
    try:
        stored = json.loads((folder / "run.json").read_text())
        if stored["format"] != FORMAT:
            raise StorageError(
                f"{folder} was written by another version of Collegium (format {stored['format']}): open it with that "
                "version."
            )
        frames: dict[str, Any] = {
            name: pd.read_parquet(folder / "tables" / f"{name}.parquet") for name in (*TABLES, "class_counts")
        }
        classes = np.array(stored["classes"])
        files = {name: folder / name for name in files_of(folder) if (folder / name).is_file()}
        codes = np.load(files[LABELS], allow_pickle=False) if LABELS in files else None
        own = read_by_site(files[OWN_LABELS]) if OWN_LABELS in files else {}
        return Run(
            **frames,
            about=stored["about"],
            classes=classes,
            labels=own or (None if codes is None else Labels(codes, len(classes))),
            confidences=read_by_site(files[OWN_CONFIDENCES]) if OWN_CONFIDENCES in files else {},
            consensus_confidences=np.load(files[CONFIDENCES], allow_pickle=False) if CONFIDENCES in files else None,
            _models={party: folder / "models" / file for party, file in stored["models"].items()},
            _global_models={name: folder / "models" / file for name, file in stored["global"].items()},
            study=read_text(files[STUDY]) if STUDY in files else None,
            environment=json.loads(read_text(folder / "env.json") or "{}"),
            finished=stored["finished"],
            audits=read_audits(folder / "audits"),
            known_verdict=pd.read_parquet(files[VERDICT]) if VERDICT in files else None,
            made=pd.read_parquet(files[MADE]) if MADE in files else None,
            opinion=pd.read_parquet(files[OPINION]) if OPINION in files else None,
        )
    except StorageError:
        raise
    except Exception:  # JSON, Parquet and numpy each raise their own kinds on a damaged file
        raise StorageError(f"The run in {folder} cannot be read: a file is damaged or missing. Restore it.") from None
