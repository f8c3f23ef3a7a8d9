"""`Run`: what came out of a run, as tables, models and pictures."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import cloudpickle
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.core.labels import Labels
from collegium.core.ledger import storage_errors
from collegium.core.observations import COST_COLUMNS, Observations
from collegium.environment import environment
from collegium.errors import CollegiumWarning, ConfigError, StorageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from collegium.learners.base import SiteModel

_COLUMNS: Final[dict[str, tuple[str, ...]]] = {
    "metrics": ("round", "party", "split", "metric", "value"),
    "releases": ("party", "round", "step", "kind", "bytes", "wire_bytes", "sha256", "entry", "protected"),
    "costs": ("round", "party", *COST_COLUMNS),
    "refusals": ("round", "party", "step", "code"),
    "orders": ("round", "party", "steps", "bytes"),
}
_FORMAT: Final = 1


@dataclass(eq=False)
class Run:
    """The results of one run.

    Attributes:
        metrics: One row per number: round, party, split, metric, value. Rounds count from 0.
        releases: One row per release that left a site: party, round, step, kind, bytes, sha256, ...
        costs: Per round and party: bytes up and down on the wire, seconds in fit, predict, consensus and wire.
        orders: What each site was asked to run, and in how many bytes.
        refusals: Who refused, failed or was missing, and with which code.
        about: The run's id, algorithm, seed, sites and versions.
        classes: The study's classes.
        labels: The last consensus, as class codes (None where the algorithm makes none).
        logs: The sites' own logs, in a simulation. They are not saved with the run.
        study: The study file's text, for a run of a study.
        environment: Versions of Python and libraries, and the kind of machine.
        finished: False for the folder of a run that was killed and not resumed.
    """

    metrics: pd.DataFrame
    releases: pd.DataFrame
    costs: pd.DataFrame
    refusals: pd.DataFrame
    orders: pd.DataFrame
    about: dict[str, Any]
    classes: NDArray[Any]
    class_counts: pd.DataFrame
    labels: Labels | None
    _models: Mapping[str, Any] = field(repr=False)
    _global_model: Any = field(default=None, repr=False)
    logs: dict[str, list[str]] = field(default_factory=dict, repr=False)
    study: str | None = None
    environment: dict[str, Any] = field(default_factory=dict, repr=False)
    finished: bool = True

    @classmethod
    def from_observations(
        cls,
        observed: Observations,
        *,
        about: dict[str, Any],
        classes: NDArray[Any],
        labels: Labels | None,
        models: Mapping[str, SiteModel],
        global_model: SiteModel | None,
        logs: dict[str, list[str]],
        class_counts: dict[str, list[int]],
        study: str | None = None,
    ) -> Run:
        """Build from what the coordinator noted."""
        costs = [{"round": number, "party": party, **row} for (number, party), row in sorted(observed.costs.items())]
        rows = {
            "metrics": observed.metrics,
            "releases": observed.releases,
            "costs": costs,
            "refusals": observed.refusals,
            "orders": observed.orders,
        }
        frames: dict[str, Any] = {
            name: _tidy(pd.DataFrame(rows[name], columns=list(_COLUMNS[name])), about["parties"]) for name in rows
        }
        frames["costs"] = frames["costs"].astype({"bytes_up": "int64", "bytes_down": "int64"})
        counts = pd.DataFrame.from_dict(
            class_counts, orient="index", columns=[str(value) for value in classes.tolist()]
        )
        counts.index.name = "party"
        return cls(
            **frames,
            about=about,
            classes=classes,
            class_counts=counts,
            labels=labels,
            _models=models,
            _global_model=global_model,
            logs=logs,
            study=study,
            environment=environment(),
        )

    @cached_property
    def models(self) -> dict[str, SiteModel]:
        """Each site's final model; `predict` answers in the user's own label values."""
        return {party: _read_model(model) for party, model in self._models.items()}

    @cached_property
    def global_model(self) -> SiteModel | None:
        """A model of (U, final consensus), where the algorithm made one."""
        return None if self._global_model is None else _read_model(self._global_model)

    @property
    def accuracy(self) -> pd.DataFrame:
        """Test accuracy: one row per round, one column per site."""
        rows = self.metrics[(self.metrics["split"] == "test") & (self.metrics["metric"] == "accuracy")]
        wide = rows.pivot_table(index="round", columns="party", values="value", aggfunc="last")
        return wide.reindex(columns=[party for party in self.about["parties"] if party in wide.columns])

    def summary(self) -> pd.DataFrame:
        """One row per site, and their mean: learner, samples, first and last accuracy, bytes sent, failures."""
        parties: list[str] = self.about["parties"]
        accuracy = self.accuracy
        table = pd.DataFrame(index=pd.Index(parties, name="party"))
        table["learner"] = pd.Series(self.about["learners"])
        table["samples"] = pd.Series(self.about["samples"])
        first, last = accuracy.bfill(), accuracy.ffill()
        table["first_accuracy"] = first.iloc[0] if len(first) else np.nan
        table["accuracy"] = last.iloc[-1] if len(last) else np.nan
        for column in ("bytes_up", "bytes_down"):
            table[column] = self.costs.groupby("party")[column].sum().reindex(parties, fill_value=0)
        table["releases"] = self.releases.groupby("party").size().reindex(parties, fill_value=0)
        table["failures"] = self.refusals.groupby("party").size().reindex(parties, fill_value=0)
        mean = pd.DataFrame([table.drop(columns="learner").mean(skipna=True)], index=["mean"]).assign(learner="")
        counts = ["samples", "bytes_up", "bytes_down", "releases", "failures"]
        mean[counts] = mean[counts].round().astype("int64")
        both = pd.concat([table, mean[table.columns]])
        both.index.name = "party"
        return both

    def plot(self, path: str | Path | None = None) -> Figure:
        """Accuracy per site over rounds, the consensus, and what left each site; saved where a path is given."""
        from collegium.reports.plots import plot_run

        figure = plot_run(self)
        if path is not None:
            figure.savefig(path, dpi=150)
        return figure

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write tables, models and settings to a folder; `cg.load` reads it back."""
        folder = Path(path)
        if (folder / "run.json").exists() and not overwrite:
            raise ConfigError(f"There is a run in {folder} already: choose another folder, or pass overwrite=True.")
        with storage_errors(folder, StorageError):
            self.write_tables(folder)
            files = self._write_models(folder)
            if self.labels is not None:
                codes = self.labels.codes
                write_file(folder / "labels.npy", lambda file: np.save(file, codes, allow_pickle=False))
            self.write_about(folder, files, finished=True)
        return folder

    def report(self, path: str | Path) -> Path:
        """Write one self-contained HTML file that people can read and print."""
        from collegium.reports.html import render_report

        file = Path(path)
        text = render_report(self).encode()
        with storage_errors(file, StorageError):
            file.parent.mkdir(parents=True, exist_ok=True)
            write_file(file, lambda out: out.write(text))
        return file

    def write_tables(self, folder: Path) -> None:
        """The tables alone, as Parquet."""
        (folder / "tables").mkdir(parents=True, exist_ok=True)
        for name in (*_COLUMNS, "class_counts"):
            write_file(folder / "tables" / f"{name}.parquet", lambda file, n=name: getattr(self, n).to_parquet(file))

    def write_about(self, folder: Path, models: dict[str, str], *, finished: bool) -> None:
        """What the run is, and which files belong to it."""
        about = {"format": _FORMAT, "finished": finished, "about": self.about, "models": models}
        about |= {"global": (folder / "models" / "global.pkl").is_file(), "classes": self.classes.tolist()}
        texts = {"run.json": json.dumps(about, indent=1), "env.json": json.dumps(self.environment, indent=1)}
        if self.study is not None:
            texts["study.toml"] = self.study
        for name, text in texts.items():
            write_file(folder / name, lambda file, t=text: file.write(t.encode()))

    def _write_models(self, folder: Path) -> dict[str, str]:
        """Each model in a file of its own; one that cannot be pickled is left out, and said so."""
        (folder / "models").mkdir(exist_ok=True)
        files = {party: f"{number}-{_file_name(party)}.pkl" for number, party in enumerate(self.models)}
        stored: dict[str, Any] = dict(self.models)
        if self.global_model is not None:
            stored["global model"] = self.global_model
        for name, model in stored.items():
            try:
                data = cloudpickle.dumps(model)
            except Exception as error:
                files.pop(name, None)
                what = f"The model of {name!r} cannot be stored: pickling it raised {type(error).__name__}."
                warnings.warn(what, CollegiumWarning, stacklevel=2)
                continue
            write_file(folder / "models" / files.get(name, "global.pkl"), lambda file, d=data: file.write(d))
        return files


def load(path: str | Path) -> Run:
    """Read a run's folder, also that of a run that was killed (`run.finished` is False, and it has no models).

    Models are unpickled when first used: load only runs that you trust.
    """
    folder = Path(path)
    if not (folder / "run.json").is_file():
        hint = " One was begun there: go on with it by cg.run(..., out=..., resume=True)."
        raise StorageError(f"There is no run in {folder}.{hint if (folder / 'record').exists() else ''}")
    try:
        stored = json.loads((folder / "run.json").read_text())
        if stored["format"] != _FORMAT:
            raise StorageError(f"{folder} was written by another version of Collegium (format {stored['format']}).")
        frames: dict[str, Any] = {
            name: pd.read_parquet(folder / "tables" / f"{name}.parquet") for name in (*_COLUMNS, "class_counts")
        }
        classes = np.array(stored["classes"])
        codes = np.load(folder / "labels.npy", allow_pickle=False) if (folder / "labels.npy").is_file() else None
        return Run(
            **frames,
            about=stored["about"],
            classes=classes,
            labels=None if codes is None else Labels(codes, len(classes)),
            _models={party: folder / "models" / file for party, file in stored["models"].items()},
            _global_model=folder / "models" / "global.pkl" if stored["global"] else None,
            study=_text(folder / "study.toml"),
            environment=json.loads(_text(folder / "env.json") or "{}"),
            finished=stored["finished"],
        )
    except StorageError:
        raise
    except Exception:  # JSON, Parquet and numpy each raise their own kinds on a damaged file
        raise StorageError(f"The run in {folder} cannot be read: a file is damaged or missing. Restore it.") from None


def _tidy(frame: pd.DataFrame, parties: list[str]) -> pd.DataFrame:
    """Rows by round, then by party in the sites' order: replies come in any order."""
    order = {party: number for number, party in enumerate(parties)}
    ranks = frame["party"].map(lambda party: order.get(party, len(order)))
    keyed = frame.assign(_rank=ranks.astype("int64") if len(frame) else ranks)
    return keyed.sort_values(["round", "_rank"], kind="stable").drop(columns="_rank").reset_index(drop=True)


def _read_model(stored: Any) -> Any:
    if not isinstance(stored, Path):
        return stored
    try:
        return cloudpickle.loads(stored.read_bytes())
    except FileNotFoundError:
        raise StorageError(f"The model {stored} is missing.") from None


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def _file_name(party: str) -> str:
    return re.sub(r"[^\w.-]", "_", party)


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
