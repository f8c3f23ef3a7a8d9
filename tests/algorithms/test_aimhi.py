"""AIMHI: FedCT's loop with its own paper's settings."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.errors import ConfigError


def test_it_has_the_papers_settings() -> None:
    algorithm = cg.AIMHI()
    assert (algorithm.rounds, algorithm.period) == (3000, 20)
    assert algorithm.consensus == cg.Majority()
    assert algorithm.voters is None
    assert algorithm.participation == 1.0


def test_apart_from_them_it_has_the_settings_of_fedct() -> None:
    ours, theirs = asdict(cg.AIMHI()), asdict(cg.FedCT())
    assert {name for name in ours if ours[name] != theirs[name]} == {"rounds", "period"}


def test_it_is_the_same_loop(cancer) -> None:
    runs = [
        cancer.run(kind(rounds=5, period=2), DecisionTreeClassifier(max_features=3)) for kind in (cg.AIMHI, cg.FedCT)
    ]
    assert runs[0].metrics.equals(runs[1].metrics)
    assert list(runs[0].releases["sha256"]) == list(runs[1].releases["sha256"])
    assert len(runs[0].releases) == 10
    assert runs[0].labels == runs[1].labels


def test_errors_name_the_algorithm() -> None:
    with pytest.raises(ConfigError, match="AIMHI: rounds"):
        cg.AIMHI(rounds=0)
    with pytest.raises(ConfigError, match="AIMHI: period must be at most rounds=5, not 20"):
        cg.AIMHI(rounds=5)
