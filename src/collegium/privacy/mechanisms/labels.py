"""What all mechanisms on hard labels share: how many labels may change at once, and what may be claimed.

One changed record may change every label that a site gives. How many are charged for is a choice:

- ``worst_case``: all of them. The only one that gives differential privacy.
- ``assumed_stability``: as many as Proposition 2 of the FedCT paper states for a learner of a given stability. This
  rests on an unverified assumption, and the proposition is false as stated.
- ``observed_max_change``: as many as the site saw change over sampled neighbours of its data. A diagnostic.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from collegium.core.labels import Codes, Labels
from collegium.core.releases import HardLabels, Release
from collegium.core.settings import (
    NonNegativeInt,
    OpenProbability,
    PositiveFloat,
    PositiveInt,
    TwoOrMore,
    check,
    checked,
)
from collegium.errors import ConfigError
from collegium.privacy.claims import Charge
from collegium.privacy.events import Event
from collegium.privacy.mechanisms.base import Mechanism, total_epsilon

Sensitivity = Literal["worst_case", "assumed_stability", "observed_max_change"]
NEIGHBOURS = 5
PROPOSITION_IS_FALSE = (
    "Proposition 2 of the FedCT paper, which turns that into a number of labels, is false as stated: a learner can be "
    "stable on average and still change every label"
)


class LabelMechanism(Mechanism):
    """Noise on hard labels. Subclasses define the noise, and its cost if some labels change."""

    takes: ClassVar[type[Release]] = HardLabels
    delta: float
    sensitivity: Sensitivity
    stability_rate: float | None
    """None unless the sensitivity is assumed_stability."""
    stability_failure: float

    def __init__(
        self,
        own: Mapping[str, Any],
        delta: float,
        sensitivity: Sensitivity,
        stability_rate: float | None,
        stability_failure: float,
        neighbours: int | None,
        **attributes: Any,
    ) -> None:
        where = type(self).__name__
        if sensitivity == "assumed_stability":
            if stability_rate is None:
                raise ConfigError(f"{where}: sensitivity='assumed_stability' needs a stability_rate, such as 0.01.")
        elif stability_rate is not None or stability_failure != 0.05:
            raise ConfigError(
                f"{where}: stability_rate and stability_failure belong to sensitivity='assumed_stability', "
                f"not to {sensitivity!r}."
            )
        if sensitivity == "observed_max_change":
            neighbours = NEIGHBOURS if neighbours is None else neighbours
        elif neighbours is not None:
            raise ConfigError(
                f"{where}: neighbours belongs to sensitivity='observed_max_change', not to {sensitivity!r}."
            )
        common = {
            "delta": delta,
            "sensitivity": sensitivity,
            "stability_rate": stability_rate,
            "stability_failure": stability_failure,
            "neighbours": neighbours,
        }
        self._keep({**own, **common}, **common, **attributes)

    @abstractmethod
    def label_events(self, changes: int, release_size: int, n_classes: int) -> tuple[Event, ...]:
        """The cost of a release of `release_size` labels if `changes` (at least 1) of them may change at once."""

    @checked
    def epsilon(
        self, public_size: PositiveInt = 1, n_classes: TwoOrMore = 2, rounds: int = 1, delta: float = 0.0
    ) -> float:
        """The total cost of `rounds` releases of `public_size` labels, if every label may change.

        That is the guarantee, whatever `sensitivity` is. With delta = 0 the costs are added; with a delta above 0 the
        accountant finds a smaller epsilon for many labels.
        """
        return total_epsilon(self.label_events(public_size, public_size, n_classes), rounds, delta)

    @checked
    def charge(
        self,
        release_size: NonNegativeInt,
        n_classes: TwoOrMore,
        *,
        records: int | None = None,
        observed: NonNegativeInt | None = None,
    ) -> Charge:
        if self.sensitivity == "worst_case":
            return Charge(self._events(release_size, release_size, n_classes), delta=self.delta)
        if self.stability_rate is not None:
            return self._charge_assumed(release_size, n_classes, self.stability_rate, records)
        if observed is None:
            raise ConfigError(
                f"{type(self).__name__}.charge: sensitivity='observed_max_change' needs the number of labels that the "
                f"site saw change over {self.neighbours} sampled neighbours: pass it as observed."
            )
        return Charge(
            # Nothing seen to change is no evidence that nothing can.
            self._events(max(1, observed), release_size, n_classes),
            kind="nominal",
            relation="add_remove",  # a neighbour is the site's data without one record
            delta=self.delta,
            assumptions=(
                "a diagnostic and no guarantee: it charges for as many labels as were seen to change when one record "
                f"was left out, for {self.neighbours} sampled records; others may change more",
            ),
            publishable=False,
        )

    def _charge_assumed(self, release_size: int, n_classes: int, rate: float, records: int | None) -> Charge:
        from collegium.privacy.theory import stability_sensitivity

        changes = max(1, stability_sensitivity(max(1, release_size), rate, self.stability_failure))
        one = "one record" if records is None else f"one of the site's {records} records"
        return Charge(
            self._events(changes, release_size, n_classes),
            kind="conditional",
            relation="replace",  # the stability is that of replacing a record
            delta=self.delta,
            assumptions=(
                f"assumed, not verified: replacing {one} changes the label of a public sample with a probability of at "
                f"most {rate}, independently of the other samples; at most "
                f"{min(changes, release_size)} of {release_size} labels then change, except with probability "
                f"{self.stability_failure}",
                PROPOSITION_IS_FALSE,
            ),
        )

    def _events(self, changes: int, release_size: int, n_classes: int) -> tuple[Event, ...]:
        changes = min(changes, release_size)
        return self.label_events(changes, release_size, n_classes) if changes else ()


class PerLabelMechanism(LabelMechanism):
    """Noise on hard labels, given by the cost of one label.

    Parameters
    ----------
    epsilon:
        The cost of one label. A release costs this for every label that may change.
    delta:
        The delta at which the cost of many releases is reported.
    sensitivity:
        How many labels may change at once: ``worst_case`` (all; the only guarantee), ``assumed_stability`` or
        ``observed_max_change`` (see :mod:`collegium.privacy.mechanisms.labels`).
    stability_rate, stability_failure:
        For ``assumed_stability``: the probability that one label changes with one record, and the probability that
        more labels change than charged for.
    neighbours:
        For ``observed_max_change``: how many neighbours of its data a site samples (default 5).
    """

    per_label: float
    """The setting `epsilon`."""

    @checked
    def __init__(
        self,
        epsilon: PositiveFloat,
        *,
        delta: OpenProbability = 1e-5,
        sensitivity: Sensitivity = "worst_case",
        stability_rate: OpenProbability | None = None,
        stability_failure: OpenProbability = 0.05,
        neighbours: PositiveInt | None = None,
    ) -> None:
        common = (delta, sensitivity, stability_rate, stability_failure, neighbours)
        super().__init__({"epsilon": epsilon}, *common, per_label=epsilon)


def true_codes(where: str, labels: Labels | ArrayLike, n_classes: int) -> Codes:
    """Labels that noise can be added to: one class in 0 .. n_classes - 1 for every sample."""
    n_classes = check(TwoOrMore, n_classes, f"{where}: n_classes")
    if isinstance(labels, Labels) and labels.n_classes != n_classes:
        raise ConfigError(f"{where}: the labels have {labels.n_classes} classes, not {n_classes}.")
    codes = np.asarray(labels.codes if isinstance(labels, Labels) else labels)
    if codes.ndim != 1 or (codes.size and codes.dtype.kind not in "iu"):
        raise ConfigError(
            f"{where}: labels must be one class code per sample, not {codes.dtype} of shape {codes.shape}."
        )
    if codes.size and (int(codes.min()) < 0 or int(codes.max()) >= n_classes):
        raise ConfigError(
            f"{where}: every label must be in 0 .. {n_classes - 1}, but some are not. An abstention (-1) would leave "
            "without noise: let every site vote on every sample (no voters setting), or share without a mechanism."
        )
    return codes.astype(np.int64)
