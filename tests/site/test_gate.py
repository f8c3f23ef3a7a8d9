from __future__ import annotations

import sqlite3

import numpy as np
import pytest

from collegium.core import ActiveSite, Count, HardLabels, Labels, Nothing, RawRecords, step
from collegium.core.public_set import PublicSet
from collegium.core.site import Site
from collegium.errors import Refused
from collegium.privacy.budget import Budget
from collegium.privacy.claims import Charge
from collegium.privacy.events import Pure, RandomizedResponse
from collegium.site.gate import Gate, Sealed
from collegium.site.ledger import Ledger
from collegium.site.policy import Policy
from collegium.wire.frames import pack, unpack
from collegium.wire.orders import Request


@step
def count(site: ActiveSite) -> Count:
    """For the tests of the gate."""
    return Count(1)


@step
def labels(site: ActiveSite) -> HardLabels:
    """Declares labels."""
    raise AssertionError


@step
def nothing(site: ActiveSite) -> Nothing:
    """Declares nothing."""
    raise AssertionError


@step
def records(site: ActiveSite) -> RawRecords:
    """Declares records."""
    raise AssertionError


DECLARES = {Count: count, HardLabels: labels, Nothing: nothing, RawRecords: records}


def gate(policy: Policy | None = None, *, simulation: bool = False) -> Gate:
    return Gate("ukb", policy or Policy(), Ledger("ukb"), simulation=simulation)


def request(**changes) -> Request:
    order = count()
    fields = {"run": "r", "number": 1, "round": 0, "step": order.step, "digest": order.digest, "public_sha256": "p"}
    fields["args"] = {}
    return Request(**(fields | changes))


def refusal(call) -> str:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value.code


def active(*, read: bool = True) -> ActiveSite:
    """A site whose private rows were read, or not."""
    X = np.arange(8.0).reshape(4, 2)
    site = ActiveSite(Site("ukb", X, np.array([0, 1, 0, 1])), np.arange(2), PublicSet(X), seed=0, simulation=True)
    site.begin(1)
    if read:
        site.exposure.note_read()
    return site


def seal(gate_: Gate, release, number: int = 1, *, site: ActiveSite | None = None, **changes) -> Sealed:
    order = DECLARES.get(type(release), count)()
    asked = request(number=number, step=order.step, digest=order.digest, **changes)
    with gate_.ledger.transaction():
        return gate_.seal(asked, release, None, site or active())


LABELS = HardLabels(Labels(np.array([0, 1, 1, 0, 1, 1, 1, 1]), 2))


def test_an_installed_and_allowed_step_is_admitted():
    assert gate().admit(request()) is count


@pytest.mark.parametrize(
    ("changes", "policy", "code"),
    [
        ({"step": "os.system"}, Policy(), "unknown-step"),
        ({"digest": "other"}, Policy(), "other-version"),
        ({}, Policy(steps=("fedct.*",)), "step-denied"),
        ({}, Policy(public_sha256="pinned"), "other-public-set"),
        ({"public_sha256": None}, Policy(public_sha256="pinned"), "other-public-set"),
    ],
)
def test_anything_else_is_refused_with_a_code(changes, policy, code):
    assert refusal(lambda: gate(policy).admit(request(**changes))) == code


def test_the_pinned_public_set_is_admitted():
    assert gate(Policy(public_sha256="p")).admit(request()) is count


@pytest.mark.parametrize("value", [1, "text", None, {"kind": "HardLabels"}, np.zeros(3)])
def test_only_a_release_leaves(value):
    mine = gate()
    assert refusal(lambda: seal(mine, value)) == "not-a-release"
    assert mine.ledger.rows() == []


def test_only_what_the_step_declares_leaves():
    mine = gate()
    with mine.ledger.transaction():
        assert refusal(lambda: mine.seal(request(), LABELS, None, active())) == "not-declared"
    assert mine.ledger.rows() == []


def test_a_release_is_in_the_ledger_before_it_is_sealed():
    mine = gate()
    sealed = seal(mine, LABELS)
    (row,) = mine.ledger.rows()
    assert (row["kind"], row["sha256"], row["hash"]) == ("HardLabels", sealed.row(None).sha256, sealed.row(None).entry)
    assert row["bytes"] == 1
    assert row["wire_bytes"] == len(sealed.packed.data)
    assert row["event"] is None


def test_nothing_is_no_release():
    mine = gate()
    assert seal(mine, Nothing()).row(None).entry is None
    assert mine.ledger.rows() == []


def test_a_kind_that_may_not_leave_unprotected_stays():
    assert refusal(lambda: seal(gate(Policy(unprotected=("Count",))), LABELS)) == "unprotected"


def test_raw_records_leave_in_a_simulation_only():
    raw = RawRecords({"type": "array"}, {"x": np.zeros(2)}, np.zeros(2, dtype=np.int8))
    assert refusal(lambda: seal(gate(), raw)) == "release-denied"
    assert seal(gate(simulation=True), raw).row(None).kind == "RawRecords"


def test_limits_on_bytes():
    assert refusal(lambda: seal(gate(Policy(max_release_bytes=40)), LABELS)) == "too-large"
    mine = gate(Policy(max_run_bytes=2))
    seal(mine, LABELS, 1)
    seal(mine, LABELS, 2)
    assert refusal(lambda: seal(mine, LABELS, 3)) == "bytes-exhausted"
    assert len(mine.ledger.rows()) == 2


def test_only_the_gate_makes_a_sealed():
    with pytest.raises(TypeError, match=r"Gate\.seal"):
        Sealed("Count", pack(1), "", None)


RR = {"name": "randomized_response", "epsilon": 1.0}


def test_what_read_private_rows_leaves_unprotected_and_says_so() -> None:
    mine = gate()
    assert seal(mine, LABELS).charges is None
    assert mine.ledger.rows()[0]["event"] is None
    assert mine.ledger.rows()[0]["claim"] is None


def test_what_never_saw_private_rows_costs_nothing() -> None:
    (charge,) = seal(gate(), LABELS, site=active(read=False)).charges
    assert charge.kind == "dp"
    assert charge.events == ()


def test_a_private_fit_is_charged_to_the_first_release_after_it_and_only_once() -> None:
    site, mine = active(read=False), gate()
    site.exposure.note_fit(Charge((Pure(epsilon=0.5),)))
    (first,) = seal(mine, LABELS, 1, site=site).charges
    site.exposure.paid()
    (second,) = seal(mine, LABELS, 2, site=site).charges
    assert first.events == (Pure(epsilon=0.5),)
    assert second.events == ()
    assert "post-processing" in second.assumptions[0]
    assert [charge.events for charge in mine.ledger.charges()] == [(Pure(epsilon=0.5),), ()]


def test_reading_private_rows_after_a_private_fit_ends_its_protection() -> None:
    site = active(read=False)
    site.exposure.note_fit(Charge((Pure(epsilon=0.5),)))
    len(site.data)
    assert seal(gate(), LABELS, site=site).charges is None


def test_a_mechanism_is_applied_by_the_gate_and_its_cost_is_written() -> None:
    mine, many = gate(), HardLabels(Labels(np.zeros(500, dtype=int), 2))
    sealed = seal(mine, many, mechanism=RR)
    (charge,) = sealed.charges
    assert charge.events == (RandomizedResponse(epsilon=1.0, outcomes=2, count=500),)
    noisy = unpack(sealed.packed.data)["labels"]
    assert 80 < np.count_nonzero(noisy.codes) < 190  # 500 e^-1 / (1 + e^-1) = 134
    assert "differentially private" in mine.ledger.rows()[0]["claim"]


@pytest.mark.parametrize(
    "mechanism",
    [
        {"name": "no such"},
        {"name": "randomized_response", "epsilon": -1},
        {"name": "randomized_response", "nonsense": 1},
        {"name": "laplace", "epsilon": 1.0},
        {},
    ],
)
def test_a_mechanism_that_cannot_be_is_refused_before_anything_leaves(mechanism) -> None:
    mine = gate()
    assert refusal(lambda: seal(mine, LABELS, mechanism=mechanism)) == "mechanism-denied"
    assert mine.ledger.rows() == []


def test_where_differential_privacy_is_required_nothing_else_leaves() -> None:
    strict = gate(Policy(requires="dp"))
    assert refusal(lambda: seal(strict, LABELS)) == "unprotected"
    conditional = RR | {"sensitivity": "assumed_stability", "stability_rate": 0.1}
    assert refusal(lambda: seal(strict, LABELS, mechanism=conditional)) == "unprotected"
    assert seal(strict, LABELS, mechanism=RR).charges is not None
    named = gate(Policy(requires="dp", unprotected=("Hard*",)))
    assert seal(named, LABELS).charges is None


def test_a_budget_is_kept_in_the_ledger_and_ends_releases() -> None:
    mine = Gate("ukb", Policy(), Ledger("ukb"), simulation=True, budget=Budget(epsilon=10.0, delta=1e-5))
    n = len(LABELS.labels)
    rr = {"name": "randomized_response", "epsilon": 4.0 / n}
    seal(mine, LABELS, 1, mechanism=rr)
    seal(mine, LABELS, 2, mechanism=rr)
    assert refusal(lambda: seal(mine, LABELS, 3, mechanism=rr)) == "budget-exhausted"
    assert len(mine.ledger.rows()) == 2
    assert refusal(lambda: seal(mine, LABELS, 4)) == "unprotected"


def test_a_changed_ledger_spends_nothing(tmp_path) -> None:
    ledger = Ledger("ukb", tmp_path / "site.db")
    mine = Gate("ukb", Policy(), ledger, simulation=True, budget=Budget(epsilon=100.0))
    seal(mine, LABELS, 1, mechanism=RR)
    with sqlite3.connect(tmp_path / "site.db") as db:
        db.execute("UPDATE ledger SET event = NULL")
    assert refusal(lambda: seal(mine, LABELS, 2, mechanism=RR)) == "ledger-damaged"
    with sqlite3.connect(tmp_path / "site.db") as db:
        db.execute("DELETE FROM ledger")
    assert refusal(lambda: seal(mine, LABELS, 3, mechanism=RR)) == "ledger-damaged"
