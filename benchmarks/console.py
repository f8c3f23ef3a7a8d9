"""What the console takes: how soon a page shows what a run does, and what that costs the run and the machine.

    python -m benchmarks console [--sites 100] [--rounds 10000] [--events 100] [--pairs 3]

*Event to pixel*: a process writes a run's trail, with so many sites and rounds behind it; `collegium watch` shows it to
a Chromium. The process then ends further rounds, one at a time, at odd moments. The time runs from the end of a round,
as a run notes it, until the browser is about to show the frame that has both its number and the lines redrawn for it.

*Of the run's time*: a simulation of so many sites with quick learners, in turn without a page and watched by that
browser. The thread that writes the trail, and the process that serves the page, with those that it starts: by the
processor time that they take while the run goes on. What the page takes to start is told apart. That the run itself
takes longer with a page shows only where the machine does nothing else: its times in turn say how much they differ.

*Memory*: of both pages' processes, once everything on them has been looked at: a plan rehearsed, an export made.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from tests.console.browsing import Chromium, Tab, chromium
from tests.console.site_kits import make_kit
from tests.waiting import seconds, until

from benchmarks.report import Column, Report, print_with_options

SMALL: dict[str, Any] = {"sites": 5, "rounds": 50, "events": 3, "run_rounds": 3, "pairs": 1}
_PARTS: dict[str, Column] = {
    "what": Column("what"), "value": Column("value"), "aim": Column("aim"), "reached": Column("reached"),
}  # fmt: skip
_WRITER = """
import json, random, sys, time
from pathlib import Path
from collegium.core.observations import Observations
from collegium.runs.tracing import Tracer
from collegium.runs.trail import Trail
folder, sites, rounds, events = Path(sys.argv[1]), *map(int, sys.argv[2:])
chance, trail, observed = random.Random(0), Trail(folder), Observations()
names = [f"hospital-{number:03}" for number in range(sites)]
spent = {"fit": 1.0, "predict": 0.5, "consensus": 0.1, "wire": 0.1}
def accuracy(number):
    return round(0.95 - 0.3 / (1 + number / 50) - 0.02 * chance.random(), 4)
def a_round(number):
    reached = [accuracy(number) for _ in names]
    own = {f"public.consensus_{name}": 100.0 / (number + 1) for name in ("size", "changed", "quality")}
    ended = {"k": "done", "n": number, "of": rounds + events, "up": 1000, "down": 2000, "s": spent}
    return [{"k": "m", "n": number, "v": {"test.accuracy": reached}, "c": own}, ended]
about = {"algorithm": "FedCT()", "parties": names, "public_size": 1000, "study": "bench"}
tracer = Tracer(observed, lambda: names)
trail.start(about, tracer)
for number in range(rounds):
    trail._write(a_round(number))
print("ready", flush=True)
for number in range(rounds, rounds + events):
    sys.stdin.readline()
    time.sleep(chance.uniform(0.0, 0.3))
    now = time.time()
    for name in names:
        observed.metric(number, name, "test", "accuracy", accuracy(number))
    observed.metric(number, "coordinator", "public", "consensus_changed", 100.0 / (number + 1))
    tracer.ended(number, rounds + events)
    print(json.dumps([number + 1, now]), flush=True)
sys.stdin.readline()
"""
_SEEN = """
(() => {
  const seen = window.seen = {};
  let round = "";
  const clear = CanvasRenderingContext2D.prototype.clearRect;
  CanvasRenderingContext2D.prototype.clearRect = function (...where) {
    if (round && this.canvas.closest("#plot-accuracy")) {
      const shown = round;
      round = "";
      requestAnimationFrame(() => { seen[shown] = performance.timeOrigin + performance.now(); });
    }
    return clear.apply(this, where);
  };
  addEventListener("DOMContentLoaded", () => {
    const place = document.getElementById("t-round"), all = {childList: true, subtree: true, characterData: true};
    if (place) new MutationObserver(() => { round = place.textContent; }).observe(place, all);
  });
})();
"""
_RUN = """
import sys, time
from pathlib import Path
from sklearn.datasets import make_classification
from sklearn.tree import DecisionTreeClassifier
import collegium as cg
from collegium.runs.trail import Trail
folder, sites, rounds = Path(sys.argv[1]), *map(int, sys.argv[2:])
look, spent = Trail._look, []
def measured(self, *options):
    look(self, *options)
    spent.append(time.thread_time())
Trail._look = measured
X, y = make_classification(60 * sites + 1000, 10, random_state=0)
split = cg.split(X, y, sites=sites, public=500, test=500, seed=0)
known = [cg.Site(f"site{i}", *rows, learner=DecisionTreeClassifier(max_depth=3)) for i, rows in enumerate(split.sites)]
print("ready", flush=True)
sys.stdin.readline()
start, spent_before = time.monotonic(), time.process_time()
cg.run(cg.FedCT(rounds=rounds), sites=known, public=split.public, test=split.test, out=folder, seed=0)
print(time.monotonic() - start, time.process_time() - spent_before, sum(spent), flush=True)
sys.stdin.readline()
"""


@dataclass(frozen=True)
class Taken:
    """What one run took, in seconds: `whole` by the clock, the others of processor time."""

    whole: float
    run: float
    trail: float
    start: float = 0.0
    """Of the page's process, before the run begins."""
    page: float = 0.0
    """Of the page's process and those that it started, while the run went on."""
    browser: float = 0.0


def report(sites: int = 100, rounds: int = 10_000, events: int = 100, run_rounds: int = 60, pairs: int = 3) -> Report:
    """Measure all of it."""
    with chromium() as browser, tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        delays, watch = event_to_pixel(browser, folder / "long", sites, rounds, events)
        turns = [
            (of_the_run(None, folder / f"alone{turn}", sites, run_rounds),
             of_the_run(browser, folder / f"watched{turn}", sites, run_rounds))
            for turn in range(pairs)
        ]  # fmt: skip
        desk = site_page(browser, folder / "kits")
    late = sorted(delays)[math.ceil(0.95 * len(delays)) - 1]
    alone, watched = zip(*turns, strict=True)
    trail = sum(each.trail for each in watched) / sum(each.run for each in watched)
    page = _share(watched, "page")
    both = _share(watched, "trail") + page
    rows = [
        _row("event to pixel, median", f"{statistics.median(delays) * 1000:.0f} ms"),
        _row("event to pixel, 95th percentile", f"{late * 1000:.0f} ms", "500 ms", late < 0.5),
        _row("event to pixel, longest", f"{max(delays) * 1000:.0f} ms"),
        _row("trail of a run, of its processor time", f"{trail:.2%}", "1%", trail < 0.01),
        _row("process of its page, of one core meanwhile", f"{page:.2%}", "1%", page < 0.01),
        _row("trail and page together, of one core", f"{both:.2%}", "1%", both < 0.01),
        _row("the browser that draws it, of one core", f"{_share(watched, 'browser'):.0%}"),
        _row("start of the page's process, once", f"{statistics.median(each.start for each in watched):.1f} s"),
        _row("process of collegium watch, RSS", f"{watch[0]:.0f} MB", "150 MB", watch[0] < 150),
        _row("process of collegium watch, PSS", f"{watch[1]:.0f} MB"),
        _row("process of collegium site console, RSS", f"{desk[0]:.0f} MB", "150 MB", desk[0] < 150),
        _row("process of collegium site console, PSS", f"{desk[1]:.0f} MB"),
    ]
    title = f"The console, with {sites} sites x {rounds:,} rounds on the page"
    notes = (
        f"{events} events. The run: {sites} sites, {run_rounds} rounds of FedCT, {pairs} times without a page and, in "
        f"turn, {pairs} times with one. By the clock without: {_times(alone, 'whole')}; with: "
        f"{_times(watched, 'whole')}. Processor time of the run without: {_times(alone, 'run')}; with: "
        f"{_times(watched, 'run')}. Of the trail: {_times(watched, 'trail', 2)}; of the page while the run went on: "
        f"{_times(watched, 'page', 2)}."
    )
    return Report(title, _PARTS, rows, notes)


def _share(turns: Sequence[Taken], name: str) -> float:
    """Of one core, while the runs went on."""
    return float(sum(getattr(each, name) for each in turns) / sum(each.whole for each in turns))


def _times(turns: Sequence[Taken], name: str, digits: int = 1) -> str:
    return ", ".join(f"{getattr(each, name):.{digits}f}" for each in turns) + " s"


def _row(what: str, value: str, aim: str = "", reached: bool | None = None) -> dict[str, Any]:
    return {"what": what, "value": value, "aim": aim and f"below {aim}", "reached": reached}


def event_to_pixel(
    browser: Chromium, folder: Path, sites: int, rounds: int, events: int
) -> tuple[list[float], tuple[float, float]]:
    """Seconds of each event, and the memory of the page's process afterwards."""
    folder.mkdir()
    with ExitStack() as stack:
        writer = stack.enter_context(_program(["-c", _WRITER, str(folder), str(sites), str(rounds), str(events)]))
        assert _line(writer) == "ready"
        page = stack.enter_context(_program(["-m", "collegium", "watch", str(folder)]))
        tab = Tab(browser)
        tab.page.set_default_timeout(seconds(120) * 1000)
        tab.page.add_init_script(_SEEN)
        tab.page.goto(_link(page))
        tab.page.wait_for_function(_SHOWN, arg=f"{rounds:,} of {rounds + events:,}")
        delays = []
        for _ in range(events):
            _say(writer)
            number, written = json.loads(_line(writer))
            text = f"{number:,} of {rounds + events:,}"
            tab.page.wait_for_function("text => window.seen[text] !== undefined", arg=text)
            delays.append(tab.page.evaluate("text => window.seen[text]", text) / 1000 - written)
        taken = memory(page.pid)
        tab.close()
        return delays, taken


_SHOWN = "text => document.getElementById('t-round')?.textContent === text"


def of_the_run(browser: Chromium | None, folder: Path, sites: int, rounds: int) -> Taken:
    """A run without a page, or watched by a browser."""
    folder.mkdir()
    with ExitStack() as stack:
        run = stack.enter_context(_program(["-c", _RUN, str(folder), str(sites), str(rounds)]))
        assert _line(run) == "ready"
        if browser is None:
            _say(run)
            return Taken(*map(float, _line(run).split()))
        page = stack.enter_context(_program(["-m", "collegium", "watch", str(folder), "--until-left"]))
        link, process = _link(page), psutil.Process(page.pid)
        started = sum(process.cpu_times()[:4])
        tab = Tab(browser)
        tab.page.goto(link)
        tab.page.wait_for_function("() => document.getElementById('state')?.textContent === 'waiting'")
        page_before, browser_before = sum(process.cpu_times()[:4]), browser.processor_time()
        _say(run)
        whole, busy, trail = map(float, _line(run).split())
        page_after, browser_after = sum(process.cpu_times()[:4]), browser.processor_time()
        tab.close()
        return Taken(whole, busy, trail, started, page_after - page_before, browser_after - browser_before)


def site_page(browser: Chromium, folder: Path) -> tuple[float, float]:
    """The memory of a hospital's page once its owner has read a plan and taken the records away."""
    folder.mkdir()
    desk, plan = make_kit(folder)
    with _program(["-m", "collegium", "site", "console", str(desk.kit)]) as page:
        tab = Tab(browser)
        tab.page.set_default_timeout(seconds(240) * 1000)
        link = _link(page)
        base = link.partition("/?")[0]
        tab.page.goto(link)
        tab.page.wait_for_url(f"{base}/")
        tab.page.goto(f"{base}/plans/{plan.digest}")
        tab.page.get_by_role("button", name="Approve and sign").wait_for()
        for form in ("html", "json", "csv"):
            assert tab.context.request.get(f"{base}/export/{form}").ok
        tab.page.goto(base)
        tab.page.locator("body[data-state=connected]").wait_for()
        taken = memory(page.pid)
        tab.close()
        return taken


def memory(process: int) -> tuple[float, float]:
    """RSS and PSS of a process, in MB."""
    lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
    kilobytes = {line.split(":")[0]: int(line.split()[1]) for line in lines}
    return kilobytes["Rss"] / 1024, kilobytes["Pss"] / 1024


@contextmanager
def _program(words: list[str]) -> Iterator[subprocess.Popen[str]]:
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, *words], **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def _say(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()


def _link(page: subprocess.Popen[str]) -> str:
    return until(lambda: _line(page).partition("once): ")[2])


if __name__ == "__main__":
    print_with_options(report, __doc__)
