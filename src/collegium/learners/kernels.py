"""Kernels for GPUs that Triton compiles when they are first needed. Triton comes with PyTorch for GPUs.

The environment variable COLLEGIUM_KERNELS=0 leaves all work to PyTorch's own.
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from importlib import import_module
from typing import Any

from collegium.errors import CollegiumWarning


@cache
def compiled(module: str) -> Any:
    """A module of kernels, whose `try_out` has shown that they run here; None if they do not."""
    if os.environ.get("COLLEGIUM_KERNELS") == "0":
        return None
    try:
        kernels = import_module(module)
    except ImportError:  # no Triton
        return None
    try:
        kernels.try_out()
    except Exception as error:  # Triton needs a C compiler, and a GPU that it knows
        what = type(error).__name__
        text = f"Triton cannot compile kernels on this machine ({what}): nets are trained without, which takes longer."
        warnings.warn(text, CollegiumWarning, stacklevel=2)
        return None
    return kernels
