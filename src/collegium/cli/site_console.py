"""``collegium site console``: the hospital's own page."""

from __future__ import annotations

import sys
import webbrowser
from contextlib import suppress
from typing import Annotated

import typer

from collegium.cli.options import KitFolder
from collegium.errors import MissingExtra


def console(
    kit: KitFolder,
    host: Annotated[
        str, typer.Option(help="The address to listen on; others than 127.0.0.1 let others in.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port (default: any that is free).")] = 0,
    allow_host: Annotated[
        list[str] | None, typer.Option(help="A further name under which browsers may ask.", metavar="NAME")
    ] = None,
    share: Annotated[
        int, typer.Option(min=0, max=100, help="Print so many further links, to look and not to act.")
    ] = 0,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in this machine's browser.")] = False,
) -> None:
    """Serve the site's own page: what leaves, what waits, the budget; for its owner also to approve, deny and pause."""
    from collegium.flare.site.postponed import SELDOM_USED, do_without_arrow, postpone

    do_without_arrow(kit / "site.toml")  # the page stays open for days, and reads no table
    postpone(SELDOM_USED)
    try:
        from collegium.console.serving import Console
        from collegium.console.site_pages import SitePages
    except ImportError:
        raise MissingExtra("console", "The site's page") from None
    pages = SitePages(kit)
    served = Console(pages.routes, f"collegium site console {kit}", host=host, port=port, names=allow_host or ())
    link = served.link()
    typer.echo(f"Open in a browser (works once): {link}")
    for _ in range(share):
        typer.echo(f"To look, not to act (works once): {served.link('guest')}")
    if not served.is_local:
        typer.echo(
            f"Other machines can reach {host}, and nothing is encrypted on the way: put a proxy with TLS before it, or "
            "use 127.0.0.1 and `ssh -L`.",
            err=True,
        )
    sys.stdout.flush()
    if open_page:
        webbrowser.open(link)
    try:
        with suppress(KeyboardInterrupt):
            served.run()
    finally:
        pages.close()
