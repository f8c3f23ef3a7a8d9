"""Weights to start from, in methods whose sites keep models of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier
from tests.algorithms.nets import SEEN, RecordingNet, close, digits, sites_of

import collegium as cg
from collegium.errors import ConfigError, SiteError

pytestmark = pytest.mark.xdist_group("starts")  # its fixtures are made once

PARTS, U, LABELS, TEST = digits()
METHODS = {
    "fedct": cg.FedCT,
    "aimhi": cg.AIMHI,
    "dd": cg.DistributedDistillation,
    "fedmd": cg.FedMD,
    "local": cg.Local,
}
SHORT = {
    "fedmd": {"rounds": 1, "public_epochs": 1, "private_epochs": 1, "revisit_epochs": 1},
    "aimhi": {"rounds": 1, "period": 1},
}


def run(method: str, learner: Any = None, **settings: Any) -> cg.Run:
    algorithm = METHODS[method](**SHORT.get(method, {"rounds": 1}), **settings)
    public = (U, LABELS) if method == "fedmd" else U
    given = None if method == "local" else public
    return cg.run(algorithm, sites=sites_of(PARTS, learner or (lambda name: RecordingNet(site=name))), public=given)


@pytest.fixture(scope="module")
def first() -> cg.Run:
    return cg.run(cg.FedAvg(rounds=10, local_epochs=10), sites=sites_of(PARTS, RecordingNet()))


@pytest.mark.parametrize("method", METHODS)
def test_all_sites_begin_with_the_weights_that_are_given(method: str, first: cg.Run) -> None:
    run(method, start=first.global_model)
    begun = [SEEN[name][0]["before"] for name in "abc"]
    for weights in begun:
        close(weights, first.global_model.estimator.get_weights())
    SEEN.clear()
    run(method)
    assert all(SEEN[name][0]["before"] is None for name in "abc")


def test_a_good_start_is_worth_rounds(first: cg.Run) -> None:
    def accuracy(**settings: Any) -> float:
        algorithm = cg.FedCT(rounds=1, epochs=1, **settings)
        sites = sites_of(PARTS, cg.TorchClassifier("linear", optimizer="sgd", lr=1e-3))
        return float(cg.run(algorithm, sites=sites, public=U, test=TEST).accuracy.iloc[-1].mean())

    assert accuracy(start=first.global_model) > accuracy() + 0.2


@pytest.mark.parametrize("method", METHODS)
def test_learners_without_weights_cannot_start_from_any(method: str, first: cg.Run) -> None:
    with pytest.raises(SiteError, match=r"weights|distill"):
        run(method, DecisionTreeClassifier(), start=first.global_model)


@pytest.mark.parametrize(
    ("start", "match"),
    [
        ([], "empty list"),
        ({}, "no weights"),
        (DecisionTreeClassifier(), "start must be a fitted model"),
        (cg.TorchClassifier(), "start must be a fitted model"),
        ({"w": np.array([np.nan])}, "NaN or infinite"),
    ],
)
def test_what_holds_no_weights_is_an_error_at_once(start: Any, match: str) -> None:
    for method in METHODS.values():
        with pytest.raises(ConfigError, match=f"{method.__name__}: .*{match}"):
            method(start=start)


def test_weights_of_another_net_or_of_other_classes(first: cg.Run) -> None:
    with pytest.raises(ConfigError, match="a net that no site has"):
        run("fedct", start={"weight": np.zeros((3, 3))})
    other = RecordingNet().fit(U, np.array(list("abcdefghij"))[LABELS])
    with pytest.raises(ConfigError, match="classes"):
        run("fedct", start=other)


def test_it_is_shown_and_compared_by_its_hash(first: cg.Run) -> None:
    one, other = (cg.FedCT(start=first.global_model) for _ in range(2))
    assert one == other
    assert "<weights" in repr(one)
    assert one != cg.FedCT()
