"""Backbones in folders of Hugging Face's models and of timm's, built by those packages from what is on this machine."""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from collegium.errors import ConfigError, MissingExtra
from collegium.learners.vision.backbones import TIMM, Backbone
from collegium.learners.vision.folders import load
from collegium.learners.vision.weight_files import SAFE, find_weights, read_weights

_IMAGENET_MEAN: Final = (0.485, 0.456, 0.406)
_IMAGENET_STD: Final = (0.229, 0.224, 0.225)
_PREPROCESSOR: Final = "preprocessor_config.json"
_SIZE: Final = 224


def cached_folder(model: str) -> Path:
    """Where the hub's cache has a model of this name; a ConfigError says where to put it if it has not."""
    name = f"timm/{model.removeprefix(TIMM)}" if model.startswith(TIMM) else model
    try:
        hub = importlib.import_module("huggingface_hub")
    except ModuleNotFoundError as missing:
        raise MissingExtra("vision", f"The cached model {model!r}") from missing
    try:
        return Path(hub.snapshot_download(name, local_files_only=True))
    except Exception:  # the hub's own, of which there are many
        raise ConfigError(
            f"The model {model!r} is not on this machine, and nothing is downloaded unasked. Bring its files here, "
            f"config.json and model{SAFE}, for example with `hf download {name}` where there is a network, and name "
            "their folder."
        ) from None


def read_foreign(folder: Path, config: Mapping[str, Any]) -> Backbone:
    """The backbone in a folder with this config.json."""
    if isinstance(config.get("model_type"), str):
        return _read_transformers(folder, str(config["model_type"]))
    if isinstance(config.get("architecture"), str):
        return _read_timm(folder, config)
    raise ConfigError(f"{folder / 'config.json'} names neither a model_type nor an architecture.")


def _read_transformers(folder: Path, name: str) -> Backbone:
    try:
        transformers = importlib.import_module("transformers")
    except ModuleNotFoundError as missing:
        raise MissingExtra("vision", f"The model in {folder}") from missing
    if find_weights(folder).suffix != SAFE:
        raise ConfigError(f"{find_weights(folder)} is a pickle: bring the model{SAFE} of the same model.")
    with _quiet(transformers.utils.logging):
        try:
            model, info = transformers.AutoModel.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False, use_safetensors=True, output_loading_info=True
            )
        except Exception as error:  # whatever a model's own code raises
            raise ConfigError(f"{folder} holds no model that transformers can build: {error}") from None
    lacking = sorted(each for each in info["missing_keys"] if not each.startswith("pooler."))
    pooled = len(lacking) == len(info["missing_keys"])
    if lacking:
        more = f" and {len(lacking) - 5} more" if len(lacking) > 5 else ""
        raise ConfigError(f"The weights in {folder} are of another net: missing {', '.join(lacking[:5])}{more}.")
    side, mean, std = _preparation(folder, getattr(model.config, "image_size", None))
    channels = int(getattr(model.config, "num_channels", len(mean)))
    layers = Pooled(model.float(), pooled=pooled)
    return Backbone(name, layers, (channels, side, side), mean[:channels], std[:channels], is_ours=False)


class Pooled(nn.Module):
    """A model of transformers' that gives a row of features per image: as it pools them, or its first token's."""

    def __init__(self, model: nn.Module, *, pooled: bool) -> None:
        super().__init__()
        self.model, self._pooled = model, pooled

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        said = self.model(pixel_values=x)
        pooled = getattr(said, "pooler_output", None)
        if self._pooled and pooled is not None:
            return torch.flatten(pooled, 1)
        last: torch.Tensor = said.last_hidden_state
        return last[:, 0] if last.ndim == len(("rows", "tokens", "features")) else last.mean(dim=(2, 3))


def _preparation(folder: Path, image_size: Any) -> tuple[int, Sequence[float], Sequence[float]]:
    """The side of images, and the mean and deviation of their channels, that a model was trained with."""
    said: Mapping[str, Any] = {}
    if (folder / _PREPROCESSOR).is_file():
        try:
            said = json.loads((folder / _PREPROCESSOR).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ConfigError(f"{folder / _PREPROCESSOR} cannot be read as JSON: {error}") from None
    size = said.get("crop_size") if said.get("do_center_crop", True) and said.get("crop_size") else said.get("size")
    sides = size if isinstance(size, Mapping) else {"height": size}
    side = sides.get("height") or sides.get("shortest_edge") or image_size or _SIZE
    if not said.get("do_normalize", True):
        return int(side), (0.0,) * 3, (1.0,) * 3
    return int(side), said.get("image_mean", _IMAGENET_MEAN), said.get("image_std", _IMAGENET_STD)


@contextmanager
def _quiet(log: Any) -> Iterator[None]:
    """Without its progress bars and its tables of what was loaded: what matters is an error here."""
    before, bars = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(before)
        if bars:
            log.enable_progress_bar()


def _read_timm(folder: Path, config: Mapping[str, Any]) -> Backbone:
    try:
        timm = importlib.import_module("timm")
    except (ImportError, RuntimeError) as missing:  # torchvision's own error where it is of another build
        raise ConfigError(
            f"The model in {folder} is one of timm's, which cannot be imported here ({missing}). timm needs "
            "torchvision, and that must be of the very build of your torch, for the CPU or for CUDA: install "
            "torchvision from where torch came from, then timm. One from the package index beside a CPU torch breaks "
            "transformers, too."
        ) from None
    said = config.get("pretrained_cfg", config)
    try:
        layers = timm.create_model(
            config["architecture"], pretrained=False, num_classes=0, **config.get("model_args", {})
        )
        channels, height, width = (int(each) for each in said.get("input_size", (3, _SIZE, _SIZE)))
        mean, std = said.get("mean", _IMAGENET_MEAN), said.get("std", _IMAGENET_STD)
    except Exception as error:  # whatever a model's own code raises
        raise ConfigError(f"{folder} holds no model that timm can build: {error}") from None
    file = find_weights(folder)
    load(layers, read_weights(file), file)
    return Backbone(str(config["architecture"]), layers, (channels, height, width), mean, std, is_ours=False)
