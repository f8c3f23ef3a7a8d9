"""Images in any layout, and random views of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse

from collegium.errors import ConfigError
from collegium.learners.torch.images import Augmentation, Images

CPU = torch.device("cpu")
COLOUR = np.random.default_rng(0).integers(256, size=(6, 3, 8, 10), dtype=np.uint8)
GREY = COLOUR[:, :1]
ALL = np.arange(6)
STILL = {"smallest_crop": 1.0, "flip": False, "jitter": 0.0, "grey_share": 0.0}


@pytest.mark.parametrize(
    ("X", "image_shape", "wanted"),
    [
        (COLOUR, None, COLOUR),
        (COLOUR.transpose(0, 2, 3, 1), None, COLOUR),
        (COLOUR.reshape(6, -1), (3, 8, 10), COLOUR),
        (GREY.transpose(0, 2, 3, 1), None, GREY),
        (GREY[:, 0], None, GREY),
        (COLOUR.astype(np.uint16), None, COLOUR),
    ],
)
def test_layouts(X: Any, image_shape: Any, wanted: Any) -> None:
    images = Images(X, image_shape)
    assert images.shape == wanted.shape[1:]
    assert len(images) == 6
    np.testing.assert_array_equal(images.values, wanted)
    np.testing.assert_allclose(images.as_given(images.take(ALL, CPU)).numpy(), wanted, atol=1e-4)


def test_values_lie_between_0_and_1_and_come_back_on_their_own_scale() -> None:
    images = Images(COLOUR / 40.0 - 3)
    taken = images.take(np.array([4, 1]), CPU)
    assert (images.low, images.high) == pytest.approx((-3, 3.375))
    assert taken.dtype == torch.float32
    assert 0 <= taken.min() < 0.1 < 0.9 < taken.max() <= 1
    np.testing.assert_allclose(images.as_given(taken).numpy(), COLOUR[[4, 1]] / 40 - 3, atol=1e-5)


@pytest.mark.parametrize(
    ("X", "text"),
    [
        (COLOUR.reshape(6, -1), r"image_shape=\(channels, height, width\)"),
        (np.zeros((6, 5, 8, 10)), "1 or 3 channels"),
        (np.zeros(6), "1 or 3 channels"),
        (np.full((6, 1, 8, 8), np.nan), "NaN"),
        (np.zeros((6, 1, 8, 8)), "same value"),
        (COLOUR[:1], "1 are too few"),
        (np.full((6, 1, 8, 8), "a"), "dtype"),
        (sparse.csr_matrix(np.eye(6)), "toarray"),
    ],
)
def test_what_are_no_images(X: Any, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        Images(X)


@pytest.mark.parametrize("images", [COLOUR, GREY])
@pytest.mark.parametrize("settings", [{}, {"blur_share": 1.0}, {"jitter": 1.0, "jitter_share": 1.0, "grey_share": 1.0}])
def test_views_keep_shape_and_range_and_differ(images: Any, settings: dict[str, float]) -> None:
    batch = Images(images).take(ALL, CPU)
    before = batch.clone()
    first, second = Augmentation(**settings)(batch), Augmentation(**settings)(batch)
    assert first.shape == batch.shape
    assert first.min() >= 0
    assert first.max() <= 1.0001
    assert not torch.equal(first, second)
    assert torch.equal(batch, before)


def test_nothing_asked_nothing_changed() -> None:
    batch = Images(COLOUR).take(ALL, CPU)
    torch.testing.assert_close(Augmentation(**STILL)(batch), batch, atol=1e-5, rtol=0)


def test_half_of_the_views_are_mirrored() -> None:
    batch = Images(COLOUR[:1].repeat(400, axis=0)).take(np.arange(400), CPU)
    views = Augmentation(**STILL | {"flip": True})(batch)
    mirrored = [torch.allclose(view, batch[0].flip(2), atol=1e-4) for view in views]
    same = [torch.allclose(view, batch[0], atol=1e-4) for view in views]
    assert all(a != b for a, b in zip(mirrored, same, strict=True))
    assert 150 < sum(mirrored) < 250


def test_crops_are_parts_of_the_image_at_full_size() -> None:
    ramp = torch.linspace(0, 1, 32).expand(200, 1, 32, 32)
    views = Augmentation(**STILL | {"smallest_crop": 0.25})(ramp.contiguous())
    spans = views[:, 0, 16, -1] - views[:, 0, 16, 0]
    assert 0.3 < spans.min() < 0.6 < spans.max() < 1.01
    assert (views.diff(dim=2).abs() < 1e-5).all()  # rows stay rows


def test_grey_views_have_equal_channels_and_jitter_keeps_grey_grey() -> None:
    batch = Images(COLOUR).take(ALL, CPU)
    grey = Augmentation(**STILL | {"grey_share": 1.0})(batch)
    torch.testing.assert_close(grey[:, 0], grey[:, 2])
    recoloured = Augmentation(**STILL | {"jitter": 0.5, "jitter_share": 1.0})(grey)
    torch.testing.assert_close(recoloured[:, 0], recoloured[:, 2], atol=0.01, rtol=0)


def test_blur_smooths() -> None:
    batch = Images(COLOUR).take(ALL, CPU)
    blurred = Augmentation(**STILL | {"blur_share": 1.0})(batch)
    assert (blurred.var(dim=(1, 2, 3)) <= batch.var(dim=(1, 2, 3)) + 1e-6).all()
    torch.testing.assert_close(blurred.mean(), batch.mean(), atol=0.02, rtol=0)


@pytest.mark.parametrize("wrong", [{"smallest_crop": 0}, {"grey_share": 1.5}, {"jitter": -1}, {"blur_share": -0.1}])
def test_augmentations_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="Augmentation"):
        Augmentation(**wrong)
