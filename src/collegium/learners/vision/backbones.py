"""Pre-trained nets that turn images into features, and where they are found: always here, never in the network."""

from __future__ import annotations

import copy
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.nn import functional

from collegium.errors import ConfigError
from collegium.learners.language.folders import folder_of
from collegium.learners.vision.weight_files import content_digest
from collegium.registry import nearest

Shape = tuple[int, int, int]
TIMM: Final = "timm:"
COLOUR: Final = 3
_loading = threading.RLock()


@dataclass(frozen=True, eq=False)
class Backbone:
    """A net without its head. `layers` gives the features of images that are prepared as it was trained with."""

    name: str
    layers: nn.Module = field(repr=False)
    shape: Shape
    """(channels, height, width) of the images that it was trained with."""
    mean: Sequence[float]
    std: Sequence[float]
    """What is taken off a channel from 0 to 1, and what it is then divided by."""
    is_ours: bool = True
    """Whether its layers are ours, and draw no random numbers that we do not know of."""
    digest: str = field(init=False)
    """The hash of its weights, and of how images are prepared for it."""

    def __post_init__(self) -> None:
        if not all(bool(value.isfinite().all()) for value in self.layers.state_dict().values()):
            raise ConfigError(f"The weights of the backbone {self.name!r} are NaN or infinite: get another file.")
        self.layers.eval().requires_grad_(False)
        how = {"how": torch.tensor([*self.shape, *self.mean, *self.std], dtype=torch.float64)}
        object.__setattr__(self, "digest", content_digest(self.layers.state_dict() | how))

    @property
    def reference(self) -> str:
        """Its name and hash: what a stored model keeps of it, and what nets on it are called."""
        return f"{self.name.replace('.', '_')}@{self.digest[:16]}"

    def at(self, size: int | None) -> Shape:
        """The shape of images that it is given: as it was trained with, or with sides of so many pixels."""
        return self.shape if size is None else (self.shape[0], size, size)

    def features(self, size: int | None) -> int:
        """How many features an image has."""
        try:
            with torch.inference_mode():
                found = self.layers(torch.zeros(1, *self.at(size)))
        except Exception as misfit:
            if size is None:
                raise ConfigError(f"{self.name!r} is no backbone for images of shape {self.shape}: {misfit}") from None
            raise ConfigError(
                f"The backbone {self.name!r} takes images of {self.shape[1]}x{self.shape[2]} pixels, and not of "
                f"size={size}: leave size out."
            ) from None
        if found.ndim != 2:  # rows, features
            raise ConfigError(f"The backbone {self.name!r} gives no row of features per image: {tuple(found.shape)}.")
        return int(found.shape[1])

    def preparation(self, size: int | None) -> Preparation:
        """The layer before it."""
        return Preparation(self.at(size), self.mean, self.std)

    def copy_layers(self) -> nn.Module:
        """Its layers, to be trained."""
        layers = copy.deepcopy(self.layers).requires_grad_(True)
        return layers.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload,no-any-return]


class Preparation(nn.Module):
    """Makes of images from 0 to 1, of any size, grey or in color, what a backbone was trained with."""

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, shape: Shape, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self._shape = shape
        # They are no weights: methods that average these must not see them.
        self.register_buffer("mean", torch.tensor(list(mean)).view(-1, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(list(std)).view(-1, 1, 1), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        channels, *size = self._shape
        if list(x.shape[-2:]) != size:
            x = functional.interpolate(x, size=size, mode="bicubic", antialias=True)
        if x.shape[1] == 1 and channels == COLOUR:
            x = x.expand(-1, channels, -1, -1)
        prepared: torch.Tensor = (x - self.mean) / self.std
        return prepared


def check_channels(channels: int, backbone: Backbone, name: str) -> None:
    """A ConfigError where images cannot be made what the backbone takes."""
    wanted = backbone.shape[0]
    if channels not in {wanted, 1}:
        raise ConfigError(
            f"{name} has images with {channels} channels, and the backbone {backbone.name!r} takes {wanted}: convert "
            "them first."
        )


def find_backbone(model: Any) -> Backbone:
    """The backbone that a folder holds, or that a name stands for; it is read once in a process.

    A name is that of a folder in the one that COLLEGIUM_MODELS names; of an installed package of weights, such as
    "efficientnet-lite0"; "timm:" and a name of timm's; or one of Hugging Face's: the last two are looked for in the
    cache of its hub on this machine.
    """
    from collegium.learners.vision import folders, packages

    if not isinstance(model, str | Path) or not str(model).strip():
        raise ConfigError(f"model must name a folder or a backbone, got {model!r}.")
    path = Path(model).expanduser()
    if not path.exists() and path.name == str(model) and folder_of(path.name).is_dir():
        path = folder_of(path.name)
    with _loading:  # sites of one process ask for it at the same time
        if str(model) in packages.KNOWN and not Path(model).is_dir():
            file = packages.find_file(str(model))
            return _read(packages.read_package, str(model), file, _state_of(file))
        if path.is_dir():
            return _read(folders.read_folder, path.resolve(), _state_of(path))
        if str(model).startswith(TIMM) or (str(model).count("/") == 1 and not path.is_absolute()):
            from collegium.learners.vision import foreign

            return find_backbone(foreign.cached_folder(str(model)))
    if path.is_file():
        raise ConfigError(f"model names the file {path}: name its folder, and describe it there in {folders.RECIPE}.")
    hint = nearest(str(model), packages.KNOWN)
    raise ConfigError(
        f"There is no backbone {str(model)!r}: no such folder here, and no such name.{hint} Known: "
        f"{', '.join(packages.KNOWN)}; or name a folder with {folders.RECIPE} and model.safetensors."
    )


@lru_cache(maxsize=8)
def _read(read: Any, *where: Any) -> Backbone:
    """`where` ends with the state of the files: when they have changed, they are read again."""
    found: Backbone = read(*where[:-1])
    return found


def _state_of(path: Path) -> tuple[tuple[str, int, int], ...]:
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    states = ((file.name, file.stat()) for file in files if file.is_file())
    return tuple((name, status.st_size, status.st_mtime_ns) for name, status in states)
