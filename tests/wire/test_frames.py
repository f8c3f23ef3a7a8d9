from __future__ import annotations

import contextlib
import struct
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collegium import wire
from collegium.core.labels import Labels
from collegium.errors import WireError
from collegium.wire.limits import HEADER, MAX_DEPTH, MESSAGE, PLAN, Limits

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


def test_threads_hash_their_messages_side_by_side(monkeypatch):
    both = threading.Barrier(2, timeout=60)

    class Digest:
        def update(self, part):
            both.wait()

        def hexdigest(self):
            return "done"

    monkeypatch.setattr("collegium.wire.frames.hashlib.sha256", Digest)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda packed: packed.sha256, [wire.Packed([b"a"], 1), wire.Packed([b"b"], 1)]))
    assert found == ["done", "done"]


def message(head: bytes, body: bytes = b"") -> bytes:
    return b"CLG2" + struct.pack(">II", len(head), len(body)) + head + body


def test_what_json_has_no_number_for_comes_back():
    back = wire.unpack(wire.pack([float("nan"), float("inf"), -float("inf")]).data)
    assert np.isnan(back[0])
    assert back[1:] == [float("inf"), -float("inf")]


def test_objects_and_code_are_refused():
    for value in (object(), {1: 2}, {"$array": 1}, {"f": print}, np.array([{}], dtype=object), b"bytes"):
        with pytest.raises(WireError):
            wire.pack(value)


def test_a_message_over_the_limit_is_refused():
    with pytest.raises(WireError, match="limit"):
        wire.unpack(wire.pack(np.zeros(1000)).data, limits=MESSAGE.for_contents(7999))
    assert wire.unpack(wire.pack(np.zeros(1000)).data, limits=MESSAGE.for_contents(8000)).shape == (1000,)


@given(st.binary(max_size=200))
def test_noise_is_a_wire_error(noise):
    with pytest.raises(WireError):
        wire.unpack(noise)
    with pytest.raises(WireError):
        wire.unpack(b"CLG2" + noise)
    with pytest.raises(WireError):
        wire.unpack(message(b"\0" + noise))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"CLG1\0\0\0\x02\0\0\0\0{}", "^This message was written by an earlier version of Collegium: install"),
        (b"CLG3\0\0\0\x02\0\0\0\0{}", "^This message was written by a later version of Collegium: install"),
        (b"CLG2\0\0\0\x02\0\0\0\0{", "cut short"),
        (b"CLG2\0\0\0\x02\0\0\0\0{}x", "after the end"),
        (b"CLGX\0\0\0\x02\0\0\0\0{}", "not a Collegium message"),
        (b"CLG2", "not a Collegium message"),
        (message(b"[NaN]"), "JSON"),
        (message(b"[-Infinity]"), "JSON"),
        (message('"ü"'.encode("latin-1")), "JSON"),
        (message('{"a":1}'.encode("utf-16")), "JSON"),
        (message(b"9" * 5000), "JSON"),
        (message(b"[" * 100_000), "JSON"),
        (message(b"[" * 102 + b"]" * 102), "100 levels"),
        (message(b'{"$float":"1"}'), "cannot be read"),
        (message(b'{"$float":["nan"]}'), "cannot be read"),
        (message(b'{"$code":1}'), "cannot be read"),
        (message(b'{"$float":"nan","a":1}'), "cannot be read"),
        (message(b'{"a":1,"$float":"nan"}'), "cannot be read"),
        (message(b'{"$array":["|u1",[2]]}', b"x"), "does not hold"),
        (message(b'{"$array":["|u1",[2]]}', b"xxx"), "do not belong to an array"),
        (message(b'{"a":{"$array":["|u1",[1]]},"a":{"$array":["|u1",[1]]}}', b"xx"), "do not belong to an array"),
        (message(b'{"$labels":7}'), "malformed"),
        (message(b'{"$labels":[2,1]}'), "malformed"),
        (message(b'{"$labels":[2,1,[1,2],"a","b"]}'), "malformed"),
        (message(b'{"$labels":[2,-1,[1,2]]}'), "malformed"),
        (message(b'{"$labels":[true,1,[1,2]]}', b"\0"), "malformed"),
        (message(b'{"$labels":[2,1,[1,2],5]}', b"\0"), "malformed"),
        (message(b'{"$labels":[2,2,[1,2]]}', b"\0"), "does not hold"),
        (message(b'{"$labels":[2,1,[1,2]]}', b"\x02"), "bytes after their end"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(data, says):
    with pytest.raises(WireError, match=says) as caught:
        wire.unpack(data)
    assert "\n" not in str(caught.value)


def test_what_is_read_may_be_nested_as_deep_as_what_is_written():
    deep = 1
    for _ in range(MAX_DEPTH + 1):
        deep = [deep]
    assert wire.unpack(wire.pack(deep).data) == deep
    with pytest.raises(WireError, match="100 levels"):
        wire.pack([deep])


@pytest.mark.parametrize("value", [[0] * 50_000, [[]] * 25_000, [{}] * 25_000, "a" * 500_000])
def test_a_structure_over_the_limits_is_refused_at_both_ends(value):
    data, limits = wire.pack(value).data, Limits(head=500_000, values=50_000)
    with pytest.raises(WireError, match="structure is over the limit"):
        wire.pack(value, limits=limits)
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match="structure is over the limit"):
            wire.unpack(data, limits=limits)
        assert tracemalloc.get_traced_memory()[1] < len(data) + 10_000
    finally:
        tracemalloc.stop()
    assert wire.unpack(wire.pack(value[:-2]).data, limits=limits) == value[:-2]


def test_labels_and_empty_arrays_that_cost_no_bytes_are_bounded_in_a_message():
    limits, known = Limits(1 << 20, 1 << 16, free=9000), wire.KnownLabels()
    known.remember(before := Labels(np.zeros(1000, np.int8), 2))
    alone = Labels(np.zeros(1000, np.int8), 1)
    for fits in ([before] * 10, [alone] * 10):  # one of them because it is known
        assert wire.unpack(wire.pack(fits, before).data, known, limits) == fits
    assert wire.unpack(wire.pack(np.zeros((10_000, 0))).data, known, limits).shape == (10_000, 0)
    for value in ([before] * 11, [alone] * 11, np.zeros((10_001, 0)), [np.zeros((0, 5001))] * 2):
        with pytest.raises(WireError, match="far more bytes"):
            wire.unpack(wire.pack(value, before).data, known, limits)
    assert wire.unpack(wire.pack([before] * 11).data, limits=limits) == [before] * 11


def test_memory_to_read_a_difference_is_bounded_by_the_labels_that_are_known():
    rng = np.random.default_rng(0)
    before = Labels(rng.integers(3, size=200_000), 3)
    after = Labels(np.where(rng.random(200_000) < 0.5, before.codes, (before.codes + 1) % 3), 3)
    known = wire.KnownLabels()
    known.remember(before)
    data = wire.pack(after, before).data
    assert before.digest.encode() in data
    tracemalloc.start()
    try:
        wire.unpack(data, known)
        assert tracemalloc.get_traced_memory()[1] < 32 * len(before)
    finally:
        tracemalloc.stop()


def test_a_name_of_labels_is_sent_only_with_a_difference():
    rng = np.random.default_rng(0)
    before, after = (Labels(rng.integers(10, size=500), 10) for _ in range(2))
    data = wire.pack(after, before).data
    assert before.digest.encode() not in data
    assert wire.unpack(data) == after


def test_a_release_of_labels_that_did_not_change_is_short():
    labels = Labels(np.random.default_rng(0).integers(10, size=50_000), 10)
    packed = wire.pack({"labels": labels}, labels)
    assert packed.content_bytes == 0
    assert len(packed.data) < 80


def test_content_bytes_are_those_of_arrays_and_packed_labels():
    labels = Labels(np.arange(800) % 10, 10)
    assert wire.pack({"a": np.zeros((3, 4)), "b": [np.zeros(5, "i2")], "labels": labels}).content_bytes == 96 + 10 + 334


def mutants(good, many):
    """Messages with bytes changed, cut out, doubled, or swapped for those of a hostile message."""
    rng = np.random.default_rng(0)
    words = (b"2147483647", b"-1", b"1e9", b"[", b"]", b"{", b"null", b'"|O8"', b'"<U99999999"', b'"$array"', b"[0,0]")
    for _ in range(many):
        data = bytearray(good)
        for _ in range(rng.integers(1, 4)):
            at, size = int(rng.integers(len(data))), int(rng.integers(1, 12))
            word = words[rng.integers(len(words))]
            head = 12 + int(rng.integers(int.from_bytes(good[4:8], "big")))
            kind = rng.integers(6)
            if kind == 0:
                data[at] ^= int(rng.integers(1, 256))
            elif kind == 1:
                del data[at : at + size]
            elif kind == 2:
                data[at:at] = data[at : at + size]
            elif kind == 3:
                data[at : at + len(word)] = word
            elif kind == 4:  # the head grows, and its size tells of it
                data[head:head] = word
                data[4:8] = (int.from_bytes(data[4:8], "big") + len(word)).to_bytes(8, "big")[-4:]
            else:  # a digit becomes another
                place = data.find(int(rng.integers(48, 58)), at)
                data[place] = int(rng.integers(48, 58))
            data = data or bytearray(1)
        yield bytes(data)


def test_ten_thousand_mutants_are_read_or_refused_and_take_little_memory():
    labels = Labels(np.arange(300) % 10, 10)
    codes = labels.codes.copy()
    codes[::7] = 0
    known = wire.KnownLabels()
    known.remember(labels)
    arrays = {"f": np.ones((3, 4), order="F"), "u": np.array(["a", "bc"]), "b": np.array([True]), "e": np.zeros((0, 3))}
    tree = {"labels": [Labels(codes, 10), labels, Labels(codes, 10)], "arrays": arrays, "x": [float("nan"), 1.5, None]}
    good = wire.pack(tree, labels).data
    read, many = 0, list(mutants(good, 10_000))
    for mutant in many:
        with contextlib.suppress(WireError):
            wire.unpack(mutant, known)
            read += 1
    tracemalloc.start()  # which makes reading ten times as slow
    try:
        for mutant in many[::10]:
            with contextlib.suppress(WireError):
                wire.unpack(mutant, known)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert 200 < read < 8000
    assert most < 200_000


def test_join_and_cut_keep_the_payload_byte_for_byte():
    header, payload = wire.cut(wire.join({"a": 1, "b": {"c": None}}, b"\0payload"))
    assert (header, payload) == ({"a": 1, "b": {"c": None}}, b"\0payload")


BOMBS = {
    "labels of one class": message(b'{"x":[' + b",".join([b'{"$labels":[1,0,[67108863,1]]}'] * 60) + b"]}"),
    "one such label": message(b'{"x":{"$labels":[1,0,[67108863,1]]}}'),
    "an array": wire.pack({"x": np.zeros(9)}).data,
    "an empty array": message(b'{"x":{"$array":["|u1",[2147483648,0]]}}'),
    "contents without an array": message(b"{}", bytes(1 << 20)),
    "empty lists": message(b'{"x":[' + b",".join([b"[]"] * 1_000_000) + b"]}"),
    "a long word": message(b'{"x":"' + b"A" * 20_000_000 + b'"}'),
    "nested": message(b'{"x":' + b"[" * 700 + b"]" * 700 + b"}"),
    "nested a little": message(b'{"x":[[[[1]]]]}'),
    "a long number": message(b'{"x":' + b"9" * 4000 + b"}"),
    "a long fraction": message(b'{"x":0.' + b"9" * 4000 + b"}"),
    "a number beyond all": message(b'{"x":1e999}'),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_header_and_a_plan_hold_nothing_that_grows(bomb):
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            wire.cut(BOMBS[bomb])
        assert tracemalloc.get_traced_memory()[1] < 100_000
        tracemalloc.reset_peak()
        if bomb != "nested a little":
            with pytest.raises(WireError):
                wire.unpack(BOMBS[bomb], limits=PLAN)
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_a_header_has_a_size():
    assert wire.cut(wire.join({"x": "a" * (HEADER.head - 8)}, b""))[1] == b""
    with pytest.raises(WireError, match="over the limit"):
        wire.cut(wire.join({"x": "a" * (HEADER.head - 7)}, b""))


def test_numbers_are_as_long_at_both_ends():
    for number in (10**31 - 1, 1 - 10**31, -(2**63), np.int64(-(2**63)), 1.7976931348623157e308, -5e-324):
        assert wire.unpack(wire.pack([number]).data) == [number]
    with pytest.raises(WireError, match="digits"):
        wire.pack(10**31)


def test_reading_takes_the_memory_that_its_limits_say():
    """What `Limits` promises for structure, of the worst that we know."""
    limits = Limits(1 << 18, 1 << 14)
    worst = {
        "tables": b"[" + b",".join(b'{"%d":0}' % at for at in range(8000)) + b"]",
        "lists": b"[" + b",".join([b"[]"] * 8000) + b"]",
        "wide text": b'["' + b"a" * 200_000 + "\U0001f600".encode() + b'"]',
    }
    for head in worst.values():
        tracemalloc.start()
        try:
            wire.unpack(message(head), limits=limits)
            assert tracemalloc.get_traced_memory()[1] < 300 * limits.values + 8 * limits.head
        finally:
            tracemalloc.stop()


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


@pytest.mark.parametrize("other", [Labels(np.zeros(7, dtype=int), 3), Labels(np.array([3, 4, 4]), 5)])
def test_labels_of_another_public_set_or_of_other_classes_are_no_reference(other):
    labels = Labels(np.array([0, 1, 2]), 3)
    assert wire.unpack(wire.pack(labels, other).data) == labels


def test_a_message_of_words_alone_has_a_limit_too():
    data = wire.pack({"a": "x" * 100}).data
    assert wire.unpack(data, limits=Limits(len(data) - 12, 2)) == {"a": "x" * 100}
    with pytest.raises(WireError, match="over the limit"):
        wire.unpack(data, limits=Limits(len(data) - 13, 2))


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


def test_labels_that_are_seen_again_are_the_latest():
    known, (first, second, third) = wire.KnownLabels(keep=2), (Labels(np.array([i, 0, 1]), 3) for i in range(3))
    for labels in (first, second, first):
        known.remember(labels)
    assert known.latest == first
    known.remember(third)
    assert known.get(first.digest) == first
    assert known.get(second.digest) is None


def test_labels_that_somebody_has_are_not_unpacked_again(monkeypatch):
    before, after = Labels(np.zeros(100, dtype=int), 3), Labels(np.eye(1, 100, 7, dtype=int)[0], 3)
    packed = wire.pack({"first": after, "again": after}, before)
    known = wire.KnownLabels()
    known.remember(before)
    monkeypatch.setattr("collegium.wire.label_packing.decode", None)  # would raise
    read = wire.unpack(packed.data, known)
    assert read["first"] is read["again"] is after
    assert packed.labels == (after,)
    with pytest.raises(ValueError, match="read-only"):
        read["first"].codes[0] = 2
    with pytest.raises(WireError, match="not known here"):
        wire.unpack(packed.data)


def test_labels_that_nobody_has_any_more_are_unpacked():
    data = wire.pack({"L": Labels(np.arange(100) % 3, 3)}).data
    read = wire.unpack(data)["L"]
    np.testing.assert_array_equal(read.codes, np.arange(100) % 3)


def test_the_same_difference_from_other_labels_is_something_else():
    one, two = Labels(np.zeros(100, dtype=int), 3), Labels(np.ones(100, dtype=int), 3)
    changed = [Labels(np.where(np.arange(100) == 7, (each.codes + 1) % 3, each.codes), 3) for each in (one, two)]
    frames = [wire.pack(after, before).data for before, after in zip((one, two), changed, strict=True)]
    known = wire.KnownLabels()
    known.remember(one)
    known.remember(two)
    assert [wire.unpack(frame, known) for frame in frames] == changed


def test_only_frozen_arrays_of_bytes_are_read_where_they_lie():
    numbers = np.arange(20_000, dtype=np.float32)
    packed = wire.pack({"numbers": numbers}).data
    own = wire.unpack(packed)["numbers"]
    own[0] = 7.0  # a copy, which may be changed
    lying = wire.unpack(packed, frozen=True)["numbers"]
    assert lying[0] == 0.0
    assert np.shares_memory(lying, np.frombuffer(packed, np.uint8))
    changing = bytearray(packed)
    read = wire.unpack(memoryview(changing).toreadonly(), frozen=True)["numbers"]
    changing[-80_000:] = bytes(80_000)
    np.testing.assert_array_equal(read, numbers)
    for array in (lying, read):
        assert not array.flags.writeable
