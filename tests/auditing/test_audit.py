from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier
from tests.auditing.games import PUBLIC, Boastful, sites, two_classes

import collegium as cg
from collegium.auditing.attacks import gather
from collegium.auditing.audit import _about_one_record
from collegium.auditing.result import schema
from collegium.errors import CollegiumWarning, ConfigError, SiteError
from collegium.privacy import accountant
from collegium.privacy.claims import Charge
from collegium.privacy.events import Pure


def audit(algorithm: Any = None, attacked: Any = None, public: Any = PUBLIC, **settings: Any) -> cg.Audit:
    settings = {"site": "site0", "canaries": 100, "seed": 0} | settings
    return cg.audit(algorithm or cg.FedCT(rounds=2), sites() if attacked is None else attacked, public, **settings)


def test_a_forged_public_set_tells_who_was_there() -> None:
    found = audit(view="coordinator", forged=True)
    assert found.auc > 0.85
    assert found.auc_interval[0] < found.auc < found.auc_interval[1]
    assert found.epsilon_lower > 1.5
    assert (found.claim, found.verdict) == (None, "no claim")
    assert found.tpr[0.01] >= found.tpr[0.001] >= 0
    assert found.guesses == 40
    assert "Nothing is claimed" in found.in_words()


def test_an_honest_public_set_tells_less() -> None:
    assert audit(view="coordinator").auc < audit(view="coordinator", forged=True).auc - 0.2


@pytest.mark.parametrize("view", ["observer", "member", "model"])
def test_other_views_see_something(view: str) -> None:
    found = audit(view=view)
    assert 0 <= found.auc <= 1
    assert (found.auc > 0.85) == (view == "model")  # a tree knows its records by heart


def test_one_communication_tells_less_than_all() -> None:
    net = cg.TorchClassifier("mlp", lr=0.03, random_state=0)
    there, method = sites(net, records=100), cg.FedCT(rounds=4, period=2, steps=30)
    found = {view: audit(method, there, view=view, forged=True, canaries=50) for view in ("coordinator", "glance")}
    assert found["glance"].unread == {}
    assert 0.55 < found["glance"].auc < found["coordinator"].auc
    assert "looks once" in found["glance"].in_words()
    alone = audit(cg.FedCT(rounds=1), view="glance", forged=True)
    assert alone.auc == audit(cg.FedCT(rounds=1), forged=True).auc


def test_sums_of_secret_votes_tell_less_than_votes() -> None:
    secret = audit(cg.FedCT(rounds=2, votes="secret"), view="secret", forged=True)
    assert 0.6 < secret.auc < audit(forged=True).auc
    with pytest.raises(ConfigError, match="shows nothing about single records"):
        audit(cg.FedCT(rounds=2), view="secret")


def test_weights_of_all_rounds_are_attacked() -> None:
    net = cg.TorchClassifier("mlp", lr=0.03)  # which learns a hundred records by heart
    found = audit(cg.FedAvg(rounds=1, local_epochs=30), sites(net, records=100), None, view="weights", canaries=50)
    assert found.auc > 0.7
    assert found.unread == {}


def test_a_private_learner_keeps_its_claim() -> None:
    private = cg.PrivateVoting(DecisionTreeClassifier(max_depth=3), teachers=10, epsilon=1.0, queries=40)
    found = audit(cg.FedCT(rounds=1), sites(private), forged=True)
    assert found.claim is not None
    assert found.claim.epsilon == pytest.approx(1)
    assert found.verdict == "consistent"
    assert found.epsilon_lower <= 1
    assert found.relation == "add_remove"
    assert "proves nothing beyond this attack" in found.in_words()


def test_replacing_a_record_is_what_a_claim_about_that_is_audited_by() -> None:
    private = cg.PrivateVoting(teachers=5, epsilon=1.0, queries=20, relation="replace")
    assert audit(cg.FedCT(rounds=1), sites(private), forged=True).relation == "replace"


def test_a_nominal_number_is_no_claim_whatever_else_cost_nothing() -> None:
    nominal = cg.RandomizedResponse(epsilon=50.0, sensitivity="observed_max_change", neighbours=1)
    found = audit(cg.FedCT(rounds=1, mechanism=nominal, votes="secret"), view="secret", forged=True)
    assert found.epsilon_lower > 0
    assert (found.claim, found.verdict) == (None, "no claim")


def test_a_conditional_claim_about_replacing_is_audited_by_that() -> None:
    assumed = cg.RandomizedResponse(epsilon=0.05, sensitivity="assumed_stability", stability_rate=0.01)
    found = audit(cg.FedCT(rounds=1, mechanism=assumed, votes="secret"), view="secret", forged=True)
    assert found.claim is not None
    assert (found.claim.kind, found.claim.relation, found.relation) == ("conditional", "replace", "replace")


def test_a_claim_about_sites_that_come_or_go_permits_twice_as_much_about_a_record() -> None:
    claim = accountant.claim([Charge((Pure(1, 0.7),), unit="party", relation="add_remove")], delta=1e-5)
    permitted, delta = _about_one_record(claim)
    assert permitted == pytest.approx(2 * claim.epsilon)
    assert delta == pytest.approx((1 + np.exp(claim.epsilon)) * 1e-5)
    other = replace(claim, relation="replace")
    assert _about_one_record(other) == (claim.epsilon, claim.delta)
    assert _about_one_record(replace(claim, epsilon=1e7)) == (2e7, 1.0)


def test_a_public_set_of_lists() -> None:
    assert audit(public=PUBLIC.tolist(), forged=True).auc == audit(forged=True).auc


def test_a_learner_that_lies_is_caught() -> None:
    found = audit(cg.FedCT(rounds=1), sites(Boastful(epsilon=0.1)), forged=True)
    assert found.claim is not None
    assert found.epsilon_lower > found.claim.epsilon
    assert found.verdict == "contradicts the claim"
    assert "contradicts it" in found.in_words()


def test_a_mechanism_has_a_claim_about_labels_and_none_about_the_model() -> None:
    noisy = cg.FedCT(rounds=1, mechanism=cg.RandomizedResponse(epsilon=0.02))
    told = audit(noisy, forged=True)
    assert told.claim is not None
    assert told.claim.kind == "dp"
    assert told.verdict == "consistent"
    assert audit(noisy, view="model").claim is None


def test_the_second_public_set_of_an_adaptive_coordinator_costs_as_much_again() -> None:
    noisy = cg.FedCT(rounds=1, mechanism=cg.RandomizedResponse(epsilon=0.02))
    once, twice = audit(noisy, forged="static").claim, audit(noisy, forged="adaptive").claim
    assert once is not None
    assert twice is not None
    assert twice.epsilon > 1.2 * once.epsilon
    assert audit(forged="adaptive").auc > 0.8


@pytest.mark.slow
def test_shadow_runs_make_the_attack_stronger() -> None:
    alone, helped = (audit(forged=True, kinds="ordinary", canaries=60, shadows=shadows) for shadows in (0, 16))
    assert helped.attack == "lira"
    assert helped.shadows == 16
    assert helped.auc > alone.auc
    assert audit(forged=True, shadows=3).attack == "rmia"


@pytest.mark.slow
def test_the_same_seed_gives_the_same_audit_whatever_the_workers() -> None:
    first, again = (audit(forged=True, shadows=2, canaries=40, workers=workers) for workers in (0, 2))
    assert first.to_plain() | {"seconds": 0} == again.to_plain() | {"seconds": 0}


def test_kinds_of_canaries_are_told_apart() -> None:
    found = audit(forged=True, kinds={"ordinary": 1, "mislabelled": 1, "out_of_distribution": 1, "duplicated": 1})
    assert set(found.by_kind) == {"ordinary", "mislabelled", "out_of_distribution", "duplicated"}
    assert found.by_kind["mislabelled"].auc > found.by_kind["ordinary"].auc
    assert found.guesses < 40  # those that are there four times are no record


def test_data_frames_with_words_and_labels_that_are_words() -> None:
    X, y = two_classes(600)
    frame = pd.DataFrame(X, columns=list("abcdef")).assign(w=np.where(X[:, 2] > 0, "yes", "no"))
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    words = make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore"), make_column_selector(dtype_exclude=np.number)), remainder="passthrough"
    )
    learner = make_pipeline(words, DecisionTreeClassifier())
    named = np.array(["healthy", "ill"])[y]
    attacked = [cg.Site(f"site{i}", frame[i::3], named[i::3], learner=learner) for i in range(3)]
    assert audit(attacked=attacked, public=frame.iloc[:50], forged=True).auc > 0.8


def test_an_audit_spends_nothing(tmp_path: Any) -> None:
    budget = cg.Budget(1.0, ledger=tmp_path / "site.db")
    noisy = cg.FedCT(rounds=1, mechanism=cg.RandomizedResponse(epsilon=0.001))
    audit(noisy, sites(budget=budget), forged=True)
    assert not (tmp_path / "site.db").exists()


def test_it_is_written_and_read_back_and_fits_its_schema(tmp_path: Any) -> None:
    found = audit(cg.FedCT(rounds=1), sites(Boastful()), forged=True)
    text = found.to_json(tmp_path / "audit.json")
    assert cg.Audit.from_json((tmp_path / "audit.json").read_text()) == found
    jsonschema.validate(json.loads(text), schema())
    for broken in ("{}", "[]", text.replace('"format": 1', '"format": 9'), text.replace('"auc": ', '"auc": -')):
        with pytest.raises(ConfigError):
            cg.Audit.from_json(broken)


def test_no_record_is_in_what_is_written(tmp_path: Any) -> None:
    attacked = sites()
    found = audit(attacked=attacked, forged=True)
    page = found.report(tmp_path / "audit.html").read_text()
    for value in attacked[0].X[:, 0]:
        assert repr(float(value))[:8] not in page + found.to_json()


def test_mistakes_are_told() -> None:
    with pytest.raises(SiteError, match="too small for an audit"):
        audit(attacked=sites(records=30))
    with pytest.raises(ConfigError, match="there is no site 'sit0'; there are site0, site1, site2"):
        audit(site="sit0")
    with pytest.raises(ConfigError, match="view must be one of observer, member"):
        audit(view="owner")
    with pytest.raises(ConfigError, match="Local releases nothing from 'site0'"):
        audit(cg.Local())
    with pytest.raises(ConfigError, match="only a coordinator chooses the public set"):
        audit(view="model", forged=True)
    with pytest.raises(ConfigError, match="forged must be True, False"):
        audit(forged="yes")
    with pytest.raises(ConfigError, match="there is only one"), pytest.warns(CollegiumWarning, match="only one site"):
        audit(attacked=sites(number=1), view="member")
    with pytest.raises(ConfigError, match="lira compares with shadow runs"):
        audit(attack="lira")
    with pytest.raises(ConfigError, match="attack must be one of"):
        audit(attack="guess")
    with pytest.raises(ConfigError, match="alpha"):
        audit(alpha=0.0)
    with pytest.raises(ConfigError, match="canaries"):
        audit(canaries=0)
    with pytest.raises(ConfigError, match="pass 20 or more"):
        audit(canaries=2)
    with pytest.warns(CollegiumWarning, match="half of them, 150, become canaries, not 5000"):
        audit(canaries=5000)


def test_a_set_that_cannot_be_forged_is_told() -> None:
    with pytest.raises(ConfigError, match="no room for a forged row"):
        audit(cg.FedAvg(rounds=1), sites(cg.TorchClassifier("linear")), None, forged=True)
    with pytest.raises(ConfigError, match="pins the public set, so there is no room for a forged row"):
        audit(attacked=sites(policy=cg.Policy(public_sha256="0" * 64)), forged=True)
    with pytest.raises(ConfigError, match="has its own copy"):
        audit(attacked=sites(public=PUBLIC), forged=True)


def test_a_site_that_refuses_is_told() -> None:
    strict = sites(policy=cg.Policy(max_release_bytes=1))
    with pytest.raises(ConfigError, match=r"site 'site0' refuses what FedCT asks for \(too-large\)"):
        audit(attacked=strict)


class Fragile(LogisticRegression):
    """Cannot be fitted on some samples of the records."""

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Any:
        if len(y) % 3:
            raise RuntimeError("record 17 is odd")
        return super().fit(X, y, sample_weight)


def test_shadows_that_fail_are_told_without_a_record() -> None:
    with pytest.raises(ConfigError) as told:
        audit(cg.FedCT(rounds=1), sites(Fragile(), number=2, records=240), shadows=6, seed=3)
    assert "record 17" not in str(told.value)


class OnlyTheFirst(DecisionTreeClassifier):
    """Answers only for as many records as it was first fitted on."""

    size: int | None = None

    def fit(self, X: Any, y: Any) -> Any:
        OnlyTheFirst.size = OnlyTheFirst.size or len(y)
        self.size_ = len(y)
        return super().fit(X, y)

    def predict_proba(self, X: Any) -> Any:
        if self.size_ != OnlyTheFirst.size:
            raise RuntimeError(f"no answer for record {X[17]}")
        return super().predict_proba(X)


def test_what_a_shadow_run_raises_is_told_by_its_kind_alone() -> None:
    attacked = sites()
    attacked[0] = cg.Site("site0", attacked[0].X, attacked[0].y, learner=OnlyTheFirst())
    with pytest.raises(ConfigError, match=r"\d of 6 shadow runs failed \(first: RuntimeError\)") as told:
        audit(cg.Local(), attacked, None, view="model", shadows=6)
    assert "record [" not in str(told.value)


class Counting(Boastful):
    """Notes how many records it is fitted on; its claim is about replacing one."""

    seen: list[int] = []  # noqa: RUF012

    def charge(self, n_records: int, n_public: int, n_classes: int) -> Any:
        return replace(super().charge(n_records, n_public, n_classes), relation="replace")

    def fit_private(self, X: Any, y: Any, public: Any, *more: Any, **settings: Any) -> Any:
        Counting.seen.append(len(y))
        return super().fit_private(X, y, public, *more, **settings)


def test_a_canary_that_is_not_there_leaves_its_place_to_the_record_it_was_made_from() -> None:
    Counting.seen.clear()
    attacked = sites()
    attacked[0] = cg.Site("site0", attacked[0].X, attacked[0].y, learner=Counting())
    assert audit(cg.FedCT(rounds=1), attacked, shadows=2).relation == "replace"
    assert Counting.seen == [300] * 3


def test_one_release_without_a_claim_leaves_none_for_the_whole() -> None:
    noisy = {"rounds": 1, "mechanism": cg.RandomizedResponse(epsilon=0.02)}
    assert audit(cg.FedCT(**noisy)).claim is not None
    counted = audit(cg.FedCT(**noisy, consensus=cg.WeightedMajority("samples")))  # how many records is told as it is
    assert (counted.claim, counted.verdict) == (None, "no claim")


def _nets_in_shadows(cohort: str, **settings: Any) -> tuple[cg.Audit, list[Any]]:
    """An audit of nets, and what the attacker read in each of its runs."""
    net = cg.TorchClassifier("linear", lr=0.05, epochs=2)
    attacked = sites(net, records=60, number=2)
    seen: list[Any] = []

    def keep(evidence: Any, *given: Any, **named: Any) -> Any:
        seen.extend(evidence)
        return gather(evidence, *given, **named)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("collegium.auditing.audit.gather", keep)
        return audit(cg.FedCT(rounds=2), attacked, canaries=30, cohort=cohort, **settings), seen


@pytest.mark.parametrize("forged", [False, "adaptive"])
def test_nets_of_shadow_runs_are_trained_together_with_the_same_results(forged: Any) -> None:
    alone, of_each = _nets_in_shadows("off", shadows=5, forged=forged, view="model" if not forged else "coordinator")
    found, of_all = _nets_in_shadows("on", shadows=5, forged=forged, view="model" if not forged else "coordinator")
    assert (alone.together, found.together) == (0, 5)
    assert len(of_each) == len(of_all) == 6
    for one, other in zip(of_each, of_all, strict=True):
        assert one.readings.keys() == other.readings.keys()
        for name, reading in one.readings.items():
            np.testing.assert_allclose(other.readings[name].values, reading.values, atol=1e-4)
    assert replace(found, together=0, seconds=0) == replace(alone, seconds=0)
    assert cg.Audit.from_json(found.to_json()) == found


def test_shadow_runs_beyond_so_many_sites_take_place_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("collegium.auditing.shadows.SITES_AT_ONCE", 4)
    assert _nets_in_shadows("on", shadows=5)[0].together == 4  # two, two, and one alone


def test_a_shadow_run_that_fails_keeps_nobody_waiting() -> None:
    class Fragile(cg.FedCT):
        def coordinate(self, fed: Any) -> None:
            super().coordinate(fed)
            if fed.seed % 3 == 0:  # two of six, while the others go on
                raise RuntimeError
            super().coordinate(fed)

    net = cg.TorchClassifier("linear", lr=0.05, epochs=1)
    found = audit(Fragile(rounds=2), sites(net, records=60, number=2), canaries=30, cohort="on", shadows=6, seed=0)
    assert (found.shadows, found.together) == (4, 4)
