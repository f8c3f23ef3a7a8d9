"""Audits of mechanisms: faults that were planted are found, and for the right reason."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from benchmarks.audit_mechanisms import CORRECT, Planted, Porous, planted

from collegium.auditing.mechanisms import _impossible, audit_mechanism
from collegium.core.releases import Numbers
from collegium.errors import ConfigError
from collegium.privacy.mechanisms.gaussian import Gaussian
from collegium.privacy.mechanisms.laplace import Laplace
from collegium.privacy.mechanisms.randomized_response import RandomizedResponse
from collegium.privacy.noise import Noise, SeededNoise

FAULTS = {f"{fault}: {name}": (fault, made) for fault, name, made in planted()}
FOUND_BY = {"seeded noise": "fresh releases", "holes": "holes"}


QUICK = ("randomized_response", "laplace", "gaussian_noisy_max")


@pytest.mark.parametrize(
    "key", [each if each.endswith(QUICK) else pytest.param(each, marks=pytest.mark.slow) for each in FAULTS]
)
def test_a_planted_fault_is_found(key: str) -> None:
    fault, made = FAULTS[key]
    audit = audit_mechanism(made, trials=10_000, seed=1)
    assert audit.verdict == "contradicts the claim"
    assert audit.epsilon_lower > audit.epsilon_claimed
    assert audit.why.startswith(FOUND_BY.get(fault, ""))


def numbers(answer: Any) -> Planted:
    made = Laplace(1.0)
    return Planted(made, answer, made.charge)


def test_floating_point_noise_is_found_by_its_lowest_bits() -> None:
    def answer(release: Numbers, noise: Noise) -> Numbers:
        return Numbers(release.values + np.random.default_rng().laplace(size=release.values.shape))

    audit = audit_mechanism(numbers(answer), trials=20_000)
    assert audit.verdict == "contradicts the claim"
    assert audit.why.startswith("lowest bits")


def test_noise_from_few_seeds_is_found() -> None:
    def answer(release: Numbers, noise: Noise) -> Numbers:
        few = SeededNoise(np.random.default_rng(int(noise.below(100, 1)[0])))
        return Laplace(1.0).apply(release, few)

    audit = audit_mechanism(numbers(answer), trials=20_000, seed=0)
    assert audit.verdict == "contradicts the claim"
    assert audit.why.startswith("fresh releases")


def test_holes_are_counted_where_they_can_be_and_nowhere_else() -> None:
    def make(value: float) -> Any:
        return lambda count: Numbers(np.full(count, value))

    for made in (Laplace(1.0), Gaussian(1.0)):
        porous = Planted(made, lambda x, noise, m=made: m.apply(x, Porous(noise)), made.charge)
        assert _impossible(porous, make(0.0), make(0.0)) == 0  # of its own outputs, none is impossible
        assert _impossible(porous, make(0.0), make(1.0)) > 20  # type: ignore[operator]
        assert _impossible(made, make(0.0), make(1.0)) is None  # draws as many words as it takes


def test_a_seed_gives_the_same_audit_again_and_bounds_come_near_the_truth() -> None:
    made = RandomizedResponse(1.0)
    audit = audit_mechanism(made, seed=3)
    assert audit == audit_mechanism(made, seed=3)
    assert 0.5 * audit.epsilon_claimed < audit.epsilon_lower <= audit.epsilon_claimed


@pytest.mark.slow
def test_correct_mechanisms_are_seldom_flagged() -> None:
    """At most 5% of audits may be: of 40 here, 10 or more have a probability below 1e-4."""
    flagged = sum(
        audit_mechanism(CORRECT[name], trials=2000, seed=seed).verdict != "consistent"
        for name in ("randomized_response", "gaussian")
        for seed in range(20)
    )
    assert flagged < 10


@pytest.mark.parametrize(
    ("settings", "named"), [({"alpha": 0.0}, "alpha"), ({"trials": 1}, "trials"), ({"n_classes": 1}, "n_classes")]
)
def test_settings_that_cannot_work(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        audit_mechanism(Laplace(1.0), **settings)
    with pytest.raises(ConfigError, match="a Mechanism on HardLabels"):
        audit_mechanism(object())
