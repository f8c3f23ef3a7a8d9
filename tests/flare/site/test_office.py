"""A site's office against a coordinator that is careless, broken or hostile."""

from __future__ import annotations

import random
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.flare.offices import open_office, write_site
from tests.flare.talk import RUN, frame, give, inner, open_run, say
from tests.wire.mutations import mutated_bytes

import collegium as cg
from collegium import wire
from collegium.algorithms import fedaux, fedct, fedkt
from collegium.core.steps import Order
from collegium.flare.agreement.planning import Plan, PlannedStep, plan_of
from collegium.flare.site.office import Office
from collegium.flare.site.public_store import pack_public
from collegium.secure import distances, row_sums, secret_votes, sketches
from collegium.site.ledger import Ledger, verify_ledger
from collegium.study.study import Study
from collegium.wire import tables

STUDY = {
    "name": "test",
    "data": {"source": "public.csv"},
    "algorithm": {"name": "fedct", "rounds": 2},
    "federation": {"classes": ["benign", "malignant"]},
}


@pytest.fixture(scope="module")
def plan(public: pd.DataFrame) -> Plan:
    return plan_of(Study.from_dict(STUDY), public, np.array(["benign", "malignant"]), ["site-1", "site-2"])


@pytest.fixture(scope="module")
def public(tmp_path_factory: pytest.TempPathFactory) -> pd.DataFrame:
    from tests.flare.offices import write_data

    folder = tmp_path_factory.mktemp("data")
    write_data(folder, ["site-1"])
    return pd.read_csv(folder / "public.csv")


@pytest.fixture
def office(kits: Path) -> Office:
    return open_office(kits / "site-1")


def refusals(kit: Path) -> list[str]:
    return [row["code"] for row in Ledger("site-1", kit / "agent" / "ledger.db").refusals()]


def label(number: int, plan: Plan) -> bytes:
    return frame(number, fedct.train(None, None, None), fedct.label(), sha256=plan.public_sha256)


def test_an_order_is_answered_and_written_down(office: Office, kits: Path, plan: Plan, public: Any) -> None:
    assert open_run(office, plan, public) == "open"
    reply = give(office, label(1, plan))
    assert reply["kind"] == "HardLabels"
    assert verify_ledger(kits / "site-1" / "agent" / "ledger.db") == {"site-1": 1}


def test_what_a_reply_stands_on_is_on_the_disk_before_it_leaves(
    office: Office, plan: Plan, public: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_run(office, plan, public)
    synced: list[int] = []
    monkeypatch.setattr("collegium.site.states.os.fsync", synced.append)
    assert give(office, label(1, plan))["kind"] == "HardLabels"
    assert len(synced) == 1  # the site's state; SQLite sees to the ledger
    assert office._ledger.durable


def test_asked_twice_it_sends_the_same_bytes_and_releases_once(
    office: Office, kits: Path, plan: Plan, public: Any
) -> None:
    open_run(office, plan, public)
    words = {"do": "order", "run": RUN, "wait": 30.0}
    first = say(office, label(1, plan), **words, order="a")[1]
    assert say(office, label(1, plan), **words, order="b")[1] == first
    again = open_office(kits / "site-1")  # a new process
    open_run(again, plan, public)
    assert say(again, label(1, plan), **words, order="c")[1] == first
    assert verify_ledger(kits / "site-1" / "agent" / "ledger.db") == {"site-1": 1}


def test_another_order_under_a_number_that_was_used(office: Office, kits: Path, plan: Plan, public: Any) -> None:
    open_run(office, plan, public)
    give(office, label(1, plan))
    other = frame(1, fedct.label(), sha256=plan.public_sha256)
    assert give(office, other, name="b")["refused"] == "other-order"
    assert "other-order" in refusals(kits / "site-1")


@pytest.mark.parametrize(
    ("order", "code"),
    [
        (Order("fedct.steal", "0" * 16, {}), "not-planned"),
        (Order("fedct.label", "0" * 16, {}), "not-planned"),
        (Order("os.system", "0" * 16, {"command": "id"}), "not-planned"),
    ],
)
def test_steps_that_are_not_in_the_plan(
    office: Office, kits: Path, plan: Plan, public: Any, order: Order[Any], code: str
) -> None:
    open_run(office, plan, public)
    assert give(office, frame(1, order, sha256=plan.public_sha256))["code"] == code
    assert code in refusals(kits / "site-1")


def planned(algorithm: dict[str, Any], public: Any) -> Plan:
    study = Study.from_dict(STUDY | {"algorithm": algorithm})
    return plan_of(study, public, np.array(["benign", "malignant"]), ["site-1", "site-2"])


@pytest.mark.parametrize(
    "change",
    [{"mechanism": None}, {"queries": 11}, {"subsets": 1}, {"teacher": {"name": "knn", "settings": {}}}],
    ids=lambda change: next(iter(change)),
)
def test_settings_that_protect_a_site_are_those_of_the_plan(
    office: Office, kits: Path, public: Any, change: dict[str, Any]
) -> None:
    method = {"name": "fedkt", "level": "L2", "gamma": 0.1, "queries": 10, "subsets": 2, "partitions": 1}
    plan = planned(method, public)
    assert open_run(office, plan, public) == "open"
    agreed = cg.FedKT(level="L2", gamma=0.1, queries=10, subsets=2, partitions=1)._learn(len(public))
    other = replace(agreed, args=agreed.args | change)
    assert give(office, frame(1, other, fedkt.vote(), sha256=plan.public_sha256))["code"] == "not-planned"
    models = frame(1, agreed, fedkt.send(), sha256=plan.public_sha256)
    assert give(office, models, name="b")["code"] == "not-planned"  # the plan says votes
    assert refusals(kits / "site-1") == ["not-planned"] * 2
    answer = give(office, frame(1, agreed, fedkt.vote(), sha256=plan.public_sha256), name="c")
    assert answer["kind"] == "HardLabels"


@pytest.mark.parametrize(
    "order",
    [
        distances.talk("s", "masked", {"site-1": 40, "site-2": 40}, {}),
        row_sums.submit("s", "recipient", "r", ["site-1", "site-2"]),
        sketches.encode("s", "site-1", None, 64, 10**6, embed=False),
    ],
    ids=["backend", "sums", "neighbours"],
)
def test_a_coordinator_cannot_choose_weaker_cryptography(office: Office, public: Any, order: Order[Any]) -> None:
    plan = planned({"name": "xclp", "bits": 64, "k": 3}, public)
    open_run(office, plan, public)
    assert give(office, frame(1, order, sha256=plan.public_sha256))["code"] == "not-planned"


def test_an_order_about_another_public_set(kits: Path, plan: Plan, public: Any) -> None:
    write_site(kits / "site-1", "site-1", policy=f'public_sha256 = "{plan.public_sha256}"')
    office = open_office(kits / "site-1")
    assert open_run(office, plan, public) == "open"
    assert (
        give(office, frame(1, fedct.train(None, None, None), fedct.label(), sha256="0" * 64))["refused"]
        == "other-public-set"
    )


def test_a_forged_public_set(office: Office, kits: Path, plan: Plan, public: Any) -> None:
    assert open_run(office, plan, public.iloc[::-1].reset_index(drop=True)) == "needs-public"
    assert refusals(kits / "site-1") == ["other-public-set"]
    assert open_run(office, plan, public) == "open"


def test_a_public_set_that_the_site_has_not_pinned(kits: Path, plan: Plan, public: Any) -> None:
    write_site(kits / "site-1", "site-1", policy=f'public_sha256 = "{"0" * 64}"')
    office = open_office(kits / "site-1")
    assert open_run(office, plan, public) == "other-public-set"
    data = pack_public(public)
    header, _ = say(office, data, do="public", run=RUN, sha256=plan.public_sha256, offset=0, total=len(data))
    assert header["code"] == "other-public-set"


def test_an_algorithm_that_the_policy_does_not_allow(kits: Path, plan: Plan, public: Any) -> None:
    write_site(kits / "site-1", "site-1", policy='algorithms = ["fedavg"]')
    assert open_run(open_office(kits / "site-1"), plan, public) == "algorithm-denied"
    assert refusals(kits / "site-1") == ["algorithm-denied"]


def test_a_plan_for_other_sites(office: Office, public: Any) -> None:
    other = plan_of(Study.from_dict(STUDY), public, np.array(["benign", "malignant"]), ["site-7", "site-8"])
    assert open_run(office, other, public) == "not-a-party"


def test_classes_that_the_plan_does_not_have(office: Office, public: Any) -> None:
    other = plan_of(Study.from_dict(STUDY), public, np.array(["benign", "none"]), ["site-1", "site-2"])
    assert open_run(office, other, public) not in ("open", "needs-public")


def test_a_plan_that_lies_about_the_size_of_the_public_set(office: Office, plan: Plan, public: Any) -> None:
    """Noise is calibrated by that number."""
    assert open_run(office, replace(plan, public_rows=plan.public_rows // 2), public) == "other-public-set"


def test_a_run_has_one_plan(office: Office, plan: Plan, public: Any) -> None:
    open_run(office, plan, public)
    assert open_run(office, replace(plan, seed=plan.seed + 1), public) == "other-plan"


def test_orders_before_the_run_is_open(office: Office, plan: Plan) -> None:
    assert give(office, label(1, plan))["code"] == "not-open"


def test_a_plan_waits_for_its_owner(kits: Path, plan: Plan, public: Any) -> None:
    write_site(kits / "site-1", "site-1", approval="plan")
    office = open_office(kits / "site-1")
    assert open_run(office, plan, public) == "waiting"
    office._approvals.approve(plan.digest)
    assert open_run(office, plan, public) == "open"
    assert give(office, label(1, plan))["kind"] == "HardLabels"


def test_steps_of_another_algorithm_than_was_agreed_on(office: Office, plan: Plan, public: Any) -> None:
    open_run(office, plan, public)
    step = next(value for value in vars(fedkt).values() if type(value).__name__ == "Step")
    header = give(office, frame(1, Order(step.name, step.digest, {}), sha256=plan.public_sha256))
    assert header["code"] == "not-planned"


def test_a_step_that_the_algorithm_does_not_declare_is_refused_even_if_the_plan_lists_it(
    office: Office, plan: Plan, public: Any
) -> None:
    foreign = PlannedStep(secret_votes.open_masks.name, secret_votes.open_masks.digest, "MaskShares", None, False)
    assert open_run(office, replace(plan, steps=(*plan.steps, foreign)), public) == "open"
    asked = frame(1, secret_votes.open_masks("circle", "sum 1", {}), sha256=plan.public_sha256)
    assert give(office, asked)["code"] == "not-planned"


def test_each_release_waits_for_its_owner(kits: Path, plan: Plan, public: Any) -> None:
    write_site(kits / "site-1", "site-1", approval="each")
    office = open_office(kits / "site-1")
    open_run(office, plan, public)
    office._approvals.approve(plan.digest)
    open_run(office, plan, public)
    assert give(office, frame(1, fedct.train(None, None, None), sha256=plan.public_sha256))["kind"] == "Nothing"
    asked = frame(2, fedct.label(), sha256=plan.public_sha256)
    assert give(office, asked, name="b")["code"] == "waiting"
    waiting = office._approvals.orders.pending()[0]
    office._approvals.orders.approve(waiting.run, waiting.number, waiting.sha256)
    other = frame(2, fedct.train(None, None, None), fedct.label(), sha256=plan.public_sha256)
    assert give(office, other, name="c")["code"] == "waiting", "the approval is of that order, and of no other"
    assert give(office, asked, name="d")["kind"] == "HardLabels"


def test_a_message_over_the_limit(kits: Path, plan: Plan, public: Any) -> None:
    write_site(kits / "site-1", "site-1", policy="max_message_bytes = 2000")
    office = open_office(kits / "site-1")
    header, _ = say(office, b"x" * 3000, do="hello")
    assert header["code"] == "too-large"
    assert refusals(kits / "site-1") == ["too-large"]


def keep_busy(office: Office) -> threading.Event:
    """Nothing is begun at the site before the event is set."""
    go_on = threading.Event()
    office._runs.get(RUN)._thread.submit(go_on.wait, 30)
    return go_on


def test_an_order_of_another_run_than_it_was_sent_to_is_refused(
    office: Office, kits: Path, plan: Plan, public: Any
) -> None:
    open_run(office, plan, public)
    other = frame(1, fedct.label(), run="0" * 32, sha256=plan.public_sha256)
    assert give(office, other)["code"] == "bad-message"
    assert verify_ledger(kits / "site-1" / "agent" / "ledger.db") == {}


def test_an_order_that_takes_long_is_asked_for_again(office: Office, kits: Path, plan: Plan, public: Any) -> None:
    open_run(office, plan, public)
    go_on = keep_busy(office)
    assert give(office, label(1, plan), wait=0.0)["code"] == "busy"
    go_on.set()
    header, payload = say(office, do="await", run=RUN, order="a", wait=30.0)
    assert header["state"] == "done"
    assert inner(payload)["kind"] == "HardLabels"
    assert verify_ledger(kits / "site-1" / "agent" / "ledger.db") == {"site-1": 1}


def test_an_order_that_has_not_begun_can_be_cancelled(office: Office, kits: Path, plan: Plan, public: Any) -> None:
    open_run(office, plan, public)
    go_on = keep_busy(office)
    assert give(office, label(1, plan), wait=0.0)["code"] == "busy"
    assert say(office, do="cancel", run=RUN, order="a")[0]["done"] is True
    go_on.set()
    assert say(office, do="await", run=RUN, order="a", wait=30.0)[0]["code"] == "cancelled"
    assert give(office, label(2, plan), name="b")["kind"] == "HardLabels"
    assert verify_ledger(kits / "site-1" / "agent" / "ledger.db") == {"site-1": 1}


def test_exceptions_stay_at_the_site(kits: Path, plan: Plan, public: Any) -> None:
    train = kits / "site-1" / "train.csv"
    table = pd.read_csv(train)
    table["mean radius"] = "patient Smith"
    table.to_csv(train, index=False)
    write_site(kits / "site-1", "site-1", learner="naive_bayes")
    text = (kits / "site-1" / "site.toml").read_text().replace('name = "site-1"', 'name = "site-1"\nprepare = "none"')
    (kits / "site-1" / "site.toml").write_text(text)
    office = open_office(kits / "site-1")
    open_run(office, plan, public)
    answer = office.answer(wire.join({"do": "order", "run": RUN, "order": "a", "wait": 30.0}, label(1, plan)))
    assert b"Smith" not in answer
    assert wire.cut(wire.cut(answer)[1])[0]["refused"] == "step-failed"
    logs = (kits / "site-1" / "agent" / "runs" / RUN / "site.log").read_text()
    assert "Smith" in logs


def test_the_end_of_a_run_leaves_model_and_report_at_the_site(
    office: Office, kits: Path, plan: Plan, public: Any
) -> None:
    open_run(office, plan, public)
    give(office, label(1, plan))
    assert say(office, do="close", run=RUN)[0]["state"] == "closed"
    folder = kits / "site-1" / "agent" / "runs" / RUN
    assert (folder / "model.pkl").is_file()
    report = (folder / "report.html").read_text()
    assert "HardLabels" in report
    assert "held-out rows" in report


def test_a_run_that_is_over_can_be_opened_again(office: Office, kits: Path, plan: Plan, public: Any) -> None:
    open_run(office, plan, public)
    first = give(office, label(1, plan))
    say(office, do="close", run=RUN)
    assert give(office, label(1, plan))["code"] == "not-open"
    assert open_run(office, plan, public) == "open"
    assert give(office, label(1, plan)) == first
    assert verify_ledger(kits / "site-1" / "agent" / "ledger.db") == {"site-1": 1}


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_hostile_messages(office: Office, kits: Path, plan: Plan, public: Any, count: int) -> None:
    """No crash, no leak: nothing but a code ever comes back, and the office goes on working."""
    open_run(office, plan, public)
    rng = random.Random(0)
    good = [
        wire.join({"do": "open", "run": RUN}, wire.pack(plan.to_plain()).data),
        wire.join({"do": "order", "run": RUN, "order": "x", "wait": 0.0}, frame(5, Order("no.step", "0" * 16, {}))),
        wire.join({"do": "public", "run": RUN, "sha256": "0" * 64, "offset": 0, "total": 10}, b"0123456789"),
        wire.join({"do": "await", "run": RUN, "order": "x", "wait": 0.0}, b""),
        wire.join({"do": "cancel", "run": RUN, "order": "x"}, b""),
        wire.join({"do": "hello"}, b""),
    ]
    answers = set()
    for number in range(count):
        message = mutated_bytes(good[number % len(good)], rng)
        header, payload = wire.cut(office.answer(message))
        answers.add(str(header.get("code", header["state"])))
        if header["state"] == "done":
            assert "refused" in inner(payload), "no step of these messages may release anything"
    assert "bad-message" in answers
    assert "failed" not in answers, "every kind of nonsense is foreseen"
    assert verify_ledger(kits / "site-1" / "agent" / "ledger.db") == {}
    assert give(office, label(7, plan), name="after")["kind"] == "HardLabels"


def test_tables_digest_is_what_names_a_public_set(public: Any, plan: Plan) -> None:
    assert plan.public_sha256 == tables.digest(public)


@pytest.mark.parametrize("noise", [{"name": "randomized_response", "epsilon": 50.0}, None])
def test_a_plan_whose_noise_is_not_its_methods_is_refused(office: Office, public: pd.DataFrame, noise: Any) -> None:
    quiet = STUDY | {"algorithm": {"name": "fedct", "mechanism": {"name": "randomized_response", "epsilon": 1.0}}}
    agreed = plan_of(Study.from_dict(quiet), public, np.array(["benign", "malignant"]), ["site-1"])
    forged = replace(agreed, steps=tuple(replace(each, mechanism=noise) for each in agreed.steps if each.mechanism))
    assert open_run(office, forged, public) == "mechanism-denied"
    assert open_run(office, agreed, public) == "open"


def test_a_plan_that_puts_noise_of_promised_sensitivity_on_scores_is_refused(
    office: Office, public: pd.DataFrame
) -> None:
    step = fedaux.score
    noise = {"name": "gaussian", "sigma": 1e-9, "sensitivity": 1e-12}
    steps = (PlannedStep(step.name, step.digest, "Numbers", noise, True, 1, 1000),)
    plan = Plan(
        study="test",
        algorithm={"name": "fedaux", "rounds": 1, "epsilon": 0.9},
        seed=0,
        classes=("benign", "malignant"),
        public_sha256=tables.digest(public),
        public_rows=len(public),
        parties=("site-1",),
        steps=steps,
        complete=False,
    )
    assert open_run(office, Plan.from_plain(plan.to_plain()), public) == "mechanism-denied"
