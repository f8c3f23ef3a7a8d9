"""Images in every layout and type that people have, and what is said of those that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from tests.learners.vision.tiny_backbones import tiny_backbone

import collegium as cg
from collegium.errors import ConfigError
from collegium.learners.vision.pictures import Pictures

RNG = np.random.default_rng(0)
COLOUR = RNG.integers(0, 256, size=(6, 3, 10, 14), dtype=np.uint8)
Y = np.arange(6) % 2


def learner(channels: int = 3, **settings: Any) -> cg.VisionClassifier:
    return cg.VisionClassifier(tiny_backbone(channels=channels), epochs=1, random_state=0, **settings)


def test_all_layouts_and_types_of_the_same_images_have_the_same_features() -> None:
    numbers = COLOUR.astype(np.float32) / 255
    expected = learner().embed(numbers)
    for same in (COLOUR, COLOUR.transpose(0, 2, 3, 1), COLOUR.astype(np.int64), numbers.astype(np.float64)):
        np.testing.assert_allclose(learner().embed(same), expected, atol=1e-6)
    flat = learner(image_shape=(3, 10, 14))
    np.testing.assert_array_equal(flat.embed(numbers.reshape(6, -1)), expected)
    np.testing.assert_array_equal(flat.embed(pd.DataFrame(numbers.reshape(6, -1))), expected)


def test_grey_images_are_shown_in_all_channels() -> None:
    grey = COLOUR[:, :1]
    expected = learner().embed(np.repeat(grey, 3, axis=1))
    np.testing.assert_allclose(learner().embed(grey), expected, atol=1e-6)
    np.testing.assert_allclose(learner().embed(grey[:, 0]), expected, atol=1e-6)
    net = learner(train="all").fit(grey, Y)
    assert net.predict(grey).shape == (6,)
    with pytest.raises(ConfigError, match="3 channels, and the backbone 'cnn_aimhi' takes 1"):
        learner(channels=1).fit(COLOUR, Y)


def test_one_image_is_a_row() -> None:
    net = learner().fit(COLOUR, Y)
    assert net.predict(COLOUR[:1]).shape == (1,)
    for alone in (COLOUR[0], COLOUR[0].transpose(1, 2, 0)):
        with pytest.raises(ConfigError, match=r"a single image of shape .* X\[None\]"):
            net.predict(alone)


def test_other_sizes_than_at_first_are_refused() -> None:
    with pytest.raises(ConfigError, match="has shape"):
        learner().fit(COLOUR, Y).predict(COLOUR[:, :, :8])


@pytest.mark.parametrize("train", ["head", "all"])
@pytest.mark.parametrize(
    ("X", "why"),
    [
        (np.full((4, 3, 8, 8), np.nan), "NaN or infinite pixels"),
        (np.full((4, 3, 8, 8), np.inf), "NaN or infinite pixels"),
        (RNG.normal(size=(4, 3, 8, 8)), "leave `standardize` out"),
        (np.full((4, 3, 8, 8), 4095), "12-bit scans"),
        (np.zeros((4, 4, 8, 8)), "with 1 or 3 channels"),
        (np.zeros((4, 64)), "image_shape"),
        (np.zeros((4, 3, 0, 8)), "without pixels"),
        (np.zeros(4), "must hold images"),
        (np.full((4, 3, 8, 8), "a"), "which are numbers"),
        (sparse.csr_matrix(np.eye(4)), "sparse"),
    ],
)
def test_what_is_no_image(X: Any, why: str, train: str) -> None:
    with pytest.raises(ConfigError, match=why):
        learner(train=train).fit(X, np.arange(4) % 2)


def test_resized_images_may_overshoot_a_little() -> None:
    assert Pictures(np.full((2, 1, 4, 4), 1.03)).take(slice(None)).max() == np.float32(1.03)
