"""A learning rate that falls from round to round."""

from __future__ import annotations

import math
from dataclasses import dataclass

from collegium.algorithms._averaging import Averaging
from collegium.core.settings import NonNegativeInt, PositiveInt


@dataclass(frozen=True)
class Annealing(Averaging):
    """Settings of a method whose sites may train at a falling rate."""

    anneal: PositiveInt | None = None
    """The learners' rate falls by a cosine, and would be 0 after so many rounds (None: it stays)."""
    first_round: NonNegativeInt = 0
    """The round of that fall which is this run's first: a run that starts from another's model goes on at its rate."""

    def rate(self, t: int) -> float:
        """By how much the learners' own rate is multiplied in round t of this run."""
        if self.anneal is None:
            return 1.0
        return (1 + math.cos(math.pi * min(1.0, (self.first_round + t) / self.anneal))) / 2
