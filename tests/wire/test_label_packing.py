from __future__ import annotations

import json
import math
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from collegium.errors import WireError
from collegium.wire.label_packing import decode, encode, is_difference

SKEWS = ("uniform", "geometric", "zipf", "constant", "dominant", "two")


def labels_of(n_classes: int, size: int, lowest: int = -1) -> st.SearchStrategy[np.ndarray]:
    return hnp.arrays(np.int32, size, elements=st.integers(lowest, n_classes - 1))


@st.composite
def labels_and_reference(draw: st.DrawFn) -> tuple[int, np.ndarray, np.ndarray]:
    n_classes = draw(st.sampled_from([1, 2, 3, 5, 10, 127, 128, 129, 1000, 32768, 32769, 70000]))
    size = draw(st.integers(0, 60))
    reference = draw(labels_of(n_classes, size, draw(st.sampled_from([-1, 0]))))
    labels = draw(labels_of(n_classes, size, draw(st.sampled_from([-1, 0]))))
    kept = draw(hnp.arrays(np.bool_, size))
    return n_classes, np.where(kept, reference, labels), reference


def shifted(reference: np.ndarray, at: np.ndarray, by: np.ndarray, s: int, offset: int) -> np.ndarray:
    labels = reference.copy()
    labels[at] = (reference[at] + offset + by) % s - offset
    return labels


def differences(rng: np.random.Generator, skew: str, m: int, s: int) -> np.ndarray:
    weights = 1 / np.arange(1, s)
    return {
        "uniform": lambda: rng.integers(1, s, m),
        "geometric": lambda: np.minimum(rng.geometric(0.5, m), s - 1),
        "zipf": lambda: rng.choice(np.arange(1, s), m, p=weights / weights.sum()),
        "constant": lambda: np.full(m, s - 1),
        "dominant": lambda: np.where(rng.random(m) < 0.97, s // 2, rng.integers(1, s, m)),
        "two": lambda: rng.choice([1, s - 1], m),
    }[skew]()


def difference_bytes(labels: np.ndarray, reference: np.ndarray, s: int) -> float:
    """The entropy of which labels differ, and of differences of any size at those places."""
    changed = np.count_nonzero(labels != reference)
    share = np.array([changed, labels.size - changed]) / labels.size
    share = share[share > 0]
    return float(changed * np.log2(s - 1) - labels.size * (share @ np.log2(share))) / 8


def round_trip(labels: np.ndarray, n_classes: int, reference: np.ndarray | None = None) -> tuple[list[int], np.ndarray]:
    header, content = encode(labels, n_classes, reference)
    assert content.dtype == np.uint8
    back = decode(json.loads(json.dumps(header)), content, n_classes, reference)
    np.testing.assert_array_equal(back, labels)
    return header, content


@given(labels_and_reference())
@settings(deadline=None, max_examples=300)
def test_any_labels_come_back(case: tuple[int, np.ndarray, np.ndarray]) -> None:
    n_classes, labels, reference = case
    _, plain = round_trip(labels, n_classes)
    _, content = round_trip(labels, n_classes, reference)
    assert content.size <= plain.size


@pytest.mark.parametrize(
    ("n_classes", "dtype"), [(1, np.int8), (128, np.int8), (129, np.int16), (32768, np.int16), (32769, np.int32)]
)
def test_labels_come_back_in_the_smallest_type(n_classes: int, dtype: type) -> None:
    labels = np.array([-1, 0, n_classes - 1])
    for reference in (None, np.zeros(3, np.int64)):
        header, content = encode(labels, n_classes, reference)
        back = decode(header, content, n_classes, reference)
        assert back.dtype == dtype
        np.testing.assert_array_equal(back, labels)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int64, np.uint64])
def test_any_integer_type_is_taken(dtype: type) -> None:
    labels = np.arange(100).astype(dtype) % 7
    reference = labels.copy()
    reference[13] = 6
    round_trip(labels, 7)
    round_trip(labels, 7, reference.astype(np.int32))


@pytest.mark.parametrize("skew", SKEWS)
def test_many_chunks_come_back(skew: str) -> None:
    rng = np.random.default_rng(1)
    reference = rng.integers(-1, 10, 300_000)
    at = np.sort(rng.choice(reference.size, 90_000, replace=False))
    labels = shifted(reference, at, differences(rng, skew, at.size, 11), 11, 1)
    assert not is_difference(round_trip(labels, 10)[0])
    assert is_difference(round_trip(labels, 10, reference)[0])


def test_plain_labels_cost_their_information() -> None:
    for s in range(2, 2001):
        for n in (1, 2, 3, 7, 50, 1000):
            labels = np.arange(n) % s
            assert encode(labels, s)[1].size <= 1.05 * n * math.log2(s) / 8 + 1, (s, n)
            abstaining = labels - 1 if s > 2 else np.arange(n) % 2 - 1
            assert encode(abstaining, s - 1)[1].size <= 1.05 * n * math.log2(s) / 8 + 1, (s, n)


def test_a_single_class_costs_nothing() -> None:
    assert round_trip(np.zeros(1000, np.int8), 1)[1].size == 0
    assert round_trip(np.full(1000, -1), 1)[1].size == 125


def test_no_difference_costs_nothing() -> None:
    labels = np.random.default_rng(0).integers(-1, 10, 5000)
    header, content = round_trip(labels, 10, labels)
    assert content.size == 0
    assert header == [5000, 11, 0, 0]


@pytest.mark.parametrize("skew", SKEWS)
@pytest.mark.parametrize("n_classes", [2, 3, 5, 10, 26, 100])
def test_a_difference_costs_its_places_and_as_many_symbols(n_classes: int, skew: str) -> None:
    rng = np.random.default_rng([n_classes, SKEWS.index(skew)])
    for abstain in (0, 1):
        s = n_classes + abstain
        for n in (1000, 3000, 50_000):
            reference = rng.integers(-abstain, n_classes, n)
            reference[0] = -abstain
            for share in (0.0001, 0.001, 0.005, 0.01, 0.03, 0.1, 0.2, 0.35, 0.5):
                at = rng.choice(n, max(1, round(n * share)), replace=False)
                labels = shifted(reference, at, differences(rng, skew, at.size, s), s, abstain)
                header, content = encode(labels, n_classes, reference)
                limit = 1.06 * difference_bytes(labels, reference, s) + 4
                assert content.size <= limit, (n, share, s, header)


@pytest.mark.parametrize("share", [0.0001, 0.01, 0.1, 0.21, 0.5])
@pytest.mark.parametrize("places", ["regular", "block"])
def test_where_the_changes_lie_does_not_matter(share: float, places: str) -> None:
    n, m = 50_000, int(50_000 * share)
    at = np.arange(m) * (n // m) if places == "regular" else n - m + np.arange(m)
    reference = np.arange(n) % 10
    labels = shifted(reference, at, np.random.default_rng(0).integers(1, 10, m), 10, 0)
    _, content = round_trip(labels, 10, reference)
    assert content.size <= 1.06 * difference_bytes(labels, reference, 10) + 4


def test_plain_is_used_where_most_labels_differ() -> None:
    rng = np.random.default_rng(0)
    labels, reference = rng.integers(0, 10, (2, 10_000))
    header, content = round_trip(labels, 10, reference)
    assert not is_difference(header)
    assert content.size == encode(labels, 10)[1].size


def test_changes_to_and_from_abstention() -> None:
    reference = np.arange(3000) % 10
    labels = reference.copy()
    labels[::40] = -1
    for new, old in ((labels, reference), (reference, labels)):
        assert is_difference(round_trip(new, 10, old)[0])


@pytest.mark.parametrize(
    ("labels", "n_classes", "reference"),
    [
        (np.array([10]), 10, None),
        (np.array([-2]), 10, None),
        (np.array([0.0]), 10, None),
        (np.array([[0]]), 10, None),
        (np.array([0]), 0, None),
        (np.array([0]), 10, np.array([0, 0])),
        (np.array([0]), 10, np.array([10])),
    ],
)
def test_what_cannot_be_written_is_refused(labels: np.ndarray, n_classes: int, reference: np.ndarray | None) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode(labels, n_classes, reference)


REFERENCE = np.arange(2000) % 10
UNIFORM = np.where(np.arange(2000) % 17, REFERENCE, (REFERENCE + 1 + np.arange(2000) % 9) % 10)


@pytest.mark.parametrize(
    "header",
    [
        None,
        {"n": 2000},
        [],
        [2000],
        [2000, 10, 118],
        [2000, 10, 118, 3, 0],
        [-1, 10, 118, 3],
        [1999, 10, 118, 3],
        [2**62, 10, 118, 3],
        [10**30, 10, 118, 3],
        ["2000", 10, 118, 3],
        [True, 10, 118, 3],
        [None, 10, 118, 3],
        [2000, 1, 118, 3],
        [2000, 12, 118, 3],
        [2000, 10.0, 118, 3],
        [2000, 10, -1, 3],
        [2000, 10, 2001, 3],
        [2000, 10, 118.0, 3],
        [2000, 10, 118, 31],
        [2000, 10, 118, -1],
        [2000, 10, 118, "3"],
        [2000, 10, 0, 0],
        [2000, 10],
    ],
)
def test_a_header_that_does_not_fit_is_refused(header: Any) -> None:
    good, content = encode(UNIFORM, 10, REFERENCE)
    assert good == [2000, 10, 118, 3]
    with pytest.raises(WireError):
        decode(header, content, 10, REFERENCE)


def test_content_of_another_size_is_refused() -> None:
    difference = encode(UNIFORM, 10, REFERENCE)
    assert is_difference(difference[0])
    for header, content, reference in ((*encode(REFERENCE, 10), None), (*difference, REFERENCE)):
        for wrong in (content[:-1], content[:0], np.append(content, np.uint8(0)), np.append(content, np.uint8(1))):
            with pytest.raises(WireError):
                decode(header, wrong, 10, reference)


def test_content_that_is_not_bytes_is_refused() -> None:
    header, content = encode(REFERENCE, 10)
    for wrong in (content.astype(np.int64), content.reshape(1, -1), content.view(np.int8)):
        with pytest.raises(WireError):
            decode(header, wrong, 10)


def test_symbols_out_of_range_are_refused() -> None:
    header, content = encode(np.array([9, 9, 9]), 10)
    assert int.from_bytes(content.tobytes(), "little") == 999
    for number in (1000, 1023):
        with pytest.raises(WireError):
            decode(header, np.frombuffer(number.to_bytes(2, "little"), np.uint8), 10)


def test_a_difference_made_by_hand() -> None:
    content = np.packbits([int(bit) for bit in "11" + "1000000"], bitorder="little")
    labels = decode([100, 10, 2, 0], content, 10, np.zeros(100, np.int8))
    np.testing.assert_array_equal(labels, [1, 2, *[0] * 98])


def test_a_single_class_cannot_differ() -> None:
    header = [3, 1, 1, 0]
    reference = np.zeros(3, np.int8)
    for content in (np.zeros(0, np.uint8), np.ones(1, np.uint8)):
        with pytest.raises(WireError):
            decode(header, content, 1, reference)
    assert round_trip(reference, 1, reference)[1].size == 0


def test_a_count_must_be_a_number_of_at_least_0() -> None:
    _, content = encode(np.array([1]), 2)
    assert decode([1, 2], content, 2).tolist() == [1]
    with pytest.raises(WireError, match="valid integers"):
        decode([True, 2], content, 2)
    with pytest.raises(WireError, match="valid integers"):
        decode([-1, 1], content[:0], 1)


def test_bits_after_the_end_are_refused() -> None:
    header, content = encode(np.zeros(3, np.int8), 2)
    decode(header, content, 2)
    with pytest.raises(WireError):
        decode(header, content | np.uint8(0x80), 2)


def test_places_past_the_end_are_refused() -> None:
    reference = np.zeros(1000, np.int8)
    header = [1000, 2, 1, 10]
    for place, fits in ((999, True), (1000, False), (1023, False)):
        bits = np.array([place >> bit & 1 for bit in range(10)] + [1], np.uint8)
        content = np.packbits(bits, bitorder="little")
        if fits:
            np.testing.assert_array_equal(np.flatnonzero(decode(header, content, 2, reference)), [place])
        else:
            with pytest.raises(WireError):
                decode(header, content, 2, reference)


@pytest.mark.parametrize(
    "reference",
    [None, REFERENCE[:-1], REFERENCE.reshape(2, -1), REFERENCE + 1, REFERENCE - 1, REFERENCE.astype(float)],
    ids=["none", "short", "shape", "high", "abstains", "float"],
)
def test_a_missing_or_unfit_reference_is_refused(reference: np.ndarray | None) -> None:
    header, content = encode(UNIFORM, 10, REFERENCE)
    with pytest.raises(WireError):
        decode(header, content, 10, reference)


@pytest.mark.parametrize("n_classes", [-1, 0, 8, 11, 2**40])
def test_other_classes_are_refused(n_classes: int) -> None:
    header, content = encode(UNIFORM, 10, REFERENCE)
    with pytest.raises(WireError):
        decode(header, content, n_classes, REFERENCE)


@pytest.mark.parametrize(
    ("header", "n_classes", "size"),
    [
        ([2**30 - 1, 1], 1, 0),
        ([2**30 - 1, 10], 10, 0),
        ([10**6, 10, 10**6, 0], 10, 0),
        ([10**6, 10, 10**6, 30], 10, 0),
        ([10**6, 2**29, 1, 1], 2**29, 0),
        ([10**6, 10, 0, 0], 10, 10**7),
    ],
)
def test_a_promise_of_much_allocates_little(header: list[int], n_classes: int, size: int) -> None:
    content, reference = np.zeros(size, np.uint8), np.zeros(10**6, np.int8)
    tracemalloc.start()
    try:
        with pytest.raises(WireError):
            decode(header, content, n_classes, reference)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()


def test_memory_of_plain_labels_is_their_own_and_a_chunk() -> None:
    labels = np.arange(2_000_000, dtype=np.int8) % 10
    tracemalloc.start()
    try:
        header, content = encode(labels, 10)
        decode(header, content, 10)
        assert tracemalloc.get_traced_memory()[1] < labels.nbytes + content.nbytes + 4_000_000
    finally:
        tracemalloc.stop()


@given(
    st.tuples(
        st.just(2000) | st.integers(-3, 3000) | st.sampled_from([2**31, 2**63, 10**40]),
        st.integers(9, 12),
        st.integers(0, 2100),
        st.integers(0, 32),
    ).flatmap(lambda numbers: st.sampled_from([list(numbers), list(numbers[:2])])),
    st.binary(max_size=900),
)
@settings(deadline=None, max_examples=500)
def test_hostile_input_is_refused_or_read_as_labels(header: list[int], content: bytes) -> None:
    try:
        labels = decode(header, np.frombuffer(content, np.uint8), 10, REFERENCE)
    except WireError:
        return
    assert labels.shape == (header[0],)
    assert labels.min(initial=0) >= -1
    assert labels.max(initial=0) < 10


def test_damaged_content_is_refused_or_read_as_labels() -> None:
    rng = np.random.default_rng(0)
    cases = [(*encode(UNIFORM, 10), None), (*encode(UNIFORM, 10, REFERENCE), REFERENCE)]
    refused = 0
    for header, content, reference in cases:
        for _ in range(500):
            damaged = content.copy()
            damaged[rng.integers(content.size)] ^= np.uint8(1 << rng.integers(8))
            try:
                labels = decode(header, damaged, 10, reference)
            except WireError:
                refused += 1
                continue
            assert labels.shape == (2000,)
            assert labels.min() >= 0
            assert labels.max() < 10
    assert 0 < refused < 1000
