"""FedKT: federated learning via knowledge transfer, in one communication round.

Li, He, Song: "Model-Agnostic Round-Optimal Federated Learning via Knowledge Transfer", arXiv 2010.01017, Algorithm 1.
The paper's lines are named beside ours.

Reproduces: Table 1 (Adult, cod-rna), Tables 15 and 16 (privacy levels L1 and L2).

Deviations from the paper and its code, all on purpose:

- A party sends its students' votes on the public set, and only where all of them agree (line 19 is worked out at the
  party): the coordinator needs nothing else. `share="models"` sends the students as the paper does, with the same
  result, if their learner has a safe wire format.
- Ties, of teachers and of parties, are broken at random by the study's seed. The authors' code takes the class with the
  lower code: of their binary tables the rare one, which is better there. ``ties="rare"`` does that on purpose.
- L2: a record's own hash says which teacher learns from it, so that no record moves another (in the paper's random
  split an added record moves many). Each party draws its own k queries.
- A party with fewer records than subsets makes fewer subsets, noted in `run.metrics` (the paper's code fails). Under L2
  the number of subsets stays, since it must not depend on the data, and subsets without a record do not vote.
- What is claimed does not look at the votes (Theorems 2 and 3 do, so their epsilon is private itself), unless
  ``accounting="data_dependent"``. Theorem 9 is not offered: its z depends on the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from collegium.algorithms._shared_models import check_shareable, predictions, share
from collegium.algorithms._teachers import ask_teachers
from collegium.consensus import Consensus, Majority
from collegium.consensus.advice import advice_on, unchosen
from collegium.consensus.noisy_votes import FINAL_MODEL, NoisyVotes, build_noisy_max, record_charge
from collegium.core import (
    ActiveSite,
    Algorithm,
    Federation,
    HardLabels,
    Labels,
    Nothing,
    Order,
    SharedModels,
    Site,
    Steps,
    step,
)
from collegium.core.recipes import Recipe, describe, named_learner
from collegium.core.settings import Learner, PositiveInt
from collegium.core.tally import Tally, winners
from collegium.errors import ConfigError, SiteError, WireError
from collegium.privacy.claims import Charge
from collegium.privacy.learners.base import PrivateLearner
from collegium.privacy.mechanisms.noisy_max import NoisyMax

Level = Literal["L0", "L1", "L2"]
Share = Literal["votes", "models"]
Ties = Literal["random", "rare"]


@step
def learn(
    site: ActiveSite,
    partitions: int,
    subsets: int,
    queries: int,
    teacher: Recipe | None,
    student: Recipe | None,
    mechanism: dict[str, Any] | None,
    data_dependent: bool,
) -> Nothing:
    """Lines 2 to 12: teachers on the subsets of each partition, and a student of what they say."""
    noise = None if mechanism is None else build_noisy_max(mechanism)
    f = ask_teachers(site, partitions, subsets, queries, teacher, noise, data_dependent=data_dependent)  # lines 2 - 11
    with site.watch.time("students"):
        # Noise may have answered nothing: such a student has no opinion, which is as much an answer as others.
        students = [site.train(site.public.labelled(f_j), student) if f_j.known.any() else None for f_j in f]  # line 12
    site.model, site.state["students"] = next(filter(None, students), None), students
    return Nothing()


@step
def vote(site: ActiveSite) -> HardLabels:
    """Lines 13 and 17: the class that all of this party's students agree on; none where they do not."""
    with site.watch.time("students"), site.watch.time("predict"):
        votes = [
            np.full(len(site.public), -1) if student is None else student.predict_codes(site.public.X)
            for student in site.state.pop("students")
        ]
    return HardLabels(Labels(consistent(votes), site.n_classes))


@step
def send(site: ActiveSite) -> SharedModels:
    """Line 13: the students themselves."""
    students = site.state.pop("students")
    if None in students:
        raise ConfigError("Noise left a student without labels, so there is no model to send.")
    return share(students)


def consistent(votes: list[Any]) -> Any:
    """Line 19 for one party: the students' class where all agree, else -1."""
    return np.where((np.stack(votes) == votes[0]).all(axis=0), votes[0], -1)


def rare_first(counts: Any) -> Any:
    """Counts, of shape (classes, samples), without ties: of equal ones, that of the class with fewer votes in all."""
    rarity = np.argsort(np.argsort(-counts.sum(axis=1), kind="stable"), kind="stable")  # the rarest class has most
    return np.where(counts > 0, counts * len(counts) + rarity[:, np.newaxis], 0)


@dataclass(frozen=True)
class FedKT(NoisyVotes, Algorithm):
    """Teachers of subsets teach students at each party; the students' votes teach the final model."""

    asks_for: ClassVar[Steps] = (learn, vote, send)
    partitions: PositiveInt = 2
    """s: partitions of each party's data, and so students."""
    subsets: PositiveInt = 5
    """t: subsets of each partition, and so teachers."""
    level: Level = "L0"
    """L0: no noise. L1: the coordinator's noise, for whole parties. L2: each party's noise, for single records."""
    share: Share = "votes"
    """What leaves a party: its students' votes, or the students."""
    consensus: Consensus = field(default_factory=unchosen)
    """Line 22: how the parties' votes become labels. The paper's is the majority, the only one for L1 and models."""
    ties: Ties = "random"
    """Who wins where as many parties vote for one class as for another: any, or the class with fewer votes in all."""
    teacher: Learner = None
    """The teachers' learner, or its name (None: each site's own)."""
    student: Learner = None
    """The students' learner, or its name; the final model's too, where none is chosen (None: each site's own)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        me = type(self).__name__
        if self.level == "L0" and self.has_noise:
            raise ConfigError(
                f"{me}: level L0 has no noise: choose L1 or L2, or leave out gamma, epsilon and mechanism."
            )
        if self.level != "L0" and not self.has_noise:
            raise ConfigError(f"{me}: level {self.level} needs noise: give gamma, epsilon or mechanism.")
        if self.level == "L2" and self.subsets**self.partitions >= 1 << 62:
            raise ConfigError(f"{me}: a record's hash is too short for so many partitions and subsets: use fewer.")
        for name in ("teacher", "student"):
            object.__setattr__(self, name, named_learner(getattr(self, name), f"{me}: {name}"))
            describe(getattr(self, name), f"{me}: {name}")  # an error where it has no recipe
        if self.share == "models":
            check_shareable(self.student, f"{me}: share='models'")
        if self.consensus != Majority() and (self.level == "L1" or self.share == "models"):
            raise ConfigError(f"{me}: level L1 and share='models' count votes: leave out consensus.")
        if self.consensus.guards:
            raise ConfigError(
                f"{me}: its parties learn nothing from the consensus, so there is nothing to guard. "
                "Use a rule that does not, such as Informed()."
            )
        if self.ties == "rare" and (self.consensus != Majority() or self.level == "L1"):
            raise ConfigError(f"{me}: ties='rare' is for the plain majority: leave out consensus, and level L1.")
        # Of the instance: where all learners are named, sites need not bring one.
        object.__setattr__(self, "needs_learner", self.teacher is None or self.student is None)

    def unasked(self) -> Steps:
        return (send,) if self.share == "votes" else (vote,)

    def coordinate(self, fed: Federation) -> None:
        self.check_classes(fed.n_classes)
        s, k = self.partitions, self.n_queries(len(fed.public))
        student, noise = describe(self.student, "student"), self._party_noise(k)
        for _ in fed.rounds(1):
            fed.tell(self._learn(len(fed.public)))  # lines 1 - 12
            if self.level == "L1":  # lines 13 - 22
                counts = s * self._counts(fed, student)
                L = self.label(fed, counts, self.noisy_max(k, changed_votes=s, unit="party"), k)
            elif self.share == "models" or self.ties == "rare":
                counts = self._counts(fed, student)
                counts = rare_first(counts) if self.ties == "rare" else counts
                L = Labels(winners(counts, fed.seed), fed.n_classes)
            else:
                L = self.consensus(fed, vote())
            if noise is not None:
                fed.charge(FINAL_MODEL, record_charge(noise, s, k))
            fed.announce(L)  # line 23: the final model learns (U, L)

    def _learn(self, public_size: int) -> Order[Nothing]:
        """Lines 1 to 12, as an order."""
        k = self.n_queries(public_size)
        at_party, noise = public_size if self.level == "L1" else k, self._party_noise(k)
        teacher, student = describe(self.teacher, "teacher"), describe(self.student, "student")
        plain, in_hindsight = None if noise is None else noise.to_plain(), self.accounting == "data_dependent"
        return learn(self.partitions, self.subsets, at_party, teacher, student, plain, in_hindsight)

    def fixed(self, public_size: int) -> Mapping[str, Mapping[str, Any]]:
        return {learn.name: self._learn(public_size).args}

    def check_site(self, site: Site) -> None:
        if isinstance(site.learner, PrivateLearner) and (self.teacher is None or self.student is None):
            raise SiteError(
                site.name, "its learner is private: give FedKT a teacher and a student, and level L2 instead."
            )

    def advice(self, sites: Sequence[Site]) -> str | None:
        # L1 and models count votes only; ties="rare" is for the majority; and whoever wants noise on single records
        # (L2) does not want counts of them beside it.
        if self.level != "L0" or self.share == "models" or self.ties == "rare":
            return None
        skewed = 'the rule DawidSkene (in a study: consensus = "dawid_skene")'
        better = 'the rule Informed (in a study: consensus = "informed")'
        # Under skew, parties say little of classes that they lack, which is not what their counts are of.
        unknown = better if sites else f"{skewed} where classes differ in frequency between sites, else {better}"
        # What sites bring matters where it teaches or learns.
        return advice_on(self.consensus, sites, skewed, better if self.needs_learner else None, unknown)

    def learners(self, site: Site) -> list[Any]:
        return [site.learner if named is None else named for named in (self.teacher, self.student)]

    def final_learner(self) -> Any:
        return self.student

    def site_charge(self, public_size: int) -> Charge | None:
        k = self.n_queries(public_size)
        noise = self._party_noise(k)
        return None if noise is None else record_charge(noise, self.partitions, k)

    def _party_noise(self, k: int) -> NoisyMax | None:
        return self.noisy_max(self.partitions * k, changed_votes=1, unit="record") if self.level == "L2" else None

    def _counts(self, fed: Federation, student: Recipe | None) -> Any:
        """How many parties vote for each class, of shape (classes, public samples)."""
        if self.share == "votes":
            return fed.total(vote()).tally.counts.astype(np.int64)
        tally = Tally(len(fed.public), fed.n_classes, len(fed.parties))
        for party, shared in fed.stream(send()):
            try:
                tally.add(consistent(predictions(shared, student, fed.public.X, fed.n_classes)))
            except WireError:
                fed.reject(party)
        return tally.counts.astype(np.int64)
