"""Majority and qualified majority: exact small cases, ties, memory, and what the coordinator sees."""

from __future__ import annotations

import hashlib
import tracemalloc
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier
from tests.consensus.meetings import Meetings, say
from tests.core.exchanges import last_comes_first

import collegium as cg
from collegium import wire
from collegium.core import Federation, Labels
from collegium.core.link import Answer
from collegium.errors import ConfigError
from collegium.wire.replies import Reply, Row, write_reply


def test_the_class_with_most_votes_wins(meeting: Meetings) -> None:
    fed = meeting([[0, 1, 2, 2], [0, 1, 1, 2], [1, 1, 2, 2]])
    assert cg.Majority()(fed, say()) == Labels(np.array([0, 1, 2, 2]), 3)


def test_only_the_parties_asked_are_counted(meeting: Meetings) -> None:
    fed = meeting([[0, 0], [0, 0], [1, 2]])
    assert cg.Majority()(fed, say(), ["s2"]) == Labels(np.array([1, 2]), 3)


def test_who_abstains_is_not_counted_and_nobody_gives_no_label(meeting: Meetings) -> None:
    fed = meeting([[0, -1, -1], [-1, -1, 2], [-1, -1, 2], [-1, -1, 1]])
    assert cg.Majority()(fed, say()) == Labels(np.array([0, -1, 2]), 3)


@pytest.mark.parametrize("tied", [(0, 2), (0, 1, 2)])
def test_ties_favour_no_class_over_the_whole_set(meeting: Meetings, tied: tuple[int, ...]) -> None:
    n = 6000
    fed = meeting([np.full(n, code) for code in tied])
    shares = np.bincount(cg.Majority()(fed, say()).codes, minlength=3) / n
    expected = np.isin(np.arange(3), tied) / len(tied)
    np.testing.assert_allclose(shares, expected, atol=0.03)  # more than 4 standard deviations


def test_each_half_of_the_set_is_unbiased_too(meeting: Meetings) -> None:
    codes = cg.Majority()(meeting([np.zeros(6000), np.ones(6000)]), say()).codes
    for part in (codes[:3000], codes[3000:], codes[::2], codes[1::2]):
        assert part.mean() == pytest.approx(0.5, abs=0.04)


def test_a_tie_keeps_its_winner_from_round_to_round(meeting: Meetings) -> None:
    fed = meeting([np.zeros(500), np.full(500, 2)])
    drawn = [cg.Majority()(fed, say()) for _ in fed.rounds(3)]
    assert drawn[0] == drawn[1] == drawn[2]
    settled = np.full(500, 2)
    settled[100:] = 0  # samples before the 100th are no longer tied: the others keep their winners
    again = cg.Majority()(meeting([settled, np.full(500, 2)]), say())
    np.testing.assert_array_equal(again.codes[100:], drawn[0].codes[100:])


def test_another_seed_draws_other_winners(meeting: Meetings) -> None:
    first, second = (cg.Majority()(meeting([np.zeros(500), np.ones(500)], seed=seed), say()) for seed in (0, 1))
    assert 100 < np.count_nonzero(first.codes != second.codes) < 400


def test_ties_are_broken_alike_whoever_answers_first() -> None:
    X = np.arange(400.0)[:, None]
    sites = [cg.Site(f"only {c}", X[:5], [c] * 5, learner=DecisionTreeClassifier()) for c in ("left", "right")]
    runs = [cg.run(cg.FedCT(rounds=2), sites=sites, public=X)]
    with last_comes_first():
        runs.append(cg.run(cg.FedCT(rounds=2), sites=sites, public=X))
    assert runs[0].labels == runs[1].labels
    assert 0.35 < runs[0].labels.codes.mean() < 0.65
    changed = runs[0].metrics.query("metric == 'consensus_changed'")["value"]
    assert list(changed) == [400, 0]  # learned as they were drawn


def test_run_labels_the_public_set_by_the_majority_of_the_models(cancer) -> None:
    run = cancer.run(cg.FedCT(rounds=1))
    votes = [model.predict(cancer.split.public) for model in run.models.values()]
    malignant = np.sum([vote == "malignant" for vote in votes], axis=0)
    np.testing.assert_array_equal(run.classes[run.labels.codes] == "malignant", malignant >= 3)


def test_integer_votes_agree_with_a_sum_of_one_hot_votes_on_every_sample(meeting: Meetings) -> None:
    rng = np.random.default_rng(0)
    votes = rng.integers(-1, 4, size=(7, 2000))
    one_hot = np.zeros((2000, 4))
    for row in votes:
        one_hot[np.flatnonzero(row >= 0), row[row >= 0]] += 1
    codes = cg.Majority()(meeting(votes, n_classes=4), say()).codes
    top = one_hot.max(axis=1)
    clear = (top > 0) & ((one_hot == top[:, None]).sum(axis=1) == 1)
    assert clear.sum() > 1000
    np.testing.assert_array_equal(codes[clear], one_hot.argmax(axis=1)[clear])
    assert (one_hot[np.arange(2000), codes] == top)[codes >= 0].all()
    np.testing.assert_array_equal(codes < 0, top == 0)


# What is needed of the winner


def ballots(yes: int, no: int, silent: int) -> np.ndarray:
    return np.array([[1]] * yes + [[0]] * no + [[-1]] * silent)


@pytest.mark.parametrize(
    ("yes", "no", "silent", "quorum", "label"),
    [
        (9, 1, 0, 0.9, 1),
        (8, 2, 0, 0.9, -1),
        (9, 1, 0, 0.91, -1),
        (9, 1, 5, 0.9, 1),  # of the votes cast
        (1, 0, 9, 0.9, 1),
        (10, 0, 0, 1.0, 1),
        (9, 1, 0, 1.0, -1),
        (14, 11, 0, 0.56, 1),  # 0.56 * 25 is a little more than 14 in floating point
        (13, 12, 0, 0.56, -1),
        (3, 2, 0, 0.6, 1),
        (2, 2, 0, 0.6, -1),
        (0, 0, 4, 0.5, -1),
    ],
)
def test_a_qualified_majority_counts_from_its_quorum_on(
    meeting: Meetings, yes: int, no: int, silent: int, quorum: float, label: int
) -> None:
    fed = meeting(ballots(yes, no, silent), n_classes=2)
    assert cg.QualifiedMajority(quorum)(fed, say()).codes.tolist() == [label]


def test_a_tie_that_meets_the_quorum_is_drawn_as_the_majority_draws_it(meeting: Meetings) -> None:
    fed = meeting([np.zeros(300), np.ones(300)])
    assert cg.QualifiedMajority(0.5)(fed, say()) == cg.Majority()(fed, say())


def test_the_papers_quorum_is_the_default() -> None:
    assert cg.QualifiedMajority().quorum == 0.9


@pytest.mark.parametrize("quorum", [0, 0.0, -0.1, 1.0001, 90, float("nan")])
def test_a_quorum_outside_0_to_1_is_an_error(quorum: float) -> None:
    with pytest.raises(ConfigError, match="quorum"):
        cg.QualifiedMajority(quorum)


# What the coordinator sees, and keeps


class Deaf(Federation):
    """A coordinator that cannot see a single site's release."""

    def ask(self, *args, **kwargs):
        raise AssertionError("a majority needs the sum of the votes only")


@pytest.mark.parametrize("rule", [cg.Majority(), cg.QualifiedMajority(0.6)])
def test_no_sites_own_labels_are_asked_for(meeting: Meetings, rule: cg.Consensus) -> None:
    votes = [[0, 1], [0, 1], [2, 1]]
    assert rule(meeting(votes, kind=Deaf), say()).codes.tolist() == [0, 1]
    with pytest.raises(AssertionError):
        cg.DawidSkene()(meeting(votes, kind=Deaf), say())


class Crowd:
    """A link that makes up each site's reply when it is fetched, and keeps none."""

    def __init__(self, sites: int, samples: int, n_classes: int) -> None:
        self.parties = tuple(f"s{i}" for i in range(sites))
        self._samples, self._n_classes = samples, n_classes

    def exchange(self, orders: Mapping[str, bytes], deadline: float | None) -> Iterator[Answer]:
        for number, party in enumerate(orders):
            codes = np.random.default_rng(number).integers(self._n_classes, size=self._samples, dtype=np.int8)
            payload = wire.pack({"labels": Labels(codes, self._n_classes)}).data
            digest = hashlib.sha256(payload).hexdigest()
            row = Row("HardLabels", 0, digest, "0" * 64, None)
            yield Answer(party, write_reply(Reply(1, row, payload)))


def peak_of_a_vote(sites: int, samples: int, n_classes: int) -> int:
    fed = Federation(Crowd(sites, samples, n_classes), run="r", n_classes=n_classes, seed=0)
    tracemalloc.start()
    try:
        labels = cg.Majority()(fed, say())
        assert len(labels) == samples
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_number_of_sites() -> None:
    samples, n_classes = 200_000, 4
    few, many = (peak_of_a_vote(sites, samples, n_classes) for sites in (4, 60))
    assert many < 1.2 * few
    assert many < 60 * samples  # not one byte for each vote
