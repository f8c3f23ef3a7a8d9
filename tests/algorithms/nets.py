"""Small federations of nets, and hand-written training to compare with."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Any

import numpy as np
from sklearn.datasets import load_digits
from torch import nn

import collegium as cg
from collegium.learners.torch.classifier import TorchClassifier

FEATURES, CLASSES = 64, 10
LOCK = threading.Lock()
SEEN: dict[str, list[dict[str, Any]]] = defaultdict(list)


class RecordingNet(TorchClassifier):
    """Keeps, by site, the weights and terms of every update, and the net it came to."""

    def __init__(self, net: Any = "linear", *, site: str = "", optimizer: str = "sgd", lr: float = 0.1,
                 batch_size: int = 10_000, epochs: int = 1, random_state: int | None = None) -> None:  # fmt: skip
        super().__init__(
            net, optimizer=optimizer, lr=lr, batch_size=batch_size, epochs=epochs, random_state=random_state
        )
        self.site = site

    def update(self, X, y, **options):
        before = self.get_weights() if hasattr(self, "_training") else None
        super().update(X, y, **options)
        with LOCK:
            SEEN[self.site].append({"before": before, "after": self.get_weights(), **options})
        return self


class Diverging(RecordingNet):
    """Comes to weights that are no numbers."""

    def update(self, X, y, **options):
        super().update(X, y, **options)
        return self.set_weights({name: np.full_like(value, np.nan) for name, value in self.get_weights().items()})


def digits(
    sizes: tuple[int, ...] = (30, 40, 50), public: int = 120, test: int = 100
) -> tuple[list[Any], Any, Any, Any]:
    """Parts of the digits: the sites' (X, y), the public rows, their labels, and a test set."""
    X, y = load_digits(return_X_y=True)
    X = (X / 16).astype(np.float32)
    order = np.random.default_rng(0).permutation(len(X))
    cuts = np.cumsum([*sizes, public, test])
    *parts, shared, held = (order[a:b] for a, b in zip([0, *cuts], cuts, strict=False))
    return [(X[rows], y[rows]) for rows in parts], X[shared], y[shared], (X[held], y[held])


def sites_of(parts: list[Any], learner: Any) -> list[cg.Site]:
    """Sites a, b, c ... with one learner, or with what a function makes of their names."""
    names = [chr(ord("a") + i) for i in range(len(parts))]
    return [
        cg.Site(name, X, y, learner=learner(name) if callable(learner) else learner)
        for name, (X, y) in zip(names, parts, strict=True)
    ]


def linear(lr: float = 0.1, **settings: Any) -> TorchClassifier:
    """A linear net, trained by full-batch gradient descent."""
    return TorchClassifier("linear", optimizer="sgd", lr=lr, batch_size=10_000, **settings)


def zeros() -> dict[str, np.ndarray]:
    """A linear net's weights, all 0."""
    return {"1.weight": np.zeros((CLASSES, FEATURES), np.float32), "1.bias": np.zeros(CLASSES, np.float32)}


def gradient(w: dict[str, np.ndarray], X: np.ndarray, y: np.ndarray) -> dict[str, np.ndarray]:
    """Of the mean cross-entropy of a linear net, written by hand."""
    logits = X.astype(np.float64) @ w["1.weight"].T + w["1.bias"]
    p = np.exp(logits - logits.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    p[np.arange(len(y)), y] -= 1
    return {"1.weight": p.T @ X / len(y), "1.bias": p.mean(axis=0)}


def step(w: dict[str, np.ndarray], g: dict[str, np.ndarray], lr: float) -> dict[str, np.ndarray]:
    """w - lr g"""
    return {name: w[name] - lr * g[name] for name in w}


def mean(nets: list[dict[str, np.ndarray]], shares: list[float] | None = None) -> dict[str, np.ndarray]:
    """The weighted mean."""
    shares = [1.0] * len(nets) if shares is None else shares
    return {name: sum(s * net[name] for s, net in zip(shares, nets, strict=True)) / sum(shares) for name in nets[0]}


def close(a: dict[str, np.ndarray], b: dict[str, np.ndarray], rtol: float = 1e-4, atol: float = 1e-6) -> None:
    """The same weights, but for rounding."""
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=rtol, atol=atol)


def same(a: dict[str, np.ndarray], b: dict[str, np.ndarray]) -> bool:
    """The same weights, bit for bit."""
    return a.keys() == b.keys() and all(np.array_equal(a[name], b[name]) for name in a)


def weights(model: Any) -> dict[str, np.ndarray]:
    """Of a site's or a global model."""
    return model.estimator.get_weights()


def forgetful_net() -> nn.Module:
    """A net with so much dropout that it would answer differently each time, were it left on."""
    return nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Dropout(0.8), nn.Linear(32, CLASSES))


PARTS, PUBLIC, TRUTH, TEST = digits()


def run_nets(algorithm: cg.Algorithm, learner: Any = None, sites: Any = None, **options: Any) -> cg.Run:
    """A run of the three sites with these digits; by default with linear nets, and tested."""
    sites = sites_of(PARTS, linear() if learner is None else learner) if sites is None else sites
    return cg.run(algorithm, sites=sites, **{"test": TEST} | options)
