"""The XOR mechanism of DP-FedCT, its true cost, and what it leaves of the labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collegium.core.releases import ApprovalBits
from collegium.errors import ConfigError
from collegium.privacy.mechanisms.unary import UnaryEncoding, one_hot
from collegium.privacy.mechanisms.xor import XorMechanism


def test_independent_noise_is_unary_encoding_by_another_name() -> None:
    codes = np.arange(1000) % 5
    for theta in (1.0, -1.0):
        np.testing.assert_array_equal(XorMechanism(theta).release(codes, 5, 1), UnaryEncoding(2.0).release(codes, 5, 1))
        assert XorMechanism(theta).charge(9, 5) == UnaryEncoding(2.0).charge(9, 5)


@pytest.mark.parametrize("structure", ["independent", "rows", "columns"])
def test_a_larger_theta_flips_fewer_bits(structure: Any) -> None:
    codes = np.arange(5000) % 3
    flips = []
    for size in (0.5, 1.0, 4.0):
        theta: Any = -size * np.eye(3) if structure == "rows" else size
        made = XorMechanism(theta, structure)
        changed = float(np.mean(made.release(codes, 3, 2) != one_hot(codes, 3)))
        assert changed == pytest.approx(made.flip_probability(3, 5000), abs=0.02)
        assert made.flip_probability(3, 5000) == pytest.approx(1 / (1 + np.exp(size)))
        flips.append(changed)
    assert flips == sorted(flips, reverse=True)


def test_at_the_papers_parameters_labels_are_coin_flips() -> None:
    """Sensitivity 3000 and epsilon 0.1, where the paper reports an accuracy of 0.80."""
    made = XorMechanism(0.1 / 3000)
    assert made.flip_probability(10) == pytest.approx(0.4999916667, abs=1e-10)
    n, rng = 50_000, np.random.default_rng(0)
    truth = np.arange(n) % 10
    total = ApprovalBits.empty_sum(5)
    for _ in range(5):  # all sites agree on the truth
        total.add_release(ApprovalBits.from_bits(made.release(truth, 10, rng)))
    assert np.mean(total.tally.winners(0) == truth) == pytest.approx(0.1, abs=0.006)
    # And still it would cost this much, since every label may change.
    assert made.epsilon(n, 10) == pytest.approx(0.1 / 3000 * 2 * n)


def test_correlated_noise_costs_more_than_the_eigenvalues_say() -> None:
    """The quoted theorem claims 0.8 for four classes: two bits times the norm of the eigenvalues of 0.1 * ones."""
    theta = -0.1 * np.ones((4, 4))
    claimed = 2 * float(np.linalg.norm(np.linalg.eigvalsh(theta)))
    assert claimed == pytest.approx(0.8)
    assert XorMechanism(theta, "rows").epsilon(1, 4) == pytest.approx(1.2)


def test_rows_cost_no_more_than_the_corrected_condition() -> None:
    from collegium.privacy.xor import xor_epsilon

    rng = np.random.default_rng(0)
    for _ in range(20):
        theta = rng.normal(0, 0.3, (4, 4))
        theta = (theta + theta.T) / 2 - 2 * np.eye(4)
        made = XorMechanism(theta, "rows")
        assert 0 < made.epsilon(1, 4) <= xor_epsilon(theta, 2) + 1e-9
    diagonal = np.diag([-1.0, -2.0, -0.5])
    assert XorMechanism(diagonal, "rows").epsilon(1, 3) == pytest.approx(3.0)
    assert xor_epsilon(diagonal, 2) == pytest.approx(3.0)


def test_columns_are_one_event_and_cost_no_more_than_the_corrected_condition() -> None:
    from collegium.privacy.xor import xor_epsilon

    for theta, coupling in ((1.0, 0.01), (1.0, -0.1), (0.5, 0.05)):
        made = XorMechanism(theta, "columns", coupling=coupling)
        Pi = coupling * (np.ones((8, 8)) - np.eye(8)) - theta * np.eye(8)
        (one,) = made.label_events(1, 8, 3)
        assert one.epsilon == pytest.approx(2 * xor_epsilon(Pi, 1))  # type: ignore[attr-defined]
        assert made.label_events(8, 8, 3)[0].count == 1
        assert made.epsilon(8, 3) <= 16 * xor_epsilon(Pi, 1) + 1e-9


def test_rows_of_sixteen_classes_are_drawn_as_declared() -> None:
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.1, (16, 16))
    theta = (noise + noise.T) / 2 - 1.5 * np.eye(16)
    made = XorMechanism(theta, "rows")
    states = (np.arange(1 << 16)[:, None] >> np.arange(16)) & 1
    weights = np.exp(((states @ theta) * states).sum(axis=1))
    weights /= weights.sum()
    drawn = made.release(np.zeros(50_000, dtype=int), 16, 1) ^ one_hot(np.zeros(50_000, dtype=int), 16)
    np.testing.assert_allclose(drawn.mean(axis=0), weights @ states, atol=0.01)
    np.testing.assert_allclose(drawn.T.astype(int) @ drawn / 50_000, (states.T * weights) @ states, atol=0.01)


def test_flips_in_columns_cluster_or_avoid_each_other() -> None:
    codes = np.zeros(100, dtype=int)
    spread = {}
    for coupling in (-0.02, 0.0, 0.004):
        made = XorMechanism(1.0, "columns", coupling=coupling)
        flips = [(made.release(codes, 2, seed) ^ one_hot(codes, 2)).sum(axis=0) for seed in range(300)]
        assert np.mean(flips) / 100 == pytest.approx(made.flip_probability(2, 100), abs=0.01)
        spread[coupling] = float(np.var(flips))
    assert spread[-0.02] < spread[0.0] < spread[0.004]


@pytest.mark.parametrize("theta", [0, 0.0, float("nan"), float("inf"), "1", None, True, [[1.0]], [1.0, 2.0]], ids=repr)
@pytest.mark.parametrize("structure", ["independent", "columns"])
def test_a_theta_that_is_no_number_is_refused(theta: Any, structure: Any) -> None:
    with pytest.raises(ConfigError, match="theta must be a finite number"):
        XorMechanism(theta, structure)


@pytest.mark.parametrize(
    ("theta", "words"),
    [
        (1.0, "matrix"),
        ([[-1.0]], "matrix"),
        ([[-1.0, 0.0]], "matrix"),
        ([[-1.0, 0.0], [0.0]], "matrix"),
        ([[-1.0, float("nan")], [float("nan"), -1.0]], "matrix"),
        ([[-1.0, "a"], ["a", -1.0]], "matrix"),
        ([[-1.0, 0.2], [0.1, -1.0]], "symmetric"),
        (-np.eye(17), "16"),
        ([[0.0, 0.0], [0.0, 0.0]], "more negative"),
        ([[0.1, 0.1], [0.1, 0.1]], "opposite"),
        ([[-1.0, 3.0], [3.0, -1.0]], "opposite"),
    ],
)
def test_a_matrix_that_does_not_fit_is_refused(theta: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        XorMechanism(theta, "rows")


def test_a_matrix_for_other_classes_is_refused() -> None:
    made = XorMechanism(-np.eye(3), "rows")
    for ask in (lambda: made.release([0, 1], 4), lambda: made.charge(2, 4), lambda: made.epsilon(2, 4)):
        with pytest.raises(ConfigError, match="3 x 3, but there are 4 classes"):
            ask()


@pytest.mark.parametrize("coupling", [float("nan"), float("inf"), "1", None, True])
def test_a_coupling_that_is_no_number_is_refused(coupling: Any) -> None:
    with pytest.raises(ConfigError, match="coupling must be a finite number"):
        XorMechanism(1.0, "columns", coupling=coupling)


def test_a_coupling_without_columns_and_an_unknown_structure_are_refused() -> None:
    with pytest.raises(ConfigError, match="belongs to structure='columns'"):
        XorMechanism(1.0, coupling=0.1)
    with pytest.raises(ConfigError, match="'independent', 'rows' or 'columns'"):
        XorMechanism(1.0, "diagonal")  # type: ignore[arg-type]


def test_a_coupling_that_flips_nearly_all_bits_is_refused_when_that_shows() -> None:
    made = XorMechanism(1.0, "columns", coupling=0.1)
    made.release([0, 1, 1], 2)
    with pytest.raises(ConfigError, match="opposite of the labels"):
        made.release([0, 1] * 50, 2)


def test_next_to_no_noise_keeps_everything() -> None:
    codes = np.arange(50) % 3
    for made in (XorMechanism(3000.0), XorMechanism(-900 * np.eye(3), "rows"), XorMechanism(3000.0, "columns")):
        np.testing.assert_array_equal(made.release(codes, 3), one_hot(codes, 3))
