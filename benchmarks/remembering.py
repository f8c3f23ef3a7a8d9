"""Pipelines that are fitted once: where many rules are tried on the same rows, most fits are the same."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from collegium.consensus import familiar

_FITTED: Final[dict[str, list[tuple[str, Any]]]] = {}
_SAID: Final[dict[tuple[str, str], Any]] = {}


class Remembered(Pipeline):  # type: ignore[misc]
    """A pipeline that takes what was fitted before on the same rows, labels and weights.

    That is the same model only where fits repeat themselves: a `random_state` that decides anything must be set.
    """

    steps: list[tuple[str, Any]]

    def fit(self, X: Any, y: Any = None, **params: Any) -> Remembered:
        """Fit, or take what is known."""
        self.key_ = _digest(_settings(self), X, y, *(part for pair in sorted(params.items()) for part in pair))
        if self.key_ not in _FITTED:
            self.steps = [(name, clone(step)) for name, step in self.steps]  # others may have been given these
            super().fit(X, y, **params)
            _FITTED[self.key_] = self.steps
        self.steps = _FITTED[self.key_]
        return self

    def predict(self, X: Any, **params: Any) -> Any:
        """Say, or repeat."""
        asked = self.key_, _digest(X, *params)
        if asked not in _SAID:
            _SAID[asked] = super().predict(X, **params)
        return _SAID[asked].copy()


@contextmanager
def remembering() -> Iterator[None]:
    """Fits, and what sites find familiar, are worked out once within it and forgotten afterwards."""
    known: dict[str, Any] = {}
    plain = familiar.familiarity

    def familiarity(own: Any, public: Any, threshold: float, rng: np.random.Generator) -> Any:
        asked = _digest(own, public, threshold, str(rng.bit_generator.state))
        if asked not in known:
            known[asked] = plain(own, public, threshold, rng), rng.bit_generator.state
        found, rng.bit_generator.state = known[asked]
        return found.copy()

    familiar.familiarity = familiarity
    try:
        yield
    finally:
        familiar.familiarity = plain
        _FITTED.clear()
        _SAID.clear()


def _settings(pipeline: Pipeline) -> str:
    """What its parts are set to; the site's generator draws the seeds that are not set, and they decide nothing."""
    told = [(name, type(step).__qualname__, step.get_params()) for name, step in pipeline.steps]
    return repr([(*names, {k: v for k, v in own.items() if k != "random_state"}) for *names, own in told])


def _digest(*parts: Any) -> str:
    digest = hashlib.sha256()
    for part in parts:
        plain = isinstance(part, np.ndarray) and part.dtype != object
        told = f"{part.shape} {part.dtype} " if plain else repr(part.tolist() if isinstance(part, np.ndarray) else part)
        digest.update(told.encode())
        if plain:
            digest.update(np.ascontiguousarray(part).data)
    return digest.hexdigest()
