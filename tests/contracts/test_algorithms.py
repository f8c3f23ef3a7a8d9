"""What every registered algorithm must do."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium import registry
from collegium.core import Algorithm
from collegium.core.ledger import read_ledger
from collegium.errors import ConfigError

every_algorithm = pytest.mark.parametrize("name", registry.names("algorithm"))
# Few rounds of what takes thousands; period 1 so that there is something to say in them.
FEW: dict[str, dict[str, Any]] = {"aimhi": {"period": 1}}
LEARNER = DecisionTreeClassifier(max_features=3)


def make(name: str, **settings: Any) -> Algorithm:
    algorithm: Algorithm = registry.lookup("algorithm", name)(**({"rounds": 2} | FEW.get(name, {}) | settings))
    return algorithm


def same(a: cg.Run, b: cg.Run, X: Any) -> None:
    pd.testing.assert_frame_equal(a.metrics, b.metrics)
    keep = ["party", "round", "step", "kind", "bytes", "sha256"]
    pd.testing.assert_frame_equal(a.releases[keep], b.releases[keep])
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
    with pytest.raises(ConfigError, match="rounds"):
        make(name, rounds=rounds)


@every_algorithm
def test_every_site_gets_a_model_and_its_accuracy_is_noted_every_round(name: str, cancer: Any) -> None:
    run = cancer.run(make(name), LEARNER)
    assert list(run.models) == [f"site{i}" for i in range(5)]
    assert list(run.accuracy.index) == [0, 1]
    assert run.accuracy.shape == (2, 5)
    assert run.accuracy.iloc[-1].mean() > 0.7
    assert run.refusals.empty
    assert set(run.models["site0"].predict(cancer.split.public)) == {"benign", "malignant"}


@every_algorithm
def test_it_says_so_if_it_needs_a_public_set_and_otherwise_does_without(name: str, cancer: Any) -> None:
    if make(name).needs_public:
        with pytest.raises(ConfigError, match="public"):
            cancer.run(make(name), public=None)
    else:
        assert len(cancer.run(make(name), public=None).models) == 5


class Fails(DecisionTreeClassifier):
    """A learner that never comes to an end."""

    def fit(self, X, y):
        raise RuntimeError("SECRET")


@every_algorithm
def test_it_survives_a_site_that_fails(name: str, cancer: Any) -> None:
    sites = cancer.sites(LEARNER)
    sites[3] = cg.Site("failing", sites[3].X, sites[3].y, learner=Fails())
    with pytest.warns(cg.CollegiumWarning, match="failing") as warned:
        run = cancer.run(make(name), sites=sites)
    assert list(run.models) == ["site0", "site1", "site2", "site4"]
    assert set(run.refusals["party"]) == {"failing"}
    assert set(run.refusals["code"]) == {"step-failed"}
    assert run.accuracy.iloc[-1].notna().sum() == 4
    assert not any("SECRET" in str(each.message) for each in warned)
    assert "SECRET" in "".join(run.logs["failing"])


@every_algorithm
def test_one_site_only_is_allowed_with_a_warning(name: str, cancer: Any) -> None:
    with pytest.warns(cg.CollegiumWarning, match="one site only"):
        run = cancer.run(make(name), sites=cancer.sites(LEARNER)[:1])
    assert list(run.models) == ["site0"]


@every_algorithm
def test_it_is_the_same_in_threads_in_workers_and_after_a_replay(name: str, cancer: Any, tmp_path: Any) -> None:
    X = cancer.split.public
    here = cancer.run(make(name), LEARNER, out=tmp_path / "run")
    same(here, cancer.run(make(name), LEARNER, workers=2), X)
    before = read_ledger(tmp_path / "run" / "ledger.db")
    same(here, cancer.run(make(name), LEARNER, out=tmp_path / "run", resume=True), X)
    assert read_ledger(tmp_path / "run" / "ledger.db") == before
    same(here, cg.load(tmp_path / "run"), X)


@every_algorithm
def test_another_seed_gives_another_result(name: str, cancer: Any) -> None:
    first, other = (cancer.run(make(name), LEARNER, seed=seed) for seed in (0, 1))
    assert not first.metrics.equals(other.metrics)


@every_algorithm
def test_what_leaves_a_site_is_in_its_ledger(name: str, cancer: Any, tmp_path: Any) -> None:
    run = cancer.run(make(name), LEARNER, out=tmp_path / "run")
    rows = read_ledger(tmp_path / "run" / "ledger.db")
    assert sorted((row["party"], row["sha256"]) for row in rows) == sorted(
        zip(run.releases["party"], run.releases["sha256"], strict=True)
    )
