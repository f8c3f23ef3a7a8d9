"""Versions and the kind of machine, for the record of a run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from typing import Any, Final

_REPORTED: Final = (
    "collegium", "numpy", "scipy", "scikit-learn", "pandas", "pyarrow", "xgboost", "lightgbm", "imodels", "torch",
)  # fmt: skip


def environment() -> dict[str, Any]:
    """Versions and the kind of machine; nothing that names it."""
    versions = {}
    for package in _REPORTED:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "packages": versions,
    }
