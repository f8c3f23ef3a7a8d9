"""FedSiam's training: the target follows as a moving average, and pulls the net's answers to its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import nn

from collegium.algorithms.fedsiam import Siamese
from collegium.core.terms import LocalTerms
from collegium.errors import ConfigError
from collegium.learners.torch.classifier import TorchClassifier

torch.set_num_threads(1)
rng = np.random.default_rng(0)
CLASSES, LR = [0, 1, 2], 0.5
X, Y = rng.normal(size=(12, 5)).astype(np.float32), np.arange(12) % 3
ONE = np.ones((12, 5), np.float32)  # all rows alike: a view swaps nothing


def linear(**settings: Any) -> TorchClassifier:
    settings = {"optimizer": "sgd", "lr": LR, "batch_size": 12, "random_state": 0} | settings
    return TorchClassifier("linear", **settings).initialize(X, CLASSES)


def update(model: TorchClassifier, siamese: Siamese, rows: int = 12, steps: int = 1) -> TorchClassifier:
    return model.update(X[:rows], Y[:rows], classes=CLASSES, steps=steps, terms=LocalTerms([siamese]))


def test_without_labels_the_net_goes_down_the_squared_difference_of_the_answers() -> None:
    model, other = linear(), linear(random_state=1).get_weights()
    w = model.get_weights()
    p, q = (softmax(ONE @ each["1.weight"].T + each["1.bias"], axis=1) for each in (w, other))
    difference = 2 * (p - q) / p.size
    slope = p * (difference - (difference * p).sum(axis=1, keepdims=True))
    update(model, Siamese(ONE, other, weight=3.0), rows=0)
    found = model.get_weights()
    np.testing.assert_allclose(found["1.weight"], w["1.weight"] - LR * 3 * slope.T @ ONE, atol=1e-6)
    np.testing.assert_allclose(found["1.bias"], w["1.bias"] - LR * 3 * slope.sum(axis=0), atol=1e-6)


def test_the_target_is_a_moving_average_of_the_net() -> None:
    model, target = linear(), linear(random_state=1).get_weights()
    update(model, Siamese(X, target, decay=0.9))
    after, followed = model.get_weights(), model.last_update_.parts["target"]
    for name, value in after.items():
        np.testing.assert_allclose(followed[name], 0.9 * target[name] + 0.1 * value, atol=1e-6)


def test_labels_count_beside_the_agreement() -> None:
    labels_only, both = linear(), linear()
    for model, weight in ((labels_only, 0.0), (both, 5.0)):
        update(model, Siamese(ONE, model.get_weights(), weight=weight), steps=5)
    assert not np.allclose(labels_only.get_weights()["1.weight"], both.get_weights()["1.weight"], atol=1e-4)
    assert labels_only.last_update_.loss < np.log(3) + 1


def test_the_targets_batch_norm_has_statistics_of_its_own() -> None:
    net = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3))
    model = TorchClassifier(net, random_state=0, batch_size=6).initialize(X, CLASSES)
    update(model, Siamese(X, model.get_weights(), decay=1.0), steps=3)
    followed = model.last_update_.parts["target"]
    assert followed.keys() == model.get_weights().keys()
    assert followed["0.running_mean"].std() > 0
    np.testing.assert_array_equal(followed["1.weight"], net[1].weight.detach().numpy())  # nothing of it moves


def test_it_is_the_same_each_time() -> None:
    found = [update(linear(), Siamese(X, linear().get_weights()), steps=4).get_weights() for _ in range(2)]
    np.testing.assert_equal(*found)


def test_a_target_of_another_net_or_a_decay_that_is_none() -> None:
    with pytest.raises(ConfigError, match="of another net"):
        update(linear(), Siamese(X, {"1.weight": np.zeros((3, 5))}))
    with pytest.raises(ConfigError, match="decay"):
        Siamese(X, {}, decay=1.5)
    with pytest.raises(ConfigError, match="weight"):
        Siamese(X, {}, weight=-1)
