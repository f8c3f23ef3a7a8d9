"""Winners of noisy counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from collegium.errors import ConfigError
from collegium.privacy import events
from collegium.privacy.mechanisms.noisy_max import ConfidentNoisyMax, GaussianNoisyMax, LaplaceNoisyMax, NoisyMax

ALL: list[NoisyMax] = [LaplaceNoisyMax(0.1), GaussianNoisyMax(2.0), ConfidentNoisyMax(5, 2.0, 2.0)]
each = pytest.mark.parametrize("made", ALL, ids=lambda made: type(made).__name__)


def test_each_changed_vote_moves_two_counts() -> None:
    assert LaplaceNoisyMax(0.04).charge(148, 2).events == (events.Pure(148, 0.08),)
    assert LaplaceNoisyMax(0.25, changed_votes=3).charge(1, 2).events == (events.Pure(1, 1.5),)
    assert GaussianNoisyMax(40, changed_votes=2).charge(9, 2).events == (events.Gaussian(9, 40 / (2 * math.sqrt(2))),)
    checks, answers = ConfidentNoisyMax(10, 30, 40, changed_votes=2).charge(9, 2).events
    assert checks == events.Gaussian(9, 15.0)  # the largest count moves by one vote for each
    assert answers == events.Gaussian(9, 40 / (2 * math.sqrt(2)))


def test_gaussian_noise_has_the_renyi_divergence_of_the_paper() -> None:
    """alpha s^2 / sigma^2 for s votes; the check adds alpha / (2 sigma1^2)."""
    (event,) = GaussianNoisyMax(40, changed_votes=3).query_events(1)
    assert 5 / (2 * event.noise_multiplier**2) == pytest.approx(5 * 9 / 40**2)  # type: ignore[attr-defined]
    check, _ = ConfidentNoisyMax(1, 30, 40).query_events(1)
    assert 5 / (2 * check.noise_multiplier**2) == pytest.approx(5 / (2 * 30**2))  # type: ignore[attr-defined]


def test_many_queries_cost_less_than_their_sum() -> None:
    assert LaplaceNoisyMax(0.04).epsilon(148) == pytest.approx(11.84)
    assert LaplaceNoisyMax(0.04).epsilon(148, delta=1e-5) == pytest.approx(4.188304, rel=1e-3)
    assert LaplaceNoisyMax(0.04).epsilon(74, rounds=2, delta=1e-5) == pytest.approx(4.188304, rel=1e-3)
    assert GaussianNoisyMax(40).epsilon(148) == math.inf


@each
def test_the_claim_is_of_records_or_of_parties_and_may_be_published(made: NoisyMax) -> None:
    charge = made.charge(10, 2)
    assert (charge.kind, charge.unit, charge.relation, charge.publishable) == ("dp", "record", "any", True)
    assert type(made)(**made.settings() | {"unit": "party"}).charge(10, 2).unit == "party"


@each
def test_a_clear_winner_wins(made: NoisyMax) -> None:
    counts = np.zeros((50, 4), dtype=int)
    counts[np.arange(50), np.arange(50) % 4] = 1000
    np.testing.assert_array_equal(made.release(counts, 0), np.arange(50) % 4)
    assert made.release(np.zeros((0, 3))).shape == (0,)


def test_the_second_wins_as_often_as_calculated() -> None:
    """Two classes, a gap of 30 votes, gamma .1 (Lemma 7); and its counterpart for Gaussian noise."""
    counts = np.tile([40, 10], (400_000, 1))
    seen = int(LaplaceNoisyMax(0.1).release(counts, 0).sum())
    assert stats.binomtest(seen, 400_000, 0.062234).pvalue > 1e-4
    seen = int(GaussianNoisyMax(15).release(counts, 0).sum())
    assert stats.binomtest(seen, 400_000, stats.norm.sf(30 / (math.sqrt(2) * 15))).pvalue > 1e-4


def test_only_what_most_agree_on_is_answered() -> None:
    counts = np.array([[90, 10]] * 500 + [[55, 45]] * 500)
    won = ConfidentNoisyMax(75, 3.0, 3.0).release(counts, 0)
    assert won.dtype == np.int8
    np.testing.assert_array_equal(won[:500], 0)
    np.testing.assert_array_equal(won[500:], -1)


def test_answers_stop_where_they_are_no_longer_paid_for() -> None:
    made = ConfidentNoisyMax(50, 1.0, 1.0, max_answers=3)
    counts = np.array([[10, 0], [90, 0], [0, 90], [10, 0], [90, 0], [90, 0], [0, 90]])
    np.testing.assert_array_equal(made.release(counts, 0), [-1, 0, 1, -1, 0, -1, -1])
    checks, answers = made.charge(7, 2).events
    assert (checks.count, answers.count) == (7, 3)
    assert made.charge(2, 2).events[1].count == 2


@each
@pytest.mark.parametrize(
    "counts", [[1, 2], [[1]], [["a", "b"]], [[1.0, float("nan")]], [[1.0, float("inf")]], [[True, False]]], ids=repr
)
def test_what_are_no_counts_is_refused(made: NoisyMax, counts: Any) -> None:
    with pytest.raises(ConfigError, match="counts"):
        made.release(counts)


@each
@pytest.mark.parametrize(
    ("name", "value"), [("changed_votes", 0), ("changed_votes", 1.5), ("unit", "voter"), ("unit", None)]
)
def test_settings_that_do_not_fit_are_refused(made: NoisyMax, name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        type(made)(**made.settings() | {name: value})


@pytest.mark.parametrize(("name", "value"), [("threshold", float("nan")), ("threshold", "5"), ("max_answers", 0)])
def test_settings_of_the_check_that_do_not_fit_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=name):
        ConfidentNoisyMax(**{"threshold": 5, "sigma1": 1, "sigma2": 1} | {name: value})


def test_epsilon_of_no_queries_is_refused() -> None:
    with pytest.raises(ConfigError, match="queries"):
        LaplaceNoisyMax(1).epsilon(0)
