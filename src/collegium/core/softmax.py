"""Probabilities of a net's outputs."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

_FEW: Final = 32
"""Classes, up to which their maximum is sooner found class by class than row by row."""


def softmax(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """The softmax of each row: the bits of SciPy's, which takes three times as long for many rows of few classes."""
    if 0 < logits.shape[1] <= _FEW:
        largest = np.maximum.reduce([logits[:, code] for code in range(logits.shape[1])])[:, None]
    else:
        largest = logits.max(axis=1, keepdims=True)
    found: NDArray[np.float64] = np.subtract(logits, largest, dtype=np.float64)
    np.exp(found, out=found)
    found /= found.sum(axis=1, keepdims=True)
    return found
