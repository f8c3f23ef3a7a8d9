"""Audits of mechanisms: is the noise as large, as independent and as complete as the charge says?

Every experiment draws releases of two neighbouring inputs, as far apart as the mechanism's own charge allows. One half
of them chooses a set of outputs and a point of the claimed curve (epsilon, delta); the other half tests that one
choice, by Clopper and Pearson's bounds. No experiment looks at what the others found, and each may err with a share of
`alpha`: a correct mechanism is flagged with probability `alpha` at most.

- *one value* and *several values*: noise that is too small, a sensitivity that is too small, composition left out.
- *fresh releases*: the outputs as they are, each from a release of its own: noise that repeats.
- *lowest bits*: of numbers; floating-point noise on a finer grid than its neighbour's.
- *holes*: of numbers; outputs that no random word makes of the neighbour. Noise that is a monotone function of one
  word per number is searched for them, word by word; other noise is left undecided by this one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from collegium.auditing.statistics import clopper_pearson
from collegium.core.labels import Labels
from collegium.core.releases import (
    ApprovalBits,
    Counts,
    HardLabels,
    NoisyCounts,
    Numbers,
    Release,
    Spellings,
    VoteCounts,
)
from collegium.core.settings import OpenProbability, TwoOrMore, checked
from collegium.errors import ConfigError
from collegium.privacy import accountant
from collegium.privacy.events import Event
from collegium.privacy.mechanisms.base import Mechanism, total_epsilon
from collegium.privacy.noise import Noise, noise_source

Keys = NDArray[np.int64]
Floats = NDArray[np.float64]
Verdict = Literal["consistent", "contradicts the claim"]
Make = Callable[[int], Release]
"""A release of so many equal values."""

_DELTAS: Final = (1e-3, 0.01, 0.05, 0.15, 0.3, 0.5, 0.7)
_SEVERAL: Final = 8
_CALLS: Final = 1000
_FRESH: Final = 400
_BINS: Final = 64
_ERRORS: Final = 2.5
"""About as many standard errors as Clopper and Pearson's bounds are away from what was seen."""
_TARGETS: Final = 2000
_TAIL_BITS: Final = 10
_LARGE_EPSILON: Final = 50.0


@dataclass(frozen=True)
class MechanismAudit:
    """What the most telling experiment found about a mechanism."""

    epsilon_lower: float
    """At least this epsilon is spent, at `delta`."""
    delta: float
    epsilon_claimed: float
    """What the mechanism's own charge is at `delta`."""
    verdict: Verdict
    why: str
    alpha: float
    """The probability that a correct mechanism is said to contradict its claim is at most this."""


@dataclass(frozen=True)
class _Experiment:
    """What came out for two neighbouring inputs, as keys, and what such an experiment is charged."""

    what: str
    first: Keys
    second: Keys
    events: tuple[Event, ...]

    def outcome(self, share: float, alpha: float) -> MechanismAudit:
        """The best set of outputs and point of the curve by one half of the trials, tested by the other."""
        pairs = [(self.first, self.second), (self.second, self.first)]
        choices = [(*_choice(a[::2], b[::2], self.events), a[1::2], b[1::2]) for a, b in pairs]
        _, outputs, (epsilon, delta), likely, unlikely = max(choices, key=lambda choice: choice[0])
        low = clopper_pearson(int(np.isin(likely, outputs).sum()), len(likely), share)[0]
        high = clopper_pearson(int(np.isin(unlikely, outputs).sum()), len(unlikely), share)[1]
        lower = math.log((low - delta) / high) if low > delta else 0.0
        why = f"{self.what}: outputs of probability {low:.3g} at least have {high:.3g} at most for a neighbour"
        return MechanismAudit(max(0.0, lower), delta, epsilon, _verdict(lower > epsilon), why, alpha)


@dataclass(frozen=True)
class _Holes:
    """How many outputs in a tail of known probability the neighbour cannot have."""

    impossible: int
    of: int
    events: tuple[Event, ...]

    def outcome(self, share: float, alpha: float) -> MechanismAudit:
        """What is impossible for the neighbour is allowed a probability of delta, for any epsilon."""
        least = clopper_pearson(self.impossible, self.of, share)[0] * 2.0**-_TAIL_BITS
        claimed = accountant.delta_of(self.events, _LARGE_EPSILON)[0]
        why = f"holes: outputs of probability {least:.3g} at least are impossible for a neighbour"
        lower = math.inf if least > claimed else 0.0
        return MechanismAudit(lower, claimed, _LARGE_EPSILON, _verdict(least > claimed), why, alpha)


def _verdict(broken: bool) -> Verdict:
    return "contradicts the claim" if broken else "consistent"


@checked
def audit_mechanism(
    mechanism: Any,
    *,
    trials: TwoOrMore = 20_000,
    alpha: OpenProbability = 0.05,
    n_classes: TwoOrMore = 3,
    seed: int | None = None,
) -> MechanismAudit:
    """Audit a mechanism against its own charge.

    Parameters
    ----------
    mechanism
        Any `Mechanism` on labels, vote counts, numbers, or counts and words that sites sum up.
    trials
        How many releases of each input; half of them choose what the other half tests.
    alpha
        The probability of flagging a correct mechanism is at most this.
    n_classes
        How many classes the labels or votes have.
    seed
        None: noise as at a real site. A number: the same audit again.
    """
    if not isinstance(mechanism, Mechanism) or mechanism.takes not in _EXPERIMENTS:
        kinds = ", ".join(kind.__name__ for kind in _EXPERIMENTS)
        raise ConfigError(f"audit_mechanism takes a Mechanism on {kinds}, not {type(mechanism).__name__}.")
    experiments = list(_EXPERIMENTS[mechanism.takes](mechanism, trials, n_classes, noise_source(seed)))
    share = alpha / len(experiments)
    found = [each.outcome(share, alpha) for each in experiments]
    broken = [one for one in found if one.verdict != "consistent"]
    return max(broken or found, key=lambda one: one.epsilon_lower - (one.epsilon_claimed if broken else 0.0))


def _choice(first: Keys, second: Keys, events: tuple[Event, ...]) -> tuple[float, Keys, tuple[float, float]]:
    """How promising the best set of outputs is (those with the largest ratios); these; and the point of the curve.

    Best is by how much the bound is likely to exceed the claim; where it is not likely to, by the bound itself.
    """
    keys, places = np.unique(np.concatenate([first, second]), return_inverse=True)
    counts = [np.bincount(part, minlength=len(keys)) for part in np.split(places, [len(first)])]
    order = np.argsort(-(counts[0] + 0.5) / (counts[1] + 0.5), kind="stable")
    p = np.cumsum(counts[0][order]) / len(first)
    q = (np.cumsum(counts[1][order]) + 1) / (len(second) + 2)
    low = p - _ERRORS * np.sqrt(p * (1 - p) / len(first))
    high = q + _ERRORS * np.sqrt(q * (1 - q) / len(second))
    best: tuple[float, Keys, tuple[float, float]] = (-math.inf, keys, (0.0, 1.0))
    for epsilon, delta in _curve(events):
        bound = np.log(np.maximum(low - delta, 1e-9) / high)
        promise = np.where(bound > epsilon, _LARGE_EPSILON + bound - epsilon, bound)
        place = int(np.argmax(promise))
        best = max(best, (float(promise[place]), keys[order[: place + 1]], (epsilon, delta)), key=lambda one: one[0])
    return best


@cache
def _curve(events: tuple[Event, ...]) -> tuple[tuple[float, float], ...]:
    """Points (epsilon, delta) that the events claim."""
    points = [(total_epsilon(events, 1, 0.0), 0.0), (0.0, accountant.delta_of(events, 0.0)[0])]
    points += [(accountant.epsilon_of(events, delta)[0], delta) for delta in _DELTAS]
    return tuple((epsilon, delta) for epsilon, delta in points if epsilon < _LARGE_EPSILON and delta < 1)


# Inputs, and what comes out


def _on_labels(mechanism: Any, trials: int, n_classes: int, noise: Noise) -> Iterator[_Experiment]:
    """Every label changes from the first class to the second."""

    def made(code: int) -> Make:
        return lambda count: HardLabels(Labels(np.full(count, code), n_classes))

    yield from _of_values(mechanism, (made(0), made(1)), trials, n_classes, noise)


def _on_counts(mechanism: Any, trials: int, n_classes: int, noise: Noise) -> Iterator[_Experiment]:
    """Votes move from the first class to the second: where they decide, and where the second still seldom wins."""
    moved, base = mechanism.changed_votes, 1000 + abs(math.ceil(getattr(mechanism, "threshold", 0)))

    def made(lead: int) -> Make:
        row = np.zeros(n_classes, dtype=np.int64)
        row[:2] = 2 * base + lead * moved, 2 * base - lead * moved
        return lambda count: VoteCounts(np.tile(row, (count, 1)))

    def second_wins(lead: int) -> bool:
        """Mostly, in releases of their own: noise that repeats decides all of them alike."""
        return sum(int(_values(mechanism.apply(made(lead)(1), noise))[0] == 1) for _ in range(9)) > 4

    far = base // moved
    lead = _last(lambda steps: second_wins(steps - far), 2 * far) - far
    yield from _of_values(mechanism, (made(lead + 1), made(lead)), trials, n_classes, noise)
    rare = _last(lambda steps: (_outputs(mechanism, made(lead + steps), 100, 1, noise) == 1).mean() > 0.05, far)
    yield _one_value(mechanism, (made(lead + rare), made(lead + rare - 1)), trials, n_classes, noise)


def _on_numbers(mechanism: Any, trials: int, n_classes: int, noise: Noise) -> Iterator[_Experiment | _Holes]:
    """A number changes by the sensitivity."""

    def made(value: float) -> Make:
        return lambda count: Numbers(np.full(count, value))

    both, charged = (made(0.0), made(mechanism.sensitivity)), _charged(mechanism, 1, n_classes)

    def sums(make: Make, releases: int) -> Floats:
        outputs = [_outputs(mechanism, make, trials, 1, noise)[:, 0] for _ in range(releases)]
        return np.asarray(np.sum(outputs, axis=0))

    first, second = (sums(make, 1) for make in both)
    yield _Experiment("one value", *_binned(first, second), charged)
    yield _Experiment("lowest bits", _lowest_bits(first), _lowest_bits(second), charged)
    first, second = (sums(make, _SEVERAL) for make in both)
    yield _Experiment("several values", *_binned(first, second), tuple(event.times(_SEVERAL) for event in charged))
    yield _fresh(mechanism, both, trials, n_classes, noise)
    impossible = _impossible(mechanism, *both)
    if impossible is not None:
        yield _Holes(impossible, _TARGETS, charged)


def _on_sums(mechanism: Any, trials: int, n_classes: int, noise: Noise) -> Iterator[_Experiment]:
    """A count changes by the sensitivity, and is seen in a sum over as many sites as the charge is for."""
    moved, charged = max(1, math.floor(mechanism.sensitivity)), _charged(mechanism, 1, n_classes)

    def sums(value: int, many: int) -> Floats:
        shares = [_values(mechanism.apply(Counts(np.full(many, 0)), noise)) for _ in range(mechanism.fewest - 1)]
        return np.asarray(np.sum([_values(mechanism.apply(Counts(np.full(many, value)), noise)), *shares], axis=0))

    yield _Experiment("one value", *_binned(sums(0, trials), sums(moved, trials)), charged)
    fresh = (np.array([sums(value, 1)[0] for _ in range(min(trials, _FRESH))]) for value in (0, moved))
    yield _Experiment("fresh releases", *_binned(*fresh), charged)


def _on_spellings(mechanism: Any, trials: int, n_classes: int, noise: Noise) -> Iterator[_Experiment]:
    """A value that one site has, or two: their sum, by its highest and by its lowest bits."""
    there, charged = Spellings(np.ones((1, 1), np.uint64), np.zeros((1, 1), np.int64), 1), _charged(mechanism, 1, 2)

    def sums(sites: int) -> NDArray[np.uint64]:
        shares = [[mechanism.apply(there, noise).words[0] for _ in range(trials)] for _ in range(sites)]
        return np.asarray(np.sum(shares, axis=0, dtype=np.uint64))

    alone, both = sums(1), sums(2)
    highest, lowest = [(each >> np.uint64(58)).astype(np.int64) for each in (alone, both)], np.uint64(63)
    yield _Experiment("highest bits", highest[0], highest[1], charged)
    yield _Experiment("lowest bits", (alone & lowest).astype(np.int64), (both & lowest).astype(np.int64), charged)


_EXPERIMENTS: Final[dict[type[Release], Callable[..., Iterator[_Experiment | _Holes]]]] = {
    HardLabels: _on_labels, VoteCounts: _on_counts, Numbers: _on_numbers, Counts: _on_sums,
    Spellings: _on_spellings,
}  # fmt: skip


def _of_values(
    mechanism: Any, both: tuple[Make, Make], trials: int, n_classes: int, noise: Noise
) -> Iterator[_Experiment]:
    one = _one_value(mechanism, both, trials, n_classes, noise)
    yield one
    yield _fresh(mechanism, both, trials, n_classes, noise)
    charge = mechanism.charge(_SEVERAL, n_classes, records=1000, observed=_SEVERAL)
    if charge.kind == "dp":  # other charges are for fewer changes than there are here
        outputs = (_outputs(mechanism, make, trials, _SEVERAL, noise) for make in both)
        first, second = (_evidence(one, part).sum(axis=1) for part in outputs)
        yield _Experiment("several values", first, second, charge.events)


def _evidence(one: _Experiment, outputs: Keys) -> Keys:
    """How much likelier each output was for the first input than for the second, in eighths of a unit of epsilon."""
    keys, places = np.unique(np.concatenate([one.first, one.second, outputs.ravel()]), return_inverse=True)
    first, second, these = np.split(places, np.cumsum([len(one.first), len(one.second)]))
    seen = [np.bincount(part, minlength=len(keys)) + 0.5 for part in (first, second)]
    evidence: Keys = np.rint(8 * np.log(seen[0] / seen[1])).astype(np.int64)
    return evidence[these].reshape(outputs.shape)


def _one_value(mechanism: Any, both: tuple[Make, Make], trials: int, n_classes: int, noise: Noise) -> _Experiment:
    first, second = (_outputs(mechanism, make, trials, 1, noise)[:, 0] for make in both)
    return _Experiment("one value", first, second, _charged(mechanism, 1, n_classes))


def _fresh(mechanism: Any, both: tuple[Make, Make], trials: int, n_classes: int, noise: Noise) -> _Experiment:
    """Releases one by one, told apart by all their bytes."""
    keys = [
        np.array([hash(_values(mechanism.apply(make(1), noise)).tobytes()) for _ in range(min(trials, _FRESH))])
        for make in both
    ]
    return _Experiment("fresh releases", keys[0], keys[1], _charged(mechanism, 1, n_classes))


def _charged(mechanism: Any, size: int, n_classes: int) -> tuple[Event, ...]:
    events: tuple[Event, ...] = mechanism.charge(size, n_classes, records=1000, observed=size).events
    return events


def _outputs(mechanism: Any, make: Make, trials: int, size: int, noise: Noise) -> NDArray[Any]:
    """What comes out of so many releases of `size` values: in one call where each value has noise of its own."""
    if mechanism.independent:
        return _values(mechanism.apply(make(trials * size), noise)).reshape(trials, size)
    return np.stack([_values(mechanism.apply(make(size), noise)) for _ in range(min(trials, _CALLS))])


def _values(release: Release) -> NDArray[Any]:
    """A number for each value; bits are read as a binary number, so that the first class is its lowest bit."""
    match release:
        case HardLabels():
            return release.labels.codes.astype(np.int64)
        case ApprovalBits():
            bits = release.to_bits().astype(np.int64)
            return np.asarray(bits @ (1 << np.arange(bits.shape[1])))
        case Numbers():
            return release.values
        case NoisyCounts():
            return release.counts
    raise ConfigError(f"audit_mechanism does not know what a {type(release).__name__} tells.")


def _last(holds: Callable[[int], bool], most: int) -> int:
    """The last number from 1 to `most` that holds, where those up to some number do; 1 if none does."""
    low, high = 1, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _binned(first: Floats, second: Floats) -> tuple[Keys, Keys]:
    """Numbers by quantiles of those that choose; those that are tested have no say in them."""
    edges = np.quantile(np.concatenate([first[::2], second[::2]]), np.linspace(0, 1, _BINS + 1)[1:-1])
    return np.searchsorted(edges, first), np.searchsorted(edges, second)


def _lowest_bits(values: Floats) -> Keys:
    """The exponent of the lowest bit that is set in each number."""
    mantissa, exponent = np.frexp(values)
    whole = (mantissa * 2.0**53).astype(np.int64)
    return np.asarray(exponent + np.log2(np.maximum(whole & -whole, 1)).astype(np.int64))


class _Undecided(Exception):
    """This noise is not a monotone function of one word per number."""


class _Given(Noise):
    """Words as they are given, once."""

    seeded = True

    def __init__(self, words: NDArray[np.uint64]) -> None:
        self._left: NDArray[np.uint64] | None = words

    def words(self, n: int) -> NDArray[np.uint64]:
        """All of them, or an error if it is not all that is asked for."""
        words, self._left = self._left, None
        if words is None or len(words) != n:
            raise _Undecided
        return words


def _impossible(mechanism: Any, mine: Make, neighbour: Make) -> int | None:
    """How many of `_TARGETS` outputs of the lower tail no word makes of the neighbour; None if that is undecided."""

    def noisy(make: Make, words: NDArray[np.uint64]) -> Floats:
        return _values(mechanism.apply(make(len(words)), _Given(words)))

    tail = np.random.default_rng(0).integers(1 << (64 - _TAIL_BITS), size=_TARGETS, dtype=np.uint64)
    try:
        rising = np.diff(noisy(mine, np.linspace(0, 2.0**64, _TARGETS, endpoint=False).astype(np.uint64)))
        if not (rising >= 0).all():
            return None
        targets = noisy(mine, tail)
        low, high = np.zeros(_TARGETS, np.uint64), np.full(_TARGETS, 2**64 - 1, np.uint64)
        for _ in range(64):  # the largest word whose output is not above the target
            middle = low + (high - low) // np.uint64(2)
            below = noisy(neighbour, middle) <= targets
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return int((noisy(neighbour, low) != targets).sum())
    except _Undecided:
        return None
