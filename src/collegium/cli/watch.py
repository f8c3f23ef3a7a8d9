"""``collegium watch``, and the page of ``collegium run --watch``."""

from __future__ import annotations

import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from collegium.cli.pages import AllowHost, Host, Open, Port, Share, announce
from collegium.errors import CollegiumError
from collegium.runs.trail import FILE

if TYPE_CHECKING:
    from collegium.console.gathering import Gathering
    from collegium.console.serving import Console

Folders = Annotated[list[Path], typer.Argument(help="Folders of runs, or of studies with several.", metavar="RUN...")]
_LINGER: Final = 600.0
"""Seconds without a browser after which the page of a run that is over goes away by itself."""
_PATIENCE: Final = 60.0
"""Seconds that a run waits for the link of its page."""


def watch(
    runs: Folders,
    host: Host = "127.0.0.1",
    port: Port = 0,
    allow_host: AllowHost = None,
    share: Share = 0,
    open_page: Open = False,
    until_left: Annotated[bool, typer.Option("--until-left", hidden=True)] = False,
) -> None:
    """Watch runs in a browser while they go on, or look at finished ones; several are compared."""
    from collegium.console.gathering import Gathering
    from collegium.console.serving import Console
    from collegium.console.watching import Watch

    gathering = Gathering([folder.absolute() for folder in runs], wait=until_left)
    gathering.look()
    if len(gathering.runs) == 1 and gathering.runs[0].problem:
        raise CollegiumError(gathering.runs[0].problem)
    console = Console(Watch(gathering).routes, "collegium watch", host=host, port=port, names=allow_host or ())
    announce(console, share, open_page=open_page)
    if until_left:
        threading.Thread(target=_end_when_left, args=(console, gathering), daemon=True).start()
    with suppress(KeyboardInterrupt):
        console.run()


def _end_when_left(console: Console, gathering: Gathering) -> None:
    """End a page that came with a run, once the run is over and no browser has been there for a while."""
    idle = time.monotonic()
    while True:
        time.sleep(1.0)
        gathering_is_quiet = gathering.is_over and not gathering.watching
        idle = idle if gathering_is_quiet else time.monotonic()
        if time.monotonic() - idle > _LINGER:
            console.stop()
            return


@contextmanager
def watched(folder: Path, *, wanted: bool) -> Iterator[None]:
    """A page of its own process for a run that is about to begin; it outlives the run, while somebody looks at it."""
    if not wanted:
        yield
        return
    import collegium.console  # noqa: F401  (an error that names the extra, before anything runs)

    command = [sys.executable, "-m", "collegium", "watch", str(folder), "--until-left"]
    page = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    typer.echo(_first_line(page) or "The page has not come up: `collegium watch` shows the run.", err=True)
    try:
        yield
    except BaseException:
        if not any(folder.glob(f"**/{FILE}")):  # nothing came of it: there is nothing to look at
            page.terminate()
        raise


def _first_line(page: subprocess.Popen[str]) -> str:
    """What the page's process says first; nothing if it does not in time, since a run must not wait for its page."""
    assert page.stdout is not None  # noqa: S101
    with selectors.DefaultSelector() as waiting:
        waiting.register(page.stdout, selectors.EVENT_READ)
        return page.stdout.readline().strip() if waiting.select(_PATIENCE) else ""
