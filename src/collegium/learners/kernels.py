"""Kernels for GPUs that Triton compiles when they are first needed. Triton comes with PyTorch for GPUs.

The environment variable COLLEGIUM_KERNELS=0 leaves all work to PyTorch's own.
"""

from __future__ import annotations

import os
import warnings
from contextlib import AbstractContextManager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from collegium.errors import CollegiumWarning


@cache
def compiled(module: str) -> Any:
    """A module of kernels, whose `try_out` has shown that they run here; None if they do not."""
    if os.environ.get("COLLEGIUM_KERNELS") == "0":
        return None
    if find_spec("triton") is None:
        return None
    try:
        kernels = import_module(module)
        kernels.try_out()
    except Exception as error:  # Triton needs a C compiler, and a GPU that it knows
        what = type(error).__name__
        text = f"Triton cannot compile kernels on this machine ({what}): nets are trained without, which takes longer."
        warnings.warn(text, CollegiumWarning, stacklevel=2)
        return None
    return kernels


def launching_beside(x: torch.Tensor) -> AbstractContextManager[None]:
    """A block in which Triton, which launches on the current GPU, does so on the one where this tensor is."""
    return torch.cuda.device(x.device.index if x.is_cuda else -1)
