"""Many runs at a time, each on cores of its own, and what they found kept, so that a benchmark can be gone on with."""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import collegium as cg
from benchmarks.machine import available_cores, in_words

Found = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One run: a function of a module and its arguments, and how many cores it is worth."""

    work: Callable[..., Found]
    arguments: tuple[Any, ...]
    cores: int = 1


def in_parallel(
    tasks: Mapping[str, Task], jobs: int = 0, keep: str = "", pin: bool = True, measure: bool = True
) -> Iterator[tuple[str, Found]]:
    """What the tasks found and on which `machine`, by name, as they end; those that come first start first.

    `jobs` cores are shared out (default: all), and with `pin` each task is bound to its own. `keep` names a folder that
    gets what was found, a JSON file per task. What is there already is not measured again, and without `measure`
    nothing is. A task that fails is told of at once; the others go on, and the first error is raised at the end.
    """
    folder = Path(keep) if keep else None
    waiting = dict(tasks)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for name in [name for name in tasks if (folder / f"{name}.json").is_file()]:
            del waiting[name]
            yield name, json.loads((folder / f"{name}.json").read_text())
    if not measure:
        return
    where = in_words()
    free = _cores(jobs)
    all_cores = len(free)
    running: dict[Future[Found], tuple[str, list[int]]] = {}
    failed: list[BaseException] = []
    # Spawned, not forked: numerical libraries with threads of their own do not survive a fork.
    with ProcessPoolExecutor(all_cores, multiprocessing.get_context("spawn")) as pool:
        while waiting or running:
            for name, task in list(waiting.items()):
                share = min(task.cores, all_cores)
                if share <= len(free):
                    cores, free = free[:share], free[share:]
                    running[pool.submit(_work, task, cores if pin else None)] = name, cores
                    del waiting[name]
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                name, cores = running.pop(future)
                free += cores
                if (error := future.exception()) is not None:
                    print(f"{name} failed: {error}", file=sys.stderr)
                    failed.append(error)
                    continue
                found = future.result() | {"machine": where}
                if folder is not None:
                    (folder / f"{name}.json").write_text(json.dumps(found))
                yield name, found
    if failed:
        raise failed[0]


def undisturbed(run: cg.Run) -> cg.Run:
    """The run, if no site failed in it: what the others found without one is another measurement."""
    failures = run.refusals[run.refusals["code"] == "step-failed"]
    if len(failures):
        sites = ", ".join(sorted(set(failures["party"])))
        raise RuntimeError(f"{len(failures)} steps failed at {sites}: nothing was measured.")
    return run


def _cores(jobs: int) -> list[int]:
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(available_cores()))
    return allowed[: jobs or None]


def _work(task: Task, cores: list[int] | None) -> Found:
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)
    return task.work(*task.arguments)


def machines(found: Iterable[Found]) -> str:
    """All machines on which something was found."""
    return ". Some runs: ".join(sorted({run["machine"] for run in found}))
