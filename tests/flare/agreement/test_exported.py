"""A plan for an ethics board: what would leave, what this site says to it, and whether its owner has signed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pandas as pd
import pytest
from tests.cli.commands import collegium
from tests.flare.offices import write_data, write_site

from collegium.flare.agreement.approvals import Approvals, today
from collegium.flare.agreement.exported import export_plan
from collegium.flare.agreement.planning import Plan, plan_of
from collegium.flare.kits.identity import read_keys
from collegium.study.study import Study

TITLE = "wards <script>alert(1)</script> | x"


@pytest.fixture(scope="module")
def proposed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Plan]:
    """A site with its own copy of the public set, to which a plan was proposed."""
    folder = tmp_path_factory.mktemp("exported")
    public = write_data(folder, ["north"])
    kit = folder / "north"
    write_site(kit, "north", approval="plan", policy='[public]\npath = "../public.csv"')
    study = Study.from_dict({"name": TITLE, "data": {"source": "-"}, "algorithm": {"name": "fedct", "rounds": 2}})
    plan = plan_of(study, public, ["benign", "malignant"], ["*"])
    approvals(kit).propose(plan)
    return kit, plan


def approvals(kit: Path) -> Approvals:
    return Approvals(kit / "agent", read_keys(kit / "agent", "north"))


def test_a_board_reads_what_would_leave_and_that_nobody_has_signed(proposed: tuple[Path, Plan]) -> None:
    kit, plan = proposed
    text = export_plan(kit, plan.digest, seconds=None).render(html=False)
    for words in (
        "waiting: nobody has signed it", plan.digest, "fedct.label", "the coordinator's words", "What leaves each site",
        "decision_tree", "Risks and measures", "[to fill in", "unprotected; the policy allows this kind",
    ):  # fmt: skip
        assert words in text, words
    assert "<script>" not in text
    rows = pd.read_csv(kit / "train.csv")
    assert not any(str(value) in text for value in rows["mean area"][:20])


def test_the_signature_is_part_of_it(proposed: tuple[Path, Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    kit, plan = proposed
    held = approvals(kit)
    try:
        held.approve(plan.digest, runs=2)
        found = export_plan(kit, plan.digest, seconds=None)
        assert (found.state, found.identity) == ("signed, 2 of 2 runs left", read_keys(kit / "agent", "north").identity)
        assert f"until {(today() + timedelta(days=30)).isoformat()}" in found.render(html=True)
        file = kit / "agent" / "approvals" / f"{plan.digest}.json"
        file.write_text(file.read_text().replace('"runs": 2', '"runs": 9'))
        assert export_plan(kit, plan.digest, seconds=None).state.startswith("waiting"), (
            "one that was tampered with counts as none"
        )
        held.approve(plan.digest, until=date(2999, 1, 1))
        held.usage.begin("ab" * 16, plan.digest, held.approval(plan.digest).name)
        assert export_plan(kit, plan.digest, seconds=None).state == "signed, and all its runs have begun"
        monkeypatch.setattr("collegium.flare.agreement.approvals.today", lambda: date(3000, 1, 1))
        assert "over since 2999-01-01" in export_plan(kit, plan.digest, seconds=None).state
    finally:
        (kit / "agent" / "approvals" / f"{plan.digest}.json").unlink(missing_ok=True)


def test_a_denial_is_part_of_it_and_its_reason_is_text(proposed: tuple[Path, Plan]) -> None:
    kit, plan = proposed
    approvals(kit).deny(plan.digest, reason="no <b>legal</b> basis")
    try:
        found = export_plan(kit, plan.digest, seconds=None)
        assert found.state == "denied by its owner: no <b>legal</b> basis"
        assert "<b>legal" not in found.render(html=True)
    finally:
        (kit / "agent" / "denials" / f"{plan.digest}.json").unlink()


def test_a_plan_that_cannot_be_rehearsed_here_is_exported_with_the_reason(proposed: tuple[Path, Plan]) -> None:
    kit, plan = proposed
    unknown = replace(plan, algorithm={"name": "no_such_method"})
    elsewhere = replace(plan, public_sha256="0" * 64)
    for each, words in ((unknown, "cannot be built here"), (elsewhere, "the public set is not here")):
        approvals(kit).propose(each)
        found = export_plan(kit, each.digest, seconds=None)
        assert words in found.problem
        assert words in found.render(html=False)
        assert found.to_plain()["not_rehearsed"] == found.problem


def test_the_command_writes_each_kind_and_replaces_nothing(proposed: tuple[Path, Plan], tmp_path: Path) -> None:
    kit, plan = proposed
    args = ("site", "export-plan", str(kit), plan.digest[:12])
    assert collegium(*args, cwd=tmp_path).returncode == 0
    assert (tmp_path / f"plan-{plan.digest[:12]}.md").is_file()
    again = collegium(*args, cwd=tmp_path)
    assert (again.returncode, "already exists" in again.stderr) == (2, True)
    assert collegium(*args, "--out", "plan.json", cwd=tmp_path).returncode == 0
    told = json.loads((tmp_path / "plan.json").read_text())
    assert Plan.from_plain(told["plan"]).digest == told["digest"] == plan.digest
    assert (told["format"], told["approval"], told["site"]) == (1, None, "north")
    wrong = collegium(*args, "--out", "plan.pdf", cwd=tmp_path)
    assert (wrong.returncode, ".html" in wrong.stderr) == (2, True)
    assert collegium("site", "export-plan", str(kit), "0" * 12, cwd=tmp_path).returncode == 2
