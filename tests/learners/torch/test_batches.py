"""Which rows a mini-batch holds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
import pytest

from collegium.learners.torch.batches import Batches, Labelled, Rows, batches_of
from collegium.learners.torch.devices import CPU


def rows_of(n: int, start: int = 0) -> Labelled:
    """n rows whose only feature is their number, counted from `start`."""
    numbers = np.arange(start, start + n)
    return Labelled(Rows(numbers[:, None]), np.zeros(n, dtype=int), np.array([0]))


def drawn(batches: Batches, sets: list[Labelled], **how: Any) -> list[list[int]]:
    """The numbers of the rows of each batch."""
    settings = {"batch_size": 4, "epochs": 1, "steps": None} | how
    hands = batches.deal(sets, None, **settings)
    return [X[:, 0].int().tolist() for X, *_ in batches_of(hands, sets, None, CPU)]


def joined(batches: Iterable[list[int]]) -> list[int]:
    return list(chain.from_iterable(batches))


@pytest.fixture
def batches() -> Batches:
    return Batches(np.random.default_rng(0))


def test_an_epoch_covers_every_row_once(batches: Batches) -> None:
    first, second = drawn(batches, [rows_of(10)]), drawn(batches, [rows_of(10)])
    assert [len(batch) for batch in first] == [4, 4, 2]
    for epoch in (first, second):
        assert sorted(joined(epoch)) == list(range(10))
    assert first != second


def test_an_epoch_after_a_few_steps_still_covers_every_row_once(batches: Batches) -> None:
    drawn(batches, [rows_of(10)], steps=1)
    assert sorted(joined(drawn(batches, [rows_of(10)]))) == list(range(10))


def test_single_steps_sweep_the_data(batches: Batches) -> None:
    rows = joined(drawn(batches, [rows_of(10)], steps=1)[0] for _ in range(5))
    assert sorted(rows[:10]) == sorted(rows[10:]) == list(range(10))


def test_steps_are_always_full(batches: Batches) -> None:
    assert [len(batch) for batch in drawn(batches, [rows_of(10)], steps=7)] == [4] * 7


def test_other_data_starts_a_new_sweep(batches: Batches) -> None:
    drawn(batches, [rows_of(10)], steps=1)
    rows = joined(drawn(batches, [rows_of(8)], steps=2))
    assert sorted(rows) == list(range(8))


@pytest.mark.parametrize(("private", "public"), [(10, 30), (30, 10), (1, 9), (12, 12), (3, 2)])
def test_steps_are_half_private_half_public(private: int, public: int, batches: Batches) -> None:
    sets = [rows_of(private), rows_of(public, start=100)]
    share = min(4, max(private, public))
    for batch in drawn(batches, sets, steps=9):
        assert len(batch) == 2 * share
        assert sum(row < 100 for row in batch) == share


@pytest.mark.parametrize(("private", "public"), [(10, 30), (30, 10), (1, 9), (12, 12), (3, 2)])
def test_an_epoch_covers_the_larger_set_once_and_cycles_through_the_smaller(
    private: int, public: int, batches: Batches
) -> None:
    sets = [rows_of(private), rows_of(public, start=100)]
    drawn(batches, sets, steps=1)
    epoch = drawn(batches, sets)
    assert all(2 * sum(row < 100 for row in batch) == len(batch) for batch in epoch)
    rows = Counter(joined(epoch))
    of_private, of_public = [rows[row] for row in range(private)], [rows[100 + row] for row in range(public)]
    smaller, larger = sorted([of_private, of_public], key=len)
    assert set(larger) == {1}
    assert sum(smaller) == len(larger)
    assert max(smaller) - min(smaller) <= 2


def test_the_public_rows_go_on_across_calls_too(batches: Batches) -> None:
    sets = [rows_of(6), rows_of(20, start=100)]
    rows = joined(drawn(batches, sets, steps=1)[0] for _ in range(5))
    assert sorted(row for row in rows if row >= 100) == list(range(100, 120))


def test_labels_stay_with_their_rows(batches: Batches) -> None:
    def labelled(n: int) -> Labelled:
        return Labelled(
            Rows(np.arange(n)[:, None]), np.array([f"c{i % 3}" for i in range(n)]), np.array(["c2", "c0", "c1"])
        )

    sets = [labelled(9), labelled(20)]
    hands = batches.deal(sets, None, batch_size=4, epochs=2, steps=None)
    for X, y, *_ in batches_of(hands, sets, None, CPU):
        assert [["c2", "c0", "c1"][code] for code in y] == [f"c{int(row) % 3}" for row in X[:, 0]]


def test_large_images_are_read_in_smaller_chunks() -> None:
    images = np.zeros((100, 3, 224, 224), dtype=np.uint8)
    sizes = [chunk.stop - chunk.start for chunk in Rows(images).chunks()]
    assert sum(sizes) == 100
    assert max(sizes) * 3 * 224 * 224 <= 2**22
