"""Which rows make up the mini-batches of an update."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from collegium.learners.torch.hands import Deck, deal_steps, deal_sweeps, sweep


@pytest.mark.parametrize(
    ("n", "size", "sizes"),
    [(8, 4, [4, 4]), (9, 4, [4, 5]), (10, 4, [4, 4, 2]), (1, 1, [1]), (3, 1, [1, 1, 1]), (3, 3, [3]), (2, 2, [2])],
)
def test_a_last_row_alone_joins_the_batch_before(n: int, size: int, sizes: list[int]) -> None:
    assert sweep(n, size) == sizes


def test_a_hand_may_be_larger_than_the_deck() -> None:
    hand = Deck(3, np.random.default_rng(0)).deal(7)
    assert Counter(Counter(hand.tolist()).values()) == {2: 2, 3: 1}


@pytest.mark.parametrize("n", [1, 2, 100, 5000])
def test_shuffles_at_once_are_the_draws_of_one_after_the_other(n: int) -> None:
    deck, rng = Deck(n, np.random.default_rng(5)), np.random.default_rng(5)
    for k in (n, 3 * n + 1, 2 * n):
        deck.deal(k)
    shuffled = np.concatenate([rng.permutation(n) for _ in range(8)])
    assert np.array_equal(deck.deal(n), shuffled[6 * n + 1 : 7 * n + 1])


@pytest.mark.parametrize("lengths", [[10], [10, 7], [3, 50], [1, 1], [64, 64], [9, 7, 5], [5, 5, 5], [30, 4, 3]])
@pytest.mark.parametrize("size", [1, 4, 20])
def test_dealing_many_hands_at_once_is_dealing_them_one_by_one(lengths: list[int], size: int) -> None:
    """Decks share a generator: an earlier shuffle of one changes the next of another."""
    at_once, one_by_one = (
        [Deck(n, rng) for n in lengths] for rng in (np.random.default_rng(3), np.random.default_rng(3))
    )
    for steps in (1, 30, 7):
        hands = deal_steps(at_once, size, steps)
        expected = [[deck.deal(size) for deck in one_by_one] for _ in range(steps)]
        for rows, own in zip(hands.rows, zip(*expected, strict=True), strict=True):
            assert np.array_equal(rows, np.concatenate(own))


def test_a_sweep_shuffles_the_largest_deck_first() -> None:
    rng = np.random.default_rng(0)
    decks = [Deck(10, rng), Deck(3, rng)]
    decks[0].deal(4)
    hands = deal_sweeps(decks, 4, epochs=3)
    assert hands.sizes.tolist() == [4, 4, 2] * 3
    assert hands.starts.tolist() == [0, 4, 8, 10, 14, 18, 20, 24, 28]
    for epoch in range(3):
        assert sorted(hands.rows[0][epoch * 10 : epoch * 10 + 10]) == list(range(10))
    assert Counter(hands.rows[1].tolist()) == {0: 10, 1: 10, 2: 10}
