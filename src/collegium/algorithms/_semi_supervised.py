"""What methods share whose sites have few labels and many rows without: who takes part, and pseudo-labels.

Scott, Yeo, Lampert, TMLR 2023, Algorithm 2, whose lines are named beside ours: `PseudoLabelling` has all of it but line
7, which says where the pseudo-labels come from. FedAvgXCLP, FedAvgLLP and FedAvgPseudo differ in nothing else.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np
from numpy.typing import NDArray

from collegium.algorithms import fedavg
from collegium.algorithms._annealing import Annealing
from collegium.algorithms._averaging import Averaging, Weighting, average_or, common_start, receive, shares, updates
from collegium.core import ActiveSite, Count, Federation, LabelledData, LocalTerms, Nothing, Steps, Weights, step
from collegium.core.labels import Codes
from collegium.core.settings import NonNegativeInt
from collegium.core.weights import Arrays
from collegium.errors import ConfigError, QuorumLost, Refused
from collegium.graphs import Labelled, label_points

_ROUND: Final = "round whose common model the site has"
NOTHING_TO_LEARN: Final = "nothing-to-learn"
"""The code of a refusal: the site has neither labels of its own nor found ones."""


@step
def count_labels(site: ActiveSite) -> Count:
    """How many rows of the site have labels."""
    return Count(site.records)


@step
def begin(site: ActiveSite, t: int, theta: Arrays) -> Nothing:
    """4: theta <- the server's."""
    site.load(theta)
    site.state[_ROUND] = t
    return Nothing()


@step
def label_by_net(site: ActiveSite, theta: Arrays | None, threshold: float, weighted: bool) -> Nothing:
    """Label the site's points by its net (by this one, if given), which is as sure as its answers are far from even."""
    if theta is not None:
        site.load(theta)
    if len(site.unlabeled):
        p = site.probabilities(site.unlabeled.X).astype(np.float64)
        found = label_points(p, np.ones(site.n_classes), balanced=False)
        sure = p.max(axis=1) >= threshold
        site.keep_labels(Labelled(found.codes, np.where(sure, found.confidences if weighted else 1.0, 0.0)))
    return Nothing()


def learn_found(site: ActiveSite, epochs: int | None, steps: int | None, rate: float, even: bool) -> None:
    """Learn the rows with labels and, as much as each is sure, those whose labels were found last."""
    found = site.found_labels
    if found is not None and found.confidences.any():
        pseudo = LabelledData(site.unlabeled.X, found.codes)
        sure = found.confidences * (class_weights(found.codes, site.n_classes) if even else 1.0)
        site.fit(site.data + pseudo, epochs, steps, LocalTerms(confidences=sure, rate=rate))
    elif site.records:
        site.fit(site.data, epochs, steps, LocalTerms(rate=rate))
    else:
        raise Refused(NOTHING_TO_LEARN, f"{site.name} has no labels, and none were found for its points.")


def class_weights(codes: Codes, n_classes: int) -> NDArray[np.float64]:
    """The weight of each label by which all classes that occur count alike, 1 on average."""
    counts = np.bincount(codes, minlength=n_classes)
    return np.asarray(len(codes) / np.count_nonzero(counts) / counts[codes])


@step
def learn(site: ActiveSite, t: int, epochs: int, steps: int | None, rate: float = 1.0, even: bool = False) -> Weights:
    """8: theta_j <- ClientUpdate(X_j, y_j, omega_j; theta)"""
    if site.state.get(_ROUND) != t:
        raise ConfigError(f"{site.name} did not get the common model of round {t}: the one it has is out of date.")
    learn_found(site, epochs, steps, rate, even)
    return Weights(site.weights(), site.records + len(site.unlabeled))


def joined(parts: Mapping[str, Arrays]) -> Arrays:
    """Several nets' weights as one, which travels and is averaged like one."""
    return {f"{part}: {name}": value for part, net in parts.items() for name, value in net.items()}


def part_of(both: Arrays, part: str) -> Arrays:
    """One of the nets again."""
    own = f"{part}: "
    return {name.removeprefix(own): value for name, value in both.items() if name.startswith(own)}


def with_labels(fed: Federation) -> frozenset[str]:
    """The parties that say they have labels."""
    counts = fed.ask(count_labels())
    labelled = frozenset(party for party in counts if counts[party].samples > 0)
    if not labelled:
        raise QuorumLost("No site that answers has labels: there is nothing to learn from.")
    return labelled


def sample(fed: Federation, labelled: frozenset[str], share: float) -> list[str]:
    """The paper's draw (App. A.2): of the sites with labels, and of the others, the same share; at least one with."""
    if share >= 1:
        return list(fed.parties)
    size = max(1, round(share * len(fed.parties)))
    known = min(size, max(1, int(size * len(labelled) / len(fed.parties) + 0.5)))
    groups = [party for party in fed.parties if party in labelled], [p for p in fed.parties if p not in labelled]
    drawn: set[str] = set()
    for group, many in zip(groups, (known, size - known), strict=True):
        drawn |= set(fed.rng.choice(group, size=min(many, len(group)), replace=False).tolist()) if group else set()
    return [party for party in fed.parties if party in drawn]


@dataclass(frozen=True)
class SemiSupervised(Averaging):
    """Settings of a method that averages nets which learn from rows without labels, too."""

    needs_labels: ClassVar[bool] = False
    weighting: Weighting = "equal"
    """How sites count in the average: all alike (paper), or by their samples."""


@dataclass(frozen=True)
class PseudoLabelling(Annealing, SemiSupervised):
    """Algorithm 2: in every round the sites that take part label their points, and learn those labels by confidence."""

    asks_for: ClassVar[Steps] = (count_labels, begin, fedavg.update, learn, receive)
    warm_up: NonNegativeInt = 0
    """The first rounds, of all, in which sites with labels learn those alone."""
    class_weights: bool = False
    """Whether the classes among a site's found labels count alike, as in the authors' code: a label then weighs its
    confidence times the inverse frequency of its class."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warm_up >= self.rounds:
            raise ConfigError(f"{type(self).__name__}: warm_up must be below rounds={self.rounds}, not {self.warm_up}.")

    def unasked(self) -> Steps:
        return () if self.warm_up else (fedavg.update,)

    @abstractmethod
    def label(self, fed: Federation, P: Sequence[str], theta: Arrays) -> None:
        """7: have these parties, who have theta, label their points."""

    def coordinate(self, fed: Federation) -> None:
        like, theta = common_start(fed, self.start)  # 1
        labelled = with_labels(fed)
        for t in fed.rounds(self.rounds):  # 2
            P = sample(fed, labelled, self.participation)  # 3
            if t < self.warm_up:
                P = [party for party in P if party in labelled]
                order = fedavg.update(theta, self.local_epochs, self.local_steps, rate=self.rate(t))
            else:
                fed.tell(begin(t, theta), P)  # 4
                with suppress(QuorumLost):  # nobody was left to label with: the sites go on with what they have
                    self.label(fed, P, theta)  # 5 to 7
                order = learn(t, self.local_epochs, self.local_steps, self.rate(t), self.class_weights)
            parts = updates(fed, dict.fromkeys(P, order), dict.fromkeys(P, theta))  # 8, 9
            theta = average_or(theta, parts, shares(parts, self.weighting))  # 10
            fed.publish(theta, like)
        fed.tell(receive(theta))
