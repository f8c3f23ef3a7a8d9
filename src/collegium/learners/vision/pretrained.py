"""Features that somebody has trained already, where a method would train them first."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.core.settings import Settings
from collegium.errors import CollegiumWarning, ConfigError
from collegium.learners.torch import weights as named
from collegium.learners.vision.backbones import Backbone, find_backbone
from collegium.learners.vision.classifier import BACKBONE, VisionClassifier


@dataclass(frozen=True)
class Pretrained(Settings):
    """Start from a backbone's weights: ``cg.FedAUX(pretrain=cg.Pretrained("models/resnet8"))``, instead of SimCLR.

    The coordinator alone needs the backbone. Sites have the same net, such as ``cg.TorchClassifier("resnet8")``, or a
    `VisionClassifier` on that backbone.
    """

    model: str = "efficientnet-lite0"
    """A folder or a name, as for `VisionClassifier`."""

    def pretrain(self, learner: Any, X: Any) -> dict[str, NDArray[np.float32]]:
        """The weights of the features of a learner's net; X is not looked at."""
        backbone = find_backbone(self.model)
        weights = named.read(backbone.layers)
        if isinstance(learner, VisionClassifier):
            if learner.train == "head":
                _require_same(learner, backbone)
                return {}
            weights = {f"{BACKBONE}.{name}": value for name, value in weights.items()}
        elif any(backbone.mean) or set(backbone.std) != {1.0}:
            text = (
                f"The backbone {backbone.name!r} was trained with images less {_numbers(backbone.mean)}, over "
                f"{_numbers(backbone.std)}: standardize yours so, or use cg.VisionClassifier, which does."
            )
            warnings.warn(text, CollegiumWarning, stacklevel=2)
        wanted = {name: value.shape for name, value in learner.get_weights("features").items()}
        named.check(weights, wanted, f"The weights of the backbone {self.model!r}")
        return weights


def _require_same(learner: VisionClassifier, backbone: Backbone) -> None:
    if learner.backbone_ != backbone.reference:
        raise ConfigError(
            f"pretrain names the backbone {backbone.reference}, and the sites' features are those of "
            f"{learner.backbone_}, which is frozen: leave pretrain out, or use train='all'."
        )


def _numbers(values: Any) -> str:
    return ", ".join(f"{value:.3g}" for value in values)
