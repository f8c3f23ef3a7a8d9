"""A progress bar for long runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

RoundCallback = Callable[[int, int], None]


@contextmanager
def progress_bar(title: str, show: bool | None = None) -> Iterator[RoundCallback | None]:
    """A callback for each round's begin; None where nobody is watching."""
    if show is False or (show is None and not sys.stderr.isatty()):
        yield None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    bar = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True, force_terminal=show),
        transient=True,
    )
    with bar:
        task = bar.add_task(f"{title}: round", total=None)

        def begin(number: int, of: int) -> None:
            bar.update(task, completed=number, total=of)

        yield begin
