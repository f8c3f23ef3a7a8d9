"""The graph of nearest neighbours: the right ones, whatever the blocks, and ties that do not depend on them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from collegium.graphs import Nearest, directions, joint
from collegium.graphs.neighbours import nearest

rng = np.random.default_rng(0)


def test_the_nearest_come_first_and_ties_go_to_the_first_column() -> None:
    columns, values = nearest(np.array([[0.1, 0.9, 0.9, 0.5], [0.3, 0.3, 0.3, 0.3]]), 3)
    assert columns.tolist() == [[1, 2, 3], [0, 1, 2]]
    assert values.tolist() == [[0.9, 0.9, 0.5], [0.3, 0.3, 0.3]]


@pytest.mark.parametrize("k", [0, 1, 5])
def test_fewer_columns_than_asked_for_are_all_there_are(k: int) -> None:
    columns, values = nearest(np.ones((2, 1)), k)
    assert columns.shape == values.shape == (2, min(k, 1))


@pytest.mark.parametrize("sizes", [[30], [10, 20], [1, 1, 27, 1]])
def test_blocks_give_the_graph_of_all_similarities_at_once(sizes: list[int]) -> None:
    A = rng.integers(0, 6, (30, 30)) / 5  # many ties
    A = np.triu(A) + np.triu(A, 1).T
    whole = Nearest(30, 4)
    whole.add_own(range(30), A)
    rows = list(joint.numbered({str(i): size for i, size in enumerate(sizes)}).values())
    near = Nearest(30, 4)
    for part in reversed(rows):
        near.add_own(part, A[part.start : part.stop, part.start : part.stop])
    for one, other in combinations(rows, 2):
        near.add_block(one, other, A[one.start : one.stop, other.start : other.stop])
    assert np.array_equal(near.graph(3.0).toarray(), whole.graph(3.0).toarray())


def test_the_graph_is_symmetric_normalised_and_without_loops() -> None:
    V = rng.standard_normal((40, 3))
    V /= np.linalg.norm(V, axis=1, keepdims=True)
    near = Nearest(40, 5)
    near.add_own(range(40), V @ V.T)
    W = near.graph(2.0).toarray()
    assert np.allclose(W, W.T)
    assert not W.diagonal().any()
    assert (W >= 0).all()
    assert np.abs(np.linalg.eigvalsh(W)).max() <= 1 + 1e-12


def test_negative_similarities_are_no_edges_and_a_lone_point_is_allowed() -> None:
    near = Nearest(3, 2)
    near.add_own(range(3), np.array([[1.0, 0.5, -0.2], [0.5, 1.0, -0.9], [-0.2, -0.9, 1.0]]))
    assert near.graph(1.0).toarray().tolist() == [[0, 1, 0], [1, 0, 0], [0, 0, 0]]


def test_one_point_has_no_neighbours() -> None:
    near = Nearest(1, 10)
    near.add_own(range(1), np.ones((1, 1)))
    assert near.graph(1.0).toarray().tolist() == [[0.0]]


def test_points_without_a_direction_are_like_no_others() -> None:
    points = directions(np.array([[3.0, 4.0], [0.0, 0.0], [0.0, -2.0]]))
    assert points.tolist() == [[0.6, 0.8], [0.0, 0.0], [0.0, -1.0]]


@pytest.mark.parametrize("size", [1e-310, 1e-200, 1e200, 1e307])
def test_points_of_any_size_have_the_direction_that_they_have(size: float) -> None:
    V = rng.standard_normal((20, 6))
    np.testing.assert_allclose(directions(V * size), directions(V), rtol=0, atol=1e-11)


def test_ordinary_points_have_their_direction_to_the_last_bit() -> None:
    V = 1000 * rng.standard_normal((20, 6))
    assert np.array_equal(directions(V), V / np.linalg.norm(V, axis=1, keepdims=True))
