"""Influence over a graph, and labels with confidences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from collegium.algorithms.local_label_propagation import LocalLabelPropagation
from collegium.algorithms.xclp import XCLP
from collegium.errors import ConfigError
from collegium.graphs import Nearest, influence, label_points, propagation
from collegium.graphs.propagation import LARGEST_ALPHA

rng = np.random.default_rng(0)


def graph(n: int, power: float = 8.0) -> sparse.csr_array:
    V = rng.standard_normal((n, 5))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    near = Nearest(n, 6)
    near.add_own(range(n), V @ V.T)
    return near.graph(power)


@pytest.mark.parametrize("dense", [True, False], ids=["cholesky", "conjugate gradients"])
@pytest.mark.parametrize("alpha", [0.5, 0.99])
def test_influences_are_columns_of_the_inverse(monkeypatch: pytest.MonkeyPatch, dense: bool, alpha: float) -> None:
    monkeypatch.setattr(propagation, "DENSE_POINTS", 1000 if dense else 0)
    monkeypatch.setattr(propagation, "_COLUMNS_AT_A_TIME", 7)
    W = graph(150)
    columns = rng.choice(150, 20, replace=False)
    inverse = np.linalg.inv(np.eye(150) - alpha * W.toarray())
    assert np.allclose(influence(W, columns, alpha), inverse[:, columns], atol=1e-6)


@pytest.mark.parametrize("dense", [True, False])
def test_a_lone_point_says_something_of_itself_only(monkeypatch: pytest.MonkeyPatch, dense: bool) -> None:
    monkeypatch.setattr(propagation, "DENSE_POINTS", 1000 if dense else 0)
    W = sparse.csr_array(np.zeros((3, 3)))
    assert influence(W, np.array([1]), 0.99).tolist() == [[0.0], [1.0], [0.0]]
    assert influence(W, np.array([], dtype=int), 0.99).shape == (3, 0)


@pytest.mark.parametrize("dense", [True, False])
def test_the_largest_alpha_is_solved_exactly(monkeypatch: pytest.MonkeyPatch, dense: bool) -> None:
    monkeypatch.setattr(propagation, "DENSE_POINTS", 1000 if dense else 0)
    W = graph(200)
    inverse = np.linalg.inv(np.eye(200) - LARGEST_ALPHA * W.toarray())
    np.testing.assert_allclose(influence(W, np.arange(9), LARGEST_ALPHA), inverse[:, :9], rtol=1e-5)


@pytest.mark.parametrize(("dense", "alpha"), [(True, 1.5), (False, 1.5), (False, 1 - 1e-10)])
def test_a_system_that_cannot_be_solved_is_an_error(monkeypatch: pytest.MonkeyPatch, dense: bool, alpha: float) -> None:
    monkeypatch.setattr(propagation, "DENSE_POINTS", 1000 if dense else 0)
    with np.errstate(all="ignore"), pytest.raises(ConfigError, match="Lower alpha"):
        influence(graph(200), np.arange(3), alpha)


def test_steps_that_lead_nowhere_come_to_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(propagation, "DENSE_POINTS", 0)
    monkeypatch.setattr(propagation, "_MOST_STEPS", 1)
    with pytest.raises(ConfigError, match="Lower alpha"):
        influence(graph(200), np.arange(3), 0.99)


@pytest.mark.parametrize("alpha", [0.001, 0.01, 0.1, 0.5, 0.99])
def test_every_point_of_a_connected_graph_is_reached_whatever_alpha(alpha: float) -> None:
    """Points in a row, the first and the last labelled: each belongs to the nearer end."""
    steps = np.arange(12)
    W = sparse.csr_array((np.abs(steps[:, None] - steps) == 1) / 2)
    Z = influence(W, np.array([0, 11]), alpha)
    found = label_points(Z, Z.sum(axis=0))
    assert found.codes.tolist() == [0] * 6 + [1] * 6
    assert (found.confidences > 0).all()


def test_labels_are_the_largest_and_confidences_one_minus_the_entropy() -> None:
    found = label_points(np.array([[3.0, 1.0], [2.0, 2.0], [0.0, 5.0]]), np.ones(2))
    assert found.codes.tolist() == [0, 0, 1]
    assert found.confidences == pytest.approx([1 + (0.75 * np.log2(0.75) + 0.25 * np.log2(0.25)), 0.0, 1.0])


def test_totals_balance_the_classes_unless_they_are_left_out() -> None:
    Z, totals = np.array([[3.0, 1.0]]), np.array([12.0, 2.0])
    assert label_points(Z, totals).codes.tolist() == [1]
    assert label_points(Z, totals, balanced=False).codes.tolist() == [0]


def test_a_point_that_no_label_reaches_gets_the_largest_class_and_no_confidence() -> None:
    found = label_points(np.array([[0.0, 0.0, 0.0], [-1e-10, 1e-11, 0.0]]), np.array([1.0, 4.0, 0.0]))
    assert found.codes.tolist() == [1, 1]
    assert found.confidences.tolist() == [0.0, 0.0]


def test_what_is_less_than_the_noise_of_sums_is_no_label() -> None:
    found = label_points(np.array([[2e-9, 0.0], [4e-9, 0.0]]), np.array([1.0, 3.0]), noise=1.5e-9)
    assert found.codes.tolist() == [1, 0]
    assert found.confidences.tolist() == [0.0, 1.0]


def test_with_one_class_everything_reached_is_certain() -> None:
    found = label_points(np.array([[2.0], [0.0]]), np.array([5.0]))
    assert found.codes.tolist() == [0, 0]
    assert found.confidences.tolist() == [1.0, 0.0]


def test_relative_confidences_reach_one() -> None:
    found = label_points(np.array([[3.0, 1.0], [2.0, 1.0]]), np.ones(2), relative=True)
    assert found.confidences[0] == 1.0
    assert 0 < found.confidences[1] < 1


def test_without_any_label_there_is_nothing_to_say() -> None:
    with pytest.raises(ConfigError, match="nothing to propagate"):
        label_points(np.zeros((2, 3)), np.zeros(3))


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ((0.0, 1.0, "none"), "alpha"),
        ((1.0, 1.0, "none"), "alpha"),
        ((LARGEST_ALPHA + 1e-6, 1.0, "none"), "alpha"),
        (("0.9", 1.0, "none"), "alpha"),
        ((None, 1.0, "none"), "alpha"),
        ((True, 1.0, "none"), "alpha"),
        ((np.nan, 1.0, "none"), "alpha"),
        ((0.9, 0.0, "none"), "power"),
        ((0.9, "3", "none"), "power"),
        ((0.9, True, "none"), "power"),
        ((0.9, np.inf, "none"), "power"),
        ((0.9, np.nan, "none"), "power"),
        ((0.9, 10**400, "none"), "power"),
        ((0.9, 1.0, "x"), "x"),
    ],
)
@pytest.mark.parametrize("method", [XCLP, LocalLabelPropagation])
def test_settings_out_of_range_are_refused(settings: tuple[Any, Any, Any], match: str, method: Any) -> None:
    alpha, power, balance = settings
    with pytest.raises(ConfigError, match=f"{method.__name__}: .*{match}"):
        method(alpha=alpha, power=power, balance=balance)


def test_numbers_of_numpy_are_numbers() -> None:
    assert XCLP(alpha=np.float32(0.5), power=np.int64(3)) == XCLP(alpha=0.5, power=3.0)  # type: ignore[arg-type]


def test_a_word_is_neither_yes_nor_no() -> None:
    with pytest.raises(ConfigError, match="XCLP: embed must be True or False, got 'no'"):
        XCLP(embed="no")  # type: ignore[arg-type]
