"""Exchanges between organisations: NVFlare with mTLS on loopback, beside sites in one process.

    python -m benchmarks.federation [--rows 50_000] [--repeat 30] [--federations 3,5] [--in_process 3,5,20]

One exchange: every site is asked for its labels of `rows` public rows (ten classes; packed, and never written as a
difference), predicts them with a naive Bayes model, puts them through its gate and its ledger on disk, and sends them;
the coordinator counts them. Milliseconds are the median and the largest of `repeat` exchanges. An echo is the same way
there and back with few bytes and no work at the site's agent but saying hello. The last row is the whole of
``collegium federation demo``: certificates, a server, three sites, a study, and the end of all processes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

import collegium as cg
from benchmarks.report import Column, Report, print_with_options, watched
from collegium import wire
from collegium.algorithms import fedct
from collegium.core.federation import Federation
from collegium.core.link import Link
from collegium.core.public_set import PublicSet
from collegium.flare.agreement.planning import plan_of
from collegium.flare.coordinator.link import RemoteLink
from collegium.flare.nvflare.session import NvflareHost
from collegium.flare.site.public_store import pack_public
from collegium.flare.supervise.loopback import LEAD, LoopbackFederation
from collegium.links.hosting import Hosting
from collegium.links.local import LocalLink
from collegium.study.study import Study

CLASSES, PRIVATE = 10, 200
RUN = "0123456789abcdef" * 2
TARGETS = {3: 50.0, 5: 100.0}
SMALL: dict[str, Any] = {"rows": 500, "repeat": 3, "federations": "2", "in_process": "2", "demo": 0}
_SITE = """
name = "{name}"
learner = {{ name = "naive_bayes" }}
[data]
source = "train.csv"
target = "y"
[policy]
approval = "auto"
"""


def report(
    rows: int = 50_000, repeat: int = 30, federations: str = "3,5", in_process: str = "3,5,20", demo: int = 1
) -> Report:
    """Measure every way."""
    found: list[dict[str, Any]] = []
    ways = [(f"NVFlare, {n} sites", n, _nvflare) for n in map(int, federations.split(","))]
    ways += [(f"in process, {n} sites", n, _local) for n in map(int, in_process.split(","))]
    for name, sites, way in watched(ways, "federation", len(ways)):
        with tempfile.TemporaryDirectory() as scratch, way(Path(scratch), sites, rows) as (link, public, echo):
            times, sent = _exchanges(link, public, repeat)
            row = {"way": name, "median": median(times), "most": max(times), "bytes": sent / sites}
            row["echo"] = None if echo is None else median(_timed(echo) for _ in range(repeat))
            row["target"] = TARGETS.get(sites) if way is _nvflare else None
            found.append(row)
    if demo:
        found.append({"way": "federation demo, whole", "median": _timed(_demo)})
    columns = {
        "way": Column("way"),
        "median, ms": Column("median", ".1f", 1e-3),
        "largest, ms": Column("most", ".1f", 1e-3),
        "at most, ms": Column("target", ".0f"),
        "echo, ms": Column("echo", ".1f", 1e-3),
        "kB per site": Column("bytes", ".1f", 1e3),
    }
    title = f"Exchange of {rows:,} labels, {repeat} times"
    return Report(title, columns, found, "Server, sites and coordinator share the machine.")


def _data(rows: int, sites: int) -> tuple[pd.DataFrame, list[tuple[pd.DataFrame, Any]]]:
    """Points in the plane whose class is their direction: labels that no code can shorten much."""
    rng = np.random.default_rng(0)
    points = pd.DataFrame(rng.normal(size=(rows + sites * PRIVATE, 2)), columns=["a", "b"])
    turn = np.arctan2(points["b"], points["a"]) / (2 * np.pi) + 0.5
    y = np.minimum((turn * CLASSES).astype(int), CLASSES - 1).to_numpy()
    private = [slice(rows + n * PRIVATE, rows + (n + 1) * PRIVATE) for n in range(sites)]
    return points[:rows], [(points[part].reset_index(drop=True), y[part]) for part in private]


def _exchanges(link: Link, public: PublicSet, repeat: int) -> tuple[list[float], float]:
    fed = Federation(link, run=RUN, n_classes=CLASSES, seed=0, public=public)
    fed.tell(fedct.train(None, None, None))
    fed.flush()
    fed.total(fedct.label())
    times = [_timed(lambda: fed.total(fedct.label())) for _ in range(repeat)]
    if fed.observed.refusals:
        raise RuntimeError(f"Not every site answered: {fed.observed.refusals}")
    last = fed.observed.releases[-len(link.parties) :]
    return times, float(sum(row["wire_bytes"] for row in last))


@contextmanager
def _nvflare(folder: Path, sites: int, rows: int) -> Iterator[tuple[Link, PublicSet, Callable[[], object]]]:
    names = tuple(f"site-{n}" for n in range(1, sites + 1))
    table, private = _data(rows, sites)
    loopback = LoopbackFederation(folder, names)
    for name, (X, y) in zip(names, private, strict=True):
        loopback.write_site(name, _SITE.format(name=name))
        X.assign(y=y).to_csv(loopback.site_kit(name) / "train.csv", index=False)
    study = {"data": {"source": "public.csv"}, "algorithm": {"name": "fedct", "rounds": 1}}
    public = PublicSet(table)
    plan = plan_of(Study.from_dict(study), table, np.arange(CLASSES), names)
    with loopback:
        host = NvflareHost(loopback.server_kit, loopback.lead_kit, LEAD)
        link = RemoteLink(host, RUN, plan, pack_public(table), names)
        try:
            yield link, public, lambda: _echo(link, names)
        finally:
            link.close()
            host.close()


def _echo(link: RemoteLink, names: tuple[str, ...]) -> None:
    """One hello to each site, at the same time."""
    import threading

    session = link._session
    assert session is not None
    message = wire.join({"do": "hello"}, b"")
    threads = [threading.Thread(target=session.request, args=(name, message, 10.0)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def _local(folder: Path, sites: int, rows: int) -> Iterator[tuple[Link, PublicSet, None]]:
    from sklearn.naive_bayes import GaussianNB

    table, private = _data(rows, sites)
    public = PublicSet(table)
    members = tuple(cg.Site(f"site-{n}", X, y, learner=GaussianNB()) for n, (X, y) in enumerate(private, 1))
    link = LocalLink(Hosting(members, np.arange(CLASSES), public, None, 0, RUN, folder))
    try:
        yield link, public, None
    finally:
        link.close()


def _demo() -> None:
    command = [sys.executable, "-c", "from collegium.cli import main; main()", "federation", "demo"]
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run([*command, "--out", scratch], check=True, capture_output=True)


def _timed(do: Callable[[], object]) -> float:
    start = time.perf_counter()
    do()
    return time.perf_counter() - start


if __name__ == "__main__":
    print_with_options(report, __doc__)
