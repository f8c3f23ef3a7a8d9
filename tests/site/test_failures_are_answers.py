"""A site that promises differential privacy answers the same whatever its rows are: a failure would be an answer."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from tests.site.real_sites import U, ask, open_really, rows

import collegium as cg
from collegium.algorithms import dp_fedavg, fedct, fedkt
from collegium.core import ActiveSite, HardLabels, Labels, Nothing, step
from collegium.errors import ConfigError, Refused
from collegium.learners.torch.classifier import TorchClassifier
from collegium.privacy.claims import Charge
from collegium.privacy.events import Pure

STRICT = cg.Policy(requires="dp", unprotected=())
COST = Charge((Pure(1, 0.5),), relation="replace")
RESPONSE = {"name": "randomized_response", "epsilon": 0.1}
TRAIN, LABEL = fedct.train(None, None, None), fedct.label()
BAD = {"gap": np.nan, "huge": 1e300, "infinite": np.inf}


@step
def fail_if_flagged(site: ActiveSite, how: str) -> HardLabels:
    """A private fit that fails, or a step that does, if some record has a flag."""
    flagged = bool((site.data.closed().X[:, 2] > 90).any())

    def use() -> int:
        if how == "inside" and flagged:
            raise ValueError("patient SECRET has the flag")
        return 0

    site.privately(COST, use, lambda: 0)
    if how == "outside" and flagged:
        raise Refused("diverged", "some record has the flag")
    if how == "raises" and not flagged:
        raise ValueError("no record has the flag")
    return HardLabels(Labels(np.zeros(len(site.public), dtype=int), site.n_classes))


@step
def read_and_fail(site: ActiveSite, value: float) -> Nothing:
    """Reads rows, and fails if one of them has that value."""
    if np.isin(value, site.data.X):
        raise ValueError("it is there")
    return Nothing()


@step
def wrong_settings(site: ActiveSite) -> Nothing:
    """Fails before any private row is used."""
    raise ConfigError("this cannot work anywhere")


def site(value: float | None = None, **settings: Any) -> cg.Site:
    X, y = rows()
    if value is not None:
        X[17, 2] = value
    return cg.Site("ukb", X, y, **{"policy": STRICT, **settings})


def seen(header: dict[str, Any], payload: bytes) -> dict[str, Any]:
    """What an answer shows beside its noise."""
    return {k: v for k, v in header.items() if k not in ("sha256", "entry")} | {"size": len(payload)}


LEARNERS = {
    "torch": cg.PrivateTorch(epsilon=0.5, epochs=1),
    "voting": cg.PrivateVoting(LogisticRegression(), teachers=10, epsilon=0.5, student=DecisionTreeClassifier()),
}


@pytest.mark.parametrize("learner", LEARNERS.values(), ids=LEARNERS)
@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_one_record_does_not_make_a_private_learner_fail(learner: Any, value: float) -> None:
    answers = [
        seen(*ask(open_really(site(each, learner=learner, budget=cg.Budget(2.0))), 1, TRAIN, LABEL))
        for each in (None, value)
    ]
    assert answers[0] == answers[1]
    assert answers[0]["kind"] == "HardLabels"
    assert json.loads(answers[0]["privacy"])["charges"][0]["events"]


@pytest.mark.parametrize("value", BAD.values(), ids=BAD)
def test_one_record_does_not_make_teachers_or_a_noisy_net_fail(value: float) -> None:
    kt = cg.FedKT(level="L2", partitions=1, subsets=5, queries=10, gamma=0.1, teacher=LogisticRegression())
    net = TorchClassifier("linear", random_state=0)
    w = net.initialize(U, np.arange(2)).get_weights()
    update = dp_fedavg.noisy_update(w, 1, None, 1.0, 2.0, 1e-5)
    for learner, orders in ((DecisionTreeClassifier(), (kt._learn(len(U)), fedkt.vote())), (net, (update,))):
        plain, odd = (seen(*ask(open_really(site(each, learner=learner)), 1, *orders)) for each in (None, value))
        assert plain == odd
        assert "kind" in plain


@pytest.mark.parametrize("how", ["inside", "outside", "raises"])
def test_failing_or_not_costs_the_same_and_has_one_code(how: str) -> None:
    answers = [ask(open_really(site(flag)), 1, fail_if_flagged(how))[0] for flag in (None, 99.0)]
    assert [json.loads(each["privacy"])["charges"] for each in answers] == [[COST.to_plain()]] * 2
    if how == "inside":  # the exception is in the site's log, and nowhere else
        assert seen(answers[0], b"") == seen(answers[1], b"")
    else:
        assert {each.get("refused") for each in answers} == {None, "step-failed"}


def test_an_error_of_a_private_fit_is_in_the_sites_own_log() -> None:
    agent = open_really(site(99.0))
    ask(agent, 1, fail_if_flagged("inside"))
    assert any("patient SECRET" in line for line in agent.log.lines)


@pytest.mark.parametrize("learner", [LogisticRegression(), DecisionTreeClassifier()])
def test_where_noise_covers_all_labels_a_failed_fit_is_not_seen(learner: Any) -> None:
    answers = [
        seen(*ask(open_really(site(each, learner=learner)), 1, TRAIN, LABEL, mechanism=RESPONSE))
        for each in (None, np.nan)
    ]
    assert answers[0] == answers[1]
    assert answers[0]["kind"] == "HardLabels"


def test_a_step_that_releases_nothing_does_not_tell_that_it_failed() -> None:
    plain, odd = (seen(*ask(open_really(site(each)), 1, read_and_fail(7.5))) for each in (None, 7.5))
    assert plain == odd
    assert plain["kind"] == "Nothing"


def test_a_failure_does_not_tell_what_success_would_not() -> None:
    for value, orders in ((7.5, (read_and_fail(7.5), LABEL)), (np.nan, (TRAIN, LABEL))):
        plain, odd = (
            seen(*ask(open_really(site(each, learner=LogisticRegression())), 1, *orders)) for each in (None, value)
        )
        assert plain == odd
        assert plain["refused"] == "unprotected"


def test_a_forged_public_column_asks_nothing_about_the_private_one() -> None:
    forged = U.copy()
    forged[:, 2] = np.where(np.arange(len(U)) % 2, 1e-42, -1e-42)
    learner = cg.PrivateTorch(epsilon=0.1, epochs=1, prepare=StandardScaler())
    X, y = rows()
    X[:, 2] = 0.0
    flagged = X.copy()
    flagged[17, 2] = 1.0  # divided by the spread of the forged column, it overflows
    plain, odd = (
        seen(*ask(open_really(cg.Site("ukb", each, y, learner, STRICT), public=forged), 1, TRAIN, LABEL))
        for each in (X, flagged)
    )
    assert plain == odd
    assert plain["kind"] == "HardLabels"


def test_settings_that_cannot_work_are_told_and_cost_nothing() -> None:
    agent = open_really(site())
    assert ask(agent, 1, wrong_settings())[0]["refused"] == "step-failed"
    private = cg.PrivateVoting(LogisticRegression(solver="no such"), teachers=10, epsilon=0.5)
    broken = open_really(site(learner=private))
    header, _ = ask(broken, 1, TRAIN, LABEL)
    assert (header["refused"], header.get("entry")) == ("step-failed", None)
    assert broken.gate.ledger.rows() == []


def test_a_site_that_promises_nothing_says_what_happened() -> None:
    agent = open_really(site(7.5, policy=cg.Policy()))
    assert ask(agent, 1, read_and_fail(7.5))[0]["refused"] == "step-failed"
    assert ask(open_really(site(99.0, policy=cg.Policy())), 1, fail_if_flagged("outside"))[0]["refused"] == "diverged"
