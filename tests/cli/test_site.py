"""``collegium site``: everything that an owner does with a kit, short of joining."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from collegium import __version__
from collegium.cli import main
from collegium.flare.agreement.approvals import Approvals
from collegium.flare.agreement.planning import Plan, plan_of
from collegium.flare.kits.identity import read_keys
from collegium.flare.site.file import SiteFile
from collegium.privacy.budget import Budget, write_charges
from collegium.privacy.mechanisms.randomized_response import RandomizedResponse
from collegium.site.ledger import Entry, Ledger
from collegium.study.study import Study

RUN = "ab" * 16
SITE = """
name = "north"
[data]
source = "rows.csv"
target = "ill"
held_out = 0.25
[learner]
name = "decision_tree"
"""
STUDY = """
name = "two wards"
[data]
source = "public.csv"
[algorithm]
name = "fedct"
rounds = 2
[federation]
classes = ["no", "yes"]
"""


def rows(n: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"age": rng.normal(60, 9, n), "crp": rng.gamma(2.0, 5.0, n)})
    return frame.assign(ill=np.where(frame["crp"] > 9, "yes", "no"))


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "north"
    folder.mkdir()
    rows(60, 0).to_csv(folder / "rows.csv", index=False)
    rows(40, 1).drop(columns="ill").to_csv(tmp_path / "public.csv", index=False)
    (folder / "site.toml").write_text(SITE)
    (tmp_path / "study.toml").write_text(STUDY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return folder


@pytest.fixture
def collegium(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command; what it printed, or for a mistake what it said was wrong, in one line."""

    def command(*arguments: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["collegium", "site", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert (ended.value.code or 0) == code, said.out + said.err
        assert "Traceback" not in said.err
        if code == 2:
            assert len(said.err.strip().splitlines()) == 1, said.err
            return said.err
        return said.out + said.err

    return command


def propose(kit: Path) -> Plan:
    study = Study.from_toml("study.toml")
    plan = plan_of(study, pd.read_csv("public.csv"), ["no", "yes"], ["north", "south"])
    office(kit).propose(plan)
    return plan


def office(kit: Path) -> Approvals:
    return Approvals(kit / "agent", read_keys(kit / "agent", "north"))


# init


def test_init_writes_a_file_a_key_and_shows_the_identity(kit, collegium):
    (kit / "site.toml").unlink()
    said = collegium("init", str(kit))
    identity = said.strip().splitlines()[-1]
    assert len(bytes.fromhex(identity)) == 32
    assert SiteFile.from_toml(kit / "site.toml").name == "north"
    assert read_keys(kit / "agent", "north").identity == identity


def test_init_again_keeps_the_file_and_the_identity(kit, collegium):
    first, again = collegium("init", str(kit)), collegium("init", str(kit))
    assert first == again
    assert "kept as it is" in again
    assert (kit / "site.toml").read_text() == SITE
    collegium("init", str(kit), "--force", "--name", "nord")
    assert SiteFile.from_toml(kit / "site.toml").name == "nord"


def test_init_of_nothing(kit, collegium):
    assert "no kit" in collegium("init", "elsewhere", code=2)


# check


def test_check_shows_what_the_site_brings(kit, collegium):
    said = collegium("check", str(kit))
    assert "age, crp" in said
    assert "DecisionTreeClassifier" in said
    facts = json.loads(collegium("check", str(kit), "--json"))
    assert (facts["rows"], facts["held out"], facts["columns"]) == (45, 15, ["age", "crp"])
    assert sum(facts["classes"].values()) == 45
    assert facts["approval"] == "plan"


def test_check_says_whether_the_learner_can_begin(kit, collegium, monkeypatch, tmp_path):
    """A language model that is not there, or numbers where it takes texts: not first in the middle of a study."""
    pytest.importorskip("transformers")
    monkeypatch.setenv("COLLEGIUM_MODELS", str(tmp_path / "models"))
    words = SITE.replace('name = "decision_tree"', 'name = "text"\nmodel = "tiny"\ntrain = "embed"\ncolumns = "crp"')
    (kit / "site.toml").write_text(words)
    assert "column 'crp' of the site's data holds values of type float64" in collegium("check", str(kit), code=2)
    rows(60, 1).assign(crp="a few words").to_csv(kit / "rows.csv", index=False)
    assert "TextClassifier" in collegium("check", str(kit))
    (kit / "site.toml").write_text(words.replace("tiny", "nowhere"))
    assert "There is no model 'nowhere'" in collegium("check", str(kit), code=2)


def test_check_says_what_to_look_at_without_a_row(kit, collegium):
    frame = rows(60, 1).assign(crp=3.25)
    frame.to_csv(kit / "rows.csv", index=False)
    (kit / "site.toml").write_text(SITE + '[public]\npath = "public.csv"\n')
    frame.drop(columns="ill").to_csv(kit / "public.csv", index=False)
    said = collegium("check", str(kit))
    assert "constant-column" in said
    assert "same-rows" in said
    assert "3.25" not in said
    findings = json.loads(collegium("check", str(kit), "--json"))["findings"]
    assert {each["code"] for each in findings} >= {"constant-column", "same-rows"}


def test_check_looks_at_the_public_rows_that_come_with_a_study(kit, collegium, tmp_path):
    ours = rows(60, 0).drop(columns="ill").rename(columns={"age": "years"})
    ours.assign(age=rows(60, 0)["age"]).to_csv(tmp_path / "public.csv", index=False)
    findings = json.loads(collegium("check", str(kit), "study.toml", "--json"))["findings"]
    assert [(each["code"], each["site"]) for each in findings] == [("columns", "public")]
    rows(60, 0).drop(columns="ill").to_csv(tmp_path / "public.csv", index=False)
    findings = json.loads(collegium("check", str(kit), "study.toml", "--json"))["findings"]
    assert {(each["code"], each["site"]) for each in findings} == {("same-rows", "public"), ("same-rows", "test")}


def test_check_with_a_study_says_what_would_be_allowed(kit, collegium):
    said = collegium("check", str(kit), "study.toml")
    assert "fedct.label" in said
    assert "could take part" in said
    facts = json.loads(collegium("check", str(kit), "study.toml", "--json"))
    assert facts["allowed"] is True
    assert {each["step"] for each in facts["review"]} == {"fedct.train", "fedct.label", "scores.score"}


def test_check_says_that_scores_leave_if_the_study_asks_for_them(kit, collegium):
    (line,) = [line for line in collegium("check", str(kit), "study.toml").splitlines() if "scores.score" in line]
    assert line.split("│")[-2].strip() == "yes"
    study = STUDY.replace('source = "public.csv"', 'source = "public.csv"\nopinion = "of-the-coordinator.parquet"')
    (kit.parent / "study.toml").write_text(study)
    assert "could take part" in collegium("check", str(kit), "study.toml")
    (kit.parent / "study.toml").write_text(STUDY + "metrics = false\n")
    assert "scores.score" not in collegium("check", str(kit), "study.toml")


def test_check_compares_versions_with_the_coordinators(kit, collegium, tmp_path):
    collegium("init", str(kit))
    plan = propose(kit)
    assert "the coordinator has" not in _check(collegium, kit, tmp_path, plan)
    said = _check(collegium, kit, tmp_path, replace(plan, version="0.0.1"))
    assert f"the coordinator has Collegium 0.0.1, this site {__version__}" in said
    other = replace(plan, version="9.0", protocol=plan.protocol + 1)
    assert "refused: other-version" in _check(collegium, kit, tmp_path, other, code=1)


def _check(collegium, kit, folder, plan, code=0):
    (folder / "plan.json").write_text(plan.to_json())
    return " ".join(collegium("check", str(kit), "plan.json", code=code).split())


def test_check_ends_with_1_where_something_would_be_refused(kit, collegium):
    (kit / "site.toml").write_text(SITE + '[policy]\nunprotected = ["Count"]\nalgorithms = ["fedkt"]\n')
    said = collegium("check", str(kit), "study.toml", code=1)
    assert "refused: unprotected" in said
    assert "refused: algorithm-denied" in said
    assert json.loads(collegium("check", str(kit), "study.toml", "--json", code=1))["allowed"] is False


def test_check_takes_a_proposed_plan(kit, collegium, tmp_path):
    collegium("init", str(kit))
    plan = propose(kit)
    (tmp_path / "plan.json").write_text(plan.to_json())
    assert json.loads(collegium("check", str(kit), "plan.json", "--json"))["plan"] == plan.digest
    (tmp_path / "plan.json").write_text("{}")
    assert "not a plan" in collegium("check", str(kit), "plan.json", code=2)
    assert "no plan" in collegium("check", str(kit), "none.json", code=2)


def test_check_uses_the_own_copy_where_the_study_came_without_its_rows(kit, collegium, tmp_path):
    (tmp_path / "public.csv").rename(kit / "public.csv")
    assert "no file" in collegium("check", str(kit), "study.toml", code=2)
    (kit / "site.toml").write_text(SITE + '[public]\npath = "public.csv"\n')
    assert "could take part" in collegium("check", str(kit), "study.toml")


def test_check_finds_a_public_copy_with_other_columns(kit, collegium):
    rows(10, 2).rename(columns={"age": "years"}).to_csv(kit / "public.csv", index=False)
    (kit / "site.toml").write_text(SITE + '[public]\npath = "public.csv"\n')
    assert "'years'" in collegium("check", str(kit), code=2)


def test_check_points_out_names_that_fit_nothing(kit, collegium):
    (kit / "site.toml").write_text(SITE + '[policy]\nsteps = ["fedct.*", "fedtc.*"]\n')
    assert "'fedtc.*' matches nothing" in collegium("check", str(kit))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('target = "ill"', 'target = "il"', "'ill'"),
        ('"rows.csv"', '"row.csv"', "'rows.csv'"),
        ("held_out", "hold_out", "'held_out'"),
        ('"decision_tree"', '"decision_trees"', "'decision_tree'"),
        ('name = "north"', "name = ", "not valid TOML"),
    ],
)
def test_a_mistake_in_the_file_is_one_line(kit, collegium, old, new, said):
    (kit / "site.toml").write_text(SITE.replace(old, new, 1))
    assert said in collegium("check", str(kit), code=2)


def test_check_of_a_real_kit_knows_its_certificate(kit, collegium, tmp_path):
    pytest.importorskip("nvflare")
    from collegium.flare.kits.federation_file import FederationFile
    from collegium.flare.kits.provision import provision

    federation = FederationFile.model_validate(
        {
            "name": "wards",
            "server": {"host": "localhost", "organisation": "uni"},
            "sites": [{"name": "north", "organisation": "ukb"}],
            "leads": [{"name": "lead@uni.example", "organisation": "uni"}],
        }
    )
    provision(federation, tmp_path / "kits")
    real = tmp_path / "kits" / "north"
    assert "Identity of north" in collegium("init", str(real))
    assert "is for 'north'" in collegium("init", str(real), "--name", "south", code=2)
    rows(60, 0).to_csv(real / "rows.csv", index=False)
    (real / "site.toml").write_text(SITE)
    assert json.loads(collegium("check", str(real), "--json"))["certificate days"] > 30
    (real / "site.toml").write_text(SITE.replace("north", "south"))
    assert "certificate is for 'north'" in collegium("check", str(real), code=2)
    (real / "startup" / "client.crt").write_text("nothing")
    assert "not a valid certificate" in collegium("check", str(real), code=2)


# status, log, budget


def test_status_of_a_site_that_never_ran(kit, collegium):
    assert "collegium site init" in collegium("status", str(kit), code=2)
    collegium("init", str(kit))
    said = collegium("status", str(kit))
    assert "not joined" in said
    assert "agent not running" in said
    assert "Nothing has left" in said
    assert "no ledger yet" in collegium("budget", str(kit))
    assert collegium("budget", str(kit), "--json").strip() == "[]"
    assert "empty" in collegium("log", str(kit))


def test_status_shows_runs_refusals_and_what_waits(kit, collegium):
    collegium("init", str(kit))
    plan = propose(kit)
    office(kit).orders.propose(RUN, 3, "1" * 64, steps=["fedct.label"], kinds=["HardLabels"])
    ledger = Ledger("north", kit / "agent" / "ledger.db")
    charge = write_charges([RandomizedResponse(1.0).charge(40, 2)], Budget(500.0))
    with ledger.transaction():
        for number in (1, 2):
            ledger.append(Entry(RUN, number, number - 1, "fedct.label", "HardLabels", 10, 90, "", charge))
    ledger.note_refusal(RUN, 3, "fedavg.update", "step-denied")
    ledger.close()
    facts = json.loads(collegium("status", str(kit), "--json"))
    assert facts["runs"][0] | {"last": ""} == {
        "run": RUN, "releases": 2, "bytes": 20, "last": "", "round": 1, "step": "fedct.label",
    }  # fmt: skip
    assert facts["refusals"][0]["code"] == "step-denied"
    assert (facts["plans"], facts["orders"]) == ([plan.digest], [f"{RUN}:3"])
    said = collegium("status", str(kit))
    assert plan.digest[:12] in said
    assert "step-denied" in said
    (spent,) = json.loads(collegium("budget", str(kit), "--json"))
    assert (spent["site"], spent["budget"]) == ("north", 500.0)
    assert spent["left"] == pytest.approx(500.0 - spent["spent epsilon"])
    assert "--delta" in collegium("budget", str(kit), "--delta", "2", code=2)


def test_open_runs_are_listed_and_ended(kit, collegium, monkeypatch):
    collegium("init", str(kit))
    folder = kit / "agent" / "runs" / RUN
    folder.mkdir(parents=True)
    about = {"study": "x[/nonsense]", "plan": "1" * 64, "since": "2026-01-01T00:00:00+00:00", "state": "open"}
    (folder / "open.json").write_text(json.dumps(about))
    (listed,) = json.loads(collegium("status", str(kit), "--json"))["open"]
    assert (listed["run"], listed["study"], listed["state"]) == (RUN, "x[/nonsense]", "open")
    assert "x[/nonsense]" in collegium("status", str(kit))
    assert "no open run" in collegium("end", str(kit), "ff", "--yes", code=2)
    monkeypatch.setattr("typer.confirm", lambda *arguments, **more: False)
    assert "Nothing was ended" in collegium("end", str(kit), RUN[:8], code=1)
    assert "has ended here" in collegium("end", str(kit), RUN[:8], "--yes")
    (listed,) = json.loads(collegium("status", str(kit), "--json"))["open"]
    assert listed["state"] == "ending"  # until the agent, which is not running, has seen it


def test_status_knows_who_runs(kit, collegium):
    collegium("init", str(kit))
    (kit / "agent" / "agent.pid").write_text(f"{os.getpid()}\n")
    holder = f"import fcntl, sys; f = open({str(kit / 'agent' / 'join.lock')!r}, 'a'); fcntl.flock(f, {fcntl.LOCK_EX})"
    child = subprocess.Popen(
        [sys.executable, "-c", f"{holder}; print('held', flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert child.stdout.readline() == b"held\n"
        facts = json.loads(collegium("status", str(kit), "--json"))
        assert (facts["joined"], facts["agent"]) == (True, os.getpid())
    finally:
        child.communicate()
    facts = json.loads(collegium("status", str(kit), "--json"))
    assert facts["joined"] is False
    (kit / "agent" / "agent.pid").write_text("no number")
    assert json.loads(collegium("status", str(kit), "--json"))["agent"] is None


def test_a_ledger_that_was_changed_is_said(kit, collegium):
    collegium("init", str(kit))
    (kit / "agent" / "ledger.db").write_bytes(b"nothing of the kind" * 100)
    assert "ledger" in collegium("status", str(kit), code=1)


def test_the_log_is_that_of_all_runs_by_time(kit, collegium):
    assert "site init" in collegium("log", str(kit), code=2)
    collegium("init", str(kit))
    run = kit / "agent" / "runs" / RUN
    run.mkdir(parents=True)
    (kit / "agent" / "site.log").write_text("2026-01-01T00:00:00 first\n2026-01-01T00:00:02 third\n")
    (run / "site.log").write_text("2026-01-01T00:00:01 second\n  a line that belongs to it\n")
    assert [line[-6:].strip() for line in collegium("log", str(kit)).splitlines()] == [
        "first",
        "second",
        "to it",
        "third",
    ]
    assert collegium("log", str(kit), "--lines", "1").strip().endswith("third")


# approve


def test_an_approval_cannot_end_in_the_past(kit, collegium):
    collegium("init", str(kit))
    plan = propose(kit)
    assert "in the past" in collegium("approve", str(kit), plan.digest, "--until", "2020-01-01", "--yes", code=2)
    assert not office(kit).approved(plan.digest)


def test_a_plan_is_listed_shown_and_signed(kit, collegium):
    collegium("init", str(kit))
    assert "Nothing is waiting" in collegium("approve", str(kit))
    plan = propose(kit)
    assert plan.digest[:12] in collegium("approve", str(kit))
    assert json.loads(collegium("approve", str(kit), "--json"))["plans"][0]["digest"] == plan.digest
    said = collegium("approve", str(kit), plan.digest[:10], "--yes")
    for words in (
        "two wards",
        "north, south",
        "HardLabels by fedct.label, at most 2 times in a run",
        "Scores by scores.score, at most 2 times in a run",
        "1 run, to begin and end by",
        "learned by coordinator",
        "Signed",
    ):
        assert words in said
    assert office(kit).approved(plan.digest)
    assert "already signed" in collegium("approve", str(kit), plan.digest)
    assert "1 of 1 runs left, until" in collegium("status", str(kit))
    collegium("approve", str(kit), plan.digest, "--runs", "3", "--until", "2999-12-31", "--yes")
    office(kit).usage.begin(RUN, plan.digest, office(kit).approval(plan.digest).name)
    (signed,) = json.loads(collegium("approve", str(kit), "--json"))["signed"]
    assert signed | {"study": ""} == {"plan": plan.digest, "study": "", "runs": 3, "left": 2, "until": "2999-12-31"}
    assert json.loads(collegium("status", str(kit), "--json"))["signed"] == [signed]
    assert "2999-12-31" in collegium("approve", str(kit))
    assert "withdrawn" in collegium("approve", str(kit), plan.digest, "--withdraw")
    assert not office(kit).approved(plan.digest)


def test_a_coordinators_text_is_shown_as_text(kit, collegium):
    """Markup in a title would hide or forge what is signed, or end the command with an error."""
    collegium("init", str(kit))
    for title in ("quarterly [bold]check[/bold] [conceal]hidden[/conceal]", "x[/nonsense]"):
        table = Study.from_toml("study.toml").model_dump(exclude_unset=True) | {"name": title}
        plan = plan_of(Study.from_dict(table), pd.read_csv("public.csv"), ["no", "yes"], ["north", "south"])
        office(kit).propose(plan)
        for said in (collegium("approve", str(kit)), collegium("approve", str(kit), plan.digest, "--yes")):
            assert title in said
            assert "the coordinator's words" in said
        assert title in json.loads(collegium("approve", str(kit), "--json"))["signed"][-1]["study"]
        collegium("status", str(kit))


def test_a_plan_that_asks_for_more_than_its_method_needs_is_not_signed_unread(kit, collegium, monkeypatch):
    collegium("init", str(kit))
    (kit / "site.toml").write_text(SITE + '[public]\npath = "../public.csv"\n')
    honest = plan_of(Study.from_toml("study.toml"), pd.read_csv("public.csv"), ["no", "yes"], ["north", "south"])
    greedy = replace(honest, steps=tuple(replace(step, most=60) for step in honest.steps))
    office(kit).propose(greedy)
    assert "allows fedct.label 60 times" in collegium("approve", str(kit), greedy.digest, "--yes", code=2)
    monkeypatch.setattr("typer.confirm", lambda *arguments, **more: True)
    assert "Warning" in collegium("approve", str(kit), greedy.digest)
    assert office(kit).approved(greedy.digest)


@pytest.mark.parametrize(("answer", "code"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("", 1)])
def test_only_a_yes_signs(kit, collegium, monkeypatch, tmp_path, answer, code):
    collegium("init", str(kit))
    plan = propose(kit)
    (tmp_path / "answer").write_text(answer)
    with (tmp_path / "answer").open() as stream:
        monkeypatch.setattr(sys, "stdin", stream)
        collegium("approve", str(kit), plan.digest, code=code)
    assert office(kit).approved(plan.digest) is (code == 0)


def test_an_order_is_listed_and_signed(kit, collegium):
    collegium("init", str(kit))
    approvals = office(kit)
    approvals.orders.propose(RUN, 3, "1" * 64, steps=["fedct.train", "fedct.label"], kinds=["Nothing", "HardLabels"])
    assert f"{RUN}:3" in collegium("approve", str(kit))
    assert "HardLabels would leave" in collegium("approve", str(kit), "--order", f"{RUN}:3", "--yes")
    assert approvals.orders.approved(RUN, 3, "1" * 64)
    assert "no such order" in collegium("approve", str(kit), "--order", f"{RUN}:3", "--yes", code=2)


# deny, pause, export


def test_a_plan_is_denied_with_a_reason_and_listed(kit, collegium):
    collegium("init", str(kit))
    plan = propose(kit)
    assert "needs a reason" in collegium("deny", str(kit), plan.digest[:12], "--yes", code=2)
    said = collegium("deny", str(kit), plan.digest[:12], "--reason", "no legal basis", "--by", "A. Officer", "--yes")
    assert "told no reason" in said
    assert office(kit).denial(plan.digest).reason == "no legal basis"
    listed = json.loads(collegium("approve", str(kit), "--json"))
    assert (listed["plans"], listed["denied"][0]["plan"]) == ([], plan.digest)
    assert json.loads(collegium("status", str(kit), "--json"))["denied"] == [plan.digest]
    assert "is denied" in collegium("status", str(kit))
    office(kit).orders.propose(RUN, 3, "1" * 64, steps=["fedct.label"], kinds=["HardLabels"])
    collegium("deny", str(kit), "--order", f"{RUN}:3", "--reason", "no", "--yes")
    assert office(kit).orders.denied(RUN, 3, "1" * 64)


@pytest.mark.parametrize("arguments", [[], ["0" * 64, "--order", "a:1"], ["--order", "a:1", "--tell"]])
def test_mistakes_in_what_to_deny(kit, collegium, arguments):
    collegium("init", str(kit))
    collegium("deny", str(kit), "--reason", "no", *arguments, code=2)


def test_a_site_is_paused_and_resumed(kit, collegium):
    collegium("init", str(kit))
    collegium("pause", str(kit), "--reason", "audit", "--by", "A. Officer")
    assert json.loads(collegium("status", str(kit), "--json"))["paused"]["reason"] == "audit"
    assert "Paused since" in collegium("status", str(kit))
    collegium("resume", str(kit))
    assert json.loads(collegium("status", str(kit), "--json"))["paused"] is None
    assert "is not paused" in collegium("resume", str(kit), code=2)


def test_an_export_is_written_and_checked(kit, collegium, tmp_path):
    collegium("init", str(kit))
    out, identity = tmp_path / "records.html", read_keys(kit / "agent", "north").identity
    collegium("export", str(kit), "--out", str(out))
    assert "already exists" in collegium("export", str(kit), "--out", str(out), code=2)
    assert "must end in" in collegium("export", str(kit), "--out", "records.pdf", code=2)
    assert identity in collegium("verify-export", str(out))
    assert "compare" not in collegium("verify-export", str(out), "--identity", identity)
    out.write_bytes(out.read_bytes().replace(b"north", b"south", 1))
    assert "was changed" in collegium("verify-export", str(out), code=1)


def test_the_console_of_a_kit_that_is_none_is_one_line(kit, collegium):
    assert "site init" in collegium("console", str(kit), code=2)
    assert "not found" in collegium("console", str(kit / "none"), code=2)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["0123456789"], "no plan here starts with it"),
        (["ab"], "at least 8"),
        (["../../etc/passwd"], "no plan"),
        (["0123456789", "--order", "a:1"], "not both"),
        (["--withdraw"], "needs the hash"),
        (["--runs", "2"], "give its hash"),
        (["--order", "nonsense"], "no such order"),
    ],
)
def test_mistakes_in_what_to_approve(kit, collegium, arguments, said):
    collegium("init", str(kit))
    assert said in collegium("approve", str(kit), *arguments, code=2)


def test_help_loads_nothing_heavy():
    loaded = (
        "import sys; from collegium.cli.main import app; app(['--help'], standalone_mode=False); "
        "app(['site', '--help'], standalone_mode=False); "
        "print([m for m in ('numpy', 'pandas', 'nvflare') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True, env=_environment()
    )
    assert done.stdout.splitlines()[-1] == "[]"


def _environment() -> dict[str, str]:
    import collegium

    return os.environ | {"PYTHONPATH": str(Path(collegium.__file__).parents[1])}
