"""Dawid-Skene: sites that are wrong in a regular way are used, not outvoted."""

from __future__ import annotations

import numpy as np
import pytest
from tests.consensus.meetings import Meetings, say

import collegium as cg
from collegium.core import Labels
from collegium.errors import ConfigError


def answers(truth: np.ndarray, confusion: list[list[float]], rng: np.random.Generator) -> np.ndarray:
    """What a site says whose P(says l | truth is c) is confusion[c][l]."""
    ladder = np.cumsum(confusion, axis=1)[truth]
    return (rng.random(len(truth))[:, None] > ladder).sum(axis=1)


GOOD = [[0.85, 0.1, 0.05], [0.05, 0.85, 0.1], [0.1, 0.05, 0.85]]
MIXES_1_AND_2 = [[0.9, 0.05, 0.05], [0.05, 0.1, 0.85], [0.05, 0.85, 0.1]]
TAKES_2_FOR_0 = [[0.9, 0.05, 0.05], [0.05, 0.9, 0.05], [0.85, 0.05, 0.1]]
SHIFTS = [[0.05, 0.9, 0.05], [0.05, 0.05, 0.9], [0.9, 0.05, 0.05]]


@pytest.mark.parametrize("seed", range(3))
def test_three_of_five_sites_may_be_wrong_in_a_regular_way(meeting: Meetings, seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.integers(3, size=3000)
    kinds = [GOOD, GOOD, MIXES_1_AND_2, TAKES_2_FOR_0, SHIFTS]
    fed = meeting([answers(truth, kind, rng) for kind in kinds])
    found = np.mean(cg.DawidSkene()(fed, say()).codes == truth)
    majority = np.mean(cg.Majority()(fed, say()).codes == truth)
    assert majority < 0.85
    assert found > 0.94
    assert found > majority + 0.1


def test_a_site_that_always_says_the_opposite_is_worth_as_much_as_a_good_one(meeting: Meetings) -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=4000)
    good = [answers(truth, [[0.8, 0.2], [0.2, 0.8]], rng) for _ in range(3)]
    liar = 1 - answers(truth, [[0.97, 0.03], [0.03, 0.97]], rng)
    with_liar = cg.DawidSkene()(meeting([*good, liar], n_classes=2), say()).codes
    assert np.mean(with_liar == truth) > 0.95
    assert np.mean(cg.DawidSkene()(meeting(good, n_classes=2), say()).codes == truth) < 0.92


def test_among_equally_good_sites_it_is_the_majority(meeting: Meetings) -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=3000)
    fed = meeting([answers(truth, [[0.9, 0.1], [0.1, 0.9]], rng) for _ in range(5)], n_classes=2)
    assert cg.DawidSkene()(fed, say()) == cg.Majority()(fed, say())


def test_when_all_agree_that_is_the_consensus(meeting: Meetings) -> None:
    votes = np.random.default_rng(0).integers(3, size=200)
    assert cg.DawidSkene()(meeting([votes] * 4), say()) == Labels(votes, 3)
    assert cg.DawidSkene()(meeting([votes]), say()) == Labels(votes, 3)


def test_two_classes_as_in_staple(meeting: Meetings) -> None:
    rng = np.random.default_rng(0)
    truth = (rng.random(6000) < 0.2).astype(int)  # a rare finding
    readers = [(0.95, 0.9), (0.9, 0.95), (0.6, 0.98), (0.97, 0.6), (0.7, 0.7)]  # specificity, sensitivity
    votes = [answers(truth, [[spec, 1 - spec], [1 - sens, sens]], rng) for spec, sens in readers]
    fed = meeting(votes, n_classes=2)
    found = cg.DawidSkene()(fed, say()).codes
    majority = cg.Majority()(fed, say()).codes
    assert np.mean(found == truth) > np.mean(majority == truth) + 0.005
    assert np.mean(found[truth == 1] == 1) > 0.9
    noted = {row["party"]: row["value"] for row in fed.observed.metrics}
    for number, vote in enumerate(votes):
        assert noted[f"s{number}"] == pytest.approx(np.mean(vote == truth), abs=0.02)


def test_reliability_is_noted_for_each_site_and_communication(cancer) -> None:
    run = cancer.run(cg.FedCT(rounds=4, period=2, consensus=cg.DawidSkene()))
    noted = run.metrics.query("metric == 'reliability'")
    assert list(zip(noted["round"], noted["party"], strict=True)) == [(t, f"site{i}") for t in (1, 3) for i in range(5)]
    assert noted["value"].between(0.5, 1).all()
    assert noted["value"].nunique() > 1


def test_a_guessing_site_is_found_out(meeting: Meetings) -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=3000)
    fed = meeting([*[answers(truth, GOOD, rng) for _ in range(3)], rng.integers(3, size=3000)])
    cg.DawidSkene()(fed, say())
    noted = {row["party"]: row["value"] for row in fed.observed.metrics}
    assert noted["s3"] == pytest.approx(1 / 3, abs=0.05)
    assert min(noted[f"s{i}"] for i in range(3)) > 0.8


def test_a_sample_on_which_all_abstain_gets_no_label(meeting: Meetings) -> None:
    votes = np.random.default_rng(0).integers(3, size=(3, 100))
    votes[:, :10] = -1
    votes[0, 10:20] = -1
    codes = cg.DawidSkene()(meeting(votes), say()).codes
    np.testing.assert_array_equal(codes < 0, np.arange(100) < 10)


def test_a_site_that_abstains_everywhere_changes_nothing(meeting: Meetings) -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=500)
    votes = [answers(truth, GOOD, rng) for _ in range(3)]
    silent = np.full(500, -1)
    assert cg.DawidSkene()(meeting([*votes, silent]), say()) == cg.DawidSkene()(meeting(votes), say())


def test_who_speaks_up_only_for_what_it_knows_is_believed(meeting: Meetings) -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=3000)
    guessing = [answers(truth, [[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.25, 0.25, 0.5]], rng) for _ in range(3)]
    experts = [np.where(truth == c, c, -1) for c in range(2)]
    fed = meeting([*guessing, *experts])
    found = cg.DawidSkene()(fed, say()).codes
    assert np.mean(found == truth) > 0.97
    assert np.mean(cg.Majority()(fed, say()).codes == truth) < 0.9


def test_below_the_confidence_there_is_no_label(meeting: Meetings) -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=2000)
    votes = [answers(truth, [[0.75, 0.25], [0.25, 0.75]], rng) for _ in range(3)]
    everything = cg.DawidSkene()(meeting(votes, n_classes=2), say())
    sure = cg.DawidSkene(confidence=0.9)(meeting(votes, n_classes=2), say())
    assert everything.coverage == 1
    assert 0.2 < sure.coverage < 0.9
    np.testing.assert_array_equal(sure.codes[sure.known], everything.codes[sure.known])
    assert np.mean(sure.codes[sure.known] == truth[sure.known]) > np.mean(everything.codes == truth) + 0.03


def test_the_posterior_is_a_distribution_and_more_iterations_settle_it() -> None:
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=400)
    votes = np.stack([answers(truth, kind, rng) for kind in (GOOD, GOOD, SHIFTS)])
    once = cg.DawidSkene(iterations=1).estimate(votes, 3)[0]
    settled = cg.DawidSkene(iterations=500, tolerance=1e-8).estimate(votes, 3)[0]
    further = cg.DawidSkene(iterations=1000, tolerance=1e-8).estimate(votes, 3)[0]
    np.testing.assert_allclose(settled.sum(axis=1), 1)
    assert np.abs(once - settled).max() > 0.1
    np.testing.assert_array_equal(settled, further)


@pytest.mark.parametrize(
    "settings",
    [{"iterations": 0}, {"tolerance": -1}, {"smoothing": 0}, {"confidence": 1.1}, {"confidence": -0.1}],
)
def test_bad_settings_are_an_error(settings: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        cg.DawidSkene(**settings)
