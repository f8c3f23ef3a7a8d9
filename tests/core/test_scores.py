"""Site metrics are releases like any other."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.core.federation import Federation
from collegium.core.samples import LabelledData
from collegium.core.scores import Measures, Scores, ask_measures, ask_scores, measure, score
from collegium.core.site import ActiveSite
from collegium.errors import Refused, WireError
from collegium.learners.metrics import part_names, read_metrics
from collegium.links.hosting import Hosting
from collegium.links.local import LocalLink
from collegium.site.gate import Gate
from collegium.site.ledger import Ledger
from collegium.site.policy import Policy
from collegium.wire.orders import Request

X, Y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array(["a", "a", "b", "b"])
CLASSES = np.array(["a", "b"])
TWO = ["calibration_curve", "roc_auc"]


def active(policy: Policy | None = None) -> ActiveSite:
    site = cg.Site("ukb", X, Y, learner=DecisionTreeClassifier(), policy=policy or Policy())
    return ActiveSite(site, CLASSES, None, 0, simulation=True)


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


def test_metrics_are_told_in_the_order_of_their_names() -> None:
    site = trained()
    told = measure.function(site, ["balanced_accuracy", "confusion_matrix"])
    names = part_names(read_metrics(["balanced_accuracy", "confusion_matrix"]), CLASSES)
    pairs = ["a,a", "a,b", "b,a", "b,b"]
    assert names == ["balanced_accuracy", *(f"confusion_matrix[{pair}]" for pair in pairs)]
    assert told.values.tolist() == [pytest.approx(3 / 4), 1.0, 0.0, 1.0, 1.0]


def test_a_metric_that_cannot_be_had_is_nan_and_the_others_are_told() -> None:
    site = trained()
    site.held_out = LabelledData(np.array([[0.1]]), np.array([0], dtype=np.int8))
    curve, auc = ([name.partition("[")[0] for name in part_names(read_metrics([n]), CLASSES)] for n in TWO)
    told = measure.function(site, TWO).values
    assert len(told) == len(curve) + len(auc) == 11
    assert np.flatnonzero(~np.isnan(told)).tolist() == [9]  # the tree is sure of its one row, and right


@pytest.mark.parametrize("bad", [Measures(np.array([np.inf])), Measures(np.zeros((2, 2))), Measures(np.array([1]))])
def test_measures_that_are_none(bad: Measures) -> None:
    with pytest.raises(WireError):
        bad.check(2, None)


def test_measures_that_are_too_few_are_not_used() -> None:
    site = cg.Site("a", X, Y, learner=DecisionTreeClassifier())
    link = LocalLink(Hosting((site,), CLASSES, None, None, 0, "run"))
    fed = Federation(link, run="run", n_classes=2, seed=0)
    fed.ask = lambda *_, **__: {"a": Measures(np.array([0.5]))}  # type: ignore[assignment, method-assign]
    assert ask_measures(fed, ("a",), ["f1"], ["f1", "recall"]) == ("a",)
    assert [row["party"] for row in fed.observed.refusals] == ["a"]
    assert not fed.observed.metrics
    link.close()
