"""Small federations that many tests share."""

from __future__ import annotations

import gc
import secrets
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.data.public import Split
from collegium.links.ray_cluster import connected


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that is imported goes away: the garbage collector would look through a million objects again and again,
    while tests are collected and in every test after it. What tests make is collected as ever."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@dataclass(frozen=True)
class Federation:
    """A split data set and what `cg.run` needs of it."""

    split: Split

    def sites(self, learner: Any = None, **options: Any) -> list[cg.Site]:
        learner = DecisionTreeClassifier(max_depth=4) if learner is None else learner
        return [cg.Site(f"site{i}", X, y, learner=learner, **options) for i, (X, y) in enumerate(self.split.sites)]

    def run(self, algorithm: cg.Algorithm, learner: Any = None, sites: Any = None, **options: Any) -> cg.Run:
        settings: dict[str, Any] = {"public": self.split.public, "test": self.split.test, "seed": 0} | options
        return cg.run(algorithm, sites=self.sites(learner) if sites is None else sites, **settings)


@pytest.fixture(scope="session")
def cancer() -> Federation:
    X, y = load_breast_cancer(return_X_y=True)
    return Federation(cg.split(X, np.array(["malignant", "benign"])[y], sites=5, public=370, test=114, seed=0))


@pytest.fixture(scope="session")
def digits() -> Federation:
    X, y = load_digits(return_X_y=True)
    return Federation(cg.split(X, y, sites=5, public=700, test=400, train=500, seed=0))


@pytest.fixture(scope="session")
def ray_here() -> Iterator[None]:
    """One Ray for all tests of a session, since starting it takes seconds. Links find it and use it."""
    pytest.importorskip("ray")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("RAY_AUTH_TOKEN", secrets.token_hex(32))  # otherwise Ray leaves one in the home folder
        with connected(None, cpus=2):
            yield
