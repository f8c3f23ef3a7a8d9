"""Keeps read-only rows on the GPU: one copy of each such array, for as long as the array itself lives.

A run reads its public set again and again, and copying it to the GPU takes longer than using it there.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch

MOST_VALUES: Final = 2**29
"""2 GiB of float32: larger arrays are copied to the GPU a batch at a time."""

_kept: dict[tuple[int, torch.device], torch.Tensor] = {}
_lock = threading.Lock()


def can_stay(values: Any) -> bool:
    """Whether it is a read-only array in memory that is not too large."""
    return type(values) is np.ndarray and not values.flags.writeable and values.size <= MOST_VALUES


def keep(values: Any, device: torch.device, make: Callable[[], torch.Tensor]) -> torch.Tensor:
    """The copy of these values on the device, made when it is first asked for."""
    key = id(values), device
    with _lock:
        if key not in _kept:
            _kept[key] = make()
            weakref.finalize(values, _kept.pop, key, None)
        return _kept[key]
