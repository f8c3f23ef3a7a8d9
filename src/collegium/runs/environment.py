"""Versions and the kind of machine, for the record of a run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from functools import cache
from typing import Any, Final

_REPORTED: Final = (
    "collegium", "numpy", "scipy", "scikit-learn", "pandas", "pyarrow", "xgboost", "lightgbm", "imodels", "torch",
)  # fmt: skip


def environment() -> dict[str, Any]:
    """Versions and the kind of machine; nothing that names it."""
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "packages": dict(_versions()),
    }


@cache  # it reads a file of each package, and a run that shows its state asks after every round
def _versions() -> dict[str, str]:
    versions = {}
    for package in _REPORTED:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions
