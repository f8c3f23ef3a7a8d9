"""Numbers that are copied while Python goes on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import collegium as cg
from collegium.learners.torch import answers
from collegium.learners.torch.on_their_way import OnTheirWay

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
def test_it_has_what_was_there_whatever_comes_next(device: str) -> None:
    values = torch.arange(3.0, device=device)
    copied = OnTheirWay(values)
    values.zero_()
    assert copied().tolist() == [0, 1, 2]


@pytest.mark.parametrize("device", DEVICES)
def test_answers_for_later_are_of_the_weights_that_were(device: str) -> None:
    X = np.random.default_rng(0).normal(size=(5000, 8)).astype(np.float32)
    net = cg.TorchClassifier("mlp", device=device, random_state=0).initialize(X[:1], [0, 1, 2])
    first, second = net.get_weights(), {name: -3 * value for name, value in net.get_weights().items()}
    expected = [net.set_weights(each).predict_logits(X) for each in (first, second)]
    begun = [net.set_weights(each).begin_logits(X) for each in (first, second, first)]
    np.testing.assert_array_equal([each() for each in begun], [*expected, expected[0]])
    assert not np.allclose(*expected)


@pytest.mark.parametrize("device", DEVICES)
def test_answers_of_many_numbers_take_no_locked_memory(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
    net = cg.TorchClassifier("mlp", device=device, random_state=0).initialize(X[:1], [0, 1, 2])
    expected = net.predict_logits(X)
    monkeypatch.setattr(answers, "MOST_LATE", expected.size - 1)
    monkeypatch.setattr(answers, "OnTheirWay", None)
    np.testing.assert_array_equal(net.predict_logits(X), expected)
