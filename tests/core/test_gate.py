from __future__ import annotations

import numpy as np
import pytest

from collegium.core import ActiveSite, Count, HardLabels, Labels, Nothing, Policy, RawRecords, step
from collegium.core.gate import Gate, Request, Sealed
from collegium.core.ledger import Ledger
from collegium.core.wire import pack
from collegium.errors import Refused


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
    return Request(**(fields | changes))


def refusal(call) -> str:
    with pytest.raises(Refused) as caught:
        call()
    return caught.value.code


def seal(gate_: Gate, release, number: int = 1) -> Sealed:
    order = DECLARES.get(type(release), count)()
    with gate_.ledger.transaction():
        return gate_.seal(request(number=number, step=order.step, digest=order.digest), release, None)


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
        assert refusal(lambda: mine.seal(request(), LABELS, None)) == "not-declared"
    assert mine.ledger.rows() == []


def test_a_release_is_in_the_ledger_before_it_is_sealed():
    mine = gate()
    sealed = seal(mine, LABELS)
    (row,) = mine.ledger.rows()
    assert (row["kind"], row["sha256"], row["hash"]) == ("HardLabels", sealed.sha256, sealed.entry)
    assert row["bytes"] == 1
    assert row["wire_bytes"] == len(sealed.packed.data)
    assert row["event"] is None


def test_nothing_is_no_release():
    mine = gate()
    assert seal(mine, Nothing()).entry is None
    assert mine.ledger.rows() == []


def test_a_kind_that_may_not_leave_unprotected_stays():
    assert refusal(lambda: seal(gate(Policy(unprotected=("Count",))), LABELS)) == "unprotected"


def test_raw_records_leave_in_a_simulation_only():
    raw = RawRecords({"type": "array"}, {"x": np.zeros(2)}, np.zeros(2, dtype=np.int8))
    assert refusal(lambda: seal(gate(), raw)) == "release-denied"
    assert seal(gate(simulation=True), raw).kind == "RawRecords"


def test_limits_on_bytes():
    assert refusal(lambda: seal(gate(Policy(max_release_bytes=50)), LABELS)) == "too-large"
    mine = gate(Policy(max_run_bytes=2))
    seal(mine, LABELS, 1)
    seal(mine, LABELS, 2)
    assert refusal(lambda: seal(mine, LABELS, 3)) == "bytes-exhausted"
    assert len(mine.ledger.rows()) == 2


def test_only_the_gate_makes_a_sealed():
    with pytest.raises(TypeError, match=r"Gate\.seal"):
        Sealed("Count", pack(1), "", None)
