"""Counts of votes with noise: the settings that FedKT and PATE share, and the coordinator's labels made with them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from collegium.core import Federation, Labels
from collegium.core.settings import OpenProbability, PositiveFloat, PositiveInt, Settings
from collegium.errors import ConfigError
from collegium.privacy import accountant, composition
from collegium.privacy.claims import Charge, Relation, Unit
from collegium.privacy.hindsight import check_accounted, hindsight_charge
from collegium.privacy.mechanisms.named import build_mechanism
from collegium.privacy.mechanisms.noisy_max import GaussianNoisyMax, LaplaceNoisyMax, NoisyMax

NoiseName = Literal["laplace", "gaussian"]
Accounting = Literal["data_independent", "data_dependent"]
DELTA: Final = 1e-5
FINAL_MODEL: Final = "the final labels and the final model"
ONE_SITE: Final = (
    "every record belongs to one site (parallel composition); it stands on what the sites' own claims stand on"
)


@dataclass(frozen=True, kw_only=True)
class NoisyVotes(Settings):
    """How much noise goes on votes, by how many queries the vote is used, and how that is accounted for."""

    gamma: PositiveFloat | None = None
    """The inverse of the noise's scale: Laplace noise of scale 1 / gamma, or a standard deviation of 1 / gamma."""
    epsilon: PositiveFloat | None = None
    """Instead of gamma: what all queries together may cost; gamma follows from it."""
    queries: PositiveInt | None = None
    """k: how many public samples, drawn at random, are labeled with noise (None: all of them)."""
    noise: NoiseName = "laplace"
    """The paper's Laplace noise, or Gaussian noise (GNMax), which is better for many queries."""
    mechanism: NoisyMax | None = None
    """Instead of all that: a mechanism, such as ConfidentNoisyMax(threshold=30, sigma1=15, sigma2=8)."""
    delta: OpenProbability | None = None
    """At which epsilon is stated (None: the mechanism's own delta where there is a mechanism, else 1e-5)."""
    accounting: Accounting = "data_independent"
    """What the claim looks at; "data_dependent" looks at the votes, and the claim must not be published."""

    def __post_init__(self) -> None:
        super().__post_init__()
        me = type(self).__name__
        if [self.gamma, self.epsilon, self.mechanism].count(None) < 2:
            raise ConfigError(f"{me}: gamma, epsilon and mechanism each set the amount of noise: give one of them.")
        if self.mechanism is None:
            return
        # A delta that is the default may have been left out: then the one given here counts.
        if self.delta is not None and self.mechanism.settings().get("delta", self.delta) != self.delta:
            raise ConfigError(
                f"{me}: delta is {self.delta:g} and the mechanism's own is {self.mechanism.delta:g}: give one of them."
            )
        if self.accounting == "data_dependent":
            check_accounted(me, self.mechanism)

    @property
    def has_noise(self) -> bool:
        """Is any noise set?"""
        return (self.gamma, self.epsilon, self.mechanism) != (None, None, None)

    @property
    def stated_delta(self) -> float:
        """At which epsilon is stated, also where `delta` was left out."""
        if self.delta is not None:
            return self.delta
        return DELTA if self.mechanism is None else self.mechanism.delta

    def check_classes(self, n_classes: int) -> None:
        """A ConfigError where there is noise and nothing to vote on: one class."""
        if self.has_noise and n_classes < 2:
            raise ConfigError(f"{type(self).__name__}: noise on votes needs at least two classes, not {n_classes}.")

    def n_queries(self, public_size: int) -> int:
        """How many public samples are queried; more than there are is an error."""
        if self.queries is not None and self.queries > public_size:
            raise ConfigError(
                f"{type(self).__name__}: queries must be at most {public_size}, the rows of the public set, "
                f"not {self.queries}."
            )
        return public_size if self.queries is None else self.queries

    def noisy_max(self, uses: int, changed_votes: int, unit: Unit) -> NoisyMax:
        """The mechanism for `uses` queries in all, where one record or party moves `changed_votes` votes."""
        own: dict[str, Any] = {"changed_votes": changed_votes, "delta": self.stated_delta, "unit": unit}
        if self.mechanism is not None:
            return type(self.mechanism)(**self.mechanism.settings() | own)
        epsilon, delta = float(self.epsilon or 0), self.stated_delta
        if self.noise == "laplace":
            gamma = self.gamma or composition.per_round(epsilon, delta, uses) / (2 * changed_votes)
            return LaplaceNoisyMax(gamma, **own)
        if self.gamma:
            return GaussianNoisyMax(1 / self.gamma, **own)
        return GaussianNoisyMax(
            accountant.noise_multiplier(epsilon, delta, uses) * float(np.sqrt(2)) * changed_votes, **own
        )

    def label(
        self, fed: Federation, counts: NDArray[Any], mechanism: NoisyMax, queries: int, relation: Relation = "any"
    ) -> Labels:
        """The coordinator's noisy winners of `queries` public samples, charged; all others stay without a label.

        `counts` are votes of shape (classes, public samples); the charge holds for neighbours by `relation`.
        """
        queried = np.sort(np.argsort(fed.noise.words(counts.shape[1]))[:queries])
        votes = counts[:, queried].T
        codes = np.full(counts.shape[1], -1)
        codes[queried] = mechanism.release(votes, fed.noise)
        charge = replace(mechanism.charge(queries, fed.n_classes), relation=relation)
        if self.accounting == "data_dependent":
            charge = hindsight_charge(mechanism, votes, charge)
        fed.charge(FINAL_MODEL, charge)
        return Labels(codes, fed.n_classes)


def build_noisy_max(plain: dict[str, Any]) -> NoisyMax:
    """A noisy maximum from an order; at a site no other mechanism may answer for teachers."""
    mechanism = build_mechanism(plain)
    if not isinstance(mechanism, NoisyMax):
        raise ConfigError(f"{type(mechanism).__name__} cannot put noise on votes.")
    return mechanism


def record_charge(mechanism: NoisyMax, partitions: int, queries: int) -> Charge:
    """What each site pays, and the final model costs any record: `queries` to the teachers of each partition."""
    charge = mechanism.charge(queries, 2)  # the number of classes changes nothing
    events = tuple(event.times(partitions) for event in charge.events)
    return replace(charge, events=events, relation="add_remove", assumptions=(ONE_SITE,))
