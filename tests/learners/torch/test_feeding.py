"""Mini-batches that are looked up where all rows are, beside those that are read a step at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from collegium.learners.torch import feeding
from collegium.learners.torch.batches import Batches, Beside, Labelled, Rows
from collegium.learners.torch.devices import CPU
from collegium.learners.torch.feeding import DeviceFeed, Fed, HostFeed, Shape, Tables

rng = np.random.default_rng(0)
CLASSES = np.array([7, 3, 5])
U = rng.normal(size=(40, 4))
SOFT = rng.dirichlet(np.ones(3), size=40).astype(np.float32)


PSEUDO = np.resize(CLASSES, 40)


def fed(
    n: int, seed: int, *, pseudo: bool, soft: bool, weighted: bool, epochs: int = 2, labels: np.ndarray = PSEUDO
) -> Fed:
    own = np.random.default_rng(seed)
    weights = own.uniform(size=n).astype(np.float32) if weighted else None
    sets = [Labelled(Rows(own.normal(size=(n, 4))), own.choice(CLASSES, size=n), CLASSES, weights)]
    if pseudo:
        sets.append(Labelled(Rows(U), labels, CLASSES))
    beside = Beside(Rows(U), np.roll(SOFT, seed, axis=0), 3) if soft else None
    hands = Batches(own).deal(sets, beside, batch_size=8, epochs=epochs, steps=None)
    return Fed(hands, sets, beside)


@pytest.mark.parametrize("chunk", [256, 3])
@pytest.mark.parametrize("pseudo", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sizes", [[20, 20, 20], [20, 13, 9, 8]])
def test_both_ways_give_the_same_batches(
    sizes: list[int], weighted: bool, pseudo: bool, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeding, "CHUNK", chunk)
    every = [fed(n, at, pseudo=pseudo, soft=False, weighted=weighted) for at, n in enumerate(sizes)]
    compare(every)


@pytest.mark.parametrize("own", [False, True])
def test_each_net_has_its_own_labels_of_the_same_rows(own: bool) -> None:
    """Those that all nets share are looked up on the device, in a table that is smaller than what is drawn."""
    labels = [np.roll(PSEUDO, at) if own else PSEUDO for at in range(4)]
    every = [fed(30, at, pseudo=True, soft=False, weighted=False, labels=each) for at, each in enumerate(labels)]
    assert (feeding._labels_by_rows([each.sets[1] for each in every]) is None) is own
    assert len(feeding._labels_by_rows([each.sets[0] for each in every]) or ()) == 4
    compare(every)


@pytest.mark.parametrize("chunk", [256, 3])
@pytest.mark.parametrize("nets", [1, 3])
def test_soft_targets_are_each_nets_own(nets: int, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feeding, "CHUNK", chunk)
    compare([fed(40, at, pseudo=False, soft=True, weighted=False) for at in range(nets)])


def test_a_feed_serves_the_next_round() -> None:
    rounds = [[fed(20, at, pseudo=True, soft=True, weighted=False, epochs=e) for at in range(3)] for e in (2, 1)]
    given = Tables(rounds[0], CPU)
    feed = DeviceFeed(rounds[0], given, len(rounds[0][0].hands), 8)
    for own in rounds:
        assert feed.serves(own, given, len(own[0].hands), 8)
        given.set_targets(own)
        feed.begin(own)
        expected = HostFeed(own, CPU)
        for step in range(len(own[0].hands)):
            feed.goto(step)
            expected.goto(step)
            shape = Shape(3, int(own[0].hands.sizes[step]), filled=False)
            same(feed.batch(shape), expected.batch(shape), None)
    assert not feed.serves(rounds[0], Tables(rounds[0], CPU), 10, 8)
    assert not feed.serves(rounds[0], given, 10, 9)


def compare(every: list[Fed]) -> None:
    lengths = [len(each.hands) for each in every]
    assert lengths == sorted(lengths, reverse=True)
    given = Tables(every, CPU)
    given.set_targets(every)
    widest = max(int(each.hands.sizes.max()) for each in every)
    there, here = DeviceFeed(every, given, lengths[0], widest), HostFeed(every, CPU)
    there.begin(every)
    for step in range(lengths[0]):
        sizes = [int(each.hands.sizes[step]) for each in every if step < len(each.hands)]
        shape = Shape(len(sizes), max(sizes), min(sizes) < max(sizes))
        there.goto(step)
        here.goto(step)
        filled = np.arange(max(sizes)) >= np.array(sizes)[:, None]
        same(there.batch(shape), here.batch(shape), torch.from_numpy(filled))


def same(there: tuple, here: tuple, filled: torch.Tensor | None) -> None:
    """Rows that are there to fill up a batch may be any: they weigh nothing."""
    (one, counts), (other, expected) = there, here
    sets = one.X.shape[1] // (one.X.shape[1] if filled is None else filled.shape[1])
    true = torch.ones(one.X.shape[:2], dtype=torch.bool) if filled is None else ~filled.repeat(1, sets)
    assert torch.equal(one.X[true], other.X[true])
    labelled = true[:, : one.codes.shape[1]]
    assert torch.equal(one.codes[labelled], other.codes[labelled])
    assert (one.beside is None) == (other.beside is None)
    if one.beside is not None and other.beside is not None:
        assert torch.equal(one.beside, other.beside)
    assert (one.weights is None) == (other.weights is None)
    if one.weights is not None:
        assert torch.equal(one.weights, other.weights)
    assert (one.soft is None) == (other.soft is None)
    if one.soft is not None:
        assert torch.equal(one.soft, other.soft)
    assert (counts is None) == (expected is None)
    if counts is not None:
        assert torch.equal(counts, expected)
