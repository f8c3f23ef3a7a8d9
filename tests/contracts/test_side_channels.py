"""Whatever an algorithm asks of a site that requires differential privacy, no single record shows beside paid answers.

Every registered algorithm, with every private learner that it can use, and those that bring noise of their own.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium import registry
from collegium.auditing.side_channels import compare
from collegium.core import Algorithm
from collegium.privacy.learners.base import PrivateLearner

QUICK = {"rounds": 1, "local_epochs": 1, "distill_epochs": 1, "public_epochs": 1, "private_epochs": 1, "pretrain": None}
FEW: dict[str, dict[str, Any]] = {
    "aimhi": {"period": 1},
    "pate": {"teachers": "sites"},
    "dp_pate": {"teachers": "sites"},
    "xclp": {"bits": 64, "k": 5, "hamming": "masked"},
    "fedavg_xclp": {"xclp": cg.XCLP(bits=64, k=5, hamming="masked")},
    "fedkt": {"subsets": 3, "teacher": DecisionTreeClassifier(), "student": DecisionTreeClassifier()},
}
TREE = DecisionTreeClassifier(max_depth=2)
NET = cg.TorchClassifier("linear", epochs=1)
PRIVATE: dict[str, Any] = {
    "private_voting": cg.PrivateVoting(TREE, teachers=4, epsilon=1.0, queries=10),
    "private_torch": cg.PrivateTorch(epsilon=1.0, epochs=1),
}
VOTING = PRIVATE["private_voting"]
NAMES = [name for name in registry.names("algorithm") if not registry.lookup("algorithm", name).makes_public]
STRICT = cg.Policy(requires="dp", unprotected=())
NOISE = {"level": "L2", "partitions": 1, "subsets": 3, "queries": 10, "gamma": 0.1, "teacher": LogisticRegression()}
OF_THEIR_OWN: dict[str, tuple[Algorithm, Any]] = {
    "fedct, noise on labels": (cg.FedCT(rounds=2, mechanism=cg.RandomizedResponse(epsilon=0.5)), LogisticRegression()),
    "fedct, noise on bits": (cg.FedCT(rounds=2, mechanism=cg.UnaryEncoding(epsilon=0.5)), LogisticRegression()),
    "fedct, weights by counts": (
        cg.FedCT(rounds=2, consensus=cg.WeightedMajority("samples")),
        PRIVATE["private_voting"],
    ),
    "fedkt L2": (cg.FedKT(**NOISE), TREE),
    "fedkt L2 in hindsight": (cg.FedKT(**NOISE, accounting="data_dependent"), TREE),
    "fedaux": (cg.FedAUX(rounds=1, epsilon=1.0, local_epochs=1, distill_epochs=1, pretrain=None), NET),
    "dp_fedavg": (cg.DPFedAvg(rounds=2, local_epochs=1, variant="clip_parameters"), NET),
}


def made(name: str) -> Algorithm:
    cls = registry.lookup("algorithm", name)
    known = {field.name for field in fields(cls)}
    algorithm: Algorithm = cls(**{key: value for key, value in QUICK.items() if key in known} | FEW.get(name, {}))
    return algorithm


def learners_for(name: str) -> dict[str, Any]:
    """The private learners, where the method takes any learner, and a net where it needs one."""
    return {"net": NET} if registry.lookup("algorithm", name).needs else PRIVATE


@cache
def rows(seed: int) -> tuple[Any, Any]:
    X = np.random.default_rng(seed).normal(size=(50, 3))
    return X, np.where(X[:, 0] > 0, "ill", "well")


def leaks(algorithm: Algorithm, learner: Any, **settings: Any) -> list[Any]:
    U, truth = rows(0)
    sites = [
        cg.Site(name, *rows(seed), learner, **settings, unlabeled=None if algorithm.needs_labels else rows(seed)[0] + 1)
        for seed, name in enumerate(("a", "b"), start=1)
    ]
    return compare(algorithm, sites[0], (U, truth) if algorithm.learns_public_labels else U, others=sites[1:])


def test_every_private_learner_is_here() -> None:
    named = {name for name in registry.names("learner") if _is_private(registry.lookup("learner", name))}
    assert named == set(PRIVATE)


def _is_private(learner: Any) -> bool:
    return isinstance(learner, type) and issubclass(learner, PrivateLearner)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "learner"), [(name, kind) for name in NAMES for kind in learners_for(name)])
def test_no_record_shows(name: str, learner: str) -> None:
    assert leaks(made(name), learners_for(name)[learner], policy=STRICT) == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OF_THEIR_OWN)
@pytest.mark.parametrize("settings", [{"policy": STRICT}, {"budget": cg.Budget(50.0)}], ids=["required", "budget"])
def test_no_record_shows_beside_a_methods_own_noise(name: str, settings: dict[str, Any]) -> None:
    assert leaks(*OF_THEIR_OWN[name], **settings) == []
