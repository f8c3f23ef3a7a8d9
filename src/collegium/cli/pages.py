"""What the commands that serve a page share: their options, and how they say where it is."""

from __future__ import annotations

import sys
import webbrowser
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collegium.console.serving import Console

Host = Annotated[str, typer.Option(help="The address to listen on; others than 127.0.0.1 let other machines in.")]
Port = Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on (default: any that is free).")]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(help="A further name under which browsers may ask, such as a proxy's.", metavar="NAME"),
]
Share = Annotated[int, typer.Option(min=0, max=100, help="Print so many further links, which can look and not act.")]
Open = Annotated[bool, typer.Option("--open", help="Open the page in this machine's browser.")]


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
