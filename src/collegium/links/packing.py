"""What is sent to a process that will host sites: the sites, where to find modules, and the user's own steps."""

from __future__ import annotations

import contextlib
import os
import pickle
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

import cloudpickle

from collegium import registry
from collegium.core import own_files
from collegium.core.site import Site
from collegium.core.steps import INSTALLED
from collegium.links.hosting import Hosting


def split(hosting: Hosting, processes: int) -> list[Hosting]:
    """The sites by process: the largest first, each to the process with the fewest rows so far.

    The public set is left out: all processes share one copy of it.
    """
    load, home = [0] * processes, {}
    for site in sorted(hosting.sites, key=len, reverse=True):
        process = load.index(min(load))
        home[site.name] = process
        load[process] += max(1, len(site))
    parts = [tuple(site for site in hosting.sites if home[site.name] == process) for process in range(processes)]
    return [replace(hosting, public=None, sites=part) for part in parts]


def split_alike(hosting: Hosting, processes: int) -> list[Hosting]:
    """The sites by process, those with the same learner side by side; about as many rows for each process.

    There are fewer processes if one site has most of the rows.
    """
    alike: dict[str, list[Site]] = {}
    for site in hosting.sites:
        learner = re.sub(r" at 0x[0-9a-f]+", "", repr(site.learner))  # equal nets are different objects
        alike.setdefault(learner, []).append(site)
    total, before, home = sum(max(1, len(site)) for site in hosting.sites), 0, {}
    for site in (site for group in alike.values() for site in group):
        size = max(1, len(site))
        home[site.name] = (2 * before + size) * processes // (2 * total)  # by where its middle row lies
        before += size
    parts = [tuple(site for site in hosting.sites if home[site.name] == process) for process in range(processes)]
    return [replace(hosting, public=None, sites=part) for part in parts if part]


def pack(content: Any, file: IO[bytes]) -> None:
    """Write something for another process of this simulation, with the user's own code."""
    # Paths and the user's files come first and alone: the rest may need modules that are found through them only.
    for part in (sys.path, own_files.FILES, content, registry.OWN, _users_own_steps()):
        cloudpickle.dump(part, file)


def unpack(file: IO[bytes]) -> Any:
    """The content, with all steps installed that it was packed with."""
    paths = pickle.load(file)
    sys.path[:] = [*paths, *(path for path in sys.path if path not in paths)]
    own_files.adopt(pickle.load(file))
    content = pickle.load(file)
    registry.OWN.update(pickle.load(file))
    registry.install_steps()
    for packed in pickle.load(file):
        with contextlib.suppress(Exception):  # a step whose module is not found here stays unknown
            step = pickle.loads(packed)
            INSTALLED[step.name] = step
    return content


def python_path() -> str:
    """The PYTHONPATH with which a new process finds this package, installed or not."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.environ.get("PYTHONPATH")
    return root if not path else os.pathsep.join([root, path])


def _users_own_steps() -> list[bytes]:
    """Steps that do not come with the package. One that cannot be packed is left out: sites will refuse it."""
    packed = []
    for step in INSTALLED.values():
        module = step.function.__module__
        if not module.startswith("collegium.") and module not in own_files.FILES:
            with contextlib.suppress(Exception):
                packed.append(cloudpickle.dumps(step))
    return packed
