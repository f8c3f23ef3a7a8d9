"""Images as rows of numbers, for any learner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from math import prod
from typing import Any

from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from collegium.core.settings import PositiveInt, check_parameters
from collegium.core.terms import Precision
from collegium.learners.torch.batches import Floats
from collegium.learners.torch.devices import find_device
from collegium.learners.vision.backbones import find_backbone
from collegium.learners.vision.features import features_by
from collegium.learners.vision.pictures import Pictures


@dataclass(eq=False, repr=False)
class ImageFeatures(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """The features that a pre-trained backbone gives of images, for any learner behind it in a Pipeline.

    It learns nothing from the images, so that it may stand before a private learner as well. Images are as in
    `VisionClassifier`, and so are the parameters. Features are computed once in a process, and kept.
    """

    model: str = "efficientnet-lite0"
    _: KW_ONLY
    size: PositiveInt | None = None
    image_shape: Sequence[int] | None = None
    device: str = "cpu"
    precision: Precision = "float32"

    def fit(self, X: Any, y: Any = None) -> ImageFeatures:
        """Find the backbone, and look whether X holds images that it takes."""
        check_parameters(self)
        pictures = Pictures(X, self.image_shape)
        self.backbone_ = find_backbone(self.model).reference
        self.n_features_in_ = prod(pictures.shape)
        return self

    def transform(self, X: Any) -> Floats:
        """A row of features for each image."""
        check_is_fitted(self)
        return self.embed(X)

    def embed(self, X: Any) -> Floats:
        """The same, without a fit."""
        device = find_device(self.device, quietly=True)
        return features_by(find_backbone(self.model), self.size, device, self.precision).of(
            Pictures(X, self.image_shape)
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        tags.requires_fit = False
        return tags
