"""How much one record may change what a step releases: declared by the step, which is installed at the site.

Noise protects numbers only as far as it exceeds what one record can change. A coordinator that could name that change
could make any noise look sufficient, so a gate believes the step alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from collegium.core.settings import OpenProbability, PositiveFloat, PositiveInt, Settings
from collegium.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class Sensitivity(Settings):
    """The most that one record (or the whole party) changes in a release: ``Sensitivity(l2=1.0)``.

    Declare it with ``@step(sensitivity=...)`` for a step that releases numbers or counts of votes through a mechanism.
    """

    l1: PositiveFloat | None = None
    """The largest change of all numbers together in the L1 norm, for Laplace noise."""
    l2: PositiveFloat | None = None
    """The largest change in the L2 norm, for Gaussian noise."""
    changed_votes: PositiveInt | None = None
    """The most votes that change per sample, for a noisy maximum."""
    chance: OpenProbability | None = None
    """The largest probability that it changes anything at all, for what only names what many records have."""
    unit: Literal["record", "party"] = "record"
    """Whose change it is."""
    relation: Literal["replace", "add_remove", "any"] = "replace"
    """What change: replacing a record, adding or removing one, or either."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.l1, self.l2, self.changed_votes, self.chance) == (None, None, None, None):
            raise ConfigError("Sensitivity: give at least one of l1, l2, changed_votes and chance.")
