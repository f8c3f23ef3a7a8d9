"""What one order costs beside its step: frames, gate, ledger, record, stored states, votes.

    python -m benchmarks.orders [--public 50_000] [--rounds 100]

The sites' learner neither learns nor computes: it answers at once with labels of the public set of which two in a
hundred differ from the other sites', or with the weights that it was sent. What is left is the machinery. FedCT counts
the votes of all sites; FedAvg asks 50 sites in each round, with a net of 40 or of 300,000 weights. Sites are in turns,
or `together`: then they wait for each other in threads wherever they would train or predict, one at work at a time, as
nets on a GPU do. `state` is what a site has to store beside that, as a net with its optimizer would: it is written now
and then. Milliseconds are per site that answers and round, the median over the rounds and their fastest tenth, of the
clock and of the processor.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

import collegium as cg
from benchmarks.report import Column, Report, print_with_options, watched
from collegium.core.meeting import meet

CLASSES, ROWS, FEATURES = 10, 500, 4
SMALL: dict[str, Any] = {"public": 500, "rounds": 4}


@dataclass(frozen=True)
class Case:
    """A federation: its method, its sites, how many of them answer in a round, and where the run is kept."""

    method: str
    sites: int
    answer: int
    folder: bool
    floats: int = 0
    """The size of a site's state."""
    weights: int = 40
    together: bool = False


CASES = (
    Case("FedCT", 5, 5, folder=False),
    Case("FedCT", 5, 5, folder=True),
    Case("FedCT", 5, 5, folder=True, floats=2_000_000),
    Case("FedCT", 20, 20, folder=False),
    Case("FedCT", 100, 100, folder=False),
    Case("FedCT", 100, 100, folder=True),
    Case("FedCT", 5, 5, folder=False, together=True),
    Case("FedCT", 20, 20, folder=False, together=True),
    Case("FedCT", 100, 100, folder=False, together=True),
    Case("FedCT", 5, 5, folder=True, together=True),
    Case("FedCT", 100, 100, folder=True, together=True),
    Case("FedAvg", 1000, 50, folder=False),
    Case("FedAvg", 100, 50, folder=False, weights=300_000),
    Case("FedAvg", 100, 50, folder=False, weights=300_000, together=True),
)


@dataclass(frozen=True)
class _Nothing:
    """A work that takes no time, alone or together."""

    trains: bool
    kind: str = "nothing"
    why_alone: str = ""

    def alone(self) -> None:
        """Nothing."""

    def together(self, others: Sequence[_Nothing]) -> list[None]:
        """Nothing for each."""
        return [None for _ in others]


class AtOnce(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A net that takes no time."""

    def __init__(
        self,
        floats: int = 0,
        answers: int = 0,
        weights: int = 40,
        together: bool = False,
        optimizer: str = "sgd",
        lr: float = 0.1,
    ) -> None:
        self.floats = floats
        self.answers = answers
        self.weights = weights
        self.together = together
        self.optimizer = optimizer
        self.lr = lr

    def joins_cohort(self, mode: str) -> str | None:
        """With the others, or not."""
        return None if self.together else "it is alone"

    def initialize(self, X: Any, classes: Any) -> AtOnce:
        """Weights of zero."""
        self.classes_, self.updates_ = classes, 0
        self.weights_ = {"w": np.zeros(self.weights, np.float32)}
        return self

    def fit(self, X: Any, y: Any) -> AtOnce:
        """Nothing."""
        return self.initialize(X, np.unique(y))

    def update(self, X: Any, y: Any, *, classes: Any, **settings: Any) -> AtOnce:
        """Nothing, but that its state is another one."""
        if not hasattr(self, "updates_"):
            self.initialize(X, classes)
        meet(_Nothing(trains=True))
        self.updates_ += 1
        self.state_ = np.full(self.floats, self.updates_, np.float32)
        self.last_update_ = SimpleNamespace(steps=1, lr=self.lr, device="cpu", precision="float32")
        return self

    def predict_positions(self, X: Any) -> NDArray[np.int64]:
        """Labels that change a little from one update to the next."""
        meet(_Nothing(trains=False))
        prepared = _prepared(self.answers)
        return prepared[self.updates_ % len(prepared)][: len(X)]

    def predict(self, X: Any) -> NDArray[Any]:
        """The same, as the user's labels."""
        answers: NDArray[Any] = self.classes_[self.predict_positions(X)]
        return answers

    def get_weights(self) -> dict[str, NDArray[np.float32]]:
        """A copy."""
        return {"w": self.weights_["w"].copy()}

    def set_weights(self, weights: dict[str, NDArray[np.float32]]) -> None:
        """As they come."""
        self.weights_ = dict(weights)


_ANSWERS: dict[int, list[NDArray[np.int64]]] = {}


def _prepared(size: int) -> list[NDArray[np.int64]]:
    if size not in _ANSWERS:
        rng = np.random.default_rng(0)
        common = rng.integers(0, CLASSES, size)
        _ANSWERS[size] = [np.where(rng.random(size) < 0.01, (common + 1) % CLASSES, common) for _ in range(7)]
    return _ANSWERS[size]


class _Clock(cg.Callback):
    """When rounds end, by the clock and by the processor."""

    def __init__(self) -> None:
        self.ends: list[tuple[float, float]] = []

    def on_round(self, report: Any) -> None:
        self.ends.append((time.perf_counter(), time.process_time()))


def measure(case: Case, public: int, rounds: int) -> dict[str, Any]:
    """One row: milliseconds per answer, from the third round on."""
    rng, clock = np.random.default_rng(1), _Clock()
    learner = AtOnce(case.floats, public, case.weights, case.together)
    sites = [
        cg.Site(f"s{i}", rng.normal(size=(ROWS, FEATURES)).astype(np.float32), np.arange(ROWS) % CLASSES, learner)
        for i in range(case.sites)
    ]
    share = case.answer / case.sites
    method = (cg.FedCT if case.method == "FedCT" else cg.FedAvg)(rounds=rounds + 3, participation=share)
    rows = rng.normal(size=(public, FEATURES)).astype(np.float32) if case.method == "FedCT" else None
    with tempfile.TemporaryDirectory() as folder:
        out = {"out": f"{folder}/run"} if case.folder else {}
        cohort = "on" if case.together else "off"
        cg.run(method, sites=sites, public=rows, progress=False, link="local", cohort=cohort, callbacks=[clock], **out)
    spent = np.diff(np.array(clock.ends)[2:], axis=0) / case.answer
    median, fastest = np.median(spent, axis=0), np.quantile(spent, 0.1, axis=0)
    return {
        **vars(case),
        "kept": "folder" if case.folder else "memory",
        "how": "together" if case.together else "in turns",
        "weights": case.weights if case.method == "FedAvg" else None,
        "state": case.floats * 4 / 1e6 if case.floats else None,
        **dict(zip(("clock", "processor"), median.tolist(), strict=True)),
        **dict(zip(("clock10", "processor10"), fastest.tolist(), strict=True)),
    }


def report(public: int = 50_000, rounds: int = 100) -> Report:
    """The table."""
    load = os.getloadavg()[0]
    rows = [measure(case, public, rounds) for case in watched(CASES, "orders", len(CASES))]
    columns = {
        "method": Column("method"),
        "kept in": Column("kept"),
        "sites": Column("sites", ",d"),
        "answer": Column("answer", ",d"),
        "together": Column("how"),
        "weights": Column("weights", ",d"),
        "state, MB": Column("state", ".0f"),
        "ms": Column("clock", ".3f", 1e-3),
        "fastest tenth": Column("clock10", ".3f", 1e-3),
        "processor, ms": Column("processor", ".3f", 1e-3),
        "fastest tenth, ms": Column("processor10", ".3f", 1e-3),
    }
    title = f"What an answer costs beside its step: {public:,} public rows, {rounds} rounds"
    notes = f"Load of the machine when it began: {load:.1f}. Loading and storing a run are not in it."
    return Report(title, columns, rows, notes, words=2)


if __name__ == "__main__":
    print_with_options(report, __doc__)
