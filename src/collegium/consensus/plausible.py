"""Plausible: any rule, without the labels that the model which made the public set takes for improbable.

Rows that are made up may have parts of two classes, and sites that know one class well then err together: on such rows
a consensus is often wrong, however many sites agree. The model that the rows were drawn from has seen the classes of
all sites, and says how probable each class is for a row. That costs nothing: it follows from the sums that were paid
for. Its own labels are worse than the sites' (`docs/together.md`), so they are not used; where it contradicts the
sites strongly, the row gets no label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from collegium.consensus.base import Consensus
from collegium.consensus.informed import Informed
from collegium.core import Federation, HardLabels, Labels, Order
from collegium.core.settings import PositiveFloat


@dataclass(frozen=True)
class Plausible(Consensus):
    """The labels of `rule`, but for those that the model behind a made-up public set takes for improbable.

    Real rows, and made-up ones whose model does not say how probable classes are, have the labels of `rule`.
    """

    rule: Consensus = field(default_factory=Informed)
    """How the sites' labels become one labeling."""
    odds: PositiveFloat = 10.0
    """A label is left out if another class is more than so many times as probable."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # Of the instance: it takes what the rule inside takes.
        for name in ("takes", "counts_only", "guards"):
            object.__setattr__(self, name, getattr(self.rule, name))

    def __call__(self, fed: Federation, order: Order[HardLabels], parties: Sequence[str] | None = None) -> Labels:
        labels = self.rule(fed, order, parties)
        opinion = fed.opinion
        if opinion is None:
            return labels
        with fed.timed("consensus"):
            own = np.take_along_axis(opinion, np.maximum(labels.codes, 0)[:, None].astype(np.intp), axis=1)[:, 0]
            improbable = labels.known & (opinion.max(axis=1) > self.odds * own)
            codes = np.where(improbable, -1, labels.codes)
        fed.note("implausible", float(np.mean(improbable[labels.known])) if labels.known.any() else 0.0)
        return Labels(codes, fed.n_classes)
