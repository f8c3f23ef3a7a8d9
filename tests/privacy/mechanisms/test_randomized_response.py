"""k-ary randomized response."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from collegium.core.labels import Labels, code_dtype
from collegium.core.tally import Tally
from collegium.errors import ConfigError
from collegium.privacy.mechanisms.randomized_response import RandomizedResponse


@pytest.mark.parametrize(
    ("n_classes", "epsilon", "kept"), [(10, 1.0, 0.231969), (10, 4.0, 0.858486), (2, 1.0, 0.731059)]
)
def test_labels_are_kept_as_often_as_it_says(n_classes: int, epsilon: float, kept: float) -> None:
    made = RandomizedResponse(epsilon)
    assert made.keep_probability(n_classes) == pytest.approx(kept, abs=1e-6)
    noisy = made.release(np.full(100_000, 1), n_classes, 0)
    seen = np.bincount(noisy, minlength=n_classes)
    expected = np.full(n_classes, (1 - made.keep_probability(n_classes)) / (n_classes - 1))
    expected[1] = made.keep_probability(n_classes)
    assert stats.chisquare(seen, 100_000 * expected).pvalue > 1e-4


@pytest.mark.parametrize("n_classes", [2, 128, 129, 40_000])
def test_codes_come_as_they_went(n_classes: int) -> None:
    codes = np.arange(1000) % n_classes
    made = RandomizedResponse(2.0)
    noisy = made.release(codes, n_classes, 3)
    assert noisy.shape == codes.shape
    assert noisy.dtype == code_dtype(n_classes)
    assert noisy.min() >= 0
    assert noisy.max() < n_classes
    np.testing.assert_array_equal(made.release(Labels(codes, n_classes), n_classes, 3), noisy)
    np.testing.assert_array_equal(made.release(codes.tolist(), n_classes, 3), noisy)


def test_next_to_no_noise_keeps_everything() -> None:
    codes = np.arange(1000) % 10
    np.testing.assert_array_equal(RandomizedResponse(5000).release(codes, 10), codes)


def test_labels_of_other_classes_are_refused() -> None:
    with pytest.raises(ConfigError, match="4 classes"):
        RandomizedResponse(1).release(Labels(np.array([0, 1]), 4), 3)


@pytest.mark.parametrize("settings", [{}, {"epsilon": 1, "epsilons": 2}])
def test_other_settings_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(TypeError):
        RandomizedResponse(**settings)


@pytest.mark.parametrize(
    ("epsilon", "agreeing", "right"),
    [(1, 5, 0.327275), (2, 5, 0.709931), (4, 5, 0.995028), (1, 3, 0.215684), (2, 3, 0.429484), (4, 3, 0.811738)],
)
def test_the_consensus_of_five_sites_is_right_as_often_as_calculated(
    epsilon: float, agreeing: int, right: float
) -> None:
    n, rng = 100_000, np.random.default_rng(1)
    tally = Tally(n, 10, 5)
    for site in range(5):
        tally.add(RandomizedResponse(epsilon).release(np.full(n, 4 if site < agreeing else 7), 10, rng))
    seen = float(np.mean(tally.winners(0) == 4))
    assert abs(seen - right) < 4 * math.sqrt(right * (1 - right) / n)
