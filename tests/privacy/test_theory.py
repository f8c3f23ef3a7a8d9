"""The papers' statements: their numbers, and counter-examples to the false ones."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest

from collegium.errors import ConfigError
from collegium.privacy import theory


@pytest.mark.parametrize(("c", "bound", "digits"), [(1, 6.74113e-4, 9), (2, 3.81336e-3, 8), (10, 0.213173, 6)])
def test_convergence_bound(c: int, bound: float, digits: int) -> None:
    printed = theory.convergence_bound(5, c, 1000)
    assert printed == pytest.approx(bound, abs=0.51 * 10**-digits)
    assert theory.convergence_bound(5, c, 1000, public_size=10_000) == pytest.approx(10_000 * printed)
    assert theory.convergence_bound(5, c, 1000, public_size=10_000) > 1  # vacuous
    corrected = theory.convergence_bound(5, c, 1000, start="corrected")
    assert corrected - printed == pytest.approx((4 * c) ** 2.5 * 1000**-2.5)


def test_the_papers_quoted_probabilities_leave_out_the_public_size() -> None:
    assert 1 - theory.convergence_bound(5, 2, 1000) == pytest.approx(0.9962, abs=5e-5)
    assert 1 - theory.convergence_bound(5, 10, 1000) == pytest.approx(0.7868, abs=5e-5)


def test_convergence_bound_covers_independent_sites() -> None:
    """The chance, in each round, that the majority of independent sites leaves the consensus."""
    m, c, t0 = 5, 1.0, 20
    changes = 0.0
    for t in range(t0, 5000):
        wrong = c / t
        changes += sum(math.comb(m, k) * wrong**k * (1 - wrong) ** (m - k) for k in range(3, m + 1))
    assert changes <= theory.convergence_bound(m, c, t0, start="corrected")


@pytest.mark.parametrize(
    ("n", "rate", "delta", "labels"),
    [(50_000, 0.03, 0.05, 1564), (50_000, 0.03, 1e-5, 1669), (10_000, 0.01, 0.05, 118)],
)
def test_stability_sensitivity(n: int, rate: float, delta: float, labels: int) -> None:
    assert theory.stability_sensitivity(n, rate, delta) == labels


def test_the_parity_learner_refutes_it() -> None:
    assert 50_000 * theory.parity_stability(50_000) == pytest.approx(0.368, abs=5e-4)
    assert theory.stability_sensitivity(50_000, theory.parity_stability(50_000), 0.05) == 3
    labels = np.random.default_rng(0).integers(0, 2, 1000)
    replaced = labels.copy()
    replaced[0] = 1 - labels[0]
    predictions = [np.full(50_000, data.sum() % 2) for data in (labels, replaced)]
    assert int(np.sum(predictions[0] != predictions[1])) == 50_000


def test_parity_stability_against_all_data_sets() -> None:
    n = 5

    def rate(p: float) -> float:
        total = 0.0
        for *labels, new in itertools.product([0, 1], repeat=n + 1):
            ones = sum(labels) + new
            first = labels[0]
            after = (sum(labels[1:]) + new) % 2
            gain = int(after != first) - int(sum(labels) % 2 != first)
            total += gain * p**ones * (1 - p) ** (n + 1 - ones)
        return total

    rates = [rate(p) for p in np.linspace(0, 1, 2001)]
    assert max(rates) == pytest.approx(theory.parity_stability(n), rel=1e-5)
    assert rate(0.1) == pytest.approx(2 * 0.1 * 0.9 * 0.8 ** (n - 1))


@pytest.mark.parametrize(
    ("epsilon", "agree", "unary", "response"),
    [
        (1, 5, 0.365517, 0.327275),
        (2, 5, 0.714228, 0.709931),
        (4, 5, 0.985737, 0.995028),
        (1, 3, 0.216405, 0.215684),
        (2, 3, 0.374297, 0.429484),
        (4, 3, 0.698573, 0.811738),
    ],
)
def test_consensus_success(epsilon: float, agree: int, unary: float, response: float) -> None:
    assert theory.consensus_success(epsilon, 5, 10, agree, "unary") == pytest.approx(unary, abs=5.1e-7)
    assert theory.consensus_success(epsilon, 5, 10, agree) == pytest.approx(response, abs=5.1e-7)


@pytest.mark.parametrize(("m", "n_classes", "agree"), [(3, 3, 2), (4, 2, 2), (2, 4, 0), (4, 3, 4), (1, 2, 1)])
def test_consensus_success_against_all_votes(m: int, n_classes: int, agree: int) -> None:
    epsilon = 1.3
    truth = math.exp(epsilon) / (math.exp(epsilon) + n_classes - 1)
    other = (1 - truth) / (n_classes - 1)
    held = [0] * agree + [1] * (m - agree)
    expected = 0.0
    for votes in itertools.product(range(n_classes), repeat=m):
        chance = math.prod(truth if vote == label else other for vote, label in zip(votes, held, strict=True))
        counts = np.bincount(votes, minlength=n_classes)
        expected += chance * (counts[0] == counts.max()) / np.sum(counts == counts.max())
    assert theory.consensus_success(epsilon, m, n_classes, agree) == pytest.approx(expected)
    keep = 1 / (1 + math.exp(-epsilon / 2))
    expected = 0.0
    for bits in itertools.product([0, 1], repeat=m * n_classes):
        table = np.reshape(bits, (m, n_classes))
        kept = int(np.sum(table == np.eye(n_classes, dtype=int)[held]))
        sums = table.sum(axis=0)
        expected += (
            keep**kept * (1 - keep) ** (table.size - kept) * (sums[0] == sums.max()) / np.sum(sums == sums.max())
        )
    assert theory.consensus_success(epsilon, m, n_classes, agree, "unary") == pytest.approx(expected)


@pytest.mark.parametrize("mechanism", ["randomized_response", "unary"])
def test_consensus_of_many_sites_and_classes(mechanism: Any) -> None:
    assert theory.consensus_success(1e-9, 150, 30, 150, mechanism) == pytest.approx(1 / 30, rel=1e-4)
    assert theory.consensus_success(50, 150, 10, 80, mechanism) == pytest.approx(1.0)
    assert theory.consensus_success(1000, 5, 3, 2, mechanism) == pytest.approx(0.0)
    assert theory.consensus_success(40, 2, 2000, 2, mechanism) == pytest.approx(1.0, abs=1e-4)


def test_flip_probability() -> None:
    assert theory.flip_probability(0.1, 3000) == pytest.approx(0.4999916667, abs=5e-11)
    assert theory.flip_probability(1e6, 1) == pytest.approx(0.0)


def test_what_epsilon_says_about_attacks() -> None:
    assert theory.auc_cap(0.1) == pytest.approx(0.524979, abs=5e-7)
    assert theory.auc_cap(0) == 0.5
    assert theory.auc_cap(1e6) == pytest.approx(1.0)
    assert theory.auc_cap(0.1, 0.01) > theory.auc_cap(0.1)
    assert theory.epsilon_from_auc(0.70) == pytest.approx(0.847298, abs=5e-7)
    assert theory.epsilon_from_auc(0.5) == 0.0
    assert theory.epsilon_from_auc(theory.auc_cap(0.7, 1e-3), 1e-3) == pytest.approx(0.7)


def test_auc_cap_is_the_area_under_the_privacy_region() -> None:
    epsilon, delta = 0.5, 0.05
    false = np.linspace(0, 1, 200_001)
    true = np.minimum(delta + math.exp(epsilon) * false, 1 - math.exp(-epsilon) * (1 - delta - false))
    assert theory.auc_cap(epsilon, delta) == pytest.approx(float(np.trapezoid(np.minimum(true, 1), false)), abs=1e-6)


def test_bad_input() -> None:
    for call in (
        lambda: theory.convergence_bound(2, 1, 1000),
        lambda: theory.convergence_bound(5, 0, 1000),
        lambda: theory.convergence_bound(5, math.nan, 1000),
        lambda: theory.convergence_bound(5, 10, 19),
        lambda: theory.convergence_bound(5, 1, 1000, public_size=0),
        lambda: theory.convergence_bound(5, 1, 1000, start="other"),  # type: ignore[arg-type]
        lambda: theory.stability_sensitivity(0, 0.1, 0.05),
        lambda: theory.stability_sensitivity(10, 1.5, 0.05),
        lambda: theory.stability_sensitivity(10, 0.1, 0.0),
        lambda: theory.parity_stability(0),
        lambda: theory.consensus_success(0, 5, 10, 5),
        lambda: theory.consensus_success(1, 0, 10, 0),
        lambda: theory.consensus_success(1, 5, 1, 5),
        lambda: theory.consensus_success(1, 5, 10, 6),
        lambda: theory.consensus_success(1, 151, 10, 6),
        lambda: theory.consensus_success(1, 5, 10, 5, "laplace"),  # type: ignore[arg-type]
        lambda: theory.flip_probability(0.1, 0),
        lambda: theory.auc_cap(-0.1),
        lambda: theory.auc_cap(0.1, 1.0),
        lambda: theory.epsilon_from_auc(0.4),
        lambda: theory.epsilon_from_auc(1.0),
    ):
        with pytest.raises(ConfigError):
            call()
