"""Callbacks: watch a run, add metrics of your own, stop it early."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from collegium.core.observations import Disclosure
from collegium.core.settings import NonNegativeFloat, PositiveInt, checked

if TYPE_CHECKING:
    from collegium.runs.results import Run


@dataclass(frozen=True)
class RoundReport:
    """What is known at the end of a round."""

    round: int
    rounds: int
    metrics: tuple[dict[str, Any], ...]
    """The rows of `run.metrics` of this round."""

    @property
    def accuracy(self) -> float | None:
        """Mean test accuracy over the sites that trained in this round."""
        return self.mean("accuracy", "test")

    def mean(self, metric: str, split: str) -> float | None:
        """The mean of a metric over parties."""
        values = [row["value"] for row in self.metrics if row["metric"] == metric and row["split"] == split]
        return float(np.mean(values)) if values else None


class Callback:
    """Base of callbacks: override what you need."""

    def on_start(self, about: dict[str, Any]) -> None:
        """The run starts; `about` describes it."""

    def on_round(self, report: RoundReport) -> bool | dict[str, float] | None:
        """A round ended. Return True to stop the run after it, or numbers to add to the run's metrics."""
        return None

    def on_disclosure(self, disclosure: Disclosure) -> None:
        """Something became known to the coordinator (a site's release) or to all sites (a consensus, a model)."""

    def on_end(self, run: Run) -> None:
        """The run is over."""


class EarlyStopping(Callback):
    """Stop when the mean test accuracy has not improved by `min_delta` for `patience` rounds."""

    @checked
    def __init__(self, patience: PositiveInt = 3, min_delta: NonNegativeFloat = 0.0) -> None:
        self.patience = patience
        self.min_delta = min_delta
        self._best, self._waited = -np.inf, 0

    def on_start(self, about: dict[str, Any]) -> None:
        """Forget earlier runs."""
        self._best, self._waited = -np.inf, 0

    def on_round(self, report: RoundReport) -> bool:
        """Compare with the best round so far."""
        accuracy = report.accuracy
        if accuracy is None:
            return False
        if accuracy > self._best + self.min_delta:
            self._best, self._waited = accuracy, 0
        else:
            self._waited += 1
        return self._waited >= self.patience
