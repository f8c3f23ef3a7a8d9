from __future__ import annotations

import math

import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.privacy.budget import write_charges
from collegium.privacy.claims import Charge
from collegium.privacy.events import Pure
from collegium.privacy.tables import privacy_table

COLUMNS = ["party", "kind", "unit", "relation", "epsilon", "delta", "accountant", "assumptions", "publishable"]


def table(*rows: tuple[str, str, Charge | None]) -> pd.DataFrame:
    releases = [
        {"party": party, "kind": kind, "privacy": None if charge is None else write_charges([charge])}
        for party, kind, charge in rows
    ]
    return privacy_table(pd.DataFrame(releases, columns=["party", "kind", "privacy"]), ["a", "b"])


def test_unprotected_releases_say_so_in_plain_words(cancer) -> None:
    privacy = cancer.run(cg.FedCT(rounds=2)).privacy
    assert list(privacy["kind"]) == ["unprotected"] * 5
    assert (privacy["epsilon"] == math.inf).all()
    assert privacy["assumptions"].str.contains("nothing protects these releases").all()
    assert set(COLUMNS) <= set(privacy.columns)


def test_claims_of_different_kinds_stand_side_by_side_and_are_not_added_up() -> None:
    dp, weak = Charge((Pure(epsilon=0.5),)), Charge((Pure(epsilon=0.25),), kind="nominal", publishable=False)
    privacy = table(("a", "HardLabels", dp), ("a", "HardLabels", weak), ("a", "Count", None), ("b", "Count", None))
    of_a = privacy[privacy["party"] == "a"].set_index("kind")
    assert dict(of_a["epsilon"]) == pytest.approx({"dp": 0.5, "nominal": 0.25, "unprotected": math.inf}, rel=1e-3)
    assert "1 x Count" in of_a.loc["dp", "assumptions"]
    assert not of_a.loc["nominal", "publishable"]


def test_a_site_that_released_nothing_has_spent_nothing() -> None:
    privacy = table(("a", "HardLabels", Charge((Pure(epsilon=0.5),)))).set_index("party")
    assert privacy.loc["b", "epsilon"] == 0
    assert privacy.loc["b", "covers"] == "nothing was released"


def test_the_noise_of_a_simulation_is_said_to_be_seeded(cancer) -> None:
    run = cancer.run(cg.FedCT(rounds=2, mechanism=cg.RandomizedResponse(epsilon=0.01)))
    assert run.privacy["assumptions"].str.contains("simulated noise").all()
    assert (run.privacy["kind"] == "dp").all()
    assert run.releases["protected"].all()


def test_a_run_is_worth_what_its_rounds_compose_to(cancer) -> None:
    run = cancer.run(cg.FedCT(rounds=3, mechanism=cg.RandomizedResponse(epsilon=0.01)))
    labels = 3 * len(cancer.split.public)
    expected = cg.privacy.compose(epsilon=0.01, rounds=labels, delta=1e-5, how="exact")
    assert abs(run.privacy["epsilon"] - expected).max() < 1e-6
    assert set(run.privacy["unit"]) == {"record"}
    assert set(run.privacy["delta"]) == {1e-5}


def test_the_table_survives_saving(cancer, tmp_path) -> None:
    run = cancer.run(cg.FedCT(rounds=2, mechanism=cg.RandomizedResponse(epsilon=0.01)), DecisionTreeClassifier())
    run.save(tmp_path / "r")
    pd.testing.assert_frame_equal(cg.load(tmp_path / "r").privacy, run.privacy)
