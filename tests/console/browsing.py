"""A real Chromium for tests of pages: what it complains about, and what axe finds."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here (chromium, google-chrome)")
together = pytest.mark.xdist_group("chromium")
"""One browser serves all tests of one process: they go to the same one."""
PICTURES = os.environ.get("COLLEGIUM_PICTURES")
"""Where pictures for the docs go, such as docs/images; without it none are taken."""
_SWITCHES = (
    "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-quic", "--no-first-run", "--disable-features=Translate,MediaRouter,OptimizationHints",
)  # fmt: skip
_AXE = Path(__file__).with_name("axe") / "axe.min.js"


@contextmanager
def chromium() -> Iterator[Any]:
    """A browser that is started once."""
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, headless=True, chromium_sandbox=False, args=list(_SWITCHES)
        )
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """A page in a browser of its own: no cookies but those that it gets."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}} | options)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.page.on("console", lambda message: self._keep(message.type, message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _keep(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    def findings(self, *impacts: str) -> list[str]:
        """What axe finds that matters to people who use a keyboard or a screen reader."""
        self.page.evaluate(_AXE.read_text(encoding="utf-8"))
        found = self.page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        wanted = impacts or ("serious", "critical")
        return [
            f"{each['id']}: {each['help']} ({each['nodes'][0]['html'][:200]})"
            for each in found["violations"]
            if each["impact"] in wanted
        ]

    def picture(self, name: str, **options: Any) -> None:
        """A picture for the docs, if they are wanted."""
        if PICTURES:
            self.page.screenshot(path=str(Path(PICTURES) / f"{name}.png"), **options)

    def close(self) -> None:
        self.context.close()
