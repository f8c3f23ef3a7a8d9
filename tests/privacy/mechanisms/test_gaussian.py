"""Gaussian noise on numbers."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from collegium.errors import ConfigError
from collegium.privacy import events
from collegium.privacy.mechanisms.gaussian import Gaussian


@pytest.mark.parametrize(("epsilon", "sigma"), [(0.1, 30.749566), (1, 3.730632), (8, 0.600229), (10, 0.499889)])
def test_sigma_is_the_smallest_that_will_do(epsilon: float, sigma: float) -> None:
    made = Gaussian(epsilon, sensitivity=3)
    assert made.sigma == pytest.approx(3 * sigma, rel=1e-5)
    assert made.epsilon(delta=1e-5) == pytest.approx(epsilon, rel=2e-3)
    assert made.charge(7, 2).events == (events.Gaussian(1, made.sigma / 3),)


def test_without_a_delta_there_is_no_guarantee() -> None:
    assert Gaussian(sigma=1.0).epsilon() == math.inf


def test_noise_is_of_that_sigma() -> None:
    noisy = Gaussian(sigma=2.0).release(np.full(50_000, 10.0), 0)
    assert stats.kstest(noisy, stats.norm(10, 2).cdf).pvalue > 1e-4


@pytest.mark.parametrize("settings", [{}, {"epsilon": 1, "sigma": 1}])
def test_epsilon_or_sigma_is_given(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="exactly one"):
        Gaussian(**settings)


def test_the_claim_stands_on_the_sensitivity() -> None:
    charge = Gaussian(1.0, sensitivity=2.5).charge(10, 2)
    assert (charge.kind, charge.unit, charge.relation) == ("dp", "record", "replace")
    assert "2.5" in charge.assumptions[0]
    assert "L2" in charge.assumptions[0]
