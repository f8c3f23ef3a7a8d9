"""Laplace noise on numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from collegium.errors import ConfigError
from collegium.privacy import events
from collegium.privacy.mechanisms.laplace import Laplace


def test_the_scale_is_given_or_follows_from_epsilon() -> None:
    assert Laplace(0.5, sensitivity=3).scale == 6.0
    assert Laplace(scale=6.0, sensitivity=3).epsilon() == 0.5
    assert Laplace(0.5, sensitivity=3).epsilon(rounds=4) == 2.0
    for made in (Laplace(0.5, sensitivity=3), Laplace(scale=6.0, sensitivity=3)):
        assert made.charge(100, 2).events == (events.Laplace(1, 2.0),)


def test_noise_is_of_that_scale() -> None:
    noisy = Laplace(scale=2.0).release(np.full(50_000, 10.0), 0)
    assert stats.kstest(noisy, stats.laplace(10, 2).cdf).pvalue > 1e-4


@pytest.mark.parametrize("values", [3, 3.5, [1, 2, 3], np.zeros((2, 3), dtype=np.float32), [], True])
def test_numbers_keep_their_shape(values: Any) -> None:
    noisy = Laplace(1.0).release(values)
    assert noisy.shape == np.shape(values)
    assert noisy.dtype == np.float64


def test_numbers_lie_on_a_grid_far_below_the_noise() -> None:
    """The low bits of floating-point sums betray the summands."""
    noisy = Laplace(scale=1.0).release(np.full(1000, 1 / 3), 0) * 2.0**40
    np.testing.assert_array_equal(noisy, np.round(noisy))


@pytest.mark.parametrize("values", [float("nan"), [1.0, float("inf")], "a", ["a"], None, [[1.0], [1.0, 2.0]]], ids=repr)
def test_what_is_no_number_is_refused(values: Any) -> None:
    with pytest.raises(ConfigError, match="finite numbers"):
        Laplace(1.0).release(values)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "exactly one"),
        ({"epsilon": 1, "scale": 1}, "exactly one"),
        ({"epsilon": 1, "sensitivity": 0}, "sensitivity"),
        ({"epsilon": 1, "sensitivity": float("nan")}, "sensitivity"),
        ({"epsilon": 1, "unit": "row"}, "'record' or 'party'"),
        ({"epsilon": 1, "relation": "near"}, "'replace', 'add_remove' or 'any'"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        Laplace(**settings)


def test_the_claim_stands_on_the_sensitivity() -> None:
    charge = Laplace(1.0, sensitivity=2.5, unit="party", relation="add_remove").charge(10, 2)
    assert (charge.kind, charge.unit, charge.relation) == ("dp", "party", "add_remove")
    assert "2.5" in charge.assumptions[0]
    assert "L1" in charge.assumptions[0]
