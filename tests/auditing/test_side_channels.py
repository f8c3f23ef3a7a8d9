"""The audit of side channels finds each kind of leak, and where."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest

import collegium as cg
from collegium.auditing.side_channels import Leak, compare, neighbours_of
from collegium.core import ActiveSite, Algorithm, Federation, HardLabels, Labels, Nothing, Steps, step
from collegium.core.releases import Numbers
from collegium.errors import ConfigError, Refused
from collegium.privacy.claims import Charge
from collegium.privacy.events import Pure
from collegium.site import ledger

X = np.random.default_rng(0).normal(size=(20, 2))
SITE = cg.Site("ukb", X, np.arange(20) % 2, policy=cg.Policy(requires="dp", unprotected=()))


@step
def answer(site: ActiveSite, how: str) -> Numbers:
    """Leaks in one way or another, after what looks like a private fit."""
    rows = site.data.closed()
    odd = not np.isfinite(rows.X).all()
    cost = 0.5 + (how == "charge" and odd)
    site.privately(Charge((Pure(1, cost),), relation="add_remove"), lambda: None, lambda: None)
    if how == "refusal" and odd:
        raise Refused("diverged", "a record is odd")
    n = len(rows) if how == "size" else 3
    return Numbers(np.random.default_rng().normal(size=n))


@step
def public_looking(site: ActiveSite) -> Numbers:
    """Reads rows behind the gate's back, and claims to have used none."""
    return Numbers(np.array([float(len(site.data.closed()))]))


@step
def label_some(site: ActiveSite) -> HardLabels:
    """Noise that is paid for, written as short as it can be."""
    site.privately(Charge((Pure(1, 0.5),)), lambda: None, lambda: None)
    return HardLabels(Labels(np.random.default_rng().integers(-1, 2, len(site.public)), 2))


@step
def extra_reply(site: ActiveSite) -> Nothing:
    """Nothing."""
    return Nothing()


@dataclass(frozen=True)
class Asks(Algorithm):
    """Asks once for each order."""

    asks_for: ClassVar[Steps] = (answer, public_looking, label_some, extra_reply)
    needs_learner: ClassVar[bool] = False
    orders: tuple[Any, ...] = ()

    def coordinate(self, fed: Federation) -> None:
        for order in self.orders:
            fed.ask(order)


def found(*orders: Any, site: cg.Site = SITE, **settings: Any) -> list[Leak]:
    return compare(Asks(orders), site, X, **settings)


def about(leaks: list[Leak]) -> set[tuple[str, str]]:
    return {(leak.where.partition(":")[0], leak.what.partition(":")[0]) for leak in leaks}


def test_noise_that_is_paid_for_is_no_leak() -> None:
    assert found(answer("fine"), label_some(), label_some()) == []


def test_a_refusal_that_depends_on_a_record() -> None:
    leaks = found(answer("refusal"))
    assert {"a missing value", "an infinite value"} == {where for where, _ in about(leaks)}
    assert Leak("a missing value: reply 1", "answer: refused: step-failed instead of Numbers") in leaks


def test_a_charge_that_depends_on_a_record() -> None:
    assert about(found(answer("charge"))) == {("a missing value", "charges"), ("an infinite value", "charges")}


def test_a_size_that_depends_on_the_number_of_records() -> None:
    size = {("one record fewer", "contents"), ("one record more", "contents")}
    assert about(found(answer("size"))) >= size


def test_contents_that_are_said_to_use_no_private_data() -> None:
    assert about(found(public_looking())) >= {("one record fewer", "contents"), ("one record more", "contents")}


def test_a_site_that_does_not_take_part_because_of_a_record() -> None:
    open_to_all = cg.Site("ukb", X, np.arange(20) % 2)
    leaks = found(extra_reply(), extra_reply(), site=open_to_all)
    assert ("of a class that the study does not know", "answer") in about(leaks)
    assert Leak("of a class that the study does not know", "1 replies instead of 2") in leaks


def test_hashes_without_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    def unsalted(row: dict[str, Any], prev: str) -> str:
        return json.dumps([row["sha256"], prev])

    monkeypatch.setattr(ledger, "row_hash", unsalted)
    monkeypatch.setattr("collegium.auditing.side_channels.row_hash", unsalted)
    assert found(answer("fine"))[0].where == "hashes of ledger rows"


def test_neighbours_are_left_out_where_the_size_is_public() -> None:
    private = cg.Site("ukb", X, np.arange(20) % 2, cg.PrivateTorch(epsilon=1.0, epochs=1, batch_size=8), SITE.policy)
    assert compare(cg.FedCT(rounds=1), private, X) == []


def test_neighbours_of_a_table_and_of_what_cannot_be_changed() -> None:
    frame = pd.DataFrame({"sex": ["f", "m"] * 10, "age": np.arange(20)})
    table = neighbours_of(cg.Site("a", frame, ["x", "y"] * 10), np.array(["x", "y", "z"]))
    assert np.isnan(table["a missing value"].X["age"].iloc[-1])
    assert table["of the rarest class"].y[-1] == "z"
    assert table["of a class that the study does not know"].y[-1] == "not z"
    assert (len(table["one record fewer"]), len(table["one record more"])) == (19, 21)
    texts = neighbours_of(cg.Site("a", frame[["sex"]], ["x", "y"] * 10), np.array(["x", "y"]))
    assert "a huge value" not in texts


def test_what_cannot_be_compared_is_an_error() -> None:
    with pytest.raises(ConfigError, match="controls"):
        found(extra_reply(), controls=1)
    with pytest.raises(ConfigError, match="two records"):
        neighbours_of(cg.Site("a", X[:1], [0]), np.arange(2))
