"""Kinds of release with contents of their own to check, and their sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from collegium.core.labels import Labels
from collegium.core.releases import KINDS, ApprovalBits, HardLabels, Numbers, Release, VoteCounts
from collegium.errors import WireError
from collegium.site.gate import _shared

BITS = np.array([[True, False, True], [False, False, False], [True, True, True]])


@pytest.mark.parametrize("shape", [(3, 3), (0, 2), (1, 1), (8, 2), (5, 300)])
def test_approvals_are_packed_and_come_back(shape: tuple[int, int]) -> None:
    bits = np.random.default_rng(0).random(shape) < 0.5
    release = ApprovalBits.from_bits(bits)
    release.check(shape[1], shape[0])
    release.check(shape[1], None)
    assert release.bits.nbytes == -(-shape[0] * shape[1] // 8)
    np.testing.assert_array_equal(release.to_bits(), bits)
    assert release.to_bits().dtype == np.bool_


@pytest.mark.parametrize(
    "release",
    [
        ApprovalBits.from_bits(BITS[:, :2]),
        ApprovalBits.from_bits(BITS[:2]),
        ApprovalBits(np.zeros(1, np.uint8), 3, 3),
        ApprovalBits(np.zeros(3, np.uint8), 3, 3),
        ApprovalBits(np.zeros((1, 2), np.uint8), 3, 3),
        ApprovalBits(np.zeros(2, np.int8), 3, 3),
        ApprovalBits([0, 0], 3, 3),  # type: ignore[arg-type]
        ApprovalBits(np.array([0, 1], np.uint8), 3, 3),  # something in the padding
        ApprovalBits(np.zeros(2, np.uint8), 3.0, 3),  # type: ignore[arg-type]
        ApprovalBits(np.zeros(2, np.uint8), 3, True),
        ApprovalBits(np.zeros(2, np.uint8), -3, -3),
        ApprovalBits(np.zeros(2, np.uint8), "3", 3),  # type: ignore[arg-type]
    ],
)
def test_approvals_that_do_not_fit_are_refused(release: ApprovalBits) -> None:
    with pytest.raises(WireError, match="ApprovalBits"):
        release.check(3, 3)


def test_approvals_are_counted_over_sites() -> None:
    total = ApprovalBits.empty_sum(2)
    with pytest.raises(WireError, match="No site"):
        _ = total.tally
    total.add_release(ApprovalBits.from_bits(BITS))
    total.add_release(ApprovalBits.from_bits(~BITS))
    np.testing.assert_array_equal(total.tally.counts, np.ones((3, 3)))
    assert (total.voters, total.n_classes) == (2, 3)


@pytest.mark.parametrize("other", [BITS[:2], BITS[:, :2]])
def test_approvals_of_other_sizes_are_not_added(other: np.ndarray) -> None:
    total = ApprovalBits.empty_sum(2)
    total.add_release(ApprovalBits.from_bits(BITS))
    with pytest.raises(WireError, match="do not fit"):
        total.add_release(ApprovalBits.from_bits(other))
    assert total.voters == 1


def test_one_hot_approvals_are_votes() -> None:
    codes = np.random.default_rng(0).integers(4, size=(5, 100))
    votes, approvals = HardLabels.empty_sum(5), ApprovalBits.empty_sum(5)
    for site in codes:
        votes.add_release(HardLabels(Labels(site, 4)))
        approvals.add_release(ApprovalBits.from_bits(np.eye(4, dtype=bool)[site]))
    for quorum in (0.0, 0.5, 0.9):
        np.testing.assert_array_equal(approvals.tally.winners(3, quorum), votes.tally.winners(3, quorum))


@pytest.mark.parametrize(
    "counts",
    [
        [[1, 2, 3]],
        np.zeros(3),
        np.zeros((2, 4)),
        np.zeros((3, 3)),
        np.array([[1, -1, 0], [0, 0, 0]]),
        np.array([[1.0, np.nan, 0], [0, 0, 0]]),
        np.array([["a", "b", "c"]] * 2),
        np.zeros((2, 3), dtype=bool),
    ],
)
def test_vote_counts_that_do_not_fit_are_refused(counts: Any) -> None:
    VoteCounts(np.zeros((2, 3))).check(3, 2)
    with pytest.raises(WireError, match="VoteCounts"):
        VoteCounts(counts).check(3, 2)


@pytest.mark.parametrize(
    "values", [[1.0], np.zeros(2, np.float32), np.zeros(2, int), np.array([np.nan]), np.array(["a"])]
)
def test_numbers_that_are_none_are_refused(values: Any) -> None:
    Numbers(np.zeros((2, 2))).check(3, 2)
    with pytest.raises(WireError, match="Numbers"):
        Numbers(values).check(3, 2)


def test_numbers_add_up_to_the_same_bits_in_any_order() -> None:
    rng = np.random.default_rng(0)
    arrays = rng.normal(size=(20, 50)) * 10.0 ** rng.integers(-8, 8, size=(20, 50))
    sums = []
    for order in (range(20), rng.permutation(20)):
        total = Numbers.empty_sum(20)
        for i in order:
            total.add_release(Numbers(arrays[i]))
        assert total.voters == 20
        sums.append(total.values)
    np.testing.assert_array_equal(*sums)
    np.testing.assert_allclose(sums[0], arrays.sum(axis=0))


def test_numbers_of_other_shapes_and_of_nobody_are_not_added() -> None:
    total = Numbers.empty_sum(3)
    with pytest.raises(WireError, match="No site"):
        _ = total.values
    total.add_release(Numbers(np.zeros(2)))
    with pytest.raises(WireError, match="do not fit"):
        total.add_release(Numbers(np.zeros(3)))
    np.testing.assert_array_equal(total.values, [0, 0])


def test_fields_are_plain_however_their_class_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collegium.core.releases.KINDS", dict(KINDS))

    @dataclass(frozen=True, kw_only=True, match_args=False, slots=True)
    class Named(Release):
        size: float = 0.0
        values: Any = None

    given = Named(size=3.0, values=np.zeros(2))
    assert given.to_plain() == {"size": 3.0, "values": given.values}
    assert Named.from_plain(given.to_plain()).size == 3.0
    assert _shared(given) is None  # its array may be changed
    assert _shared(Named(size=1.0)) is not None
