"""What every registered algorithm must do.

A method's contracts run in one process, so that those that look at an ordinary run look at the same one.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import FrozenInstanceError, fields, is_dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.tree import DecisionTreeClassifier
from tests.core.exchanges import last_comes_first
from torch import nn

import collegium as cg
from collegium import registry
from collegium.core import Algorithm
from collegium.errors import ConfigError
from collegium.secure import secret_votes
from collegium.site.ledger import read_ledger

# What gives sites a model, or labels; tests/together has the one that makes a public set.
NAMES = [name for name in registry.names("algorithm") if not registry.lookup("algorithm", name).makes_public]
every_algorithm = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.xdist_group(f"contracts of {name}")) for name in NAMES]
)
# Few rounds of what takes thousands; period 1 so that there is something to say in them.
FEW: dict[str, dict[str, Any]] = {
    "aimhi": {"period": 1},
    "dd": {"epochs": 2},
    "dp_fedavg": {"clip": 1e6, "noise": 1e-9},
    "fedkt": {"subsets": 2},
    "fedmd": {"public_epochs": 2, "private_epochs": 4, "revisit_epochs": 1},
    "pate": {"teachers": 5},
    "dp_pate": {"teachers": 5, "gamma": 5.0},
    "xclp": {"bits": 64, "k": 5, "hamming": "masked"},
    "fedavg_xclp": {"xclp": cg.XCLP(bits=64, k=5, hamming="masked")},
}
LEARNER = DecisionTreeClassifier(max_features=3)
with torch.random.fork_rng():
    torch.manual_seed(1)  # a net that is given begins with its own weights, whatever the seed of a run
    # For methods that work with nets; its batch norm brings the features to one scale.
    NET = cg.TorchClassifier(
        nn.Sequential(nn.BatchNorm1d(30, momentum=0.9), nn.Linear(30, 2)), lr=0.05, batch_size=16, epochs=5
    )


def make(name: str, **settings: Any) -> Algorithm:
    cls = registry.lookup("algorithm", name)
    known = {field.name for field in fields(cls)}
    enough = {key: value for key, value in {"rounds": 2, "local_epochs": 5}.items() if key in known}
    algorithm: Algorithm = cls(**(enough | FEW.get(name, {}) | settings))
    return algorithm


def has_rounds(name: str) -> bool:
    """Some methods are over after one."""
    return "rounds" in {field.name for field in fields(registry.lookup("algorithm", name))}


def learner_for(name: str) -> Any:
    """What the method needs, by what it says it needs."""
    return NET if registry.lookup("algorithm", name).needs else LEARNER


def sites_for(cancer: Any, name: str, learner: Any = None) -> list[cg.Site]:
    """Sites with what the method needs: some methods label rows of the sites' own, or learn from them."""
    sites: list[cg.Site] = cancer.sites(learner_for(name) if learner is None else learner)
    if registry.lookup("algorithm", name).needs_labels:
        return sites
    return [cg.Site(s.name, s.X[::2], s.y[::2], learner=s.learner, unlabeled=s.X[1::2]) for s in sites]


def served(run: cg.Run) -> list[str]:
    """The sites that got what the method gives: a model, or labels of their own rows."""
    return list(run.labels) if isinstance(run.labels, dict) else list(run.models)


def run_of(cancer: Any, name: str, learner: Any = None, algorithm: Algorithm | None = None, **options: Any) -> cg.Run:
    """A run with a learner that the method can work with, and with labels of the public set if it learns from them."""
    algorithm = algorithm or make(name)
    if algorithm.learns_public_labels and "public" not in options:
        options["public"] = (cancer.split.public, cancer.split.public_truth)
    if "sites" not in options:
        options["sites"] = sites_for(cancer, name, learner)
    run: cg.Run = cancer.run(algorithm, **options)
    return run


def same(a: cg.Run, b: cg.Run, X: Any, *, fresh_secrets: bool = False) -> None:
    pd.testing.assert_frame_equal(a.metrics, b.metrics)
    keep = ["party", "round", "step", "kind", "bytes", *([] if fresh_secrets else ["sha256"])]
    pd.testing.assert_frame_equal(a.releases[keep], b.releases[keep])
    if isinstance(a.labels, dict):
        assert served(a) == served(b)
        for party in a.labels:
            assert (a.labels[party] == b.labels[party]).all()
            assert (a.confidences[party] == b.confidences[party]).all()
    else:
        assert a.labels == b.labels
    assert list(a.models) == list(b.models)
    for party, model in a.models.items():
        assert (model.predict(X) == b.models[party].predict(X)).all()
    assert (a.global_model is None) == (b.global_model is None)
    if a.global_model is not None:
        assert (a.global_model.predict(X) == b.global_model.predict(X)).all()


@every_algorithm
def test_it_is_a_frozen_dataclass_with_settings_that_are_shown(name: str) -> None:
    algorithm = registry.lookup("algorithm", name)()
    assert isinstance(algorithm, Algorithm)
    assert is_dataclass(algorithm)
    assert algorithm == registry.lookup("algorithm", name)()
    for field in fields(algorithm):
        with pytest.raises(FrozenInstanceError):
            setattr(algorithm, field.name, None)
        assert f"{field.name}=" in repr(algorithm)  # a record knows the run by it


@every_algorithm
@pytest.mark.parametrize("rounds", [0, -1])
def test_it_refuses_to_run_no_rounds(name: str, rounds: int) -> None:
    if not has_rounds(name):
        pytest.skip("it has one round")
    with pytest.raises(ConfigError, match="rounds"):
        make(name, rounds=rounds)


@pytest.fixture(scope="session")
def usual(cancer: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[cg.Run, Path]]:
    """A method's run with seed 0, made once, and its folder. Look at it; whoever goes on with it takes a copy."""

    @cache
    def run(name: str) -> tuple[cg.Run, Path]:
        folder = tmp_path_factory.mktemp("usual") / "run"
        return run_of(cancer, name, out=folder), folder

    return run


@every_algorithm
def test_every_site_gets_a_model_and_its_accuracy_is_noted_every_round(name: str, cancer: Any, usual: Any) -> None:
    run, _ = usual(name)
    assert served(run) == [f"site{i}" for i in range(5)]
    if not make(name).needs_learner:
        assert run.refusals.empty
        return
    rounds = [0, 1] if has_rounds(name) else [0]
    assert list(run.accuracy.index) == rounds
    assert run.accuracy.shape == (len(rounds), 5)
    assert run.accuracy.iloc[-1].mean() > 0.7
    assert run.refusals.empty
    assert set(run.models["site0"].predict(cancer.split.public)) == {"benign", "malignant"}


@every_algorithm
def test_it_says_so_if_it_needs_a_public_set_and_otherwise_does_without(name: str, cancer: Any) -> None:
    if make(name).needs_public:
        with pytest.raises(ConfigError, match="public"):
            run_of(cancer, name, public=None)
    else:
        assert len(served(run_of(cancer, name, public=None))) == 5


class Fails(DecisionTreeClassifier):
    """A learner that never comes to an end."""

    def fit(self, X, y):
        raise RuntimeError("SECRET")


class FailingNet(cg.TorchClassifier):
    """A net that cannot even be made."""

    def initialize(self, X, classes):
        raise RuntimeError("SECRET")

    def update(self, X, y, **options):
        raise RuntimeError("SECRET")


@every_algorithm
def test_it_survives_a_site_that_fails(name: str, cancer: Any) -> None:
    if not make(name).needs_learner:
        return  # nothing of the site's own can fail; see test_it_survives_a_site_that_refuses
    sites = cancer.sites(learner_for(name))
    failing = FailingNet() if learner_for(name) is NET else Fails()
    sites[3] = cg.Site("failing", sites[3].X, sites[3].y, learner=failing)
    with pytest.warns(cg.CollegiumWarning, match="failing") as warned:
        run = run_of(cancer, name, sites=sites)
    assert list(run.models) == ["site0", "site1", "site2", "site4"]
    assert set(run.refusals["party"]) == {"failing"}
    assert set(run.refusals["code"]) == {"step-failed"}
    assert run.accuracy.iloc[-1].notna().sum() == 4
    assert not any("SECRET" in str(each.message) for each in warned)
    assert "SECRET" in "".join(run.logs["failing"])


@every_algorithm
def test_it_survives_a_site_that_refuses(name: str, cancer: Any) -> None:
    sites = sites_for(cancer, name)
    sites[3] = replace(sites[3], policy=cg.Policy(steps=()))
    with pytest.warns(cg.CollegiumWarning, match="site3"):
        run = run_of(cancer, name, sites=sites)
    assert set(served(run)) - {"site3"} == {"site0", "site1", "site2", "site4"}
    assert set(run.refusals["party"]) == {"site3"}
    assert set(run.refusals["code"]) == {"step-denied"}


@every_algorithm
def test_one_site_only_is_allowed_with_a_warning(name: str, cancer: Any) -> None:
    with pytest.warns(cg.CollegiumWarning, match="only one site"):
        run = run_of(cancer, name, sites=sites_for(cancer, name)[:1])
    assert served(run) == ["site0"]


@every_algorithm
def test_it_does_not_matter_who_answers_first(name: str, cancer: Any, usual: Any) -> None:
    with last_comes_first():
        other = run_of(cancer, name)
    same(usual(name)[0], other, cancer.split.public, fresh_secrets=make(name).fresh_secrets)


@pytest.mark.slow  # test_links has what is quick
@pytest.mark.xdist_group("many processes")
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("link", ["workers", "ray"])
def test_it_is_the_same_in_other_processes(name: str, link: str, cancer: Any, request: pytest.FixtureRequest) -> None:
    if link == "ray":
        request.getfixturevalue("ray_here")
    here, there = run_of(cancer, name), run_of(cancer, name, link=link, workers=1)
    same(here, there, cancer.split.public, fresh_secrets=make(name).fresh_secrets)


@every_algorithm
def test_it_is_the_same_after_a_replay(name: str, cancer: Any, usual: Any, tmp_path: Path) -> None:
    (here, folder), X = usual(name), cancer.split.public
    same(here, cg.load(folder), X)
    copy = shutil.copytree(folder, tmp_path / "run")
    before = read_ledger(copy / "ledger.db")
    same(here, run_of(cancer, name, out=copy, resume=True), X)
    assert read_ledger(copy / "ledger.db") == before
    same(here, cg.load(copy), X)


@every_algorithm
def test_another_seed_gives_another_result(name: str, cancer: Any, usual: Any) -> None:
    first, other = usual(name)[0], run_of(cancer, name, seed=1)
    if make(name).needs:  # nets of two seeds may be right on the same rows, but never as sure of each
        X = cancer.split.test[0]
        sure = [[model.predict_proba(X) for model in run.models.values()] for run in (first, other)]
        assert not any(np.array_equal(one, another) for one, another in zip(*sure, strict=True))
    elif not make(name).labels_own_points:
        assert not first.metrics.equals(other.metrics)
    else:  # a method that draws nothing at random gives the same
        differs = any((first.confidences[party] != other.confidences[party]).any() for party in served(first))
        assert differs == make(name).fresh_secrets


@every_algorithm
def test_what_leaves_a_site_is_in_its_ledger(name: str, usual: Any) -> None:
    run, folder = usual(name)
    rows = read_ledger(folder / "ledger.db")
    assert sorted((row["party"], row["sha256"]) for row in rows) == sorted(
        zip(run.releases["party"], run.releases["sha256"], strict=True)
    )


# Settings with which a method asks for other steps than with its first ones; nets where it starts from weights.
START = {"start": {"1.bias": np.zeros(2)}}
OTHERWISE: list[tuple[str, dict[str, Any]]] = [
    ("fedct", {"votes": "secret"}),
    ("fedct", {"voters": cg.Familiar(), "consensus": cg.WeightedMajority()}),
    ("fedct", {"consensus": cg.WeightedMajority("agreement")}),
    *((name, {"weights": "balance"}) for name in ("aimhi", "fedct")),
    *((name, START) for name in ("aimhi", "dd", "fedct", "fedmd", "local")),
    ("fedkt", {"share": "models", "student": cg.TorchClassifier("linear", epochs=1)}),
    ("dp_fedavg", {"variant": "clip_parameters"}),
    ("fedaux", {"mode": "head"}),
    ("fedaux", {"scorer": "mean"}),
    *((name, {"teachers": "sites"}) for name in ("pate", "dp_pate")),
    *((name, {"warm_up": 1}) for name in ("fedavg_llp", "fedavg_pseudo", "fedavg_xclp")),
    ("xclp", {"hamming": "plain"}),
    ("xclp", {"bits": None}),
]
# Asked for by the coordinator of a real federation when a round ends; see tests/core/test_scores.py.
NOT_SIMULATED = {"scores.score", "scores.measure"}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        pytest.param(name, settings, marks=pytest.mark.xdist_group(f"contracts of {name}"))
        for name, settings in [*((name, {}) for name in NAMES), *OTHERWISE]
    ],
)
def test_it_asks_for_the_steps_that_it_declares_and_for_no_others(
    name: str, settings: Any, cancer: Any, usual: Any
) -> None:
    algorithm = make(name, **settings)
    run = run_of(cancer, name, NET if "start" in settings else None, algorithm) if settings else usual(name)[0]
    asked = {step for steps in run.orders["steps"] for step in str(steps).split()}
    assert asked == algorithm.all_steps().keys() - NOT_SIMULATED


def test_every_declared_step_is_asked_for_with_some_settings() -> None:
    for name in registry.names("algorithm"):
        made = [make(name), *(make(name, **settings) for other, settings in OTHERWISE if other == name)]
        seen = {step for algorithm in made for step in algorithm.all_steps()}
        asks_for = {step.name for step in registry.lookup("algorithm", name).asks_for}
        # AIMHI is FedCT with other numbers.
        assert asks_for - seen <= ({step.name for step in secret_votes.STEPS} if name == "aimhi" else set())


@every_algorithm
def test_the_types_of_its_settings_can_be_read(name: str) -> None:
    assert get_type_hints(registry.lookup("algorithm", name))  # without them a study file cannot name components


def test_only_methods_whose_sites_come_to_a_model_are_asked_for_scores() -> None:
    for name in registry.names("algorithm"):
        assert ("scores.score" in make(name).all_steps()) == make(name).trains_sites
