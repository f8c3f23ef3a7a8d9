"""Claims and charges: what they say, what they stand on, and what is never added up."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from collegium.errors import ConfigError
from collegium.privacy import accountant
from collegium.privacy.budget import Budget
from collegium.privacy.claims import Account, Charge, PrivacyClaim, add_up
from collegium.privacy.events import Gaussian, Pure


def a_claim(**changes: Any) -> PrivacyClaim:
    settings = {
        "kind": "dp", "unit": "record", "relation": "replace", "epsilon": 1.25, "delta": 1e-5, "rounds": 3,
        "accountant": "exact (Gaussian)",
    }  # fmt: skip
    return PrivacyClaim(**(settings | changes))


def test_words() -> None:
    assert str(a_claim()) == "epsilon 1.25 at delta 1e-05 (differentially private; replacing one record)"
    assert "nominal, no guarantee; adding or removing one party" in str(
        a_claim(kind="nominal", unit="party", relation="add_remove")
    )
    assert str(a_claim(publishable=False)).endswith("not for publication")


def test_plain_data() -> None:
    plain = a_claim(assumptions=("x",)).to_plain()
    assert json.loads(json.dumps(plain)) == plain
    assert plain["assumptions"] == ["x"]
    assert a_claim(epsilon=math.inf).to_plain()["epsilon"] is None


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "proved"},
        {"unit": "row"},
        {"relation": "both"},
        {"epsilon": -1.0},
        {"epsilon": math.nan},
        {"delta": 1.5},
        {"delta": math.nan},
    ],
)
def test_bad_claims(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        a_claim(**changes)


def test_charge_round_trip() -> None:
    charge = Charge((Gaussian(3, 4.0), Pure()), "conditional", "party", "add_remove", 1e-6, ("a", "b"), False)
    assert Charge.from_plain(json.loads(json.dumps(charge.to_plain()))) == charge
    assert charge.group == ("conditional", "party")


def test_assuming() -> None:
    charge = Charge((Pure(),), assumptions=("a",)).assuming("b", "a", "c")
    assert charge.assumptions == ("a", "b", "c")


@pytest.mark.parametrize("delta", [0.0, 1.0, -1.0, math.nan])
def test_bad_delta(delta: float) -> None:
    with pytest.raises(ConfigError, match="delta"):
        Charge((Pure(),), delta=delta)


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": "proved"},
        {"unit": None},
        {"events": 3},
        {"events": [{"event": "Other"}]},
        {"events": ["Pure"]},
        {"delta": "x"},
        {"delta": 2},
        {"assumptions": None},
        {"assumptions": "text"},
        {"publishable": "no"},
    ],
)
def test_what_is_no_charge(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Charge.from_plain(Charge((Pure(),)).to_plain() | changes)
    with pytest.raises(ConfigError, match="not a privacy charge"):
        Charge.from_plain({})


def test_an_account_makes_a_claim_of_each_kind_and_unit() -> None:
    charges = [
        Charge((Pure(1, 0.1),)),
        Charge((Pure(1, 0.2),), kind="nominal"),
        Charge((Pure(1, 0.1),)),
        Charge((Pure(1, 0.3),), unit="party"),
    ]
    claims = add_up(charges).claims()
    assert [(claim.kind, claim.unit, claim.rounds) for claim in claims] == [
        ("dp", "record", 3),  # what is charged for a party is charged for its records
        ("nominal", "record", 1),
        ("dp", "party", 1),
    ]
    assert claims[0].epsilon == pytest.approx(0.5, abs=1e-3)
    assert Account().claims() == []


def test_an_account_says_what_a_claim_leaves_out() -> None:
    charges = [
        Charge((Pure(1, 0.1),)),
        Charge((Pure(1, 0.1),), relation="replace"),
        Charge((Pure(1, 0.1),), relation="add_remove"),
    ]
    claims = add_up(charges).claims(delta=1e-6)
    assert [(claim.relation, claim.rounds, claim.delta) for claim in claims] == [
        ("add_remove", 2, 1e-6),
        ("replace", 2, 1e-6),
    ]
    assert all(claim.assumptions == ("of 3 charges, 1 for other neighbours left out",) for claim in claims)
    assert add_up(charges[:2]).claims()[0].assumptions == ()


def test_what_is_charged_for_a_party_counts_for_its_records_too() -> None:
    record = Charge((Gaussian(1, 5.0),), relation="add_remove")
    party = Charge((Gaussian(1, 5.0),), unit="party", relation="replace")
    both = accountant.epsilon_of([Gaussian(2, 5.0)], 1e-5)[0]
    assert Budget(10.0).total([record, party]) == pytest.approx(both)
    assert Budget(10.0).total([party]) == Budget(10.0).total([record]) < both
    claims = {claim.unit: claim for claim in Account((record, party)).claims()}
    assert claims["record"].epsilon == pytest.approx(both)
    assert claims["record"].relation == "add_remove"
    assert claims["party"].epsilon < both


def test_one_record_more_is_another_party_and_not_one_more() -> None:
    party = Charge((Gaussian(1, 5.0),), unit="party", relation="add_remove")
    for relation in ("replace", "add_remove"):
        record = Charge((Gaussian(1, 5.0),), relation=relation)
        spent = accountant.epsilon_of([Gaussian(1, 5.0), Gaussian(1, 2.5)], 1e-5)[0]
        assert Budget(10.0).total([record, party]) == pytest.approx(spent)
