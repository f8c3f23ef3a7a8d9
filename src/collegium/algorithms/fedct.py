"""FedCT: federated co-training.

Abourayya, Kleesiek, Rao, Ayday, Rao, Webb, Kamp: "Little is Enough: Boosting Privacy by Sharing Only Hard Labels in
Federated Semi-Supervised Learning", arXiv 2310.05696, Algorithm 1. The paper's lines are named beside ours.

Reproduces: Table 3 (interpretable models), Table 6 (mixed models).

Deviations from the paper and its code, all on purpose:

- Ties are broken at random by the study's seed, not in favour of the low class.
- Sites that lack a class can still learn it: the study's classes are everybody's classes.
- A learner that cannot go on from its weights is fitted anew on D_i u P; one that can does one local update per round,
  of the size `epochs` or `steps` says, half of each batch private, half pseudo-labelled, with one optimizer throughout.
- The paper makes no global model. We fit one more on (U, final L): `run.global_model`.
- `voters=Familiar()` (ours) lets sites abstain where a public sample is unlike their own data; `patience` stops early.
- Nothing here is differentially private: hard labels alone are no guarantee.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from collegium.consensus import Consensus, Majority, Voters
from collegium.core import ActiveSite, Algorithm, Federation, HardLabels, Labels, Nothing, Order, step
from collegium.errors import ConfigError


@step
def train(site: ActiveSite, L: Labels | None, epochs: int | None, steps: int | None) -> Nothing:
    """Line 3: h_i <- A_i(D_i u P), with P = (U, L)."""
    site.fit(site.data + site.public.labelled(L), epochs=epochs, steps=steps)
    return Nothing()


@step
def label(site: ActiveSite) -> HardLabels:
    """Line 5: L_i <- h_i(U)."""
    return HardLabels(site.predict(site.public))


@dataclass(frozen=True)
class FedCT(Algorithm):
    """Sites share hard labels of the public set and learn from their consensus."""

    rounds: int = 20
    """T: local updates."""
    period: int = 1
    """b: local updates between two communications."""
    consensus: Consensus = field(default_factory=Majority)
    """How L_1 .. L_m become L."""
    voters: Voters | None = None
    """Who votes on which sample: None (everybody on everything) or Familiar()."""
    participation: float = 1.0
    """Share of the sites, drawn anew for every communication."""
    epochs: int | None = None
    """Size of a local update of an iterative learner (None: the learner's own setting)."""
    steps: int | None = None
    """The same in mini-batch steps (the paper's code: 1)."""
    patience: int | None = None
    """Stop after this many communications without any change of L."""

    def __post_init__(self) -> None:
        self.at_least_one("rounds", "period", "epochs", "steps", "patience")
        if not isinstance(self.consensus, Consensus):
            raise ConfigError(
                f"{type(self).__name__}: consensus is a rule, such as Majority(), not {self.consensus!r}."
            )
        if self.voters is not None and not isinstance(self.voters, Voters):
            raise ConfigError(
                f"{type(self).__name__}: voters is None or a rule, such as Familiar(), not {self.voters!r}."
            )
        if not 0 < self.participation <= 1:
            raise ConfigError(f"{type(self).__name__}: participation must be above 0 and at most 1.")
        if self.period > self.rounds:
            raise ConfigError(
                f"{type(self).__name__}: with period {self.period} > rounds {self.rounds} no site ever speaks."
            )

    def coordinate(self, fed: Federation) -> None:
        L: Labels | None = None  # line 1: P <- {}
        parties, communications, unchanged = fed.parties, 0, 0
        for t in fed.rounds(self.rounds):
            if t % self.period == 0:
                parties = fed.sample(self.participation)
            fed.tell(train(L, self.epochs, self.steps), parties)  # line 3
            if t % self.period == self.period - 1:  # line 4
                L = self.consensus(fed, self._vote(communications), parties)  # lines 5, 6, 10, 11
                communications += 1
                changed = fed.announce(L)  # lines 7, 12
                unchanged = unchanged + 1 if changed == 0 and L.known.any() else 0
                if self.patience is not None and unchanged >= self.patience:
                    break

    def _vote(self, communication: int) -> Order[HardLabels]:
        asked = None if self.voters is None else self.voters.order(communication)
        return label() if asked is None else asked
