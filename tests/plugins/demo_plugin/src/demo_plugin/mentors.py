"""An algorithm: steps that run at the sites, and a dataclass whose `coordinate` runs at the coordinator.

Mentors: the sites with most data label a part of the public set, and everybody learns from their consensus.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from collegium.consensus import Consensus, Majority
from collegium.core import ActiveSite, Algorithm, Federation, HardLabels, Labels, Nothing, Release, Steps, step
from collegium.core.settings import PositiveInt, Share


@dataclass(frozen=True)
class Experience(Release):
    """How many private samples a site has, in tens: the exact number does not leave."""

    tens: int


@step
def experience(site: ActiveSite) -> Experience:
    """Say about how much data this site has."""
    return Experience(len(site.data) // 10)


@step
def learn(site: ActiveSite, L: Labels | None) -> Nothing:
    """Train on private data, and on the public samples that have a label."""
    site.fit(site.data + site.public.labelled(L))
    return Nothing()


@step
def advise(site: ActiveSite, share: float) -> HardLabels:
    """Label a random share of the public set, and abstain on the rest."""
    labels = site.predict(site.public)
    chosen = site.rng.random(len(labels)) < share
    return HardLabels(Labels(np.where(chosen, labels.codes, -1), labels.n_classes))


@dataclass(frozen=True)
class Mentors(Algorithm):
    """The sites with most data teach the others."""

    asks_for: ClassVar[Steps] = (experience, learn, advise)
    rounds: PositiveInt = 3
    mentors: PositiveInt = 3
    """How many sites teach."""
    share: Share = 0.8
    """The part of the public set that each of them labels in a round."""
    consensus: Consensus = field(default_factory=Majority)
    """How their labels become one labelling."""

    def coordinate(self, fed: Federation) -> None:
        replies = fed.ask(experience())
        answered = [party for party in fed.parties if party in replies]
        mentors = sorted(answered, key=lambda party: replies[party].tens, reverse=True)[: self.mentors]
        L: Labels | None = None
        for _ in fed.rounds(self.rounds):
            fed.tell(learn(L))
            L = self.consensus(fed, advise(self.share), mentors)
            fed.announce(L)
            fed.flush()
