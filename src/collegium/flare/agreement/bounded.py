"""Work with what somebody else chose, in a process of its own: it is ended when it takes too long or too much."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any, Final, TypeVar

T = TypeVar("T")
MEMORY: Final = 8 << 30
"""Bytes that the work may take."""


class Overrun(Exception):
    """The work took too long or too much memory, and was ended."""


def bounded(work: Callable[..., T], *arguments: Any, seconds: float) -> T:
    """What the work returns; it must not raise. Overrun if it is not done in time, or cannot be for want of memory."""
    context = multiprocessing.get_context("spawn")
    result, answer = context.Pipe(duplex=False)
    process = context.Process(target=_carry_out, args=(answer, work, arguments), daemon=True)
    process.start()
    answer.close()
    try:
        if not result.poll(seconds):
            raise Overrun(f"it takes longer than {seconds:.0f} s here")
        done: T = result.recv()
    except EOFError:
        raise Overrun("its process ended early, perhaps for want of memory") from None
    finally:
        process.kill()
        process.join()
        result.close()
    return done


def _carry_out(answer: Connection, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard), hard))
    answer.send(work(*arguments))
