"""Weights in files: safetensors, or a state dict that torch reads without running any code. Nothing else is opened."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch

from collegium.data.files import sha256_of
from collegium.errors import ConfigError, MissingExtra

State = dict[str, torch.Tensor]
SAFE: Final = ".safetensors"
STATE_DICTS: Final = (".pth", ".pt", ".bin")
_NO_WEIGHTS: Final = (".pkl", ".pickle", ".joblib")


def read_weights(file: Path, sha256: str | None = None) -> State:
    """Tensors by name; a ConfigError for a file with another hash, or with anything but tensors in it."""
    if sha256 is not None:
        found = sha256_of(file)
        if found != sha256:
            raise ConfigError(
                f"{file} is not the file that was expected: its sha256 is {found}, not {sha256}. Get the right file, "
                "or, if you trust this one, change the hash beside it."
            )
    if file.suffix == SAFE:
        return _read_safetensors(file)
    if file.suffix in STATE_DICTS:
        return _read_state_dict(file)
    raise ConfigError(f"{file} is no file of weights: save them as {SAFE}, or as a state dict (.pth).")


def find_weights(folder: Path) -> Path:
    """The one file of weights in a folder."""
    files = sorted(file for file in folder.iterdir() if file.suffix in (SAFE, *STATE_DICTS, *_NO_WEIGHTS))
    chosen = [file for file in files if file.suffix == SAFE] or [file for file in files if file.suffix in STATE_DICTS]
    if len(chosen) == 1:
        return chosen[0]
    if chosen:
        names = ", ".join(file.name for file in chosen)
        raise ConfigError(f"{folder} has several files of weights: {names}. Keep the one that is meant.")
    if files:
        raise ConfigError(
            f"{folder / files[0].name} is a pickle, which can run code when it is opened: it is refused. Save the "
            f"weights as model{SAFE}."
        )
    raise ConfigError(f"{folder} has no weights: put model{SAFE} there, or a state dict saved by torch (.pth).")


def content_digest(state: Mapping[str, torch.Tensor]) -> str:
    """The hash of tensors by name: the same for the same numbers, whatever file they came in."""
    digest = hashlib.sha256()
    for name in sorted(state):
        values = state[name].detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)} ".encode())
        digest.update(values.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _read_safetensors(file: Path) -> State:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ModuleNotFoundError as missing:
        raise MissingExtra("vision", f"Reading {file.name}") from missing
    try:
        state: State = load_file(file)
    except (SafetensorError, OSError, ValueError) as error:
        raise ConfigError(f"{file} is no safetensors file that can be read: {_first_line(error)}") from None
    return state


def _read_state_dict(file: Path) -> State:
    """As `torch.save(net.state_dict(), file)` wrote it: with `weights_only`, torch unpickles nothing but tensors."""
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise ConfigError(
            f"{file} holds more than tensors: to open it would run code, so it is refused. Save the weights alone: "
            "torch.save(net.state_dict(), ...), or better as safetensors."
        ) from None
    except (OSError, EOFError, RuntimeError, ValueError, KeyError) as error:
        raise ConfigError(f"{file} is no state dict that can be read: {_first_line(error)}") from None
    if not isinstance(state, Mapping) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ConfigError(f"{file} holds no tensors by name: save net.state_dict() itself.")
    return {str(name): value for name, value in state.items()}


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0] or type(error).__name__
