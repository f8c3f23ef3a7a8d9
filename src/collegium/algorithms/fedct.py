"""FedCT: federated co-training.

Abourayya, Kleesiek, Rao, Ayday, Rao, Webb, Kamp: "Little is Enough: Boosting Privacy by Sharing Only Hard Labels in
Federated Semi-Supervised Learning", arXiv 2310.05696, Algorithm 1. The paper's lines are named beside ours.

Reproduces: Table 3 (interpretable models), Table 6 (mixed models).

Deviations from the paper and its code, all on purpose:

- Ties are broken at random by the study's seed, not in favor of the low class.
- Sites that lack a class can still learn it: the study's classes are everybody's classes.
- A learner that cannot go on from its weights is fitted anew on D_i u P; one that can does one local update per round,
  of the size `epochs` or `steps` says, half of each batch private, half pseudo-labeled, with one optimizer throughout.
- The paper makes no global model. We fit one more on (U, final L): `run.global_model`.
- `voters=Familiar()` (ours) lets sites abstain where a public sample is unlike their own data; `patience` stops early.
- Hard labels alone are no guarantee of privacy. DP-FedCT is `mechanism`, noise on the labels at each site's gate with a
  claim that says what it is worth; or a private learner at the sites, which needs no setting here at all.
- `guard=True` (ours), or `consensus=Guarded(rule)`, lets each site measure on rows of its own how much of L helps it,
  and take no more; `weights` lets pseudo-labels count by how sure the consensus is, or such that classes count alike.
- `votes="secret"` (ours) masks the votes, so that the coordinator sees how many there are for each class, not whose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from collegium.algorithms._guard import fit_guarded
from collegium.algorithms._starting import Started, begin_from
from collegium.consensus import Consensus, Voters
from collegium.consensus.advice import advice_on, unchosen
from collegium.core import ActiveSite, Federation, HardLabels, Labels, Mixture, Nothing, Order, Site, Steps, step
from collegium.core.labels import Codes
from collegium.core.settings import PositiveInt, Share
from collegium.errors import ConfigError, SiteError
from collegium.privacy.learners.base import PrivateLearner
from collegium.privacy.mechanisms.base import Mechanism
from collegium.protocols import masked_sum
from collegium.secure import secret_votes


@step
def train(site: ActiveSite, L: Labels | None, epochs: int | None, steps: int | None) -> Nothing:
    """Line 3: h_i <- A_i(D_i u P), with P = (U, L)."""
    site.fit(site.data + site.public.labelled(L), epochs=epochs, steps=steps)
    return Nothing()


@step
def train_weighted(
    site: ActiveSite,
    L: Labels | None,
    epochs: int | None,
    steps: int | None,
    confidences: NDArray[np.uint8] | None,
    balance: bool,
    guard: bool,
) -> Nothing:
    """Line 3, with pseudo-labels that count by how sure or how rare they are, and as far as they help this site."""
    pseudo = site.public.labelled(L)
    sure = None if confidences is None or L is None else confidences[L.known] / 255
    learned = Mixture(site.data, pseudo, _weights(pseudo.codes, sure, balance=balance))
    if guard:
        fit_guarded(site, learned, epochs, steps)
    else:
        site.fit(learned, epochs=epochs, steps=steps)
    return Nothing()


def _weights(codes: Codes, sure: NDArray[np.float64] | None, *, balance: bool) -> NDArray[np.float64] | None:
    """What each pseudo-label counts. Balanced, all classes count the same in sum, but no label more than 10 do."""
    if not balance:
        return sure
    counts = np.bincount(codes)
    rarity = len(codes) / (np.count_nonzero(counts) * counts[codes])
    return np.minimum(rarity, 10.0) * (1.0 if sure is None else sure)


@step
def label(site: ActiveSite) -> HardLabels:
    """Line 5: L_i <- h_i(U)."""
    return HardLabels(site.predict(site.public))


@dataclass(frozen=True)
class FedCT(Started):
    """Sites share hard labels of the public set and learn from their consensus."""

    asks_for: ClassVar[Steps] = (begin_from, train, train_weighted, label, *secret_votes.STEPS)
    rounds: PositiveInt = 20
    """T: local updates."""
    period: PositiveInt = 1
    """b: local updates between two communications."""
    consensus: Consensus = field(default_factory=unchosen)
    """How L_1 .. L_m become L (default: Majority(), the paper's)."""
    guard: bool = False
    """Whether each site takes only as much of L as helps it, by what it measures on rows of its own, out of fold."""
    weights: Literal["equal", "confidence", "balance", "both"] = "equal"
    """What pseudo-labels count: all alike, by how sure the consensus is, such that classes count alike, or by both."""
    voters: Voters | None = None
    """Who votes on which sample: None (everybody on everything) or Familiar()."""
    participation: Share = 1.0
    """Share of the sites, drawn anew for every communication."""
    epochs: PositiveInt | None = None
    """Size of a local update of an iterative learner (None: the learner's own setting)."""
    steps: PositiveInt | None = None
    """The same in mini-batch steps (the paper's code: 1)."""
    patience: PositiveInt | None = None
    """Stop after this many communications without any change of L."""
    mechanism: Mechanism | None = None
    """DP-FedCT: noise on the labels before they leave a site, such as RandomizedResponse(epsilon=4)."""
    votes: Literal["plain", "secret"] = "plain"
    """plain, or secret: masked at each site, so that the coordinator sees the total only and no site's labels."""
    start: Any = None
    """Weights that all sites start from, such as another run's `global_model` (None: their learners' own)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mechanism is not None:
            self._check_mechanism(self.mechanism)
        self._check_votes()
        if self.period > self.rounds:
            raise ConfigError(f"{type(self).__name__}: period must be at most rounds={self.rounds}, not {self.period}.")

    def unasked(self) -> Steps:
        other = train if self._is_weighted else train_weighted
        return (*super().unasked(), other, *(() if self.votes == "secret" else secret_votes.STEPS))

    def coordinate(self, fed: Federation) -> None:
        self.begin(fed)
        L: Labels | None = None  # line 1: P <- {}
        parties, communications, unchanged = fed.parties, 0, 0
        for t in fed.rounds(self.rounds):
            if t % self.period == 0:
                parties = fed.sample(self.participation)
            fed.tell(self._train(fed, L), parties)  # line 3
            if t % self.period == self.period - 1:  # line 4
                L = self.consensus(fed, self._vote(communications), parties)  # lines 5, 6, 10, 11
                communications += 1
                changed = fed.announce(L)  # lines 7, 12
                unchanged = unchanged + 1 if changed == 0 and L.known.any() else 0
                if self.patience is not None and unchanged >= self.patience:
                    break

    def check_site(self, site: Site) -> None:
        if self._is_weighted and isinstance(site.learner, PrivateLearner):
            raise SiteError(
                site.name,
                f"its learner is private. {type(self).__name__}'s guard would use its rows once more in every round, "
                "and a private learner takes no weights: leave out guard and weights.",
            )

    def advice(self, sites: Sequence[Site]) -> str | None:
        if any(isinstance(site.learner, PrivateLearner) for site in sites):
            return None
        voters, guard = 'the voters Familiar (in a study: voters = "familiar")', "guard = true"
        as_chosen = self.voters is not None or self._is_guarded
        if self.mechanism is not None:
            return None if as_chosen else advice_on(self.consensus, sites, guard, guard)
        if self.votes == "secret":
            said = f"{voters} with {guard}"
            return None if as_chosen else advice_on(self.consensus, sites, said, said, said)
        if self.voters is not None:
            better = 'the rule Informed (in a study: consensus = "informed")'
        else:
            better = (
                'the rule Informed with the voters Familiar (in a study: consensus = "informed", voters = "familiar")'
            )
        if as_chosen:  # who votes, or what sites take of it; of the rule, nobody has said anything
            return advice_on(self.consensus, sites, better=better)
        return advice_on(
            self.consensus, sites, f"{better}, and {guard} where no site may lose", f"{better}, and {guard}", better
        )

    @property
    def _is_guarded(self) -> bool:
        return self.guard or self.consensus.guards

    @property
    def _is_weighted(self) -> bool:
        return self._is_guarded or self.weights != "equal"

    def _train(self, fed: Federation, L: Labels | None) -> Order[Nothing]:
        if not self._is_weighted:
            return train(L, self.epochs, self.steps)
        sure = fed.confidences if self.weights in ("confidence", "both") and L is not None else None
        coarse = None if sure is None else np.round(255 * sure).astype(np.uint8)
        balance = self.weights in ("balance", "both") and L is not None
        return train_weighted(L, self.epochs, self.steps, coarse, balance, self._is_guarded)

    def learns(self) -> dict[str, str]:
        return dict(masked_sum.LEARNS) if self.votes == "secret" else {}

    def protection(self) -> Mechanism | None:
        return self.mechanism

    def _vote(self, communication: int) -> Order[HardLabels]:
        asked = None if self.voters is None else self.voters.order(communication)
        order = (label() if asked is None else asked).through(self.mechanism)
        return order.secretly() if self.votes == "secret" else order

    def _check_votes(self) -> None:
        me, rule = type(self).__name__, self.consensus
        if self.votes == "secret" and not rule.counts_only:
            raise ConfigError(
                f"{me}: secret votes reveal only their total, and {type(rule).__name__} compares the votes of single "
                "sites. Use Majority() or QualifiedMajority(), or votes='plain'."
            )

    def _check_mechanism(self, mechanism: Mechanism) -> None:
        me = type(self).__name__
        if mechanism.takes is not HardLabels:
            raise ConfigError(f"{me} releases labels; {type(mechanism).__name__} is for {mechanism.takes.kind}.")
        if mechanism.gives.kind not in self.consensus.takes:
            raise ConfigError(
                f"{me}: {type(self.consensus).__name__} cannot count {mechanism.gives.kind}, which "
                f"{type(mechanism).__name__} gives. Use Majority(), or RandomizedResponse."
            )
        if self.voters is not None:
            raise ConfigError(f"{me}: with a mechanism every site votes on every sample: leave out voters.")
