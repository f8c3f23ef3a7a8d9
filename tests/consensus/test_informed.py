"""Informed: votes count by what each site knows of its own mistakes, and as far as the others bear it out."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.tree import DecisionTreeClassifier
from tests.consensus.meetings import say

import collegium as cg
from collegium.core.folds import deal_folds
from collegium.errors import ConfigError

RNG = np.random.default_rng(0)
TRUTH = (RNG.random(3000) < 0.4).astype(int)


@pytest.fixture(autouse=True)
def _own_draws() -> None:
    """Every test draws the same, whichever tests ran before it."""
    RNG.bit_generator.state = np.random.default_rng(1).bit_generator.state


def says(accuracy: float, truth: np.ndarray = TRUTH) -> np.ndarray:
    return np.where(RNG.random(len(truth)) < accuracy, truth, 1 - truth)


def counts(accuracy: float, rows: int = 100) -> np.ndarray:
    right = round(accuracy * rows)
    return np.array([[right, rows - right], [rows - right, right]], dtype=float)


def labels(votes: list[np.ndarray], own: list[np.ndarray], **settings: object) -> np.ndarray:
    return cg.Informed(**settings).estimate(np.stack(votes), np.stack(own))[0].argmax(axis=1)


def test_one_good_site_is_heard_among_three_that_know_they_guess() -> None:
    votes = [says(0.95), *(says(0.55) for _ in range(3))]
    found = labels(votes, [counts(0.95), *(counts(0.55) for _ in range(3))])
    assert np.mean(found == TRUTH) > 0.94
    assert np.mean((np.sum(votes, axis=0) + RNG.random(3000) - 0.5 > 2) == TRUTH) < 0.8  # the majority


def test_a_site_that_always_says_the_same_tells_nothing() -> None:
    constant, own = np.zeros(3000, dtype=int), np.array([[60.0, 0.0], [40.0, 0.0]])
    good = [says(0.85), says(0.8)]
    np.testing.assert_array_equal(
        labels([*good, constant, constant], [counts(0.85), counts(0.8), own, own]),
        labels(good, [counts(0.85), counts(0.8)]),
    )


def test_a_class_that_a_site_has_never_seen_is_unknown_to_it() -> None:
    truth = RNG.integers(3, size=3000)
    knows_all = np.where(RNG.random(3000) < 0.7, truth, RNG.integers(3, size=3000))
    knows_two = np.where(truth == 2, RNG.integers(2, size=3000), truth)  # never wrong on what it knows
    full = np.full((3, 3), 10.0) + 60 * np.eye(3)
    found = labels([knows_all, knows_two], [full, np.diag([50.0, 50.0, 0.0])])
    assert np.mean(found[truth == 2] == 2) > 0.6
    assert np.mean(found == truth) > np.mean(knows_all == truth)


@pytest.mark.parametrize("liars", [1, 2, 3])
def test_three_in_ten_sites_that_flip_and_claim_to_be_right_are_not_believed(liars: int) -> None:
    votes = [1 - says(0.95) for _ in range(liars)] + [says(0.75) for _ in range(10 - liars)]
    own = [counts(0.95)] * liars + [counts(0.75)] * (10 - liars)
    posterior, belief = cg.Informed().estimate(np.stack(votes), np.stack(own))
    assert belief[:liars].max() < 0.3
    assert belief[liars:].min() > 0.7
    assert np.mean(posterior.argmax(axis=1) == TRUTH) > 0.9
    believing = labels(votes, own, doubt=False)
    assert liars < 3 or np.mean(believing == TRUTH) < 0.7


def test_counts_leave_once_and_are_in_the_ledger_as_unprotected(cancer) -> None:
    run = cancer.run(cg.FedCT(rounds=3, consensus=cg.Informed()))
    told = run.releases[run.releases["step"] == "informed.count_answers"]
    assert len(told) == 5
    assert set(told["kind"]) == {"AnswerCounts"}
    assert set(told["round"]) == {0}
    assert set(told["bytes"]) == {2 * 2 * 8}
    assert not told["protected"].any()
    assert run.accuracy.iloc[-1].mean() > 0.85
    noted = run.metrics.query("metric == 'belief'")
    assert len(noted) == 15
    assert noted["value"].between(0, 1).all()


def test_asking_for_counts_leaves_the_sites_own_training_as_it_was(cancer) -> None:
    learner = DecisionTreeClassifier(max_features=3)  # which draws features at random
    plain = cancer.run(cg.FedCT(rounds=1), learner)
    informed = cancer.run(cg.FedCT(rounds=1, consensus=cg.Informed()), learner)
    assert plain.accuracy.equals(informed.accuracy)


def test_with_epsilon_the_counts_are_charged_and_protected(cancer) -> None:
    run = cancer.run(cg.FedCT(rounds=2, consensus=cg.Informed(epsilon=2.0, blocks=5)))
    told = run.releases[run.releases["step"] == "informed.add_up_blocks"]
    assert len(told) == 5
    assert told["protected"].all()
    claims = run.privacy[run.privacy["kind"] == "dp"]
    assert len(claims) == 5
    assert claims["epsilon"].to_numpy() == pytest.approx(2.0, rel=1e-3)
    assert set(claims["relation"]) == {"add_remove"}
    assert any("at most 2.0 in all" in text for text in claims["assumptions"])


def test_a_site_that_refuses_to_tell_counts_all_the_same(cancer) -> None:
    sites = cancer.sites(DecisionTreeClassifier())
    shy = cg.Policy(unprotected=["HardLabels"])
    sites[0] = cg.Site(sites[0].name, sites[0].X, sites[0].y, learner=sites[0].learner, policy=shy)
    with pytest.warns(cg.CollegiumWarning, match="count_answers, unprotected"):
        run = cancer.run(cg.FedCT(rounds=2, consensus=cg.Informed()), sites=sites)
    assert len(run.releases.query("party == 'site0' and kind == 'HardLabels'")) == 2
    assert run.labels.known.all()


def test_a_useless_site_does_not_matter(cancer) -> None:
    sites = cancer.sites(DecisionTreeClassifier(random_state=0))
    for i in (0, 1, 2):
        sites[i] = cg.Site(f"useless{i}", sites[i].X, sites[i].y, learner=DummyClassifier())
    truth = {"public_truth": cancer.split.public_truth}
    quality = {
        type(rule).__name__: cancer.run(cg.FedCT(rounds=1, consensus=rule), sites=sites, **truth)
        .metrics.query("metric == 'consensus_quality'")["value"]
        .iloc[-1]
        for rule in (cg.Majority(), cg.Informed())
    }
    assert quality["Informed"] > 0.85 > quality["Majority"]


def test_a_private_learner_is_not_asked_for_one_more_use_of_its_rows(cancer) -> None:
    sites = cancer.sites(cg.PrivateVoting(DecisionTreeClassifier(), epsilon=5.0, teachers=3))
    run = cancer.run(cg.FedCT(rounds=2, consensus=cg.Informed(epsilon=1.0)), sites=sites)
    assert run.releases["protected"].all()
    assert run.privacy["epsilon"].max() == pytest.approx(5.0, rel=1e-3)


def test_fedkt_and_aimhi_take_it(cancer) -> None:
    rule = cg.Informed()
    for algorithm in (cg.FedKT(subsets=2, consensus=rule), cg.AIMHI(rounds=2, period=1, consensus=rule)):
        run = cancer.run(algorithm)
        assert run.refusals.empty
        assert "AnswerCounts" in set(run.releases["kind"])


def test_secret_votes_cannot_be_weighed() -> None:
    with pytest.raises(ConfigError, match="Informed compares the votes of single sites"):
        cg.FedCT(consensus=cg.Informed(), votes="secret")


def test_every_class_is_dealt_evenly_over_the_folds() -> None:
    codes = np.repeat([0, 1, 2], [11, 5, 2])
    fold_of = deal_folds(codes, 5, np.random.default_rng(0))
    for code in range(3):
        sizes = np.bincount(fold_of[codes == code], minlength=5)
        assert sizes.max() - sizes.min() <= 1
    assert np.ptp(np.bincount(fold_of, minlength=5)) <= 1


def test_copies_of_a_bad_site_count_once(meeting) -> None:
    good = [says(0.8) for _ in range(3)]
    copied = says(0.6)
    apart = cg.Informed()(meeting([*good, copied], n_classes=2), say())
    copies = meeting([*good, *[copied] * 6], n_classes=2)
    assert cg.Informed()(copies, say()) == apart
    assert np.mean(cg.Majority()(copies, say()).codes == TRUTH) < 0.65 < np.mean(apart.codes == TRUTH)


def test_a_site_that_seldom_speaks_is_not_believed_for_that() -> None:
    speaks = RNG.random(3000) < 0.2
    liar = np.where(speaks, 1 - says(0.95), -1)
    votes = [liar, *(says(0.8) for _ in range(4))]
    posterior, belief = cg.Informed().estimate(np.stack(votes), np.stack([counts(0.95), *[counts(0.8)] * 4]))
    assert belief[0] < 0.3
    assert belief[1:].min() > 0.8
    assert np.mean(posterior.argmax(axis=1) == TRUTH) > 0.88  # four votes that are right in .8 give .896


def test_where_others_are_silent_a_site_that_is_not_believed_decides_nothing(meeting) -> None:
    votes = np.stack([1 - says(0.95) for _ in range(3)] + [says(0.9) for _ in range(7)])
    votes[3:, :500] = -1  # there, only those speak whose labels are flipped
    fed = meeting(votes, n_classes=2)
    fed.kept["informed"] = {f"s{i}": counts(0.95) for i in range(10)}
    found = cg.Informed()(fed, say())
    assert not found.known[:500].any()
    assert found.known[500:].all()
    assert np.mean(found.codes[500:] == TRUTH[500:]) > 0.95
    trusting = meeting(votes, n_classes=2)
    trusting.kept["informed"] = fed.kept["informed"]
    assert cg.Informed(doubt=False)(trusting, say()).known.all()


def test_where_most_sites_are_in_doubt_every_vote_counts(meeting) -> None:
    truth = np.arange(3000) % 3
    # Each knows one class and is alone with it.
    votes = np.stack([np.where(truth == code, code, -1) for code in range(3)])
    votes[:, ::10] = RNG.integers(3, size=(3, 300))
    fed = meeting(votes, n_classes=3)
    fed.kept["informed"] = {f"s{i}": 50.0 * np.diag(np.arange(3) == i) for i in range(3)}
    assert cg.Informed()(fed, say()).known.all()


def test_where_sites_abstain_votes_count_as_sites_are_believed_and_not_by_what_they_know_of_other_rows() -> None:
    careful = [np.where(RNG.random(3000) < 0.7, says(0.95), -1) for _ in range(4)]  # they speak where they are right
    votes, own = [*careful, says(0.7)], [*[counts(0.6)] * 4, counts(0.9)]
    found = labels(votes, own)
    two = (np.stack(careful) == 1 - votes[-1]).sum(axis=0) == 2
    outvoted = two & ((np.stack(careful) >= 0).sum(axis=0) == 2)
    assert outvoted.sum() > 100
    np.testing.assert_array_equal(found[outvoted], 1 - votes[-1][outvoted])
    assert np.mean(found == TRUTH) > 0.9


OPINION = np.stack([0.5 + 0.4 * (1 - 2 * TRUTH), 0.5 - 0.4 * (1 - 2 * TRUTH)], axis=1)  # .9 for the true class


def test_what_a_model_says_of_made_up_rows_is_held_against_the_votes() -> None:
    votes, own = np.stack([says(0.7), says(0.7)]), np.stack([counts(0.7)] * 2)
    without, _ = cg.Informed().estimate(votes, own)
    found, belief = cg.Informed().estimate(votes, own, opinion=OPINION)
    assert np.mean(without.argmax(axis=1) == TRUTH) < 0.75
    assert np.mean(found.argmax(axis=1) == TRUTH) == 1  # two at .7 are outvoted by .9
    assert belief.min() > 0.7
    sure = np.stack([says(0.99), says(0.99)])
    found, _ = cg.Informed().estimate(sure, np.stack([counts(0.99)] * 2), opinion=OPINION[:, ::-1])
    assert np.mean(found.argmax(axis=1) == TRUTH) > 0.95  # and two at .99 outvote it


def test_a_class_nobody_voted_for_can_be_right_where_a_model_says_so() -> None:
    truth = RNG.integers(3, size=900)
    opinion = np.full((900, 3), 0.02)
    opinion[np.arange(900), truth] = 0.96
    votes = np.stack([np.where(truth == 2, 0, truth)] * 2)  # neither site has ever seen the last class
    own = np.stack([np.diag([50.0, 50.0, 0.0])] * 2)
    assert not (cg.Informed().estimate(votes, own)[0].argmax(axis=1) == 2).any()
    np.testing.assert_array_equal(cg.Informed().estimate(votes, own, opinion=opinion)[0].argmax(axis=1), truth)


def test_a_model_that_rules_a_class_out_can_be_outvoted() -> None:
    truth = np.arange(300) % 2
    impossible = np.eye(2)[1 - truth]
    votes, own = np.stack([truth] * 6), np.stack([counts(0.99)] * 6)
    np.testing.assert_array_equal(cg.Informed().estimate(votes, own, opinion=impossible)[0].argmax(axis=1), truth)


def test_where_sites_abstain_the_opinion_of_a_model_counts_like_one_more_vote(meeting) -> None:
    votes = [[0, 0, 0, -1], [1, 0, -1, -1], [-1, 2, -1, -1]]
    opinion = np.array([[0.1, 0.8, 0.1]] * 4)
    fed = meeting(votes)
    fed.kept["informed"] = {f"s{i}": np.zeros((3, 3)) for i in range(3)}
    assert cg.Informed(doubt=False)(fed, say()).codes.tolist()[2:] == [0, -1]
    fed.opinion = opinion  # it decides where votes are even; two votes of three, or the only one, stand
    assert cg.Informed(doubt=False)(fed, say()).codes.tolist() == [1, 0, 0, -1]
    fed.opinion = opinion[:, [1, 0, 2]]
    assert cg.Informed(doubt=False)(fed, say()).codes.tolist() == [0, 0, 0, -1]


@pytest.mark.parametrize(("voted", "wrong", "labelled"), [(100, 2, True), (100, 3, False), (20, 0, False)])
def test_rows_nobody_votes_on_get_the_class_a_model_is_sure_of_where_votes_bear_it_out(
    meeting, voted: int, wrong: int, labelled: bool
) -> None:
    sure, unsure = np.array([0.04, 0.95, 0.01]), np.array([0.1, 0.8, 0.1])
    silent, unsettled = [-1, -1], [0] * 50
    said = [1] * (voted - wrong) + [2] * wrong + unsettled + silent
    fed = meeting([said, [*said[:10], *[-1] * (len(said) - 10)]])  # the other one votes on few rows
    fed.kept["informed"] = {f"s{i}": np.zeros((3, 3)) for i in range(2)}
    fed.opinion = np.stack([sure] * voted + [unsure] * 50 + [sure, unsure])  # what it is unsure of tells nothing of it
    assert cg.Informed(doubt=False)(fed, say()).codes.tolist()[-2:] == [1 if labelled else -1, -1]


def test_what_only_sites_that_are_not_believed_vote_on_gets_the_models_class_or_none(meeting) -> None:
    truth = RNG.integers(2, size=600)
    good = [np.where(np.arange(600) < 400, says(0.97, truth), -1) for _ in range(7)]
    bad = [np.where(RNG.random(600) < 0.9, 1 - truth, truth) for _ in range(3)]
    fed = meeting([*good, *bad], n_classes=2)
    fed.kept["informed"] = {f"s{i}": counts(0.95) for i in range(10)}
    assert (cg.Informed()(fed, say()).codes[400:] == -1).all()
    fed.opinion = np.stack([0.08 + 0.84 * (truth == code) for code in range(2)], axis=1)
    assert cg.Informed()(fed, say()).codes[400:].tolist() == truth[400:].tolist()
    assert fed.confidences is not None
    np.testing.assert_allclose(fed.confidences[400:], 0.92)
    assert (cg.Informed(confidence=0.93)(fed, say()).codes[400:] == -1).all()


def test_copies_of_a_site_that_is_not_believed_decide_nothing(meeting) -> None:
    truth = RNG.integers(2, size=600)
    good = [np.where(np.arange(600) < 400, says(0.97, truth), -1) for _ in range(5)]
    liar = np.where(RNG.random(600) < 0.9, 1 - truth, truth)
    opinion = np.stack([0.04 + 0.92 * (truth == code) for code in range(2)], axis=1)
    for copies in (1, 4):
        fed = meeting([*good, *[liar] * copies], n_classes=2)
        fed.kept["informed"] = {f"s{i}": counts(0.95) for i in range(5 + copies)}
        assert (cg.Informed()(fed, say()).codes[400:] == -1).all()
        fed.opinion = opinion
        assert cg.Informed()(fed, say()).codes[400:].tolist() == truth[400:].tolist()


def test_votes_that_are_even_bear_no_model_out(meeting) -> None:
    said = RNG.integers(2, size=300)
    fed = meeting([[*said, -1], [*(1 - said), -1]], n_classes=2)
    fed.kept["informed"] = {f"s{i}": np.zeros((2, 2)) for i in range(2)}
    fed.opinion = np.stack([0.04 + 0.92 * (np.append(said, 1) == code) for code in range(2)], axis=1)
    assert cg.Informed(doubt=False)(fed, say()).codes[-1] == -1


def test_a_rule_asks_what_the_model_of_these_rows_says(meeting) -> None:
    fed = meeting([[0, 1, 2], [0, 1, 2]])
    fed.kept["informed"] = {f"s{i}": np.zeros((3, 3)) for i in range(2)}
    assert cg.Informed()(fed, say()).codes.tolist() == [0, 1, 2]
    fed.opinion = np.array([[0.999, 0.0005, 0.0005], [0.999, 0.0005, 0.0005], [0.1, 0.1, 0.8]])
    assert cg.Informed()(fed, say()).codes.tolist() == [0, 0, 2]
    assert fed.confidences is not None
    assert fed.confidences[0] > 0.99
