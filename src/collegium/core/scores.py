"""A site's accuracy on rows that it holds out: a release like any other, which its policy may refuse."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from collegium.core.federation import Federation, Replies
from collegium.core.releases import Release, is_count
from collegium.core.site import ActiveSite
from collegium.core.steps import step
from collegium.errors import QuorumLost, Refused


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


@step
def score(site: ActiveSite) -> Scores:
    """The accuracy of the site's present model on its held-out rows."""
    if site.held_out is None or not len(site.held_out):
        raise Refused("no-held-out-rows", "This site holds out no rows: set data.held_out in site.toml.")
    if site.model is None:
        raise Refused("no-model", "This site has no model yet.")
    answers = site.model.predict_codes(site.held_out.X)
    return Scores(float(np.mean(answers == site.held_out.codes)), len(site.held_out))


def ask_scores(fed: Federation, parties: Sequence[str]) -> tuple[str, ...]:
    """Record these sites' scores as their accuracy; returns who answered. A site may refuse."""
    told: Replies[Scores] = Replies()
    with suppress(QuorumLost):
        told = fed.ask(score(), parties, aside=True)
    for party, scores in told.items():
        fed.note("accuracy", scores.accuracy, party, "test")
    return tuple(told)
