"""Exports: everything an owner may show, nothing of the data, and a changed byte is found."""

from __future__ import annotations

import csv
import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.flare.offices import write_data, write_site

from collegium.errors import ConfigError, LedgerError
from collegium.flare.agreement.planning import Plan, PlannedStep
from collegium.flare.site.desk import Desk, open_desk
from collegium.flare.site.export import SUFFIXES, export, facts_of, verify_export
from collegium.flare.site.spending import MOST_POINTS, SpendingReader
from collegium.privacy.budget import Budget, write_charges
from collegium.privacy.mechanisms.randomized_response import RandomizedResponse
from collegium.protocols.keys import new_secret
from collegium.site.ledger import Entry, Ledger

RUN = "ab" * 16
EVIL = "=HYPERLINK('x')<script>alert(1)</script>"
STEP = PlannedStep("fedct.label", "0" * 16, "HardLabels", None, True, 3, 80, 3)
PLAN = Plan(EVIL, {"name": "fedct"}, 0, ("a", "b"), None, 0, ("site-1",), (STEP,), True)
CHARGE = RandomizedResponse(epsilon=0.01).charge(10, 2)


def release(ledger: Ledger, number: int, *, charged: bool = True) -> None:
    event = write_charges([CHARGE], Budget(4.0)) if charged else None
    with ledger.transaction():
        claim = "epsilon 0.1; depends on private data: not for publication" if charged else None
        ledger.append(
            Entry(RUN, number, number, "fedct.label", "HardLabels", 20, 30, f"{number:064x}", event=event, claim=claim)
        )


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    kit = tmp_path / "site-1"
    write_data(tmp_path, ["site-1"])
    write_site(kit, "site-1", policy="[budget]\nepsilon = 4.0")
    opened = open_desk(kit)
    ledger = Ledger("site-1", kit / "agent" / "ledger.db")
    for number in range(3):
        release(ledger, number, charged=number > 0)
    ledger.note_refusal(RUN, 4, "fedct.label", "budget-exhausted")
    ledger.close()
    opened.approvals.propose(PLAN)
    opened.approvals.deny(PLAN.digest, reason=EVIL, by="A. Officer")
    return opened


@pytest.mark.parametrize("form", SUFFIXES)
def test_an_export_is_what_its_site_signed(desk: Desk, form: Any, tmp_path: Path) -> None:
    file = tmp_path / f"out{SUFFIXES[form]}"
    file.write_bytes(export(desk, form))
    signed = verify_export(file, desk.keys.identity)
    assert (signed.site, signed.identity) == ("site-1", desk.keys.identity)
    with pytest.raises(LedgerError, match="signed by the identity"):
        verify_export(file, "0" * 64)


@pytest.mark.parametrize("form", SUFFIXES)
def test_every_changed_byte_is_found(desk: Desk, form: Any, tmp_path: Path) -> None:
    whole, file = export(desk, form), tmp_path / "changed"
    every = 1 if len(whole) < 3000 else len(whole) // 1500
    places = {*range(0, len(whole), every), *range(len(whole) - 420, len(whole))}
    for place in sorted(places):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(LedgerError):
            verify_export(file, desk.keys.identity)
    for other in (whole[:-1], whole + b"\n", whole[1:], whole + whole, b""):
        file.write_bytes(other)
        with pytest.raises(LedgerError):
            verify_export(file, desk.keys.identity)


def test_somebody_else_cannot_sign_in_the_sites_name(desk: Desk, tmp_path: Path) -> None:
    other = type(desk.keys)("site-1", new_secret())
    forged = export(Desk(desk.kit, desk.file, desk.keys, desk.approvals), "json")
    file = tmp_path / "forged.json"
    file.write_bytes(forged.replace(desk.keys.identity.encode(), other.identity.encode()))
    with pytest.raises(LedgerError, match="was changed"):
        verify_export(file)


def test_it_says_what_left_what_was_decided_and_no_more(desk: Desk) -> None:
    told = json.loads(export(desk, "json"))
    assert [row["kind"] for row in told["releases"]] == ["HardLabels"] * 3
    assert told["releases"][0]["claim"] == "unprotected"
    assert "0.1" not in told["releases"][1]["claim"], "what a cost in hindsight tells stays at the site"
    assert not any({"event", "salt"} & set(row) for row in told["releases"])
    assert told["refusals"][0]["code"] == "budget-exhausted"
    assert told["decisions"][0]["reason"] == EVIL
    assert told["budget"]["spent"] == pytest.approx(SpendingReader(desk).read().spent)
    assert told["plans"][PLAN.digest]["study"] == EVIL


def test_text_by_others_is_neither_script_nor_formula(desk: Desk) -> None:
    page = export(desk, "html").decode()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    with zipfile.ZipFile(io.BytesIO(export(desk, "csv"))) as archive:
        names = {"about.csv", "budget.csv", "decisions.csv", "refusals.csv", "releases.csv", "runs.csv"}
        assert set(archive.namelist()) == names
        rows = list(csv.DictReader(io.StringIO(archive.read("decisions.csv").decode())))
    assert rows[0]["reason"] == f"'{EVIL}"


def test_a_changed_ledger_is_not_exported(desk: Desk) -> None:
    ledger = Ledger("site-1", desk.kit / "agent" / "ledger.db")
    ledger._db.execute("UPDATE ledger SET bytes = 1 WHERE seq = 1")
    ledger.close()
    with pytest.raises(LedgerError):
        facts_of(desk)


def test_what_is_no_export_says_so(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(LedgerError, match="has no signature"):
        verify_export(tmp_path / "x.json")
    with pytest.raises(ConfigError, match="no export"):
        verify_export(tmp_path / "y.json")


def test_the_budget_over_time_has_few_points_and_ends_with_what_is_spent(desk: Desk) -> None:
    reader = SpendingReader(desk)
    before = reader.read()
    assert before.limit == 4.0
    assert len(before.points) == 2
    assert reader.read() is before, "nothing has changed"
    ledger = Ledger("site-1", desk.kit / "agent" / "ledger.db")
    for number in range(3, 103):
        release(ledger, number)
    ledger.close()
    after = reader.read()
    assert len(after.points) <= MOST_POINTS + 1
    spent = [point.epsilon for point in after.points]
    assert spent == sorted(spent)
    assert after.spent == pytest.approx(Budget(4.0).total([CHARGE] * 102))
    assert after.left == pytest.approx(max(0.0, 4.0 - after.spent))
