"""Arrays that nobody can change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collegium.core.fixed import fix, is_fixed


def test_what_is_fixed_cannot_be_changed_any_more() -> None:
    whole = np.arange(6.0)
    piece = fix(whole.reshape(2, 3))
    assert is_fixed(piece)
    for each in (whole, piece):
        with pytest.raises(ValueError, match="read-only"):
            each[0] = 1


def locked(array: Any) -> Any:
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    "value",
    [
        np.zeros(3),
        locked(np.zeros((2, 3))[:]),  # what it is a view of can be changed
        locked(np.zeros((4, 4)))[:, ::2],  # read from its bytes it lies otherwise in memory
        locked(np.ma.masked_array([1.0, 2.0])),
        [1.0],
        np.float32(1),
    ],
)
def test_anything_else_may_change(value: object) -> None:
    assert not is_fixed(value)


def test_arrays_of_bytes_cannot_be_changed() -> None:
    assert is_fixed(np.frombuffer(b"abcd", np.uint8))
    assert is_fixed(locked(np.asfortranarray(np.ones((2, 3)))))
