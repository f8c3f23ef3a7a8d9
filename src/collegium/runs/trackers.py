"""Trackers: callbacks that log a run to MLflow or TensorBoard.

Numbers are called ``<split>/<metric>/<party>``, such as ``test/accuracy/site0``, with the mean over the sites as party
``mean``; the step is the round. At the end come ``summary/...`` and ``total/...`` (costs).

A resumed run continues the same log. Its earlier rounds are replayed, and a callback may have measured times, so every
step counts once: MLflow keeps the first values, TensorBoard shows the replayed ones.

A tracker that cannot start is a ConfigError, since nothing was trained yet. One that fails later warns once and leaves
the run alone.
"""

from __future__ import annotations

import os
import re
import time
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from collegium.errors import CollegiumWarning, ConfigError, MissingExtra
from collegium.runs.callbacks import Callback, RoundReport

if TYPE_CHECKING:
    from collegium.runs.results import Run

_MEAN: Final = "mean"
_TAG: Final = "collegium.run"
_LONGEST_NAME: Final = 80
# Limits of MLflow's.
_LONGEST_SETTING: Final = 500
_BATCH: Final = 1000


class _Names:
    """A name of allowed characters for every name of ours; no two get the same."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}

    def __call__(self, name: str) -> str:
        if name not in self._given:
            clean = re.sub(r"[^\w.-]|^\.+", "_", name)[:_LONGEST_NAME]
            taken = set(self._given.values())
            choice = chain([clean], (f"{clean}_{number}" for number in count(2)))
            self._given[name] = next(each for each in choice if each not in taken)
        return self._given[name]


class _Tracker(Callback):
    """What trackers share: names, each step once, and failing without harm."""

    def on_start(self, about: dict[str, Any]) -> None:
        """Begin the log, or find that of the run that is resumed."""
        self._failed = False
        self._parties = dict.fromkeys(about["parties"])
        self._name = _Names()
        self._last: dict[str, int] = {}
        for party in self._parties:  # first, and in this order: a resumed run gives the same names
            self._name(party)
        try:
            self._begin(about)
        except Exception as error:
            raise ConfigError(f"{type(self).__name__} cannot start its log: {error}") from error

    def on_round(self, report: RoundReport) -> None:
        """Log what is known at the end of the round."""
        self._attempt(lambda: self._log_rows(report.metrics))

    def on_end(self, run: Run) -> None:
        """Log what came after the last round ended, the summary and the costs."""
        self._attempt(lambda: self._log_rows(run.metrics.to_dict("records")))
        self._attempt(lambda: self._log(self._finals(run), 0))
        self._attempt(lambda: self._finish(run))

    @abstractmethod
    def _begin(self, about: dict[str, Any]) -> None: ...

    @abstractmethod
    def _write(self, values: dict[str, float], step: int) -> None: ...

    @abstractmethod
    def _finish(self, run: Run) -> None: ...

    def _last_step(self, name: str) -> int:
        return self._last.get(name, -1)

    def _attempt(self, action: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            action()
        except Exception as error:
            self._failed = True
            warnings.warn(
                f"{type(self).__name__} stopped logging; the run continues. {type(error).__name__}: {error}",
                CollegiumWarning,
                stacklevel=3,
            )

    def _log_rows(self, rows: Iterable[Mapping[Any, Any]]) -> None:
        """Rows of `run.metrics`; of two numbers for the same thing in a round the last counts."""
        rounds: dict[int, dict[str, dict[str, float]]] = {}
        for row in rows:
            series = f"{self._name(row['split'])}/{self._name(row['metric'])}"
            rounds.setdefault(row["round"], {}).setdefault(series, {})[row["party"]] = row["value"]
        for number, table in sorted(rounds.items()):
            values: dict[str, float] = {}
            for series, numbers in table.items():
                values |= {f"{series}/{self._name(party)}": value for party, value in numbers.items()}
                of_sites = [value for party, value in numbers.items() if party in self._parties]
                if of_sites:
                    values[f"{series}/{_MEAN}"] = float(np.mean(of_sites))
            self._log(values, number)

    def _log(self, values: dict[str, float], step: int) -> None:
        fresh = {name: value for name, value in values.items() if step > self._last_step(name)}
        if fresh:
            self._write(fresh, step)
            self._last |= dict.fromkeys(fresh, step)

    def _finals(self, run: Run) -> dict[str, float]:
        names = [*map(self._name, self._parties), _MEAN]
        finals: dict[str, float] = {}
        for column, values in run.summary().drop(columns="learner").items():
            numbers = zip(names, values.astype(float).tolist(), strict=True)
            finals |= {f"summary/{column}/{name}": number for name, number in numbers if np.isfinite(number)}
        costs = run.costs.drop(columns=["round", "party", "seconds_total"]).sum()
        finals |= {f"total/{name}": float(value) for name, value in costs.items()}
        return finals | {"total/seconds": float(run.about["seconds"])}


class MLflowTracker(_Tracker):
    """Log to MLflow: settings as parameters, numbers per round, and at the end summary, settings and plot as files.

    Args:
        experiment: Its name; created if it does not exist (default: MLFLOW_EXPERIMENT_NAME, or MLflow's own default).
        tracking_uri: Such as ``http://host:5000`` or ``sqlite:///mlflow.db`` (default: MLflow's own, from
            MLFLOW_TRACKING_URI).
        run_name: The run's name (default: the study's name, or the algorithm's).
    """

    def __init__(
        self, experiment: str | None = None, tracking_uri: str | None = None, run_name: str | None = None
    ) -> None:
        try:
            import mlflow  # noqa: F401
        except ModuleNotFoundError:
            raise MissingExtra("mlflow", "MLflowTracker") from None
        self._experiment = experiment
        self._uri = tracking_uri
        self._run_name = run_name

    def _begin(self, about: dict[str, Any]) -> None:
        from mlflow.entities import Param
        from mlflow.tracking import MlflowClient

        self._client = MlflowClient(tracking_uri=self._uri)
        experiment = self._experiment_id()
        earlier = self._client.search_runs([experiment], f"tags.`{_TAG}` = '{about['run']}'", max_results=1)
        if earlier:
            run = earlier[0]
            self._client.update_run(run.info.run_id, status="RUNNING")
        else:
            name = self._run_name or _title(about)
            run = self._client.create_run(experiment, tags={_TAG: about["run"]}, run_name=name)
        self._id = run.info.run_id
        self._resumed = bool(earlier)
        settings = {key: value for key, value in _settings(about).items() if key not in run.data.params}
        params = [Param(key, value[:_LONGEST_SETTING]) for key, value in settings.items()]
        self._client.log_batch(self._id, params=params)

    def _experiment_id(self) -> str:
        name = self._experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or "Default"
        found = self._client.get_experiment_by_name(name)
        return str(self._client.create_experiment(name) if found is None else found.experiment_id)

    def _last_step(self, name: str) -> int:
        if self._resumed and name not in self._last:
            history = self._client.get_metric_history(self._id, name)
            self._last[name] = max((entry.step for entry in history), default=-1)
        return super()._last_step(name)

    def _write(self, values: dict[str, float], step: int) -> None:
        from mlflow.entities import Metric

        now = int(time.time() * 1000)
        entries = [Metric(name, value, now, step) for name, value in values.items()]
        for first in range(0, len(entries), _BATCH):
            self._client.log_batch(self._id, metrics=entries[first : first + _BATCH])

    def _finish(self, run: Run) -> None:
        self._client.set_terminated(self._id)
        self._client.log_text(self._id, run.summary().to_csv(), "summary.csv")
        self._client.log_dict(self._id, run.about, "about.json")
        if run.study is not None:
            self._client.log_text(self._id, run.study, "study.toml")
        self._client.log_figure(self._id, run.plot(), "plot.png")


class TensorBoardTracker(_Tracker):
    """Write event files for TensorBoard: each run gets a folder of its own in `folder`."""

    def __init__(self, folder: str | Path) -> None:
        try:
            import tensorboardX  # noqa: F401
        except ModuleNotFoundError:
            raise MissingExtra("tensorboard", "TensorBoardTracker") from None
        self._folder = Path(folder)

    def _begin(self, about: dict[str, Any]) -> None:
        # Not its SummaryWriter, which writes in a thread: that dies of a full disk, and then the caller waits forever.
        from tensorboardX.event_file_writer import EventsWriter
        from tensorboardX.proto.event_pb2 import SessionLog
        from tensorboardX.summary import text

        folder = self._folder / f"{_Names()(_title(about))}-{about['run'][:8]}"
        folder.mkdir(parents=True, exist_ok=True)
        earlier = sum(1 for _ in folder.glob("events.*"))
        self._file = EventsWriter(str(folder / "events"), f".{earlier}")
        if earlier:  # a resumed run: forget all steps from 0 on, they come again
            self._put(0, session_log=SessionLog(status=SessionLog.START))
        self._put(0, summary=text("settings", _as_code(f"{k}: {v}" for k, v in _settings(about).items())))
        self._file.flush()

    def _write(self, values: dict[str, float], step: int) -> None:
        from tensorboardX.summary import scalar

        for name, value in values.items():
            self._put(step, summary=scalar(name, value))
        self._file.flush()

    def _finish(self, run: Run) -> None:
        from tensorboardX.summary import text

        self._put(0, summary=text("summary", _as_code(run.summary().to_string().splitlines())))
        self._file.close()

    def _put(self, step: int, **content: Any) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._file.write_event(Event(wall_time=time.time(), step=step, **content))


def _settings(about: Mapping[str, Any]) -> dict[str, str]:
    """What is set, in a few words each; `about.json` has the rest."""
    settings = {key: str(value) for key, value in about.items() if isinstance(value, str | int | float)}
    return settings | {"sites": str(len(about["parties"])), "classes": str(len(about["classes"]))}


def _title(about: Mapping[str, Any]) -> str:
    return str(about["study"] or about["algorithm"].partition("(")[0])


def _as_code(lines: Iterable[str]) -> str:
    """Markdown that shows lines as they are."""
    return "\n".join(f"    {line}" for line in lines)
