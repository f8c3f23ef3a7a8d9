"""Arrays that nobody can change any more: those who have them in one process may share them."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

A = TypeVar("A", bound=NDArray[Any])


def fix(array: A) -> A:
    """The same array, which cannot be changed from now on: for whoever has just made it, and has no view of it."""
    at: Any = array
    while isinstance(at, np.ndarray):
        at.flags.writeable = False
        at = at.base
    return array


def is_fixed(value: object) -> bool:
    """Whether it is an array whose numbers lie in a row, and that cannot be changed through another that it views."""
    if type(value) is not np.ndarray or not value.flags.forc:
        return False
    at: Any = value
    while isinstance(at, np.ndarray):
        if at.flags.writeable:
            return False
        at = at.base
    return True
