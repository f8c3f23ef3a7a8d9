"""What every registered mechanism must do: above all, cost no less than it says."""

from __future__ import annotations

import copy
import inspect
import itertools
import pickle
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pytest
from scipy import stats

from collegium import registry, wire
from collegium.auditing.mechanisms import audit_mechanism
from collegium.core.building import build, settings_of
from collegium.core.labels import Labels
from collegium.core.releases import (
    BlindedSpellings,
    Counts,
    HardLabels,
    NoisyCounts,
    Numbers,
    Release,
    Spellings,
    VoteCounts,
)
from collegium.errors import ConfigError
from collegium.privacy.claims import Charge
from collegium.privacy.mechanisms.base import Mechanism
from collegium.privacy.mechanisms.blinding import Blinding
from collegium.privacy.mechanisms.distributed import DistributedGaussian
from collegium.privacy.mechanisms.gaussian import Gaussian
from collegium.privacy.mechanisms.labels import LabelMechanism
from collegium.privacy.mechanisms.laplace import Laplace
from collegium.privacy.mechanisms.noisy_max import ConfidentNoisyMax, GaussianNoisyMax, LaplaceNoisyMax
from collegium.privacy.mechanisms.randomized_response import RandomizedResponse
from collegium.privacy.mechanisms.unary import UnaryEncoding
from collegium.privacy.mechanisms.xor import XorMechanism
from collegium.privacy.noise import SeededNoise

THETA = [[-1.0, 0.3, -0.2], [0.3, -0.7, 0.1], [-0.2, 0.1, -1.4]]
# Every way to make a mechanism that draws other noise, for three classes.
MADE: dict[str, Mechanism] = {
    "randomized_response": RandomizedResponse(1.3),
    "unary_encoding": UnaryEncoding(1.7, delta=1e-6),
    "xor": XorMechanism(0.8),
    "xor rows": XorMechanism(THETA, "rows"),
    "xor columns": XorMechanism(0.9, "columns", coupling=0.005),
    "xor avoiding columns": XorMechanism(-0.4, "columns", coupling=-0.2),
    "xor assumed": XorMechanism(2.0, sensitivity="assumed_stability", stability_rate=0.03, stability_failure=0.01),
    "randomized_response observed": RandomizedResponse(2, sensitivity="observed_max_change", neighbours=9),
    "laplace": Laplace(scale=2.0, sensitivity=3.0),
    "laplace by epsilon": Laplace(0.5, relation="any"),
    "gaussian": Gaussian(sigma=1.5),
    "gaussian by epsilon": Gaussian(2.0, delta=0.01, unit="party"),
    "distributed_gaussian": DistributedGaussian(2.5, sensitivity=2.0),
    "distributed_gaussian, by five": DistributedGaussian(0.8, sensitivity=3.0, fewest=5),
    "blinding": Blinding(chance=1e-4),
    "gaussian_noisy_max": GaussianNoisyMax(2.0, changed_votes=2),
    "laplace_noisy_max": LaplaceNoisyMax(0.3, unit="party"),
    "confident_noisy_max": ConfidentNoisyMax(6, 2.0, 1.5),
    "confident_noisy_max, few": ConfidentNoisyMax(4, 1.0, 2.0, max_answers=3),
}
every_mechanism = pytest.mark.parametrize("made", MADE.values(), ids=MADE)
# With more samples than a few, flips so crowded would be flips of nearly everything.
CROWDED = XorMechanism(0.9, "columns", coupling=0.4)
ON_LABELS = {key: made for key, made in MADE.items() if isinstance(made, LabelMechanism)}
ON_LABELS |= {"xor columns, few": XorMechanism(0.9, "columns", coupling=0.1), "xor columns, crowded": CROWDED}
every_label_mechanism = pytest.mark.parametrize("made", ON_LABELS.values(), ids=ON_LABELS)
RNG = np.random.default_rng(0)
INPUTS: dict[type[Release], Release] = {
    HardLabels: HardLabels(Labels(RNG.integers(3, size=40), 3)),
    Numbers: Numbers(RNG.normal(size=40)),
    Counts: Counts(np.arange(40)),
    Spellings: Spellings(np.arange(40, dtype=np.uint64).reshape(8, 5), np.arange(16).reshape(8, 2), 16),
    VoteCounts: VoteCounts(RNG.multinomial(10, [0.5, 0.3, 0.2], size=40)),
}


def release(made: Mechanism, rng: Any = None) -> np.ndarray:
    """A noisy release of the inputs above, as users ask for it."""
    given = INPUTS[made.takes]
    if isinstance(given, HardLabels):
        return made.release(given.labels, 3, rng)  # type: ignore[attr-defined]
    if isinstance(given, Spellings):
        return made.release(given.words, given.places, given.size, rng)  # type: ignore[attr-defined]
    return made.release(given.values if isinstance(given, Numbers) else given.counts, rng)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", registry.names("mechanism"))
def test_there_is_one_here_of_every_name(name: str) -> None:
    cls = registry.lookup("mechanism", name)
    assert cls.name == name
    assert any(type(made) is cls for made in MADE.values()), f"add {name} to MADE"


@every_mechanism
def test_it_is_a_value(made: Mechanism) -> None:
    for twin in (copy.deepcopy(made), pickle.loads(pickle.dumps(made)), type(made)(**made.settings())):
        assert twin == made
        assert hash(twin) == hash(made)
        assert twin.charge(40, 3, observed=1) == made.charge(40, 3, observed=1)
        np.testing.assert_array_equal(release(twin, 1), release(made, 1))
    assert made != object()
    assert sum(made == other for other in MADE.values()) == 1
    for name in ("delta", "per_label", "anything"):
        with pytest.raises(FrozenInstanceError):
            setattr(made, name, 1)
    with pytest.raises(FrozenInstanceError):
        del made.delta


@every_mechanism
def test_its_settings_are_shown_typed_and_buildable_by_name(made: Mechanism) -> None:
    for name, value in made.settings().items():
        assert f"{name}={value!r}" in repr(made)
    assert repr(made).startswith(type(made).__name__ + "(")
    plain = made.to_plain()
    assert plain["name"] in registry.names("mechanism")
    assert build("mechanism", plain, "here") == made
    assert build("mechanism", wire.unpack(wire.pack(plain).data), "here") == made
    assert all(hint is not Any for hint in settings_of(type(made)).values())
    for parameter in inspect.signature(type(made)).parameters.values():
        assert parameter.annotation is not parameter.empty


@every_mechanism
def test_noise_is_secure_by_default_and_repeats_from_a_seed(made: Mechanism) -> None:
    assert any(not np.array_equal(release(made), release(made)) for _ in range(5))
    np.testing.assert_array_equal(release(made, 7), release(made, 7))
    np.testing.assert_array_equal(release(made, np.random.default_rng(7)), release(made, 7))
    assert any(not np.array_equal(release(made, 7), release(made, seed)) for seed in range(5))
    with pytest.raises(ConfigError, match="rng"):
        release(made, "seed")


@every_mechanism
def test_it_takes_and_gives_the_kinds_it_says(made: Mechanism) -> None:
    noisy = made.apply(INPUTS[made.takes], SeededNoise(np.random.default_rng(7)))
    assert type(noisy) is made.gives
    noisy.check(3, 40)
    expected = release(made, 7)
    if isinstance(noisy, HardLabels):
        np.testing.assert_array_equal(noisy.labels.codes, expected)
    elif isinstance(noisy, BlindedSpellings):
        np.testing.assert_array_equal(noisy.words, expected)
    elif isinstance(noisy, NoisyCounts):
        np.testing.assert_array_equal(noisy.counts, expected)
    else:
        np.testing.assert_array_equal(noisy.values if isinstance(noisy, Numbers) else noisy.to_bits(), expected)


@every_mechanism
def test_what_it_charges_is_plain_data_and_nothing_costs_nothing(made: Mechanism) -> None:
    charge = made.charge(40, 3, records=100, observed=4)
    assert isinstance(charge, Charge)
    assert charge.events
    assert charge.delta == made.delta  # type: ignore[attr-defined]
    assert wire.unpack(wire.pack([event.to_plain() for event in charge.events]).data)
    assert charge == made.charge(40, 3, records=100, observed=4)  # of the settings and sizes alone
    if not isinstance(made, Laplace | Gaussian | DistributedGaussian):  # theirs is of all numbers together
        assert made.charge(0, 3, observed=0).events == ()


@every_mechanism
@pytest.mark.parametrize("delta", [0, 1, -1e-5, float("nan"), "1e-5", True])
def test_an_impossible_delta_is_refused(made: Mechanism, delta: Any) -> None:
    with pytest.raises(ConfigError, match="delta"):
        type(made)(**made.settings() | {"delta": delta})


@every_mechanism
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), "1", None, True])
def test_an_impossible_amount_of_noise_is_refused(made: Mechanism, value: Any) -> None:
    for name in ("epsilon", "scale", "sigma", "gamma", "sigma1", "sigma2"):
        if name in made.settings():
            with pytest.raises(ConfigError, match=name):
                type(made)(**made.settings() | {name: value})


@every_mechanism
def test_an_audit_finds_nothing(made: Mechanism) -> None:
    found = audit_mechanism(made, trials=4000, alpha=1e-4)
    assert found.verdict == "consistent", found.why
    assert found.epsilon_lower <= found.epsilon_claimed


# Exact: every output of every input, where there are few.


def inputs(n: int) -> Iterator[tuple[int, ...]]:
    return itertools.product(range(3), repeat=n)


def exponent(made: Mechanism, n: int) -> np.ndarray:
    """The paper's parameters of the noise on n x 3 bits, as one matrix: density exp(b' Pi b)."""
    if isinstance(made, UnaryEncoding):
        return -made.per_label / 2 * np.eye(3 * n)
    assert isinstance(made, XorMechanism)
    if made.structure == "rows":
        return np.kron(np.eye(n), np.array(made.theta))
    coupling = made.coupling * (np.ones((n, n)) - np.eye(n))
    return np.kron(coupling - abs(made.theta) * np.eye(n), np.eye(3))  # type: ignore[arg-type]


def distributions(made: Mechanism, n: int) -> dict[tuple[int, ...], np.ndarray]:
    """For every input, how likely each output is: derived from the mechanism's definition, not from its code."""
    if isinstance(made, RandomizedResponse):
        keep = np.exp(made.per_label) / (np.exp(made.per_label) + 2)
        one = np.where(np.eye(3, dtype=bool), keep, (1 - keep) / 2)
        return {
            x: np.array([np.prod([one[a, b] for a, b in zip(x, y, strict=True)]) for y in inputs(n)]) for x in inputs(n)
        }
    bits = np.array(list(itertools.product([0, 1], repeat=3 * n)))
    weights = np.exp(np.einsum("ni,ij,nj->n", bits, exponent(made, n), bits))
    weights /= weights.sum()
    powers = 2 ** np.arange(3 * n)[::-1]
    return {x: weights[(bits ^ np.eye(3, dtype=int)[list(x)].reshape(-1)) @ powers] for x in inputs(n)}


@every_label_mechanism
@pytest.mark.parametrize("n", [1, 2, 3])
def test_no_output_betrays_more_than_is_charged_exactly(made: LabelMechanism, n: int) -> None:
    chances = distributions(made, n)
    for changes in range(1, n + 1):
        lost = max(
            float(np.abs(np.log(chances[x] / chances[y])).max())
            for x, y in itertools.combinations(chances, 2)
            if sum(a != b for a, b in zip(x, y, strict=True)) <= changes
        )
        charged = sum(event.count * event.epsilon for event in made.label_events(changes, n, 3))  # type: ignore[attr-defined]
        assert lost <= charged + 1e-9
        # It is charged no more than is needed, but where a column's number of flips has two peaks.
        if made != CROWDED:
            assert charged == pytest.approx(lost)
    assert made.epsilon(n, 3) == pytest.approx(charged)
    assert made.epsilon(n, 3, rounds=7) == pytest.approx(7 * charged)


@every_label_mechanism
def test_noise_is_drawn_as_declared(made: LabelMechanism) -> None:
    n, times = 2, 5000
    rng = np.random.default_rng(3)
    for x in ((0, 0), (2, 1)):
        chances = distributions(made, n)[x]
        drawn = np.stack([made.release(list(x), 3, rng) for _ in range(times)]).reshape(times, -1)  # type: ignore[attr-defined]
        base = 3 if made.gives is HardLabels else 2
        numbers = drawn @ base ** np.arange(drawn.shape[1])[::-1]
        seen, expected = np.bincount(numbers, minlength=len(chances)), times * chances
        rare = expected < 5
        if rare.any():
            seen, expected = np.append(seen[~rare], seen[rare].sum()), np.append(expected[~rare], expected[rare].sum())
        assert stats.chisquare(seen, expected).pvalue > 1e-4


# Statistical: where outputs are many, a lower bound on what they betray, at 99.99% each.


def betrayed(
    first: np.ndarray, second: np.ndarray, outcomes: list[Callable[[np.ndarray], np.ndarray]], delta: float
) -> float:
    """The largest epsilon that the samples rule out, over sets of outcomes fixed in advance (Clopper and Pearson)."""
    n, worst = len(first), 0.0
    for outcome in outcomes:
        for a, b in ((first, second), (second, first)):
            hits, others = int(outcome(a).sum()), int(outcome(b).sum())
            low = stats.beta.ppf(1e-4, hits, n - hits + 1) if hits else 0.0
            high = stats.beta.ppf(1 - 1e-4, others + 1, n - others)
            if low > delta:
                worst = max(worst, float(np.log((low - delta) / high)))
    return worst


def above(limit: float) -> Callable[[np.ndarray], np.ndarray]:
    return lambda values: values > limit


def is_(winner: int) -> Callable[[np.ndarray], np.ndarray]:
    return lambda winners: winners == winner


@pytest.mark.parametrize("key", ["laplace", "laplace by epsilon", "gaussian", "gaussian by epsilon"])
def test_numbers_betray_no_more_than_is_claimed(key: str) -> None:
    made: Any = MADE[key]
    delta = 0.01 if isinstance(made, Gaussian) else 0.0
    claimed = made.epsilon(delta=delta)
    rng = np.random.default_rng(5)
    first = made.release(np.zeros(200_000), rng)
    second = made.release(np.full(200_000, made.sensitivity), rng)
    outcomes = [above(limit) for limit in np.linspace(-4 * made.spread, 4 * made.spread + made.sensitivity, 17)]
    found = betrayed(first, second, outcomes, delta)
    assert 0.8 * claimed < found <= claimed


COUNTS = [([5, 5, 0], [6, 4, 0]), ([8, 1, 1], [7, 2, 1]), ([10, 0, 0], [9, 1, 0]), ([4, 3, 3], [3, 4, 3])]
MAX = [key for key, made in MADE.items() if made.takes is VoteCounts and getattr(made, "max_answers", None) is None]


@pytest.mark.parametrize("key", MAX)
def test_winners_betray_no_more_than_is_claimed(key: str) -> None:
    made: Any = MADE[key]
    delta = 0.0 if isinstance(made, LaplaceNoisyMax) else 0.001
    claimed = made.epsilon(delta=delta)
    rng = np.random.default_rng(6)
    for before, after in COUNTS:
        moved = np.array(before) + made.changed_votes * (np.array(after) - before)
        first, second = (made.release(np.tile(counts, (100_000, 1)), rng) for counts in (before, moved))
        assert betrayed(first, second, [is_(winner) for winner in (-1, 0, 1, 2)], delta) <= claimed
