"""FedMatch's training: which part learns what, agreement, and what keeps psi near sigma and sparse."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import nn

from collegium.algorithms.fedmatch import Disjoint
from collegium.core.terms import LocalTerms
from collegium.errors import ConfigError
from collegium.learners.torch.classifier import TorchClassifier

torch.set_num_threads(1)
rng = np.random.default_rng(0)
CLASSES, LR = [0, 1, 2], 0.1
X, Y = rng.normal(size=(12, 5)).astype(np.float32), np.arange(12) % 3
U = np.ones((12, 5), np.float32)  # all rows alike: a view swaps nothing
FREE: dict[str, Any] = {"supervised": 1.0, "l2": 0.0, "l1": 0.0}


def linear() -> TorchClassifier:
    return TorchClassifier("linear", optimizer="sgd", lr=LR, batch_size=12, random_state=0).initialize(X, CLASSES)


def fifth(model: TorchClassifier) -> dict[str, Any]:
    return {name: value / 5 for name, value in model.get_weights().items()}


def update(model: TorchClassifier, disjoint: Disjoint, rows: int = 12, steps: int = 1) -> Any:
    model.update(X[:rows], Y[:rows], classes=CLASSES, steps=steps, terms=LocalTerms([disjoint]))
    return model.last_update_.parts


def gradient(w: Any, rows: Any, targets: Any) -> dict[str, Any]:
    errors = softmax(rows @ w["1.weight"].T + w["1.bias"], axis=1) - targets
    return {"1.weight": errors.T @ rows / len(rows), "1.bias": errors.mean(axis=0)}


def test_labels_move_sigma_only() -> None:
    model = linear()
    w, psi = model.get_weights(), fifth(model)
    slopes = gradient(w, X, np.eye(3)[Y])
    parts = update(model, Disjoint(U[:0], psi, **FREE | {"supervised": 4.0}))
    for name in w:
        np.testing.assert_allclose(parts["psi"][name], psi[name], atol=1e-7)
        np.testing.assert_allclose(parts["sigma"][name], w[name] - psi[name] - LR * 4 * slopes[name], atol=1e-6)
        np.testing.assert_allclose(model.get_weights()[name], parts["sigma"][name] + parts["psi"][name], atol=1e-6)


def test_rows_without_labels_move_psi_only_towards_helpers_and_their_votes() -> None:
    model = linear()
    w, psi = model.get_weights(), fifth(model)
    helpers = [np.tile(np.float32(row), (12, 1)) for row in ([0.1, 0.2, 0.7], [0.3, 0.1, 0.6])]
    parts = update(model, Disjoint(U, psi, helpers, confidence=0.0, consistency=0.5, **FREE), rows=0)
    agree, voted = gradient(w, U, np.mean(helpers, axis=0)), gradient(w, U, np.eye(3)[np.full(12, 2)])
    for name in w:
        np.testing.assert_allclose(parts["sigma"][name], w[name] - psi[name], atol=1e-6)
        np.testing.assert_allclose(parts["psi"][name], psi[name] - LR * 0.5 * (agree[name] + voted[name]), atol=1e-6)


def test_without_helpers_the_net_labels_its_rows_itself() -> None:
    model = linear()
    w, psi = model.get_weights(), fifth(model)
    own = softmax(U @ w["1.weight"].T + w["1.bias"], axis=1).argmax(axis=1)
    parts = update(model, Disjoint(U, psi, confidence=0.0, consistency=0.5, **FREE), rows=0)
    slopes = gradient(w, U, np.eye(3)[own])
    np.testing.assert_allclose(parts["psi"]["1.bias"], psi["1.bias"] - LR * 0.5 * slopes["1.bias"], atol=1e-6)


def test_rows_that_the_net_is_not_sure_of_do_not_count() -> None:
    model = linear()
    psi = fifth(model)
    parts = update(model, Disjoint(U, psi, confidence=1.0, consistency=100.0, **FREE), rows=0, steps=3)
    np.testing.assert_allclose(parts["psi"]["1.weight"], psi["1.weight"], atol=1e-7)


def test_psi_is_pulled_to_sigma_and_cut_at_0_whatever_the_strength() -> None:
    model = linear()
    w, psi = model.get_weights(), fifth(model)
    strengths = FREE | {"supervised": 0.0}
    pulled = update(model, Disjoint(U[:0], psi, **strengths | {"l2": 1e4}))
    np.testing.assert_allclose(pulled["psi"]["1.weight"], pulled["sigma"]["1.weight"], rtol=1e-2)
    np.testing.assert_allclose(pulled["sigma"]["1.weight"], 0.8 * w["1.weight"], atol=1e-6)
    sparse = update(linear(), Disjoint(U[:0], psi, **strengths | {"l1": 0.3}))["psi"]["1.weight"]
    cut = LR * 0.3
    np.testing.assert_allclose(
        sparse, np.sign(psi["1.weight"]) * np.maximum(np.abs(psi["1.weight"]) - cut, 0), atol=1e-6
    )
    assert (sparse == 0).any()


def test_parts_of_a_net_with_batch_norm_add_up_to_its_weights() -> None:
    net = nn.Sequential(nn.BatchNorm1d(5), nn.Linear(5, 3))
    model = TorchClassifier(net, random_state=0, batch_size=6).initialize(X, CLASSES)
    parts = update(model, Disjoint(X, fifth(model)), steps=3)
    for name, value in model.get_weights().items():
        np.testing.assert_allclose(parts["sigma"][name] + parts["psi"][name], value, atol=1e-6)


def test_bad_settings_and_helpers_of_other_rows() -> None:
    with pytest.raises(ConfigError, match="helper"):
        update(linear(), Disjoint(U, fifth(linear()), [np.ones((3, 3))]))
    with pytest.raises(ConfigError, match="psi are of another net"):
        update(linear(), Disjoint(U, {"1.weight": np.zeros((3, 5))}))
    for settings in ({"l1": -1}, {"l2": -1}, {"supervised": np.nan}, {"consistency": -1}, {"confidence": 2}):
        with pytest.raises(ConfigError, match=next(iter(settings))):
            Disjoint(U, {}, **settings)
