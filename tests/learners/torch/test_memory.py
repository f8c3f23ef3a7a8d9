"""A GPU without memory left: who gives back what, and what is tried again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from collegium.errors import CollegiumWarning
from collegium.learners.torch import answers as answering
from collegium.learners.torch import lanes, memory
from collegium.learners.torch.classifier import TorchClassifier
from collegium.wire import tables

rng = np.random.default_rng(0)
X = tables.frozen(rng.normal(size=(40, 6)).astype(np.float32))
Y = rng.integers(0, 3, size=len(X))


class Keeper:
    def __init__(self, what: str | None) -> None:
        self.what = what

    def forget(self) -> bool:
        had, self.what = self.what is not None, None
        return had


@pytest.fixture(autouse=True)
def nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests' nets keep what they like."""
    monkeypatch.setattr(memory, "_keepers", type(memory._keepers)())


def learner(**settings: Any) -> TorchClassifier:
    return TorchClassifier("mlp", batch_size=8, random_state=0, **settings)


class Short:
    """A net that has memory for a step, or an answer, only now and then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most_rows: int = 99, failures: int = 0) -> None:
        self.failures, self.most_rows, self.asked = failures, most_rows, list[int]()
        forward = nn.Sequential.forward

        def short(net: nn.Sequential, rows: torch.Tensor) -> torch.Tensor:
            self.asked.append(len(rows))
            if self.failures or len(rows) > self.most_rows:
                self.failures = max(0, self.failures - 1)
                raise torch.OutOfMemoryError("CUDA out of memory.")
            return forward(net, rows)

        monkeypatch.setattr(nn.Sequential, "forward", short)


def test_all_give_back_what_they_keep_but_only_that_of_others_counts() -> None:
    one, two, empty = Keeper("a recording"), Keeper("another"), Keeper(None)
    for each in (one, two, empty):
        memory.note(each)
    assert memory.give_back(but_for=[one])
    assert one.what is two.what is None
    assert not memory.give_back()
    memory.note(one)
    assert not memory.give_back(), "it has nothing"
    one.what = "a recording"
    memory.note(one)
    assert not memory.give_back(but_for=[one])
    assert one.what is None


def test_a_net_that_keeps_something_gives_it_back() -> None:
    model = learner().fit(X, Y)
    model._training.keep(object())
    assert memory.give_back()
    assert not model._training._kept
    assert not memory.give_back()


def test_a_step_without_memory_is_taken_when_others_have_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = learner().update(X, Y, classes=range(3), steps=3).get_weights()
    model = learner().initialize(X, range(3))
    other = Keeper("a recording")
    memory.note(other)
    short = Short(monkeypatch, failures=1)
    model.update(X, Y, classes=range(3), steps=3)
    assert other.what is None
    assert len(short.asked) == 4
    for name, value in model.get_weights().items():
        np.testing.assert_array_equal(value, expected[name])
    short.failures = 1
    with pytest.raises(torch.OutOfMemoryError):  # nobody has anything left to give back
        model.update(X, Y, classes=range(3), steps=1)


def test_answers_without_memory_are_of_fewer_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    model = learner().fit(X, Y)
    expected = model.predict_logits(X)
    monkeypatch.setattr(answering, "AT_ONCE_ALONE", X.size)
    other = Keeper("a recording")
    memory.note(other)
    short = Short(monkeypatch, most_rows=20)
    with pytest.warns(CollegiumWarning, match="8 times fewer are asked at a time"):
        found = model.predict_logits(X)
    assert short.asked[:3] == [40, 40, 5], "others give back before fewer rows are asked"
    assert other.what is None
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)  # products of fewer rows round otherwise
    short.most_rows = 0
    with pytest.raises(torch.OutOfMemoryError), pytest.warns(CollegiumWarning):
        model.predict_logits(X)


def test_others_give_back_for_an_answer_only_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = learner().fit(X, Y)
    others = list[Keeper]()
    short = Short(monkeypatch, most_rows=1)
    forward = nn.Sequential.forward

    def busy(net: nn.Sequential, rows: torch.Tensor) -> torch.Tensor:
        others.append(Keeper("a recording"))
        memory.note(others[-1])  # somebody trains meanwhile, and keeps something again
        return forward(net, rows)

    monkeypatch.setattr(nn.Sequential, "forward", busy)
    with pytest.warns(CollegiumWarning) as said:
        model.predict_logits(X)
    assert short.asked[:5] == [40, 40, 5, 1, 1]
    assert len(said) == 2, "one for each time that fewer are asked"


def test_a_step_of_batch_norm_is_not_taken_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 3))
    model = TorchClassifier(net, batch_size=8, random_state=0).initialize(X, range(3))
    other = Keeper("a recording")
    memory.note(other)
    Short(monkeypatch, failures=1)
    with pytest.raises(torch.OutOfMemoryError):
        model.update(X, Y, classes=range(3), steps=1)


def test_what_is_recorded_is_tried_again_when_others_have_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def train(updates: Any, done: dict[int, Any]) -> None:
        tried.append(len(updates))
        if len(tried) == 1:
            raise torch.OutOfMemoryError("CUDA out of memory.")
        done[0] = updates[0].carry_out()

    monkeypatch.setattr(lanes, "can_record", lambda device: True)
    monkeypatch.setattr(lanes, "train_side_by_side", train)
    other = Keeper("a recording")
    memory.note(other)
    model = TorchClassifier(lambda shape, n: nn.Sequential(nn.Linear(shape[0], 4), nn.BatchNorm1d(4), nn.Linear(4, n)))
    model.update(X, Y, classes=range(3), steps=2)
    assert tried == [1, 1]
    assert other.what is None
    assert model._training.recordable
