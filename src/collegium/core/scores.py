"""How good a site's model is on rows that it holds out: releases like any other, which its policy may refuse."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from collegium.core.correspondence import Replies
from collegium.core.federation import Federation
from collegium.core.releases import Release, is_count
from collegium.core.samples import LabelledData
from collegium.core.site import ActiveSite
from collegium.core.steps import step
from collegium.errors import QuorumLost, Refused
from collegium.learners.base import SiteModel

_MOST_METRICS: Final = 60
"""How many numbers a site tells at most, beside a confusion matrix."""


@dataclass(frozen=True)
class Scores(Release):
    """Accuracy on a site's held-out rows, and their number. It depends on private rows, and nothing protects it."""

    never_protected: ClassVar[bool] = True
    accuracy: float
    samples: int

    @classmethod
    def most_bytes(cls, n_classes: int, public_size: int) -> int:
        return 0

    def check(self, n_classes: int, public_size: int | None) -> None:
        self.require(isinstance(self.accuracy, float) and 0 <= self.accuracy <= 1, "an accuracy from 0 to 1")
        self.require(is_count(self.samples, least=1), "a positive number of samples")


@dataclass(frozen=True)
class Measures(Release):
    """Metrics of a site's model on its held-out rows, NaN where one cannot be had. Nothing protects them."""

    never_protected: ClassVar[bool] = True
    values: NDArray[np.float64]

    @classmethod
    def most_bytes(cls, n_classes: int, public_size: int) -> int:
        return 8 * (n_classes * n_classes + _MOST_METRICS)

    def check(self, n_classes: int, public_size: int | None) -> None:
        self.require(isinstance(self.values, np.ndarray) and self.values.dtype == np.float64, "an array of float64")
        self.require(self.values.ndim == 1 and not np.isinf(self.values).any(), "a row of numbers")


@step
def score(site: ActiveSite) -> Scores:
    """The accuracy of the site's present model on its held-out rows."""
    model, held_out = _tested(site)
    return Scores(float(np.mean(model.predict_codes(held_out.X) == held_out.codes)), len(held_out))


@step
def measure(site: ActiveSite, metrics: list[str]) -> Measures:
    """The named metrics of the site's present model on its held-out rows, in the order of `part_names`."""
    from collegium.learners import metrics as known  # 10 MB, for studies that ask for metrics

    model, held_out = _tested(site)
    read = known.read_metrics(metrics)
    numbers, problems = known.measure(read, model, held_out.X, held_out.codes)
    for problem in problems:
        site.log(f"a metric could not be measured: {problem}")
    names = known.part_names(read, site.classes)
    values = np.array([numbers.get(name, np.nan) for name in names])
    return Measures(np.where(np.isinf(values), np.nan, values))


def _tested(site: ActiveSite) -> tuple[SiteModel, LabelledData]:
    if site.held_out is None or not len(site.held_out):
        raise Refused("no-held-out-rows", "This site holds out no rows: set data.held_out in site.toml.")
    if site.model is None:
        raise Refused("no-model", "This site has no model yet.")
    return site.model, site.held_out


def ask_scores(fed: Federation, parties: Sequence[str]) -> tuple[str, ...]:
    """Record these sites' scores as their accuracy; returns who answered. A site may refuse."""
    told: Replies[Scores] = Replies()
    with suppress(QuorumLost):
        told = fed.ask(score(), parties, aside=True)
    for party, scores in told.items():
        fed.note("accuracy", scores.accuracy, party, "test")
    return tuple(told)


def ask_measures(
    fed: Federation, parties: Sequence[str], metrics: Sequence[str], names: Sequence[str]
) -> tuple[str, ...]:
    """Record metrics of these sites' models, whose parts are called `names`; returns who answered."""
    told: Replies[Measures] = Replies()
    with suppress(QuorumLost):
        told = fed.ask(measure(list(metrics)), parties, aside=True)
    for party, measured in told.items():
        if len(measured.values) != len(names):
            fed.reject(party)
            continue
        for name, value in zip(names, measured.values.tolist(), strict=True):
            if not np.isnan(value):
                fed.note(name, value, party, "test")
    return tuple(told)
