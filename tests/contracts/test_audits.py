"""Every registered algorithm can be attacked, or says that it releases nothing."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.datasets import load_breast_cancer
from tests.contracts.test_algorithms import every_algorithm, learner_for, make

import collegium as cg
from collegium import registry
from collegium.errors import ConfigError

NOTHING_LEAVES = {"local", "local_label_propagation"}


def attack(name: str, view: str, **settings: Any) -> cg.Audit:
    algorithm = make(name)
    X, y = load_breast_cancer(return_X_y=True)
    parts = [slice(start, start + 60) for start in (0, 60, 120)]
    own = None if algorithm.needs_labels else X[180:200]
    sites = [
        cg.Site(f"site{place}", X[rows], y[rows], learner=learner_for(name), unlabeled=own)
        for place, rows in enumerate(parts)
    ]
    public = (X[200:240], y[200:240]) if algorithm.learns_public_labels else X[200:240]
    return cg.audit(algorithm, sites, public if algorithm.needs_public else None, view=view, canaries=30, **settings)


@every_algorithm
def test_what_it_releases_can_be_attacked(name: str) -> None:
    algorithm = registry.lookup("algorithm", name)
    if name in NOTHING_LEAVES:
        with pytest.raises(ConfigError, match="releases nothing"):
            attack(name, "coordinator")
        return
    # What XCLP sends is encrypted or masked; a member learns labels of points of its choice.
    view = "member" if algorithm.labels_own_points else "coordinator"
    found = attack(name, view, forged=algorithm.needs_public or algorithm.labels_own_points)
    assert 0 <= found.auc_interval[0] <= found.auc <= found.auc_interval[1] <= 1
    assert found.verdict in ("no claim", "consistent")
