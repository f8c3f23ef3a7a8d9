"""A hospital attacks itself with a plan that waits for its signature."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from tests.cli.commands import collegium
from tests.flare.offices import open_office, write_data, write_site
from tests.flare.talk import open_run

from collegium.flare.agreement.planning import Plan, plan_of
from collegium.site.ledger import read_ledger
from collegium.study.study import Study
from collegium.wire import tables

CLASSES = np.array(["benign", "malignant"])


def waiting(folder: Path, policy: str = "", **settings: object) -> tuple[Path, Plan]:
    """A kit at which a plan waits."""
    public, kit = write_data(folder, ["site-1"], rows=160), folder / "site-1"
    write_site(kit, "site-1", approval="plan", policy=policy)
    algorithm = {"name": "fedct", "rounds": 1, **settings}
    study = Study.from_dict(
        {
            "name": "t",
            "data": {"source": "public.csv"},
            "algorithm": algorithm,
            "federation": {"classes": CLASSES.tolist()},
        }
    )
    plan = plan_of(study, public, CLASSES, ["site-1", "site-2", "site-3"])
    assert open_run(open_office(kit), plan, public) == "waiting"
    return kit, plan


def test_the_plan_that_waits_is_played_against_the_sites_own_records(tmp_path: Path) -> None:
    kit, plan = waiting(tmp_path)
    done = collegium("site", "audit", str(kit), "--canaries", "50", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["site"], found["forged"], found["verdict"]) == ("site-1", "static", "no claim")
    assert found["auc"] > 0.7
    assert sorted(file.suffix for file in (kit / "audits").iterdir()) == [".html", ".json", ".png"]
    again = collegium("site", "audit", str(kit), plan.digest, "--view", "model", "--canaries", "50")
    assert again.returncode == 0, again.stderr
    assert "has the site's final model" in " ".join(again.stdout.split())


def test_it_signs_nothing_and_spends_nothing(tmp_path: Path) -> None:
    noise = {"name": "randomized_response", "epsilon": 0.01}
    kit, plan = waiting(tmp_path, 'requires = "dp"\nunprotected = []\n[budget]\nepsilon = 5.0', mechanism=noise)
    done = collegium("site", "audit", str(kit), "--canaries", "40", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["verdict"] == "consistent"
    assert 0 < found["claim"]["epsilon"] < 5
    assert read_ledger(kit / "agent" / "ledger.db") == []
    assert [
        each["digest"] for each in json.loads(collegium("site", "approve", str(kit), "--json").stdout)["plans"]
    ] == [plan.digest]


def test_a_set_that_the_policy_pins_is_not_forged(tmp_path: Path) -> None:
    public = write_data(tmp_path, ["site-1"], rows=160)
    kit, _ = waiting(tmp_path, f'public_sha256 = "{tables.digest(public)}"')
    found = json.loads(collegium("site", "audit", str(kit), "--canaries", "50", "--json").stdout)
    assert found["forged"] is None


def test_without_a_plan_there_is_nothing_to_play(tmp_path: Path) -> None:
    write_data(tmp_path, ["site-1"])
    write_site(tmp_path / "site-1", "site-1")
    done = collegium("site", "audit", str(tmp_path / "site-1"))
    assert done.returncode == 2
    assert "No plan is waiting here" in done.stderr


def test_a_site_that_is_too_small_is_told(tmp_path: Path) -> None:
    kit, _ = waiting(tmp_path)
    table = (kit / "train.csv").read_text().splitlines()[:31]
    (kit / "train.csv").write_text("\n".join(table))
    done = collegium("site", "audit", str(kit))
    assert done.returncode == 2
    assert "too small for an audit" in done.stderr
