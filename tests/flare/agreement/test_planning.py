from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

import collegium as cg
from collegium import registry
from collegium.core.releases import KINDS
from collegium.core.site import Site
from collegium.errors import CollegiumError, WireError
from collegium.flare.agreement.plan import MOST_BYTES
from collegium.flare.agreement.planning import ANY_PARTY, Plan, PlannedStep, plan_of, review
from collegium.flare.agreement.review import unmatched
from collegium.flare.site.file import SiteFile
from collegium.flare.site.setup import SiteSetup
from collegium.privacy.budget import Budget, write_charges
from collegium.privacy.mechanisms.randomized_response import RandomizedResponse
from collegium.site.ledger import Entry, Ledger
from collegium.site.policy import Policy
from collegium.study.study import Study
from collegium.wire import tables

pytestmark = pytest.mark.xdist_group("plans")  # its fixtures are made once

X, y = load_digits(return_X_y=True)
PUBLIC = X[:200]
PARTIES = ["north", "south", "west"]
NOISE = {"name": "randomized_response", "epsilon": 1.0}


def study(algorithm: Any = "fedct", learner: Any = "decision_tree", **more: Any) -> Study:
    sites = [{"learner": learner, "prepare": "none"}]
    return Study.from_dict(
        {"name": "digits", "data": {"source": "digits"}, "algorithm": algorithm, "sites": sites} | more
    )


def plan_for(algorithm: Any = "fedct", parties: list[str] = PARTIES) -> Plan:
    return plan_of(study(algorithm), PUBLIC, range(10), parties)


def site_file(**sections: Any) -> SiteFile:
    return SiteFile.model_validate({"name": "north", "data": {"source": "x.csv"}} | sections)


def setup(file: SiteFile | None = None, labels: Any = y[200:260], budget: Budget | None = None) -> SiteSetup:
    from sklearn.tree import DecisionTreeClassifier

    site = Site("north", X[200:260], labels, learner=DecisionTreeClassifier(), budget=budget)
    return SiteSetup(file or site_file(), site, None)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return plan_for({"name": "fedct", "rounds": 3})


# Making plans


def test_a_plan_says_what_would_be_asked_and_what_would_leave(plan):
    assert (plan.study, plan.algorithm) == ("digits", {"name": "fedct", "rounds": 3})
    assert plan.classes == tuple(range(10))
    assert (plan.public_sha256, plan.public_rows) == (tables.digest(PUBLIC), 200)
    asked = {each.step: each for each in plan.steps if each.rehearsed}
    assert set(asked) == {"fedct.train", "fedct.label"}
    assert asked["fedct.train"].kind == "Nothing"
    assert (asked["fedct.label"].kind, asked["fedct.label"].releases) == ("HardLabels", 3)
    assert 80 < asked["fedct.label"].bytes < 2000
    assert plan.complete
    assert [each.step for each in plan.steps if not each.rehearsed] == ["scores.score"]


def test_a_plan_needs_no_private_row_and_is_the_same_every_time(plan):
    again = plan_for({"name": "fedct", "rounds": 3})
    assert again == plan
    assert again.digest == plan.digest
    assert plan_for({"name": "fedct", "rounds": 4}).digest != plan.digest


def test_the_mechanism_and_the_mask_are_part_of_the_plan():
    noisy = plan_for({"name": "fedct", "rounds": 2, "mechanism": NOISE})
    (label,) = [each for each in noisy.steps if each.step == "fedct.label"]
    assert label.mechanism == NOISE
    secret = plan_for({"name": "fedct", "rounds": 2, "votes": "secret"})
    kinds = {each.step: each.kind for each in secret.steps}
    assert kinds["fedct.label"] == "MaskedVotes"
    assert kinds["acquaintance.greet"] == "Greeting"


def test_noise_and_mask_are_also_on_what_a_rehearsal_does_not_come_to():
    secret = plan_for({"name": "fedct", "rounds": 1, "votes": "secret", "voters": "familiar"})
    label = next(each for each in secret.steps if each.step == "fedct.label")
    assert (label.kind, label.rehearsed) == ("MaskedVotes", False)  # all vote from the second communication on
    assert not secret.covers(label.step, label.digest)
    assert secret.covers(label.step, label.digest, masked=True)
    noisy = plan_for({"name": "fedct", "rounds": 1, "mechanism": NOISE})
    assert all(each.mechanism == NOISE for each in noisy.steps if each.kind == "HardLabels")


@pytest.mark.parametrize(
    ("algorithm", "steps"),
    [
        ("local_label_propagation", {"local_label_propagation.propagate"}),  # which releases nothing
        ({"name": "fedkt", "subsets": 2}, {"fedkt.learn", "fedkt.vote", "scores.score"}),
        (
            {"name": "fedct", "rounds": 1, "votes": "secret"},
            {"fedct.train", "fedct.label", "acquaintance.greet", "acquaintance.meet", "secret_votes.open_masks"}
            | {"scores.score"},
        ),
    ],
)
def test_a_plan_asks_owners_for_the_steps_that_the_method_declares_and_for_no_others(algorithm, steps):
    assert {each.step for each in plan_for(algorithm).steps} == steps


def test_a_real_sites_plan_never_asks_for_points_in_the_clear():
    plan = plan_for({"name": "xclp", "hamming": "masked", "bits": 64})
    assert "sketches.encode" in {each.step for each in plan.steps}
    assert "OpenPoints" not in {each.kind for each in plan.steps}


def test_any_party_is_rehearsed_with_some():
    open_to_all = plan_for({"name": "fedct", "rounds": 1, "votes": "secret"}, [ANY_PARTY])
    assert open_to_all.parties == (ANY_PARTY,)
    assert review(open_to_all, site_file()).allowed


def test_plans_that_cannot_be_made():
    for algorithm, public, parties, match in [
        ("centralized", PUBLIC, PARTIES, "simulations only"),
        ("fedct", None, PARTIES, "public set"),
        ("fedct", PUBLIC, [], "no sites"),
        ({"name": "fedct", "rounds": 0}, PUBLIC, PARTIES, "rounds"),
        ("fedct", PUBLIC, ["a\nb"], "printable"),
        ("fedct", PUBLIC, ["a", "a"], "called 'a'|twice"),
    ]:
        with pytest.raises(CollegiumError, match=match):
            plan_of(study(algorithm), public, range(10), parties)


def test_without_public_rows_steps_are_listed_and_none_is_rehearsed():
    plan = plan_of(study("fedavg", {"name": "torch", "net": "linear"}), None, range(10), PARTIES)
    assert {each.step for each in plan.steps} >= {"fedavg.update", "averaging.receive"}
    assert not any(each.rehearsed for each in plan.steps)
    assert not plan.complete
    assert review(plan, site_file()).allowed
    assert [each.code for each in review(plan, site_file(policy={"steps": ["fedct.*"]})).refusals]


@pytest.mark.parametrize("name", ["aimhi", "fedkt", "local", "fedavg", "scaffold", "xclp"])
def test_what_a_rehearsal_asks_for_is_allowed_by_an_open_policy(name):
    cls = registry.lookup("algorithm", name)
    learner = {"name": "torch", "net": "linear"} if cls.needs else "decision_tree"
    plan = plan_of(study(name, learner), PUBLIC[:60], range(10), PARTIES)
    found = review(plan, site_file(learner=learner, prepare="none"))
    assert found.allowed, found.refusals
    assert all(KINDS[each.kind] for each in plan.steps)


# Reading plans


def test_a_plan_survives_the_way_there_and_back(plan):
    assert Plan.from_plain(json.loads(plan.to_json())) == plan
    assert Plan.from_json(plan.to_json()).digest == plan.digest
    assert Plan.from_json(json.dumps(plan.to_plain(), indent=3)).digest == plan.digest


def changed(plan: Plan, **fields: Any) -> dict[str, Any]:
    return json.loads(plan.to_json()) | fields


@pytest.mark.parametrize(
    "fields",
    [
        {"extra": 1},
        {"study": "a\x1b[2Jb"},
        {"study": "x" * 5000},
        {"study": None},
        {"algorithm": "fedct"},
        {"algorithm": {}},
        {"algorithm": {"name": "fedct", "rounds": float("nan")}},
        {"algorithm": {"name": "fedct", "a": [[[[[[[[[[1]]]]]]]]]]}},
        {"algorithm": {"name": "fedct", "a": 1 << 70}},
        {"algorithm": {"name": "fedct", "a": "\u202e"}},
        {"seed": -1},
        {"seed": True},
        {"seed": 1.5},
        {"classes": []},
        {"classes": [[1]]},
        {"classes": [None, 1]},
        {"classes": [1, 1]},
        {"public_sha256": "abc"},
        {"public_sha256": "../../etc/passwd"},
        {"public_rows": "many"},
        {"parties": "north"},
        {"parties": [1]},
        {"parties": ["north", "north"]},
        {"steps": [{}]},
        {"steps": [{"step": "a"}]},
        {"steps": "all"},
        {"complete": 1},
    ],
)
def test_odd_plans_are_refused(plan, fields):
    with pytest.raises(WireError):
        Plan.from_plain(changed(plan, **fields))


@pytest.mark.parametrize(
    ("name", "value"), [("step", ""), ("digest", 1), ("rehearsed", "no"), ("bytes", -1), ("mechanism", []), ("x", 1)]
)
def test_odd_steps_are_refused(plan, name, value):
    step = json.loads(plan.to_json())["steps"][0] | {name: value}
    with pytest.raises(WireError):
        Plan.from_plain(changed(plan, steps=[step]))


def test_odd_text_is_refused(plan):
    for text in ("", "{", "[]", "null", "[" * 100_000, "9" * 5000, b"\xff\xfe", " " * (MOST_BYTES + 1)):
        with pytest.raises(WireError):
            Plan.from_json(text)
    with pytest.raises(WireError):
        Plan.from_plain(changed(plan, classes=["x" * 1990 + str(i) for i in range(3000)]))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_fuzzed_plan_is_read_or_refused_and_never_anything_else(data):
    plain = PlannedStep("fedct.label", "0" * 16, "HardLabels", None, True, 3, 80)
    plan = Plan("s", {"name": "fedct"}, 0, ("a", "b"), None, 0, ("north",), (plain,), True)
    fields = json.loads(plan.to_json())
    for name in data.draw(st.lists(st.sampled_from(sorted(fields)), min_size=1, max_size=3)):
        fields[name] = data.draw(JSON)
    if data.draw(st.booleans()):
        fields["steps"] = [
            json.loads(plan.to_json())["steps"][0] | {data.draw(st.sampled_from(sorted(vars(plain)))): data.draw(JSON)}
        ]
    try:
        read = Plan.from_plain(fields)
    except WireError:
        return
    assert Plan.from_json(read.to_json()) == read
    assert len(read.digest) == 64
    review(read, site_file())


# Orders against a plan


def test_only_what_was_planned_is_covered(plan):
    digest = next(each.digest for each in plan.steps if each.step == "fedct.label")
    assert plan.covers("fedct.label", digest)
    assert plan.covers("fedct.train", digest)
    assert not plan.covers("fedct.label", "0" * 16)
    assert not plan.covers("fedavg.update", digest)
    assert not plan.covers("nothing.such", digest)
    assert not plan.covers("fedct.label", digest, masked=True)
    assert not plan.covers("fedct.label", digest, NOISE)


def test_an_order_without_the_noise_or_the_mask_is_not_what_was_agreed_to():
    noisy = plan_for({"name": "fedct", "rounds": 1, "mechanism": NOISE})
    digest = next(each.digest for each in noisy.steps if each.step == "fedct.label")
    assert noisy.covers("fedct.label", digest, NOISE)
    assert not noisy.covers("fedct.label", digest)
    assert not noisy.covers("fedct.label", digest, {**NOISE, "epsilon": 100.0})
    assert not noisy.covers("fedct.label", digest, {"name": "no_such_noise"})
    secret = plan_for({"name": "fedct", "rounds": 1, "votes": "secret"})
    assert secret.covers("fedct.label", digest, masked=True)
    assert not secret.covers("fedct.label", digest)


# Reviews


def codes(found: Any) -> set[str]:
    return {each.code for each in found.refusals}


def test_an_open_policy_allows_all(plan):
    found = review(plan, site_file(), setup())
    assert found.allowed
    assert {each.step for each in found.verdicts} == {"fedct.train", "fedct.label", "scores.score"}


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ({"algorithms": ["fedkt", "dp_*"]}, "algorithm-denied"),
        ({"steps": ["fedct.train"]}, "step-denied"),
        ({"unprotected": ["Count"]}, "unprotected"),
        ({"requires": "dp"}, "unprotected"),
        ({"public_sha256": "0" * 64}, "other-public-set"),
        ({"max_release_bytes": 10}, "too-large"),
        ({"max_run_bytes": 100}, "bytes-exhausted"),
    ],
)
def test_a_policy_refuses_with_the_gates_code(plan, policy, code):
    found = review(plan, site_file(policy=policy))
    assert codes(found) == {code}
    assert all(each.why for each in found.refusals)


def test_a_site_may_keep_to_itself_what_a_method_can_do_without():
    counted = plan_for({"name": "fedct", "rounds": 2, "consensus": "informed"})
    for policy in ({"unprotected": ["HardLabels", "Scores"]}, {"steps": ["fedct.*", "scores.*"]}):
        found = review(counted, site_file(policy=policy), setup())
        assert found.allowed
        assert [each.step for each in found.verdicts if not each.allowed] == ["informed.count_answers"]
    # But not what is wrong with a plan: counts in clear, where its rule has noise on them.
    count = next(each for each in counted.steps if each.step == "informed.count_answers")
    noisy = plan_for({"name": "fedct", "rounds": 2, "consensus": {"name": "informed", "epsilon": 1.0}})
    assert codes(review(replace(noisy, steps=(count,)), site_file())) == {"step-denied"}
    assert codes(review(replace(counted, steps=(replace(count, digest="0" * 16),)), site_file())) == {"other-version"}


def test_steps_that_are_not_installed_or_of_another_version(plan):
    label = next(each for each in plan.steps if each.step == "fedct.label")
    assert codes(review(replace(plan, steps=(replace(label, step="fedct.lable"),)), site_file())) == {"unknown-step"}
    assert codes(review(replace(plan, steps=(replace(label, digest="0" * 16),)), site_file())) == {"other-version"}


def test_a_plan_that_says_less_than_it_asks_for_is_found_out(plan):
    registry.install_steps()
    from collegium.algorithms.fedavg import update

    foreign = PlannedStep("fedavg.update", update.digest, "Weights", None, True)
    assert codes(review(replace(plan, steps=(foreign,)), site_file())) == {"step-denied"}
    from collegium.secure.secret_votes import open_masks

    masks = PlannedStep(open_masks.name, open_masks.digest, "MaskShares", None, True)  # these votes are plain
    assert codes(review(replace(plan, steps=(masks,)), site_file())) == {"step-denied"}
    label = next(each for each in plan.steps if each.step == "fedct.label")
    for kind in ("Nothing", "Greeting", "NoSuchKind"):
        assert codes(review(replace(plan, steps=(replace(label, kind=kind),)), site_file())) == {"not-declared"}
    unknown = replace(label, mechanism={"name": "no_such_noise"})
    assert codes(review(replace(plan, steps=(unknown,)), site_file())) == {"not-declared"}


def test_an_algorithm_that_cannot_be_made_here(plan):
    for algorithm in ({"name": "no_such"}, {"name": "fedct", "rounds": -3}, {"name": "centralized"}):
        assert not review(replace(plan, algorithm=algorithm), site_file()).allowed


def test_a_site_that_is_not_among_the_parties(plan):
    assert codes(review(replace(plan, parties=("south",)), site_file())) == {"not-a-party"}


def test_classes_that_the_plan_lacks(plan):
    assert codes(review(plan, site_file(), setup(labels=np.arange(60) % 12))) == {"other-classes"}
    assert codes(review(plan, site_file(), setup(labels=np.array(["a", "b"] * 30)))) == {"other-classes"}


def test_a_learner_that_the_method_can_do_nothing_with():
    plan = plan_of(study("fedavg", {"name": "torch", "net": "linear"}), PUBLIC[:60], range(10), PARTIES)
    assert codes(review(plan, site_file(), setup())) == {"wrong-data"}


def test_where_privacy_is_required_what_rows_are_like_is_a_note_for_the_owner_alone():
    plan = plan_for({"name": "local_label_propagation"})
    site = Site("north", np.vstack([np.zeros_like(X[:1]), X[200:230]]), y[199:230], unlabeled=X[230:260])
    strict = replace(site, policy=Policy(requires="dp"))
    assert codes(review(plan, site_file(), SiteSetup(site_file(), site, None))) == {"wrong-data"}
    found = review(plan, site_file(), SiteSetup(site_file(), strict, None))
    assert found.allowed
    assert any("has no direction" in each.why for each in found.verdicts)
    unable = replace(strict, learner=cg.PrivateVoting())
    fedkt = plan_for({"name": "fedkt"})
    assert "wrong-data" in codes(review(fedkt, site_file(), SiteSetup(site_file(), unable, None)))


def test_noise_makes_a_release_protected_and_is_charged(tmp_path):
    noisy = plan_for({"name": "fedct", "rounds": 3, "mechanism": NOISE})
    strict = site_file(policy={"requires": "dp", "unprotected": []}, budget={"epsilon": 700})
    assert review(noisy, strict).allowed
    cost = Budget(1.0).total([RandomizedResponse(1.0).charge(200, 10)] * 3)
    assert review(noisy, strict, setup(strict, budget=Budget(cost))).allowed
    assert codes(review(noisy, strict, setup(strict, budget=Budget(0.9 * cost)))) == {"budget-exhausted"}
    endless = replace(noisy, steps=tuple(replace(step, releases=1 << 62, bytes=0) for step in noisy.steps))
    assert codes(review(endless, strict, setup(strict, budget=Budget(cost)))) == {"budget-exhausted"}
    ledger = Ledger("north", tmp_path / "ledger.db")
    event = write_charges([RandomizedResponse(1.0).charge(200, 10)])
    with ledger.transaction():
        ledger.append(Entry("0" * 32, 1, 0, "fedct.label", "HardLabels", 1, 1, "", event))
    spent = setup(strict, budget=Budget(cost, ledger=tmp_path / "ledger.db"))
    assert codes(review(noisy, strict, spent)) == {"budget-exhausted"}


def test_a_private_learner_protects_what_its_model_says(plan):
    strict = site_file(policy={"requires": "dp", "unprotected": []}, learner={"name": "private_voting", "epsilon": 1.0})
    found = review(plan, strict)
    assert found.allowed
    (score,) = [each for each in found.verdicts if each.step == "scores.score"]
    assert score.code == "unprotected"


def test_names_in_a_policy_that_fit_nothing_are_pointed_out():
    notes = unmatched(site_file(policy={"steps": ["fedctt.*", "fedct.*"], "unprotected": ["HardLabel"]}))
    assert len(notes) == 2
    assert "'HardLabels'" in notes[1]
    assert unmatched(site_file()) == []
