"""What the semi-supervised methods share: who is drawn, who has nothing to learn, who drops out, and that it helps."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.algorithms.few_labels import accuracy, disturbed, net, run, sites
from tests.algorithms.nets import same, weights

import collegium as cg
from collegium.algorithms._semi_supervised import class_weights, sample
from collegium.core import Federation
from collegium.errors import ConfigError, QuorumLost, SiteError

SETTINGS: dict[str, Any] = {"rounds": 3, "local_steps": 5}
EXACT = cg.XCLP(bits=None, k=5)
PSEUDO: dict[str, cg.Algorithm] = {
    "fedavg_xclp": cg.FedAvgXCLP(**SETTINGS, xclp=EXACT),
    "fedavg_llp": cg.FedAvgLLP(**SETTINGS),
    "fedavg_pseudo": cg.FedAvgPseudo(**SETTINGS),
    "fedsem": cg.FedSem(**SETTINGS),
}
EVERY = PSEUDO | {"fedmatch": cg.FedMatch(**SETTINGS, every=1), "fedsiam": cg.FedSiam(**SETTINGS)}
every_method = pytest.mark.parametrize("method", EVERY.values(), ids=EVERY)


class Silent:
    """A link without sites, for what the coordinator draws by itself."""

    def __init__(self, parties: list[str]) -> None:
        self.parties = tuple(parties)

    def exchange(self, orders: Any, deadline: float | None) -> Any:
        raise AssertionError("nobody is asked")


def test_classes_that_are_found_seldom_may_weigh_more() -> None:
    weighed = class_weights(np.array([0, 0, 0, 2]), 3)
    np.testing.assert_allclose(weighed, [2 / 3, 2 / 3, 2 / 3, 2])
    assert weighed.mean() == 1
    plain, even = (cg.FedAvgPseudo(**SETTINGS, class_weights=choice) for choice in (False, True))
    assert not same(weights(run(plain).global_model), weights(run(even).global_model))


def test_the_rate_falls_in_every_round_and_a_second_run_goes_on_with_it() -> None:
    whole = cg.FedAvgPseudo(rounds=4, anneal=8)
    assert [whole.rate(t) for t in range(4)] == pytest.approx([1.0, 0.962, 0.854, 0.691], abs=1e-3)
    assert cg.FedAvgPseudo(rounds=2, anneal=8, first_round=2).rate(1) == whole.rate(3)
    assert cg.FedAvgPseudo(rounds=9, anneal=8).rate(8) == 0
    assert cg.FedAvgPseudo(rounds=9).rate(8) == 1
    at_rest = cg.FedAvgPseudo(rounds=2, local_steps=2, anneal=1, first_round=1)
    start = weights(run(cg.FedAvgPseudo(rounds=1, local_steps=2)).global_model)
    assert same(weights(run(replace(at_rest, start=start)).global_model), start)  # at a rate of 0 nothing is learned
    assert not same(weights(run(replace(at_rest, start=start, first_round=0)).global_model), start)


@every_method
def test_a_site_may_have_only_labels_or_only_rows_without(method: cg.Algorithm) -> None:
    who = sites(labels=(0, 60, 8, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cg.CollegiumWarning)  # of who did not answer, which is looked at below
        result = run(method, who)
    assert list(result.models) == ["a", "b", "c", "d"]
    if isinstance(method, cg.FedAvgLLP):  # which finds nothing at a site without labels
        assert {*zip(result.refusals["party"], result.refusals["code"], strict=True)} == {("a", "nothing-to-learn")}
    else:
        assert result.refusals.empty


@every_method
def test_a_site_with_nothing_is_refused_before_the_run(method: cg.Algorithm) -> None:
    empty = cg.Site("empty", np.zeros((0, 64), np.float32), np.zeros(0, int), learner=net())
    with pytest.raises(SiteError, match=r"'empty'.*no samples"):
        run(method, [*sites(), empty])


@every_method
def test_without_any_labels_it_ends_and_says_so(method: cg.Algorithm) -> None:
    with pytest.raises(ConfigError, match="no site has any"):
        run(method, sites(labels=0))


def test_it_ends_where_no_site_that_answers_has_labels() -> None:
    who = sites(labels=(8, 0, 0, 0))
    who[0] = cg.Site("a", who[0].X, who[0].y, learner=net(), policy=cg.Policy(steps=()))
    with pytest.raises(QuorumLost, match="No site that answers has labels"):
        run(PSEUDO["fedavg_pseudo"], who)


@every_method
def test_a_site_that_drops_out_for_good_leaves_the_others_at_work(method: cg.Algorithm) -> None:
    steps = {"fedmatch": "fedmatch.update", "fedsiam": "fedsiam.update"}
    name = next(name for name, each in EVERY.items() if each is method)
    with disturbed(method, "c", steps.get(name, "semi_supervised.learn")) as (fed, link):
        assert {row["party"] for row in fed.observed.refusals} == {"c"}
        assert {row["code"] for row in fed.observed.refusals} == {"missing"}
        assert len(fed.final_weights) == 1
        assert "c" not in {party for party, _, _ in link.releases[-3:]}


@pytest.mark.slow
@every_method
def test_images_and_nets_with_batch_norm_and_dropout_are_learned_too(method: cg.Algorithm) -> None:
    learner = cg.TorchClassifier("cnn_cifar10", image_shape=(1, 8, 8), batch_size=8, augment=True)
    result = run(method, sites((20, 20, 20), labels=6, learner=learner), test_sites=False)
    assert result.refusals.empty
    assert result.accuracy.empty  # only the global model takes the test
    assert 0 <= accuracy(result) <= 1


@pytest.mark.parametrize("method", PSEUDO.values(), ids=PSEUDO)
def test_every_site_has_labels_of_its_own_points_in_the_end(method: cg.Algorithm) -> None:
    result = run(method)
    assert isinstance(result.labels, dict)
    for site in sites():
        assert result.labels[site.name].shape == result.confidences[site.name].shape == (len(site.unlabeled),)
        assert ((result.confidences[site.name] >= 0) & (result.confidences[site.name] <= 1)).all()


def test_labels_only_is_fedavg_which_leaves_other_rows_alone() -> None:
    bare = [cg.Site(s.name, s.X, s.y, learner=s.learner) for s in sites()]
    with_rows, without = (run(cg.FedAvg(**SETTINGS), who) for who in (sites(), bare))
    assert same(weights(with_rows.global_model), weights(without.global_model))
    with pytest.raises(SiteError, match=r"'a'.*no samples with labels for FedAvg.*Leave it out"):
        run(cg.FedAvg(**SETTINGS), sites(labels=(0, 8, 8, 8)))


def test_all_that_warms_up_is_fedavg() -> None:
    """But for the last round, in which points are labelled: so both have the same accuracy before it."""
    warm = run(cg.FedAvgPseudo(rounds=3, warm_up=2, local_steps=5)).metrics
    plain = run(cg.FedAvg(rounds=3, weighting="equal", local_steps=5)).metrics
    courses = [m.query("metric == 'global_accuracy'")["value"].tolist() for m in (warm, plain)]
    assert courses[0][:2] == courses[1][:2]


@pytest.mark.parametrize(
    ("labelled", "share", "known", "others"), [(50, 0.05, 3, 2), (100, 0.05, 5, 0), (1, 0.05, 1, 4), (100, 1, 100, 0)]
)
def test_sites_with_labels_and_without_are_drawn_in_the_same_share(
    labelled: int, share: float, known: int, others: int
) -> None:
    parties = [f"site{i}" for i in range(100)]
    fed = Federation(Silent(parties), run="run", n_classes=2, seed=0)
    with_labels = frozenset(parties[:labelled])
    draws = [sample(fed, with_labels, share) for _ in range(5)]
    for drawn in draws:
        assert drawn == [party for party in parties if party in set(drawn)]
        assert sum(party in with_labels for party in drawn) == known
        assert sum(party not in with_labels for party in drawn) == others
    assert share == 1 or len({tuple(drawn) for drawn in draws}) > 1


def test_a_site_that_missed_the_common_model_does_not_train_an_old_one() -> None:
    def lose(plain: Any) -> None:
        plain["samples"] = -1

    with disturbed(cg.FedAvgPseudo(**SETTINGS), "b", "semi_supervised.count_labels", lose) as (fed, _):
        assert {row["code"] for row in fed.observed.refusals} == {"bad-reply"}
    policy = cg.Policy(steps=("semi_supervised.count_labels", "semi_supervised.learn", "averaging.*"))
    who = sites()
    who[1] = cg.Site("b", who[1].X, who[1].y, unlabeled=who[1].unlabeled, learner=net(), policy=policy)
    with pytest.warns(cg.CollegiumWarning, match="'b'"):
        result = run(cg.FedAvgXCLP(**SETTINGS, xclp=EXACT), who)
    assert {"step-denied", "step-failed"} == set(result.refusals["code"])
    assert "did not get the common model" in "".join(result.logs["b"])


@pytest.mark.parametrize(
    ("make", "settings"),
    [
        (cg.FedAvgXCLP, {"warm_up": 20}), (cg.FedAvgXCLP, {"warm_up": -1}), (cg.FedAvgXCLP, {"weighting": "size"}),
        (cg.FedAvgXCLP, {"xclp": "xclp"}), (cg.FedAvgLLP, {"propagation": cg.XCLP()}),
        (cg.FedAvgPseudo, {"threshold": 1.5}), (cg.FedSem, {"threshold": True}), (cg.FedSem, {"warm_up": -2}),
        (cg.FedMatch, {"helpers": 0}), (cg.FedMatch, {"every": 0}), (cg.FedMatch, {"confidence": 2}),
        (cg.FedMatch, {"l1": -1}), (cg.FedMatch, {"supervised": float("nan")}), (cg.FedSiam, {"decay": 1}),
        (cg.FedSiam, {"consistency": -1}), (cg.FedSiam, {"ramp": 0}), (cg.FedSiam, {"decay": None}),
        (cg.FedSiam, {"decay": "x"}), (cg.FedSiam, {"decay": True}), (cg.FedSiam, {"decay": -0.1}),
        (cg.FedAvgPseudo, {"weighted": "no"}), (cg.FedSem, {"weighted": "no"}), (cg.FedSem, {"weighted": 1}),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_an_error(make: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"{make.__name__}: .*{next(iter(settings))}"):
        make(**settings)
