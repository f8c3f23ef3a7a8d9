"""Versions and the kind of machine, for the record of a run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from contextlib import suppress
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


@cache
def _versions() -> dict[str, str]:
    """Read once: it takes a while, and a run's tables are written again and again."""
    versions = {}
    for package in _REPORTED:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions
