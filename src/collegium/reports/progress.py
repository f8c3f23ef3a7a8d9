"""A progress bar for long runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

RoundCallback = Callable[[int, int], None]


@contextmanager
def progress_bar(title: str, show: bool | None = None) -> Iterator[RoundCallback | None]:
    """A callback for the start of each round; None where nobody is watching."""
    if show is False or (show is None and not sys.stderr.isatty()):
        yield None
        return
    from rich import progress
    from rich.console import Console

    kinds = (progress.BarColumn, progress.MofNCompleteColumn, progress.TimeElapsedColumn, progress.TimeRemainingColumn)
    columns = (progress.TextColumn("{task.description}"), *(kind() for kind in kinds))
    bar = progress.Progress(*columns, console=Console(stderr=True, force_terminal=show), transient=True)
    with bar:
        task = bar.add_task(f"{title}: round", total=None)

        def begin(number: int, of: int) -> None:
            bar.update(task, completed=number, total=of)

        yield begin
