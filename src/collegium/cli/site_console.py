"""``collegium site console``: the hospital's own page."""

from __future__ import annotations

from contextlib import suppress

from collegium.cli.options import KitFolder
from collegium.cli.pages import AllowHost, Host, Open, Port, Share, announce
from collegium.errors import MissingExtra


def console(
    kit: KitFolder,
    host: Host = "127.0.0.1",
    port: Port = 0,
    allow_host: AllowHost = None,
    share: Share = 0,
    open_page: Open = False,
) -> None:
    """Serve the site's own page: what leaves, what waits, the budget; for its owner also to approve, deny and pause."""
    from collegium.flare.site.postponed import SELDOM_USED, postpone

    # the page stays open for days: of SciPy it needs little, of scikit-learn nothing
    postpone({name: taken for name, taken in SELDOM_USED.items() if name.startswith("scipy.")})
    try:
        from collegium.console.serving import Console
        from collegium.console.site_pages import SitePages
    except ImportError:
        raise MissingExtra("console", "The site's page") from None
    pages = SitePages(kit)
    served = Console(pages.routes, f"collegium site console {kit}", host=host, port=port, names=allow_host or ())
    announce(served, share, open_page=open_page)
    try:
        with suppress(KeyboardInterrupt):
            served.run()
    finally:
        pages.close()
