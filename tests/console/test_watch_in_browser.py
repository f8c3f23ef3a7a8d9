"""The page of a run in a real browser. COLLEGIUM_PICTURES=docs/images keeps pictures for the docs."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.console.browsing import Tab, in_browser, together
from tests.console.trails import Writer, a_round, about, beginning, totals, write, writing

from collegium.console.gathering import Gathering
from collegium.console.serving import Console
from collegium.console.watching import Watch
from collegium.runs.trail import STOP

pytestmark = [in_browser, together]
START = time.time() - 90
FINISHED = {"k": "end", "t": START + 61, "how": "finished", "why": ""}
HOSPITALS = ["North", "East", "South", "West", "Centre"]


@contextmanager
def watching(*folders: Path) -> Iterator[Console]:
    with Console(Watch(Gathering(list(folders))).routes, "collegium watch").in_background() as console:
        yield console


def course(parties: list[str], rounds: int, of: int, best: float = 0.95) -> list[dict[str, Any]]:
    """Rounds that look like those of a real run."""
    lines: list[dict[str, Any]] = []
    for number in range(rounds):
        slow = [math.exp(-(number + 1 + i % 5) / 6) for i in range(len(parties))]
        reached = [best - 0.3 * slow[i] - 0.004 * ((7 * i + 3 * number) % 5) for i in range(len(parties))]
        lines += a_round(number, reached, of, START)
    return lines


def ready(tab: Tab, rounds: str) -> None:
    tab.page.wait_for_function("text => document.getElementById('t-round')?.textContent === text", arg=rounds)
    tab.page.wait_for_selector("#plot-accuracy canvas")


def test_a_run_is_seen_live_through_its_kill_and_its_continuation(tmp_path, tab):
    with watching_live(tmp_path / "sepsis", tab) as run:
        ready(tab, "12 of 30")
        assert tab.page.inner_text("#state") == "running"
        assert tab.page.locator("#rows-sites tr").count() == 5
        run.write(*course(HOSPITALS, 13, 30)[-2:])
        ready(tab, "13 of 30")
        tab.page.wait_for_selector("#actions button")
        tab.picture("console_run")
        run.kill()
        tab.page.wait_for_function("() => document.getElementById('state')?.textContent === 'not running'")
        assert "ended without saying so" in tab.page.inner_text("#why")
        tab.picture("console_killed", clip={"x": 0, "y": 0, "width": 1280, "height": 330})
        with writing(tmp_path / "sepsis") as again:
            again.write({"k": "start", "about": about(HOSPITALS)}, *course(HOSPITALS, 15, 30))
            ready(tab, "15 of 30")
            tab.page.wait_for_function("() => document.getElementById('state')?.textContent === 'running'")
            assert not tab.page.is_visible("#why")
            again.write({"k": "end", "how": "finished", "why": ""})
            tab.page.wait_for_function("() => document.getElementById('state')?.textContent === 'finished'")
    assert [each for each in tab.complaints if "409" not in each] == []


@contextmanager
def watching_live(folder: Path, tab: Tab) -> Iterator[Writer]:
    with writing(folder) as run:
        run.write({"k": "start", "t": START, "about": about(HOSPITALS)}, *course(HOSPITALS, 12, 30), totals(5))
        run.write({"k": "now", "n": 12, "of": 30, "open": True, "busy": {"fedct.train fedct.label": [1, 3]}})
        with watching(folder) as console:
            tab.page.goto(console.link())
            yield run


def test_the_owner_stops_it_with_the_keyboard(tmp_path, tab):
    tab.page.on("dialog", lambda dialog: dialog.accept())
    with watching_live(tmp_path, tab):
        tab.page.get_by_role("button", name="Stop").focus()
        tab.page.keyboard.press("Enter")
        tab.page.get_by_text("The run was asked to stop.").wait_for()
        assert (tmp_path / STOP).exists()


def test_the_connection_is_lost_and_found(tmp_path, tab):
    write(tmp_path, [*beginning(HOSPITALS, t=START), *course(HOSPITALS, 4, 30)])
    with watching(tmp_path) as console:
        tab.page.goto(console.link())
        ready(tab, "4 of 30")
        tab.context.set_offline(True)
        tab.page.evaluate("dispatchEvent(new Event('offline'))")
        port, cookies = console.port, tab.context.cookies()
    tab.page.wait_for_selector("#link:not([hidden])")
    assert "tries to get it back" in tab.page.inner_text("#link")
    tab.context.set_offline(False)
    again = Console(Watch(Gathering([tmp_path])).routes, "collegium watch", port=port)
    again._access._visits[cookies[0]["value"]] = again._access.visit(again._access.enter(again._access.link("owner")))
    write(tmp_path, course(HOSPITALS, 5, 30)[-2:])
    with again.in_background():
        ready(tab, "5 of 30")
        assert tab.page.is_hidden("#link")


def test_a_script_in_a_sites_name_stays_a_name(tmp_path, tab):
    hostile = ["<script>window.hurt=1</script>", "<img src=x onerror=window.hurt=1>", '"><svg onload=hurt=1>']
    fail = {"k": "fail", "t": 1.0, "x": [[0, 1, "<b>x</b>", "<i>code</i>", 1]]}
    say = {"k": "say", "t": 1.0, "text": "<script>window.hurt=1</script>"}
    write(tmp_path / "<u>run", [*beginning(hostile, t=START), *course(hostile, 3, 9), fail, say])
    with watching(tmp_path / "<u>run") as console:
        tab.page.goto(console.link())
        ready(tab, "3 of 9")
        assert tab.page.locator("#rows-sites th").first.inner_text() == hostile[0]
        assert tab.page.locator("#legend-accuracy li").nth(1).inner_text() == hostile[1]
        assert "<i>code</i>" in tab.page.inner_text("#rows-failures")
        assert hostile[0] in tab.page.inner_text("#lines")
        assert tab.page.inner_text("h1") == "<u>run"
        assert tab.page.evaluate("window.hurt") is None
        assert tab.page.locator("main script, main img, main svg, main i:not([class])").count() == 0
    assert [each for each in tab.complaints if "409" not in each] == []


def test_a_hundred_sites_are_lines_an_area_and_rows_that_sort(tmp_path, tab):
    parties = [f"site{i:02}" for i in range(100)]
    write(tmp_path / "sepsis", [*beginning(parties, t=START), *course(parties, 60, 60), totals(100), FINISHED])
    with watching(tmp_path / "sepsis") as console:
        tab.page.goto(console.link())
        ready(tab, "60 of 60")
        assert tab.page.locator("#rows-sites tr").count() == 100
        assert tab.page.locator("#legend-accuracy li").all_inner_texts() == [
            "from the worst to the best",
            "one site",
            "mean of the sites",
        ]
        tab.picture("console_many")
        column = tab.page.locator("#rows-sites td:nth-child(3)")
        tab.page.locator("#sites-accuracy button").press("Enter")
        shown = [float(text.rstrip("%")) for text in column.all_inner_texts()]
        assert shown == sorted(shown, reverse=True)
        tab.page.locator("#sites-accuracy button").press("Enter")
        shown = [float(text.rstrip("%")) for text in column.all_inner_texts()]
        assert shown == sorted(shown)
        chart = tab.page.locator("#plot-accuracy .u-over")
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        tab.page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 50)
        tab.page.mouse.down()
        tab.page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 60, steps=4)
        tab.page.mouse.up()
        tab.page.get_by_role("button", name="Whole run").click()
        assert tab.findings() == []


def test_dark_light_phone_and_axe(tmp_path, browser):
    write(tmp_path / "sepsis", [*beginning(HOSPITALS, t=START), *course(HOSPITALS, 20, 20), totals(5), FINISHED])
    papers = {}
    with watching(tmp_path / "sepsis") as console:
        for name, options in {
            "light": {"color_scheme": "light"},
            "dark": {"color_scheme": "dark"},
            "phone": {"viewport": {"width": 360, "height": 780}, "color_scheme": "light"},
        }.items():
            tab = Tab(browser, **options)
            tab.page.goto(console.link())
            ready(tab, "20 of 20")
            papers[name] = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert tab.findings() == [], name
            wide = tab.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, name
            if name != "light":
                tab.picture(f"console_{name}")
            tab.close()
    assert papers["light"] == papers["phone"] == "rgb(244, 246, 248)"
    assert papers["dark"] == "rgb(17, 22, 27)"


def test_runs_are_compared(tmp_path, tab):
    for name, rounds, best in (("fedct", 12, 0.95), ("local", 12, 0.88), ("fedavg", 9, 0.92)):
        told = course(HOSPITALS, rounds, rounds, best)
        write(tmp_path / name, [*beginning(HOSPITALS, t=START), *told, totals(5), FINISHED])
    with watching(tmp_path / "fedct", tmp_path / "local", tmp_path / "fedavg") as console:
        tab.page.goto(console.link())
        tab.page.wait_for_selector("#plot-compare canvas")
        assert tab.page.locator("#legend-compare li").all_inner_texts() == ["fedct", "local", "fedavg"]
        tab.picture("console_compare")
        assert tab.findings() == []
        tab.page.get_by_role("link", name="fedavg").click()
        ready(tab, "9 of 9")
        tab.page.get_by_role("link", name="All runs").click()
        tab.page.wait_for_selector("#plot-compare canvas")
