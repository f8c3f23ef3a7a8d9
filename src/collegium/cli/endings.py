"""How commands that run studies end, and how they are continued."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from collegium.runs.trail import COMMAND


@contextmanager
def ended_by(number: signal.Signals) -> Iterator[None]:
    """A polite request to end is an interruption like Ctrl-C, so that whatever was started ends too."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(number, interrupt)
    try:
        yield
    finally:
        signal.signal(number, before)


@contextmanager
def continued_by(command: str, *words: object, changes: Sequence[str] | None = None) -> Iterator[None]:
    """Let runs that are started in here know which command would continue them."""
    given = [word for change in changes or () for word in ("--set", change)]
    token = COMMAND.set([command, *(str(w.resolve()) if isinstance(w, Path) else str(w) for w in words), *given])
    try:
        yield
    finally:
        COMMAND.reset(token)
