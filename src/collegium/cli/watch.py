"""``collegium watch``, and the page of ``collegium run --watch``."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from collegium.errors import CollegiumError
from collegium.runs.trail import FILE

if TYPE_CHECKING:
    from collegium.console.gathering import Gathering
    from collegium.console.serving import Console

Folders = Annotated[list[Path], typer.Argument(help="Folders of runs, or of studies with several.", metavar="RUN...")]
Host = Annotated[str, typer.Option(help="The address to listen on; others than 127.0.0.1 let other machines in.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on (default: any that is free).")]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(help="A further name under which browsers may ask, such as a proxy's.", metavar="NAME"),
]
Share = Annotated[int, typer.Option(min=0, max=100, help="Print so many further links, which can look and not act.")]
Open = Annotated[bool, typer.Option("--open", help="Open the page in this machine's browser.")]
_LINGER: Final = 600.0
"""Seconds without a browser after which the page of a run that is over goes away by itself."""


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


def announce(console: Console, share: int, *, open_page: bool) -> None:
    """Say where the page is."""
    link = console.link()
    typer.echo(f"Open in a browser (works once): {link}")
    for _ in range(share):
        typer.echo(f"To look, not to act (works once): {console.link('guest')}")
    if not console.is_local:
        typer.echo(
            f"Other machines can reach {console.host}, and nothing is encrypted on the way: put a proxy with TLS "
            "before it, or use 127.0.0.1 and `ssh -L`.",
            err=True,
        )
    typer.echo("Ctrl-C ends the page, not what it shows.")
    sys.stdout.flush()
    if open_page:
        webbrowser.open(link)


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
    assert page.stdout is not None  # noqa: S101
    typer.echo(page.stdout.readline().strip(), err=True)
    try:
        yield
    except BaseException:
        if not any(folder.glob(f"**/{FILE}")):  # nothing came of it: there is nothing to look at
            page.terminate()
        raise
