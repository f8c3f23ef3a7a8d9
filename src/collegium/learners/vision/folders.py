"""Backbones in folders: backbone.json says which net it is, and beside it are its weights.

```json
{"net": "resnet8", "input_shape": [3, 32, 32], "mean": [0.0, 0.0, 0.0], "std": [1.0, 1.0, 1.0], "sha256": "..."}
```

`net` is a name from `learners.nets.named.NETS`. `mean` and `std`, of channels from 0 to 1, may be left out, and so may
`sha256`, the hash of the file of weights. `save_backbone` writes such a folder. A folder of Hugging Face's or timm's,
with config.json, is one as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from collegium.core.settings import FiniteFloat, PositiveFloat, PositiveInt, Settings
from collegium.data.files import sha256_of
from collegium.errors import ConfigError, MissingExtra
from collegium.learners.nets import named as nets
from collegium.learners.torch import weights as named
from collegium.learners.vision.backbones import Backbone, Shape
from collegium.learners.vision.weight_files import State, find_weights, read_weights

RECIPE: Final = "backbone.json"
CONFIG: Final = "config.json"
WEIGHTS: Final = "model.safetensors"
_COUNTED: Final = "num_batches_tracked"


@dataclass(frozen=True)
class Recipe(Settings):
    """What backbone.json says."""

    net: str
    input_shape: list[PositiveInt]
    mean: list[FiniteFloat] | None = None
    std: list[PositiveFloat] | None = None
    weights: str | None = None
    sha256: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.input_shape) != len(("channels", "height", "width")):
            raise ConfigError(f"input_shape must be [channels, height, width], got {self.input_shape}.")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) != self.input_shape[0]:
                raise ConfigError(f"{name} must have {self.input_shape[0]} numbers, one per channel.")
        if self.weights is not None and Path(self.weights).name != self.weights:
            raise ConfigError(f"weights must be the name of a file in the same folder, got {self.weights!r}.")

    @property
    def shape(self) -> Shape:
        """(channels, height, width)."""
        channels, height, width = self.input_shape
        return channels, height, width

    def backbone(self, state: State, where: object) -> Backbone:
        """The net that it names, with these weights."""
        layers = layers_of(self.net, self.shape)
        load(layers, state, where)
        channels = self.shape[0]
        return Backbone(
            self.net, layers, self.shape, tuple(self.mean or [0.0] * channels), tuple(self.std or [1.0] * channels)
        )


def read_folder(folder: Path) -> Backbone:
    """The backbone in a folder."""
    if (folder / RECIPE).is_file():
        try:
            recipe = Recipe(**_json(folder / RECIPE))
        except (ConfigError, TypeError) as error:
            raise ConfigError(f"{folder / RECIPE}: {error}") from None
        file = find_weights(folder) if recipe.weights is None else folder / recipe.weights
        if not file.is_file():
            raise ConfigError(f"{folder / RECIPE} names the weights {file.name}, which are not there: put them there.")
        return recipe.backbone(read_weights(file, recipe.sha256), file)
    if (folder / CONFIG).is_file():
        from collegium.learners.vision import foreign

        return foreign.read_foreign(folder, _json(folder / CONFIG))
    raise ConfigError(
        f"{folder} is no backbone: it has neither {RECIPE} nor {CONFIG}. Describe the weights in {RECIPE}, such as "
        '{"net": "resnet8", "input_shape": [3, 32, 32]}.'
    )


def layers_of(net: str, shape: Shape) -> nn.Module:
    """The net of this name without its head."""
    layers = nets.build(net, shape, 2)
    head = named.find_head(layers, shape)
    if not named.read(layers, "features", head):
        raise ConfigError(f"The net {net!r} is one linear layer and has no features: use another net.")
    parent, _, own = head.rpartition(".")
    setattr(layers.get_submodule(parent), own, nn.Identity())
    return layers


def load(layers: nn.Module, state: Mapping[str, torch.Tensor], where: object) -> None:
    """Put weights into layers; a ConfigError says which are missing or do not fit.

    Weights of a head, with which nets are stored, are left out: those of one last linear layer.
    """
    wanted = {name: tuple(value.shape) for name, value in layers.state_dict().items() if _counts(name)}
    given = {name: value.float() for name, value in state.items() if _counts(name)}
    unknown = given.keys() - wanted.keys()
    if len({name.rpartition(".")[0] for name in unknown}) == 1:
        given = {name: value for name, value in given.items() if name not in unknown}
    named.check({name: value.numpy() for name, value in given.items()}, wanted, f"The weights in {where}")
    layers.load_state_dict(given, strict=False)


def save_backbone(
    folder: str | Path,
    net: str,
    weights: Mapping[str, NDArray[Any]],
    input_shape: Sequence[int],
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> Path:
    """Write a backbone into a folder, for `VisionClassifier` and `Pretrained` at every site.

    `weights` are those of the features of the named net, such as `SimCLR.pretrain` returns them, or of the whole net;
    `input_shape` is (channels, height, width). The net was trained with channels from 0 to 1 less `mean`, over `std`.
    """
    try:
        from safetensors.numpy import save_file
    except ModuleNotFoundError as missing:
        raise MissingExtra("vision", "Saving a backbone") from missing
    place = Path(folder).expanduser()
    means, deviations = (None if values is None else list(values) for values in (mean, std))
    recipe = Recipe(net, list(input_shape), mean=means, std=deviations)
    arrays = {name: np.ascontiguousarray(value, dtype=np.float32) for name, value in weights.items()}
    recipe.backbone({name: torch.from_numpy(value) for name, value in arrays.items()}, "`weights`")  # do they fit?
    place.mkdir(parents=True, exist_ok=True)
    save_file(arrays, place / WEIGHTS)
    complete = replace(recipe, weights=WEIGHTS, sha256=sha256_of(place / WEIGHTS))
    text = json.dumps({name: value for name, value in asdict(complete).items() if value is not None}, indent=2)
    (place / RECIPE).write_text(text + "\n", encoding="utf-8")
    return place


def _json(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read as JSON: {error}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{file} must hold a JSON object.")
    return content


def _counts(name: str) -> bool:
    """Batch norm's count of batches says nothing of what it learned, and is not stored everywhere."""
    return name.rpartition(".")[2] != _COUNTED
