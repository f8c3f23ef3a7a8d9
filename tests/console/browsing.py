"""A real Chromium for tests of pages: what it complains about, and what axe finds."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from importlib import resources
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.waiting import seconds

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
in_browser = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium here (chromium, google-chrome)")
together = pytest.mark.xdist_group("chromium")
"""One browser serves all tests of one process: they go to the same one."""
PICTURES = os.environ.get("COLLEGIUM_PICTURES")
"""Where pictures for the docs go, such as docs/images; without it none are taken."""
REBOUND = "rebound.example"
"""A name of a website that points to this machine, by our browser's lights."""
_SWITCHES = (
    f"--host-resolver-rules=MAP {REBOUND} 127.0.0.1",
    "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-quic", "--no-first-run", "--disable-features=Translate,MediaRouter,OptimizationHints",
)  # fmt: skip


class Chromium:
    """A browser, and its processes: for some of its answers Playwright would wait for ever."""

    def __init__(self, browser: Any, processes: list[psutil.Process]) -> None:
        self._browser, self._processes = browser, processes

    def new_context(self, **options: Any) -> Any:
        return self._browser.new_context(**options)

    @contextmanager
    def limited(self, idle: float = 120.0) -> Iterator[None]:
        """End the browser if the block takes longer: whoever waits for it gets an error."""
        timer = threading.Timer(seconds(idle), self._kill)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def processor_time(self) -> float:
        """Seconds that all of its processes have taken."""
        found = {each for parent in self._processes if parent.is_running() for each in parent.children(recursive=True)}
        total = 0.0
        for process in {*self._processes, *found}:
            with suppress(psutil.Error):
                total += sum(process.cpu_times()[:4])
        return total

    def _kill(self) -> None:
        for process in self._processes:
            with suppress(psutil.Error):
                process.kill()


@contextmanager
def chromium() -> Iterator[Chromium]:
    """A browser that is started once."""
    playwright = pytest.importorskip("playwright.sync_api")
    others = psutil.Process().children(recursive=True)
    with ExitStack() as stack:
        driver = stack.enter_context(playwright.sync_playwright())
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, headless=True, chromium_sandbox=False, args=list(_SWITCHES)
        )
        here = [each for each in psutil.Process().children(recursive=True) if each not in others]
        started = Chromium(browser, here)
        try:
            yield started
        finally:
            stack.enter_context(started.limited())
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
        pytest.importorskip("axe_playwright_python")
        axe = resources.files("axe_playwright_python") / "axe.min.js"
        self.page.evaluate(axe.read_text(encoding="utf-8"))
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
