"""Versions and the kind of machine, for the record of a run."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
from contextlib import suppress
from functools import cache
from pathlib import Path
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


def processor() -> str:
    """The kind of processor."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text().splitlines() if known.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def gpus() -> list[str]:
    """The kinds of GPUs."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    query = [tool, "--query-gpu=name", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True).stdout.splitlines()


@cache
def _versions() -> dict[str, str]:
    """Read once: it takes a while, and a run's tables are written again and again."""
    versions = {}
    for package in _REPORTED:
        with suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions
