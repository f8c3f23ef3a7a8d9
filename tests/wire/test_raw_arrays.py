"""Arrays as raw bytes: every plain type comes back as it was, and nothing else is read."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from collegium import wire
from collegium.errors import WireError
from collegium.wire import raw_arrays

WIDE = ("i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
NUMBERS = ["b1", "i1", "u1", *(order + kind for order in "<>" for kind in WIDE)]
OTHERS = ["<U3", ">U1", "S5", "<M8[ns]", ">M8[25s]", "<m8[D]", "<M8"]


def there_and_back(array: np.ndarray) -> np.ndarray:
    packed = wire.pack({"x": [array, 7]})
    assert packed.content_bytes == array.nbytes
    back, rest = wire.unpack(packed.data)["x"]
    assert rest == 7
    return back


def assert_same(back: np.ndarray, array: np.ndarray) -> None:
    assert back.dtype.str == array.dtype.str
    assert back.shape == array.shape
    assert back.tobytes() == array.tobytes()  # NaNs with all their bits, too
    assert back.flags.writeable
    assert back.flags.aligned
    assert back.base is None


@given(
    st.sampled_from(NUMBERS + OTHERS).flatmap(
        lambda dtype: npst.arrays(dtype, npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4))
    ),
    st.sampled_from(["C", "F"]),
)
def test_arrays_of_every_type_come_back(array: Any, order: Any) -> None:
    array = np.asarray(array, order=order)
    back = there_and_back(array)
    assert_same(back, array)
    assert (back.flags.c_contiguous, back.flags.f_contiguous) == (array.flags.c_contiguous, array.flags.f_contiguous)


@pytest.mark.parametrize("dtype", NUMBERS + OTHERS)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (3, 0, 2), (1, 1)])
def test_every_type_comes_back_in_every_shape(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    assert_same(there_and_back(array), array)


def test_pieces_of_arrays_come_back() -> None:
    whole = np.arange(24.0).reshape(4, 6)
    for piece in (whole[::2], whole[:, ::-1], whole.T[1:], whole[1:2, 2], np.broadcast_to(1.0, (3, 2)), whole[:0]):
        assert_same(there_and_back(piece), piece)


def test_contents_that_lie_in_a_row_are_not_copied() -> None:
    for array in (np.zeros(5), np.zeros((2, 3), order="F")):
        assert np.shares_memory(raw_arrays.contents(array), array)


def test_a_memory_map_is_sent_as_an_array(tmp_path: Any) -> None:
    np.save(tmp_path / "x.npy", np.arange(6).reshape(2, 3))
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    back = there_and_back(mapped)
    assert type(back) is np.ndarray
    assert_same(back, mapped)


@pytest.mark.parametrize(
    "array",
    [
        np.array([{}], object),
        np.zeros(2, "i4,f8"),
        np.zeros(2, "V3"),
        np.zeros(2, np.longdouble),
        np.ma.masked_array([1.0, 2.0], [True, False]),
        np.zeros((1,) * 33),
        np.ndarray((3,), "U0"),
        np.array(["a"], np.dtypes.StringDType()),
    ],
    ids=lambda array: str(array.dtype),
)
def test_arrays_whose_bytes_are_not_their_values_are_not_sent(array: np.ndarray) -> None:
    with pytest.raises(WireError, match="cannot be sent"):
        wire.pack(array)


@pytest.mark.parametrize(
    "description",
    [
        None,
        "<f8",
        {},
        [],
        ["<f8"],
        ["<f8", [1], "C"],
        ["<f8", [1], "F", "F"],
        ["<f8", 1],
        ["<f8", [1.0]],
        ["<f8", [True]],
        ["<f8", [-1]],
        ["<f8", ["1"]],
        ["<f8", [2**31 + 1]],
        ["<f8", [10**30]],
        ["<f8", [1] * 33],
        [None, [1]],
        [["<f8"], [1]],
        *([name, [1]] for name in ("|O", "O", "<O8", "f8", "=f8", "<f16", "<f3", "<i1", "|f8", "<c32", "V3", "|V8")),
        *(
            [name, [1]]
            for name in ("<U0", "<U", "<U999999999", "<U1\n", "|S0", "<S1", "<i4,<f8", "float64", "<T16", "")
        ),
        *([name, [1]] for name in ("<M8[xx]", "<M8[0s]", "<M8[]", "<M8[s/2]", "<M8[99999999999s]", "<U٣")),
    ],
    ids=str,
)
def test_descriptions_that_cannot_be_are_refused(description: Any) -> None:
    with pytest.raises(WireError):
        raw_arrays.parse(description)


@pytest.mark.parametrize("shape", [[2**31], [2**31] * 32, [2**31, 0, 2**31], [2**27 + 1, 0], [0, 2**31, 2**31, 2**31]])
@pytest.mark.parametrize("dtype", ["|u1", "<f8", "<U90000000"])
def test_a_promise_of_much_allocates_little(dtype: str, shape: list[int]) -> None:
    data = wire.pack(np.zeros(1, "u1")).data
    head = data[12:-1].replace(b'["|u1",[1]]', f'["{dtype}",{shape}]'.replace(" ", "").encode())
    data = data[:4] + len(head).to_bytes(4, "big") + data[8:12] + head + data[-1:]
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            wire.unpack(data)
        assert tracemalloc.get_traced_memory()[1] < 50_000
    finally:
        tracemalloc.stop()


def test_an_empty_array_too_large_for_numpy_is_refused() -> None:
    with pytest.raises(WireError, match="invalid shape"):
        raw_arrays.restore(memoryview(b""), np.dtype("<f8"), (0, 2**31, 2**31, 2**31), "C")


def test_bytes_that_are_no_truth_values_or_characters_are_refused() -> None:
    for array, byte in ((np.array([True, False]), 2), (np.array(["ab"], "<U2"), 0x11), (np.array(["ab"], ">U2"), 0x11)):
        data = bytearray(wire.pack(array).data)
        at = {"b": -1, "<": -2, ">": -3}[array.dtype.kind if array.dtype.kind == "b" else array.dtype.str[0]]
        data[at] = byte
        with pytest.raises(WireError, match=r"neither true nor false|do not exist"):
            wire.unpack(bytes(data))
    assert wire.unpack(wire.pack(np.array(["\U0010ffff"])).data)[0] == "\U0010ffff"


def test_whoever_sends_objects_is_told_what_to_do() -> None:
    with pytest.raises(WireError, match="convert it to numbers or strings"):
        wire.pack(np.array(["a", None]))
