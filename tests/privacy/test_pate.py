"""The cost of noisy votes: the papers' vectors, and exact mechanisms that the bounds have to cover."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from collegium import privacy
from collegium.errors import ConfigError


@pytest.mark.parametrize(
    ("queries", "gamma", "epsilon"),
    [(74, 0.05, 4.508821), (81, 0.06, 5.794231), (148, 0.04, 5.144185), (297, 0.06, 12.171663)],
)
def test_fedkt_epsilon(queries: int, gamma: float, epsilon: float) -> None:
    assert privacy.fedkt_epsilon(gamma, queries) == pytest.approx(epsilon, abs=5e-7)
    assert privacy.fedkt_epsilon(gamma, queries, orders=range(1, 300)) == privacy.fedkt_epsilon(gamma, queries)
    assert privacy.fedkt_epsilon(gamma / 2, queries, partitions=2) == privacy.fedkt_epsilon(gamma, queries)


def test_fedkt_epsilon_of_few_moments() -> None:
    assert privacy.fedkt_epsilon(0.04, 40, 1, 1e-5, range(1, 9)) == pytest.approx(2.591116, abs=5e-7)


def test_exact_composition_of_the_same_is_tighter() -> None:
    assert privacy.compose(0.08, 148, 1e-5) == pytest.approx(4.188304, abs=5e-7)


def test_a_single_query_costs_no_more_than_its_noise_says() -> None:
    assert privacy.fedkt_epsilon(0.05, 1) == 0.1


def test_lemma_7() -> None:
    assert privacy.noisy_max_error([40, 10], 0.1) == pytest.approx(0.062234, abs=5e-7)
    assert privacy.noisy_max_error([15, 7, 3], 0.1) == pytest.approx(0.555486, abs=5e-7)
    assert privacy.noisy_max_error([5, 5, 5, 5], 0.1) == 0.75


@pytest.mark.parametrize("gap", [0, 3, 25])
def test_lemma_7_is_exact_for_two_classes(gap: int) -> None:
    rng = np.random.default_rng(gap)
    noise = rng.laplace(scale=10, size=(400_000, 2))
    hidden = float(np.mean(noise[:, 1] > gap + noise[:, 0]))
    assert privacy.noisy_max_error([100 + gap, 100], 0.1) == pytest.approx(hidden, abs=0.004)


@pytest.mark.parametrize(
    ("q", "gamma", "order", "partitions", "moment"),
    [(0.062233835, 0.1, 4, 1, 0.125284), (0.062233835, 0.1, 4, 2, 0.321450), (0.3, 0.04, 8, 1, 0.2304)],
)
def test_theorem_2(q: float, gamma: float, order: int, partitions: int, moment: float) -> None:
    assert privacy.fedkt_moment(q, gamma, order, partitions) == pytest.approx(moment, abs=5e-7)


def test_theorem_2_at_the_ends() -> None:
    assert privacy.fedkt_moment(0.0, 0.1, 4) == 0.0
    assert privacy.fedkt_moment(1.0, 0.1, 4) == pytest.approx(0.4)
    assert privacy.fedkt_moment(1e-200, 500.0, 4) == pytest.approx(2 * 500.0**2 * 20)


@pytest.mark.parametrize("partitions", [1, 2, 3])
@pytest.mark.parametrize("gamma", [0.01, 0.1, 1.0])
def test_theorem_2_covers_the_exact_mechanism(gamma: float, partitions: int) -> None:
    """Two classes: the log-moments of the outcome for every pair of neighbouring gaps."""

    def hidden(gap: int) -> float:
        flipped = (2 + gamma * abs(gap)) / 4 * math.exp(-gamma * abs(gap))
        return flipped if gap >= 0 else 1 - flipped

    for gap in range(0, 40, 3):
        q = hidden(gap)
        for neighbour in range(gap - 2 * partitions, gap + 2 * partitions + 1):
            other = hidden(neighbour)
            if min(q, other) < 1e-12:
                continue
            for order in (1, 4, 16):
                exact = math.log((1 - q) * ((1 - q) / (1 - other)) ** order + q * (q / other) ** order)
                assert exact <= privacy.fedkt_moment(q, gamma, order, partitions) + 1e-12


def test_gaussian_noisy_max() -> None:
    log_error = privacy.gnmax_log_error([240, 6, 4], 40.0)
    assert log_error == pytest.approx(-10.327281, abs=5e-7)
    assert privacy.gnmax_renyi(log_error, 40.0, 5) == pytest.approx(1.309676e-5, abs=5e-12)
    assert privacy.gnmax_renyi(log_error, 40.0, 20) == pytest.approx(4.085683e-5, abs=5e-12)


def test_gaussian_noisy_max_without_a_clear_winner() -> None:
    assert privacy.gnmax_log_error([5, 5], 40.0) == pytest.approx(math.log(0.5))
    assert privacy.gnmax_renyi(math.log(0.5), 40.0, 5) == pytest.approx(5 / 1600)
    assert privacy.gnmax_renyi(0.0, 40.0, 5, partitions=2) == pytest.approx(5 * 4 / 1600)
    assert privacy.gnmax_renyi(-2.0, 3.0, 2) == pytest.approx(2 / 9)


def test_bad_input() -> None:
    bad: Any
    for bad in ([3], [[1, 2]], [1, math.nan], [-1, 2]):
        for call in (privacy.noisy_max_error, privacy.gnmax_log_error):
            with pytest.raises(ConfigError, match="votes of each class"):
                call(bad, 0.1)
    for call in (
        lambda: privacy.fedkt_epsilon(0, 10),
        lambda: privacy.fedkt_epsilon(0.1, 0),
        lambda: privacy.fedkt_epsilon(0.1, 10, 0),
        lambda: privacy.fedkt_epsilon(0.1, 10, delta=1.0),
        lambda: privacy.fedkt_epsilon(0.1, 10, orders=[]),
        lambda: privacy.fedkt_epsilon(0.1, 10, orders=[0]),
        lambda: privacy.noisy_max_error([1, 2], math.nan),
        lambda: privacy.fedkt_moment(-0.1, 0.1, 4),
        lambda: privacy.gnmax_log_error([1, 2], 0),
        lambda: privacy.gnmax_renyi(-1.0, 40.0, 1),
        lambda: privacy.gnmax_renyi(0.5, 40.0, 2),
        lambda: privacy.gnmax_renyi(math.nan, 40.0, 2),
    ):
        with pytest.raises(ConfigError):
            call()
