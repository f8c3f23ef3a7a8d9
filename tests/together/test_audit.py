from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from sklearn.tree import DecisionTreeClassifier
from tests.together.tables import COLUMNS, rows, sites
from typer.testing import CliRunner

import collegium as cg
from collegium.algorithms.together import Together
from collegium.cli.main import app
from collegium.errors import ConfigError
from collegium.runs.making import making_of


def settings(epsilon: float, relation: str = "add_remove") -> Together:
    return making_of(
        sites(3, 300), epsilon=epsilon, delta=1e-5, rows=50, columns=COLUMNS, dropouts=0.0, relation=relation,
        model="tree",
    )  # fmt: skip


def labelling(**more: Any) -> list[cg.Site]:
    """Sites whose learners take numbers and no text."""
    learner = more.pop("learner", DecisionTreeClassifier(max_depth=3))
    return [cg.Site(site.name, site.X[["age", "dose"]], site.y, learner=learner, **more) for site in sites(3, 300)]


def numbers(epsilon: float, relation: str = "add_remove") -> cg.Together:
    return cg.Together({"age": (18, 90), "dose": (0.0, 50.0)}, epsilon, rows=60, relation=relation)  # type: ignore[arg-type]


def test_an_attack_on_the_sums_stays_below_the_claim() -> None:
    found = cg.audit(settings(1.0), sites(3, 300), canaries=100)
    assert found.claim is not None
    assert found.claim.epsilon > found.epsilon_lower
    assert not found.contradicts
    assert found.view == "coordinator"


def test_without_noise_worth_the_name_the_attack_finds_members() -> None:
    found = cg.audit(settings(1e5), sites(3, 300), canaries=100)
    assert found.auc > 0.75
    assert found.epsilon_lower > 0.5


def test_the_whole_way_is_attacked_at_once_and_its_claims_add_up() -> None:
    labels = cg.FedCT(rounds=2, mechanism=cg.RandomizedResponse(2.0))
    found = cg.audit(labels, labelling(), numbers(1.0), canaries=100)
    assert found.claim is not None
    alone = cg.audit(labels, labelling(), labelling()[0].X.iloc[:60], canaries=100)
    assert alone.claim is not None
    assert found.claim.epsilon > alone.claim.epsilon > 1
    assert found.claim.rounds > alone.claim.rounds
    assert not found.contradicts
    assert found.epsilon_lower <= found.claim.epsilon


@pytest.mark.parametrize("beforehand", [True, False])
def test_an_attacked_run_uses_what_the_model_says(beforehand: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    told, estimate = [], cg.Informed.estimate

    def seen(self: cg.Informed, votes: Any, counts: Any, alike: Any = None, opinion: Any = None) -> Any:
        told.append(opinion)
        return estimate(self, votes, counts, alike, opinion)

    monkeypatch.setattr(cg.Informed, "estimate", seen)
    labels, making = cg.FedCT(rounds=1, consensus=cg.Informed()), numbers(1.0)
    public = cg.public_together(labelling(), columns=making.columns, rows=60) if beforehand else making
    assert not cg.audit(labels, labelling(), public, canaries=60).contradicts
    assert told
    assert all(each is not None and each.shape == (60, 2) for each in told)


def test_what_labels_hide_the_sums_of_the_public_set_tell() -> None:
    quiet = cg.FedCT(rounds=1, mechanism=cg.RandomizedResponse(0.01))
    found = cg.audit(quiet, labelling(), numbers(1e5), canaries=100)
    assert found.auc > 0.75
    assert found.epsilon_lower > 0.5
    assert not found.contradicts
    nothing = cg.audit(quiet, labelling(), labelling()[0].X.iloc[:60], canaries=100)
    assert nothing.auc < 0.7


def test_shadow_runs_make_their_own_public_sets() -> None:
    found = cg.audit(cg.FedCT(rounds=1), labelling(), numbers(1.0), canaries=60, shadows=4)
    assert found.shadows == 4
    assert found.claim is None  # nothing protects the labels


def test_only_an_algorithm_that_makes_a_public_set_can_stand_for_one() -> None:
    with pytest.raises(ConfigError, match="FedAvg, which makes no public set"):
        cg.audit(cg.FedCT(rounds=1), labelling(), cg.FedAvg(), canaries=60)
    with pytest.raises(ConfigError, match="not those that were declared"):
        cg.audit(cg.FedCT(rounds=1), labelling(), cg.Together({"age": (18, 90)}), canaries=60)


def test_the_command_attacks_the_study_with_its_public_set(tmp_path: Path) -> None:
    frame, state = rows(900, 5)
    frame[["age", "dose"]].assign(state=state).to_csv(tmp_path / "patients.csv", index=False)
    study = {
        "name": "audited",
        "data": {"source": "patients.csv", "target": "state", "public": "together", "test": 100},
        "together": {"rows": 60, "columns": {"age": [18, 90], "dose": [0.0, 50.0]}},
        "partition": {"sites": 3},
        "algorithm": {"name": "fedct", "rounds": 1, "mechanism": {"name": "randomized_response", "epsilon": 2.0}},
        "sites": [{"learner": {"name": "decision_tree", "max_depth": 3}}],
    }
    (tmp_path / "study.toml").write_text(cg.Study.from_dict(study).to_toml())
    arguments = ["audit", str(tmp_path / "study.toml"), "--canaries", "60", "--out", str(tmp_path / "audits"), "--json"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    said = json.loads(done.output.splitlines()[-1])
    assert said["claim"]["epsilon"] > 2
