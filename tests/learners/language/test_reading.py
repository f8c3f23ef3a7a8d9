"""Texts as rows of token ids: those that come again are not read again."""

from __future__ import annotations

import numpy as np
import pytest

from collegium.learners.language import reading
from collegium.learners.language.reading import Memo


def lengths(texts: list[str]) -> np.ndarray:
    return np.array([[len(text)] for text in texts], dtype=np.int32).reshape(-1, 1)


def test_the_lists_of_many_sites_stay_as_they_were_given() -> None:
    memo = Memo(lengths)
    sites = [[f"{at} {row}" for row in range(3)] for at in range(20)]
    first = [memo(texts) for texts in sites]
    assert all(memo(list(texts)) is rows for texts, rows in zip(sites, first, strict=True))


def test_lists_make_room_for_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "LISTS_KEPT", 2)
    memo = Memo(lengths)
    first, second = memo(["a"]), memo(["bb"])
    memo(["ccc"])
    assert memo(["a"]) is not first
    assert memo(["bb"]) is not second
    np.testing.assert_array_equal(memo(["bb", "a"]), [[2], [1]])


def test_lists_take_no_more_memory_than_a_memo_may() -> None:
    memo = Memo(lengths, most=8)
    longest = memo(["a", "bb", "ccc", "dddd"])  # more than may be kept: alone
    assert memo(["a", "bb", "ccc", "dddd"]) is longest
    last = memo(["a"])
    assert memo(["a", "bb", "ccc", "dddd"]) is not longest
    assert memo(["a"]) is not last
