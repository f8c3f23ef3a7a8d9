"""Site metrics are releases like any other."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.core.federation import Federation
from collegium.core.samples import LabelledData
from collegium.core.scores import Scores, ask_scores, score
from collegium.core.site import ActiveSite
from collegium.errors import Refused, WireError
from collegium.links.hosting import Hosting
from collegium.links.local import LocalLink
from collegium.site.gate import Gate
from collegium.site.ledger import Ledger
from collegium.site.policy import Policy
from collegium.wire.orders import Request

X, Y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array(["a", "a", "b", "b"])
CLASSES = np.array(["a", "b"])


def active(policy: Policy | None = None) -> ActiveSite:
    site = cg.Site("ukb", X, Y, learner=DecisionTreeClassifier(), policy=policy or Policy())
    return ActiveSite(site, CLASSES, None, 0)


def trained() -> ActiveSite:
    site = active()
    site.fit(site.data)
    site.held_out = LabelledData(np.array([[0.1], [2.9], [0.2]]), np.array([0, 1, 1], dtype=np.int8))
    return site


def test_the_share_of_held_out_rows_that_the_model_gets_right() -> None:
    told = score.function(trained())
    assert told == Scores(pytest.approx(2 / 3), 3)


def test_a_site_without_held_out_rows_or_model_has_none() -> None:
    with pytest.raises(Refused) as refusal:
        score.function(active())
    assert refusal.value.code == "no-held-out-rows"
    site = active()
    site.held_out = LabelledData(X, np.zeros(4, dtype=np.int8))
    with pytest.raises(Refused) as refusal:
        score.function(site)
    assert refusal.value.code == "no-model"


@pytest.mark.parametrize(
    "bad", [Scores(1.5, 3), Scores(float("nan"), 3), Scores(0.5, 0), Scores(1, 3), Scores(0.5, True)]
)
def test_scores_that_are_none(bad: Scores) -> None:
    with pytest.raises(WireError):
        bad.check(2, None)


def seal(policy: Policy) -> str | None:
    gate = Gate("ukb", policy, Ledger("ukb"), simulation=False)
    with gate.ledger.transaction():
        gate.seal(Request("run", None, 1, 0, score.name, score.digest, {}), Scores(0.5, 4), None, active())
    return str(gate.ledger.rows()[0]["event"])


def test_they_are_unprotected_even_if_nothing_else_has_been_read() -> None:
    assert seal(Policy()) == "None"
    with pytest.raises(Refused) as refusal:
        seal(Policy(requires="dp"))
    assert refusal.value.code == "unprotected"
    seal(Policy(requires="dp", unprotected=("Scores",)))


def test_whoever_does_not_tell_is_no_failure_of_the_run() -> None:
    sites = tuple(cg.Site(name, X, Y, learner=DecisionTreeClassifier()) for name in ("a", "b"))
    link = LocalLink(Hosting(sites, CLASSES, None, None, 0, "run"))
    fed = Federation(link, run="run", n_classes=2, seed=0)
    assert ask_scores(fed, ("a", "b")) == ()
    assert fed.observed.metrics == []
    link.close()
