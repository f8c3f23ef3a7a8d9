"""One-hot bits, flipped."""

from __future__ import annotations

import math

import numpy as np
import pytest

from collegium.core.releases import ApprovalBits
from collegium.privacy.mechanisms import unary
from collegium.privacy.mechanisms.unary import UnaryEncoding, one_hot


@pytest.mark.parametrize(("epsilon", "flipped"), [(1.0, 0.377541), (4.0, 0.119203), (0.1, 0.487503), (5000.0, 0.0)])
def test_bits_are_flipped_as_often_as_it_says(epsilon: float, flipped: float) -> None:
    made = UnaryEncoding(epsilon)
    assert made.flip_probability == pytest.approx(flipped, abs=1e-6)
    codes = np.arange(50_000) % 4
    noisy = made.release(codes, 4, 0)
    assert noisy.shape == (50_000, 4)
    assert noisy.dtype == np.bool_
    changed = noisy != one_hot(codes, 4)
    assert np.abs(changed.mean(axis=0) - flipped).max() < 4 * math.sqrt(0.25 / 50_000) * (flipped > 0) + 1e-12


def test_noise_does_not_depend_on_how_much_is_drawn_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = np.arange(1000) % 7
    whole = UnaryEncoding(1.0).release(codes, 7, 5)
    monkeypatch.setattr(unary, "_BITS_AT_A_TIME", 64)
    np.testing.assert_array_equal(UnaryEncoding(1.0).release(codes, 7, 5), whole)


@pytest.mark.parametrize(
    ("epsilon", "agreeing", "right"),
    [(1, 5, 0.365517), (2, 5, 0.714228), (4, 5, 0.985737), (1, 3, 0.216405), (2, 3, 0.374297), (4, 3, 0.698573)],
)
def test_the_consensus_of_five_sites_is_right_as_often_as_calculated(
    epsilon: float, agreeing: int, right: float
) -> None:
    n, rng = 100_000, np.random.default_rng(1)
    total = ApprovalBits.empty_sum(5)
    for site in range(5):
        bits = UnaryEncoding(epsilon).release(np.full(n, 4 if site < agreeing else 7), 10, rng)
        total.add_release(ApprovalBits.from_bits(bits))
    seen = float(np.mean(total.tally.winners(0) == 4))
    assert abs(seen - right) < 4 * math.sqrt(right * (1 - right) / n)
