from __future__ import annotations

import contextlib
import io
import json
import struct
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from collegium import wire
from collegium.core.labels import Labels
from collegium.errors import WireError

plain = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text().filter(lambda key: not key.startswith("$")), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(plain)
def test_plain_data_comes_back(message):
    assert wire.unpack(wire.pack(message).data) == message


@given(
    npst.arrays(st.sampled_from(["i1", "u2", "<i8", "f4", "f8", "?", "U3"]), npst.array_shapes(max_dims=3, max_side=4))
)
def test_arrays_come_back(array):
    back = wire.unpack(wire.pack({"x": [array]}).data)["x"][0]
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)


def test_what_json_has_no_number_for_comes_back():
    back = wire.unpack(wire.pack([float("nan"), float("inf"), -float("inf")]).data)
    assert np.isnan(back[0])
    assert back[1:] == [float("inf"), -float("inf")]


def test_objects_and_code_are_refused():
    for value in (object(), {1: 2}, {"$array": 1}, {"f": print}, np.array([{}], dtype=object), b"bytes"):
        with pytest.raises(WireError):
            wire.pack(value)


def test_a_pickle_inside_an_array_is_never_loaded():
    buffer = io.BytesIO()
    np.savez(buffer, a0=np.array([{"evil": 1}], dtype=object))
    head = json.dumps({"$array": "a0"}).encode()
    with pytest.raises(WireError):
        wire.unpack(b"CLG1" + struct.pack(">II", len(head), len(buffer.getvalue())) + head + buffer.getvalue())


def test_compressed_arrays_are_refused_since_they_can_unfold_without_limit():
    buffer = io.BytesIO()
    np.savez_compressed(buffer, a0=np.zeros(10_000))
    head = json.dumps({"$array": "a0"}).encode()
    with pytest.raises(WireError, match="stored"):
        wire.unpack(b"CLG1" + struct.pack(">II", len(head), len(buffer.getvalue())) + head + buffer.getvalue())


def test_a_message_over_the_limit_is_refused():
    with pytest.raises(WireError, match="limit"):
        wire.unpack(wire.pack(np.zeros(1000)).data, limit=2000)


@given(st.binary(max_size=200))
def test_noise_is_a_wire_error(noise):
    with pytest.raises(WireError):
        wire.unpack(noise)
    with pytest.raises(WireError):
        wire.unpack(b"CLG1" + noise)


@given(st.data())
def test_a_damaged_message_is_read_or_refused_but_nothing_else(data):
    good = bytearray(wire.pack({"a": np.arange(5), "l": Labels(np.array([0, 1, 1]), 2)}).data)
    position = data.draw(st.integers(0, len(good) - 1))
    good[position] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.integers(0, len(good)))
    for damaged in (bytes(good), bytes(good[:cut])):
        with contextlib.suppress(WireError):
            wire.unpack(damaged)


def test_join_and_cut_keep_the_payload_byte_for_byte():
    header, payload = wire.cut(wire.join({"a": 1, "x": np.arange(3)}, b"\0payload"))
    assert (header["a"], payload) == (1, b"\0payload")


def test_labels_are_written_against_those_that_both_ends_know():
    rng = np.random.default_rng(0)
    before = Labels(rng.integers(10, size=5000), 10)
    codes = before.codes.copy()
    codes[:25] = (codes[:25] + 1) % 10
    after = Labels(codes, 10)
    known = wire.KnownLabels()
    known.remember(before)
    full, small = wire.pack(after), wire.pack(after, before)
    assert small.content_bytes < full.content_bytes / 20
    assert wire.unpack(small.data, known) == after
    with pytest.raises(WireError, match="not known"):
        wire.unpack(small.data)


def test_labels_of_another_public_set_are_no_reference():
    other = Labels(np.zeros(7, dtype=int), 3)
    labels = Labels(np.array([0, 1, 2]), 3)
    assert wire.unpack(wire.pack(labels, other).data) == labels


def test_a_message_of_words_alone_has_a_limit_too():
    data = wire.pack({"a": "x" * 100}).data
    assert wire.unpack(data, limit=len(data)) == {"a": "x" * 100}
    with pytest.raises(WireError, match="over the limit"):
        wire.unpack(data, limit=len(data) - 1)


def test_bytes_behind_a_message_are_not_ignored():
    with pytest.raises(WireError, match="after the end"):
        wire.unpack(wire.pack({"a": 1}).data + b"x")


def test_known_labels_forget_the_oldest():
    known = wire.KnownLabels(keep=2)
    many = [Labels(np.array([i]), 5) for i in range(3)]
    for labels in many:
        known.remember(labels)
    assert known.get(many[0].digest) is None
    assert known.latest == many[2]
    assert known.get(many[1].digest) == many[1]


def test_threads_read_arrays_one_after_the_other(monkeypatch) -> None:
    # CPython 3.11's parser, by which numpy reads headers, fails now and then where threads use it at once.
    data, load, inside, most = wire.pack({"a": np.zeros(3)}).data, np.load, [], []

    def watched(*args, **kwargs):
        inside.append(1)
        most.append(len(inside))
        time.sleep(0.002)
        inside.pop()
        return load(*args, **kwargs)

    monkeypatch.setattr(np, "load", watched)
    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(wire.unpack, [data] * 20))) == 20
    assert set(most) == {1}
