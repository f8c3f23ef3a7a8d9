"""Random views: what they keep, what they change, and that they are drawn from torch's generator."""

from __future__ import annotations

import pytest
import torch

from collegium.learners.torch import views


def drawn(view: object, X: torch.Tensor, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    seen: torch.Tensor = view(X)  # type: ignore[operator]
    return seen


@pytest.mark.parametrize("view", [views.weak, views.strong])
@pytest.mark.parametrize("shape", [(20, 7), (20, 1, 16, 16), (20, 3, 16, 16)])
def test_a_view_has_the_shape_and_range_of_its_rows_and_is_another_one_each_time(view, shape) -> None:
    X = torch.rand(shape, generator=torch.Generator().manual_seed(1)) * 3 - 1
    seen = drawn(view, X)
    assert seen.shape == X.shape
    assert seen.min() >= X.min() - 1e-5
    assert seen.max() <= X.max() + 1e-5
    assert not torch.equal(seen, X)
    assert torch.equal(seen, drawn(view, X))
    assert not torch.equal(seen, drawn(view, X, seed=1))


def test_weak_views_of_grey_images_are_shifted_by_up_to_an_eighth_of_their_side_and_not_mirrored() -> None:
    X = torch.zeros(200, 1, 16, 16)
    X[:, :, 8, 5] = 1
    rows, columns = drawn(views.weak, X).nonzero()[:, 2:].T
    assert len(rows) == 200
    assert set(rows.tolist()) == {6, 7, 8, 9, 10}
    assert set(columns.tolist()) == {3, 4, 5, 6, 7}


def test_weak_views_of_colour_images_are_mirrored_in_half_of_the_cases() -> None:
    X = torch.zeros(400, 3, 16, 16)
    X[:, :, :, :3] = 1
    left = drawn(views.weak, X)[:, 0, 8, 0] == 1
    assert 140 < int(left.sum()) < 260


def test_features_are_swapped_with_those_of_other_rows() -> None:
    X = torch.arange(100.0)[:, None] + 1000 * torch.arange(50.0)
    for view, share in ((views.weak, 0.1), (views.strong, 0.4)):
        seen = drawn(view, X)
        assert torch.equal(seen // 1000, X // 1000)  # each feature stays in its column
        assert float((seen != X).float().mean()) == pytest.approx(share, abs=0.03)


def test_images_of_one_value_stay_as_they_are() -> None:
    X = torch.full((4, 1, 8, 8), 0.5)
    assert torch.allclose(drawn(views.weak, X), X)
    assert torch.isfinite(drawn(views.strong, X)).all()
