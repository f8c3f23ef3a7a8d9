"""The machine a benchmark runs on: how many of its cores are used, and what it is, in words."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

import collegium
from collegium.runs.environment import gpus, processor

LIBRARIES = ("numpy", "scipy", "scikit-learn", "pandas")


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def limited_to(cores: int) -> Iterator[None]:
    """Run on so many cores. Threads and processes started inside are bound by it too.

    Where the system cannot pin (it is not Linux), nothing is limited.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(sorted(allowed)[-cores:]))
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)


def in_words() -> str:
    """Cores, processor, memory, GPUs and versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = "".join(f", {library} {metadata.version(library)}" for library in LIBRARIES)
    return (
        f"{', '.join([f'{available_cores()} cores ({processor()})', f'{memory:.0f} GiB of memory', *gpus()])}; "
        f"{platform.system()}, Python {platform.python_version()}, Collegium {collegium.__version__}{versions}"
    )
