"""One unit of work: one run of one cell with one seed, and what it found."""

from __future__ import annotations

import gc
import hashlib
import json
import math
import os
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.core.algorithm import Algorithm
from collegium.core.building import build
from collegium.data.benchmarks import FOLDER_VARIABLE
from collegium.errors import ConfigError, StorageError
from collegium.reproduction.declared import PRETRAINING, Row, Table, tables
from collegium.runs.callbacks import Callback, RoundReport
from collegium.runs.results import Run
from collegium.runs.runner import run
from collegium.study.preparing import Prepared, public_rows, site_learner
from collegium.study.study import Study

Found = dict[str, Any]
_NEXT_PART: Final = 10_000
"""Added to the seed for every further part of a run: it draws other sites, and other batches."""


class PieceOver(Exception):
    """The time of this piece is up in the middle of a run."""


@dataclass(frozen=True)
class Unit:
    """A run, by what makes it: it can be sent to another process."""

    table: str
    row: str
    column: str
    seed: int
    part: int = 0

    @property
    def key(self) -> str:
        """Its name among the table's results."""
        return " | ".join((self.row, self.column, str(self.seed), *([str(self.part)] if self.part else [])))

    @property
    def declared(self) -> Table:
        """The table."""
        return tables()[self.table]

    @property
    def digest(self) -> str | None:
        """Of its settings; weights of pre-training have one in their name."""
        return None if self.row == PRETRAINING else self.declared.digest(self.row, self.column)

    @property
    def split(self) -> int:
        """The seed of its data: several trainings may share a split."""
        return self.seed if self.row == PRETRAINING else self.seed // self.declared.row(self.row).trainings

    def needs(self) -> Unit | None:
        """The unit whose weights it starts from."""
        if self.part:
            return replace(self, part=self.part - 1)
        if self.row == PRETRAINING:
            return None
        row = self.declared.row(self.row)
        if row.pretrained:
            return pretraining(self.table)
        return None if row.after is None else replace(self, row=row.after, part=self.declared.row(row.after).parts - 1)


def pretraining(table: str) -> Unit:
    """The unit that pre-trains the features of a table: one net for all seeds, as the authors have."""
    return Unit(table, PRETRAINING, "", 0)


@dataclass(frozen=True)
class Conditions:
    """How and where units are carried out."""

    out: Path
    quick: bool = False
    device: str | None = None
    data: Path | None = None
    deadline: float | None = None
    """When the piece must be over, as `time.time` counts."""

    def weights(self, unit: Unit) -> Path:
        """Where the weights that a unit comes to are kept for those that go on from them."""
        if unit.row == PRETRAINING:  # the same for all tables that pre-train the same net on the same rows
            name = f"pretraining-{self._pretraining(unit)}-{unit.seed}"
        else:
            name = "-".join((unit.table, unit.row, unit.column, str(unit.seed), str(unit.part)))
        return self.out / "weights" / ("".join(c if c.isalnum() or c in "-." else "_" for c in name) + ".npz")

    def _pretraining(self, unit: Unit) -> str:
        study, settings = pretrained_study(unit, self.quick)
        data = study.data.model_dump(include={"source", "public_source", "public", "standardize"})
        what = json.dumps([data, study.sites[0].learner, settings], sort_keys=True)
        return hashlib.sha256(what.encode()).hexdigest()[:12]


def pretrained_study(unit: Unit, quick: bool) -> tuple[Study, dict[str, Any]]:
    """A study whose public rows and net are pre-trained with, and the settings of that."""
    table = unit.declared
    row, column = table.pretrained_cell()
    small = table.quick.get("pretraining", {}) if quick else {}
    return table.study_of(row, column, unit.seed, quick=quick), (table.pretraining or {}) | small


def carry_out(unit: Unit, conditions: Conditions) -> Found:
    """What the unit found."""
    if conditions.data is not None:
        os.environ[FOLDER_VARIABLE] = str(conditions.data)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = _pretrain(unit, conditions) if unit.row == PRETRAINING else _measure(unit, conditions)
    if conditions.device not in (None, "cpu"):
        gc.collect()  # nets refer to themselves: the next unit's would not fit on a GPU beside large ones
    return found | {"seconds": round(time.perf_counter() - began, 1)}


def _pretrain(unit: Unit, conditions: Conditions) -> Found:
    """Features of the public rows, for every kind of net that the table's sites have."""
    study, settings = pretrained_study(unit, conditions.quick)
    pretraining = build("pretraining", settings | {"seed": unit.seed}, "pretraining")
    if conditions.device is not None:
        pretraining = replace(pretraining, device=conditions.device)
    if len(study.sites) > 1:
        raise ConfigError("A table with pretraining has one kind of net.")
    public = public_rows(study, conditions.data)
    learned = pretraining.pretrain(site_learner(study, 0, "", public, public), public)
    # In half precision: half the bytes to keep, for features that are trained on.
    _save(conditions.weights(unit), {name: value.astype(np.float16) for name, value in learned.items()})
    return {"last": None, "best": None}


def _measure(unit: Unit, conditions: Conditions) -> Found:
    table, row = unit.declared, unit.declared.row(unit.row)
    study = table.study_of(unit.row, unit.column, unit.split, quick=conditions.quick)
    prepared = study.prepare(folder=conditions.data)
    algorithm = _begun(prepared.algorithm, unit, row, conditions)
    seed = unit.seed + _NEXT_PART * unit.part
    if row.audit is not None:
        return _attacked(algorithm, prepared, row.audit, seed, quick=conditions.quick)
    measure = row.measure or table.measure
    # Who has nothing to learn from takes no part where labels are all that is learned.
    sites = [site for site in prepared.sites if len(site) or not algorithm.needs_labels]
    result = run(
        algorithm,
        sites=sites,
        public=prepared.told,
        test=prepared.test,
        test_sites=measure != "global" or "weights" not in algorithm.needs,  # else the common model is tested alone
        public_truth=prepared.public_truth,
        classes=prepared.classes,
        global_learner=prepared.global_learner,
        seed=seed,
        progress=False,
        callbacks=[_Clock(conditions.deadline)],
        **study.engine.model_dump() | ({} if conditions.device is None else {"device": conditions.device}),
    )
    _check(result)
    if unit.part + 1 < row.parts or any(other.after == unit.row for other in table.rows):
        learned: Any = result.global_model
        _save(conditions.weights(unit), learned.estimator.get_weights())
    return _numbers(result, measure, study)


def _begun(algorithm: Algorithm, unit: Unit, row: Row, conditions: Conditions) -> Algorithm:
    """The algorithm of this part, from where it starts."""
    needed = unit.needs()
    changes: dict[str, Any] = {} if needed is None else {"start": conditions.weights(needed)}
    if row.parts > 1:
        settings: Any = algorithm
        rounds = settings.rounds // row.parts or 1
        changes["rounds"] = rounds
        if getattr(settings, "anneal", None) is not None:
            changes["first_round"] = settings.first_round + unit.part * rounds
        if row.pretrained and unit.part and hasattr(settings, "pretrain"):
            changes["pretrain"] = conditions.weights(pretraining(unit.table))
    return replace(algorithm, **changes)


def _attacked(algorithm: Algorithm, prepared: Prepared, options: dict[str, Any], seed: int, *, quick: bool) -> Found:
    """The AUC of an attack: the papers' vulnerability."""
    from collegium.auditing.audit import audit

    small = {"canaries": 20, "shadows": 2} if quick else {}
    found = audit(
        algorithm, prepared.sites, prepared.told, classes=prepared.classes, seed=seed, progress=False,
        **{"kinds": "ordinary", "attack": "shokri"} | options | small,
    )  # fmt: skip
    return {"last": found.auc, "best": None, "interval": list(found.auc_interval)}


class _Clock(Callback):
    """Ends a run whose piece is over."""

    def __init__(self, deadline: float | None) -> None:
        self._deadline = deadline

    def on_round(self, report: RoundReport) -> None:
        """Look at the clock."""
        if self._deadline is not None and time.time() > self._deadline:
            raise PieceOver


def _check(result: Run) -> None:
    """An error where a site failed: what the others found without it is another measurement."""
    failures = result.refusals[result.refusals["code"] == "step-failed"]
    if len(failures):
        raise ConfigError(
            f"{len(failures)} steps failed, the first at {failures['party'].iloc[0]}: nothing was measured."
        )


def _numbers(result: Run, measure: str, study: Study) -> Found:
    """What is kept of a run: the last and the best round of what is measured, and what else a reader asks for."""
    sent = result.costs[result.costs["party"] != "coordinator"].groupby("party")["bytes_up"].sum()
    series = _series(result, measure, study, float(sent.mean()) / 1000)
    claims = [row["epsilon"] for row in result.privacy.to_dict("records") if row["kind"] == "dp" and row["epsilon"] > 0]
    return {
        "last": None if math.isnan(series[-1]) else series[-1],
        "best": None if math.isnan(series[-1]) else max(series),
        "rounds": [round(value, 4) for value in series],
        "kB sent": round(float(sent.mean()) / 1000, 1),
        **({"labeled": _by_round(result, "consensus_size")} if measure == "quality" else {}),
        **({"epsilon": max(claims)} if claims else {}),
    }


def _series(result: Run, measure: str, study: Study, sent: float) -> list[float]:
    """What is measured, round by round; a single number where there are no rounds."""
    match measure:
        case "sites":
            return [float(value) for value in result.accuracy.mean(axis=1)]
        case "quality":
            return _by_round(result, "consensus_quality") or [math.nan]  # nobody may ever have agreed
        case "sent":
            return [sent]
        case "labels":
            return [_labels_right(result, study)]
    return _by_round(result, "global_accuracy")


def _by_round(result: Run, metric: str) -> list[float]:
    return [float(value) for value in result.metrics[result.metrics["metric"] == metric]["value"]]


def _labels_right(result: Run, study: Study) -> float:
    """The share of the sites' rows without labels whose labels were found right."""
    complete = study.model_copy(update={"data": study.data.model_copy(update={"unlabeled": 0.0, "labeled_sites": 1.0})})
    truth = {site.name: {row.tobytes(): label for row, label in zip(np.asarray(site.X), site.y, strict=True)}
             for site in complete.prepare().sites}  # fmt: skip
    rows = {site.name: np.asarray(site.unlabeled) for site in study.prepare().sites}
    found = result.labels if isinstance(result.labels, dict) else {}
    right = [truth[name][row.tobytes()] == label
             for name, labels in found.items() for row, label in zip(rows[name], labels, strict=True)]  # fmt: skip
    return float(np.mean(right))


def _save(file: Path, weights: Mapping[str, NDArray[np.floating[Any]]]) -> None:
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        np.savez(file, **weights)  # type: ignore[arg-type]
    except OSError as error:
        raise StorageError(f"{file} cannot be written: {error.strerror}.") from None
