"""Softmax over rows."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from collegium.core.softmax import softmax


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(50, 10), (7, 1), (7, 40), (0, 3)])
def test_it_has_the_bits_of_scipys(shape: tuple[int, int], dtype: type) -> None:
    logits = (30 * np.random.default_rng(0).normal(size=shape)).astype(dtype)
    if logits.size > 50:
        logits[0, 0], logits[1, 1], logits[2, 2] = np.nan, np.inf, -np.inf
    before = logits.copy()
    found = softmax(logits)
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, special.softmax(logits.astype(np.float64), axis=1))
    np.testing.assert_array_equal(logits, before)
