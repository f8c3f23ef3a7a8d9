"""Images, classified by a net on top of a pre-trained backbone."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from dataclasses import KW_ONLY, dataclass, field
from math import prod
from typing import Any, Final, Literal

import numpy as np
import torch
from torch import nn

from collegium.core.settings import PositiveInt, check_parameters
from collegium.errors import CollegiumWarning, ConfigError
from collegium.learners.torch.answers import Late, Said
from collegium.learners.torch.batches import Floats, Rows
from collegium.learners.torch.classifier import BEGINNINGS, TorchClassifier
from collegium.learners.torch.devices import GLOBAL_GENERATOR, find_device
from collegium.learners.torch.training import Schedule, Training
from collegium.learners.vision.backbones import Backbone, check_channels, find_backbone
from collegium.learners.vision.features import features_by, is_out_of_memory
from collegium.learners.vision.pictures import FeatureRows, PictureRows, Pictures, looks_like_one_image

BACKBONE: Final = "backbone"
"""What its part of a net that is trained as a whole is called."""
_SOME: Final = slice(16)
"""Rows that show before a run whether it can take them."""


@dataclass(eq=False, repr=False)
class VisionClassifier(TorchClassifier):
    """A net on the features of a pre-trained backbone: it learns from few images, and on a CPU.

    X holds images (rows, channels, height, width), (rows, height, width, channels) or (rows, height, width), in float
    from 0 to 1 or as bytes; or flat rows, with `image_shape`. They may have any size: they are resized to the
    backbone's. A backbone for color sees gray ones in all three channels. Nothing is downloaded.

    With ``train="head"`` the backbone is frozen. Features are computed once and kept by the hash of each image, so that
    a round costs what the small net on them costs. That net is all that is trained, averaged, sent and stored, beside
    the name and the hash of its backbone. Sites with different backbones can share labels; their weights are not
    averaged.

    Parameters
    ----------
    model
        A folder with a backbone (`save_backbone` writes one; those of Hugging Face and timm are read too, if those
        packages are installed), or a name: "efficientnet-lite0", whose weights are a package, or one of Hugging Face's
        or "timm:" and one of timm's, where they are in the cache of its hub on this machine.
    train
        "head": the net on the features. "all": the backbone, too, from its weights on; it then needs a smaller `lr`,
        such as 1e-4, and a GPU.
    net
        The net on the features: "linear", "mlp", or a function ``(input_shape, n_classes) -> nn.Module``.
    size
        The sides, in pixels, to which images are brought (None: those that the backbone was trained with). Smaller ones
        take less time, and the features are less good.
    augment
        Whether to train on random views, which takes ``train="all"``.
    lr, weight_decay, optimizer, batch_size, epochs, steps, warm_start, device, precision, image_shape, random_state
        As for `TorchClassifier`. Features are computed on `device` in this `precision`.

    Where memory is short, fewer images are computed or trained at a time, and a `CollegiumWarning` says so.

    Attributes
    ----------
    backbone_ : name and hash of the backbone.
    classes_, input_shape_, last_update_, diverged_ : as for `TorchClassifier`.
    """

    model: str = "efficientnet-lite0"
    _: KW_ONLY
    net: Any = field(default="linear", kw_only=True)
    train: Literal["head", "all"] = "head"
    size: PositiveInt | None = None
    backbone_: str = field(init=False)
    _answered_at_once: int = field(init=False, default=64)
    _trained_at_once: int | None = field(init=False, default=None)

    def embed(self, X: Any) -> Floats:
        """The features of each image: what the last linear layer sees; before any training, those of the backbone."""
        if self.__sklearn_is_fitted__():
            return super().embed(X)
        return self._features(self._pictures(X, None))

    def check_rows(self, X: Any, name: str = "X") -> None:
        """A ConfigError if it cannot learn from such rows: the backbone is not there, or X holds no images for it."""
        check_parameters(self)
        self._check_together()
        pictures = self._pictures(X, None, name)
        pictures.take(_SOME)
        if isinstance(self.net, str):
            with GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):  # what is drawn here is of no use
                super()._new_net((self._backbone().features(self.size),), 2)

    def _check_together(self) -> None:
        if self.augment and self.train == "head":
            raise ConfigError("augment=True makes new images, and features are computed once: use train='all'.")
        if self.norm != "batch" and self.train == "all":
            raise ConfigError("norm='group' would take the place of what the backbone has learned: leave it out.")

    @property
    def backbone_in_use(self) -> str:
        """Name and hash of the backbone that is there now, trained with or not."""
        return self._backbone().reference

    def to_module(self) -> nn.Module:
        """A copy of the whole net, from images (0 to 1) to logits, on the CPU and in eval mode."""
        own = super().to_module()
        if self.train == "all":
            return own
        backbone = self._backbone()
        return nn.Sequential(backbone.preparation(self.size), backbone.copy_layers(), own).eval()

    def _backbone(self) -> Backbone:
        """The backbone, which must be the one that a fitted classifier was trained on."""
        found = find_backbone(self.model)
        known = getattr(self, "backbone_", found.reference)
        if known != found.reference:
            raise ConfigError(
                f"This classifier was trained on the backbone {known}, and {self.model!r} now is {found.reference}: "
                "put the old one back, or fit it anew."
            )
        return found

    def _pictures(self, X: Any, expected: tuple[int, ...] | None, name: str = "X") -> Pictures:
        if expected is not None and looks_like_one_image(X, expected):
            raise ConfigError(f"{name} is a single image of shape {np.shape(X)}: pass it as one row, X[None].")
        pictures = Pictures(X, self.image_shape, name=name)
        if expected not in (None, pictures.shape):
            raise ConfigError(f"An image of {name} has shape {pictures.shape}, but the first ones had {expected}.")
        check_channels(pictures.shape[0], self._backbone(), name)
        return pictures

    def _features(self, pictures: Pictures, name: str = "X") -> Floats:
        device = find_device(self.device, quietly=True)
        return features_by(self._backbone(), self.size, device, self.precision).of(pictures, name)

    def _rows(self, X: Any, expected: tuple[int, ...] | None, *, name: str = "X") -> Rows:
        if expected is None:
            check_parameters(self)
            self.__dict__.pop("backbone_", None)  # it begins anew
        pictures = self._pictures(X, expected, name)
        if expected is None:
            self.n_features_in_ = prod(pictures.shape)
            self.backbone_ = self._backbone().reference
        if self.train == "all":
            return PictureRows(pictures, name=name, at_once=self._answered_at_once)
        return FeatureRows(self._features(pictures, name), pictures, name=name)

    def _new_training(self, input_shape: tuple[int, ...], n_classes: int) -> Training:
        backbone, head = self._backbone(), self.net
        self._check_together()
        key = self.train, backbone.reference, self.size, head, self.norm

        def make() -> Training:
            return Training(
                lambda: self._new_net(input_shape, n_classes),
                input_shape,
                optimizer=self.optimizer,
                seed=self.random_state,
                deterministic=isinstance(head, str) and (self.train == "head" or backbone.is_ours),
                layers=key if isinstance(head, str) else None,
            )

        if self.random_state is None or not isinstance(head, str):
            return make()
        return BEGINNINGS.make((key, input_shape, n_classes, self.optimizer, self.random_state), make)

    def _new_net(self, input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
        backbone = self._backbone()
        if self.train == "head":
            # Its weights have the backbone in their names: those of heads on another one are never taken for them.
            return nn.Sequential(OrderedDict([(backbone.reference, super()._new_net(input_shape, n_classes))]))
        head = super()._new_net((backbone.features(self.size),), n_classes)
        return FineTuned(backbone.preparation(self.size), backbone.copy_layers(), head)

    def _schedule(self, epochs: int, steps: int | None, lr: float, batch_size: int, weight_decay: float) -> Schedule:
        return super()._schedule(epochs, steps, lr, min(batch_size, self._trained_at_once or batch_size), weight_decay)

    def _train(self, *args: Any, **kwargs: Any) -> VisionClassifier:
        before = None
        if self.train == "all" and self.__sklearn_is_fitted__():
            before = self.get_weights()
        while True:
            try:
                super()._train(*args, **kwargs)
                return self
            except (RuntimeError, MemoryError) as error:
                wanted = self._trained_at_once or self.batch_size
                if self.train == "head" or wanted == 1 or not is_out_of_memory(error):
                    raise
                self._trained_at_once = wanted // 2
                _warn_of_memory(wanted, wanted // 2, "trained")
                if before is not None:
                    self.set_weights(before)

    def _begin(self, X: Any, said: Said, norm_batch: int | None = None, norm_rows: int | None = None) -> Late:
        while True:
            try:
                return super()._begin(X, said, norm_batch, norm_rows)
            except (RuntimeError, MemoryError) as error:
                wanted = self._answered_at_once
                one_size = norm_batch is not None or norm_rows is not None  # which fewer rows at a time do not change
                if self.train == "head" or wanted == 1 or one_size or not is_out_of_memory(error):
                    raise
                self._answered_at_once = wanted // 2
                _warn_of_memory(wanted, wanted // 2, "computed")


class FineTuned(nn.Module):
    """A backbone and the net on its features, as one net that takes images from 0 to 1."""

    def __init__(self, preparation: nn.Module, backbone: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.preparation, self.head = preparation, head
        self.add_module(BACKBONE, backbone)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.head(self.get_submodule(BACKBONE)(self.preparation(x)))
        return logits


def _warn_of_memory(images: int, half: int, done: str) -> None:
    text = f"{images} images do not fit into memory: {half} are {done} at a time."
    warnings.warn(text, CollegiumWarning, stacklevel=4)
