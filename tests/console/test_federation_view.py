"""A federation on the coordinator's page, which the real command serves; and certificates on both pages."""

from __future__ import annotations

import http.client
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pytest

pytest.importorskip("starlette")
pytest.importorskip("nvflare")

from tests.console.visiting import Visitor
from tests.flare.conftest import NAMES
from tests.flare.coordinator.test_link import At, carry_out, study
from tests.flare.coordinator.test_renewed_certificates import renew
from tests.flare.doors import LEADS, SignedHost, make_kits, ready_kits
from tests.waiting import seconds, until

from collegium import __version__
from collegium.console.serving import Console
from collegium.console.site_pages import SitePages
from collegium.runs.trail import COMMAND

pytestmark = [
    pytest.mark.filterwarnings("ignore::collegium.errors.CollegiumWarning"),
    pytest.mark.xdist_group("doors"),
]


@dataclass
class Served:
    """A page of another process."""

    links: dict[str, str]

    @property
    def port(self) -> int:
        return int(urlsplit(self.links["owner"]).port or 0)

    def link(self, role: str) -> str:
        return self.links[role]


@contextmanager
def watched(folder: Path) -> Iterator[Served]:
    """The page of a run that this process carries out: a process does not see its own locks."""
    command = [sys.executable, "-m", "collegium", "watch", str(folder), "--share", "1", "--until-left"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as page:
        try:
            assert page.stdout is not None
            yield Served({role: page.stdout.readline().split()[-1] for role in ("owner", "guest")})
        finally:
            page.kill()


def told(visitor: Visitor, wanted: Any) -> dict[str, Any]:
    """The news of a run's page put together, as soon as they are as wanted."""
    connection = http.client.HTTPConnection("127.0.0.1", visitor.console.port, timeout=seconds(60))
    known: dict[str, Any] = {"sites": {}, "log": []}
    try:
        connection.request("GET", "/run/0/events", headers=visitor.headers)
        for line in itertools.islice(connection.getresponse().fp, 5000):
            if line.startswith(b"data: "):
                news = json.loads(line[6:])
                known["sites"] |= news.get("sites", {})
                known["log"] += [text for _, text in news.get("log", ())]
                known["head"] = news.get("head", known.get("head"))
                if wanted(known):
                    return known
        raise AssertionError(f"it was never told: {known}")
    finally:
        connection.close()


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_kits(tmp_path_factory.mktemp("federation") / "kits", NAMES)


@pytest.fixture
def kits(made: Path, tmp_path: Path) -> Path:
    return ready_kits(made, tmp_path / "kits", NAMES)


def test_a_coordinator_sees_its_sites_stops_the_study_and_goes_on(kits: Path) -> None:
    host = SignedHost({name: kits / name for name in NAMES}, kits / "server", kits / LEADS[0])
    seen: list[dict[str, Any]] = []
    ended: list[BaseException] = []

    def look() -> None:
        now = told(owner, lambda each: each["sites"]["2"][1] == "away" and each["head"]["round"] == 1)
        seen.append(now)
        guest = Visitor.of(page, "guest")
        assert guest.post("/run/0/stop", {"csrf": "x"}).status == 403
        answer = owner.post("/run/0/stop", {"csrf": owner.csrf("/run/0/actions")}, HX_Request="true")
        assert "The run was asked to stop." in answer.text
        until(lambda: not (kits / "out" / "stop").exists())

    def coordinate(resume: bool, *callbacks: At) -> None:
        COMMAND.set(("coordinate", "study.toml", "--resume"))
        try:
            settings = study(algorithm__rounds=4, engine__quorum=0.5)
            carry_out(host, kits, study=settings, resume=resume, callbacks=callbacks, say=lambda text: None)
        except KeyboardInterrupt as error:
            ended.append(error)

    def run(resume: bool, *callbacks: At) -> None:
        thread = threading.Thread(target=coordinate, args=(resume, *callbacks), daemon=True)
        thread.start()
        thread.join(seconds(120))
        assert not thread.is_alive()

    (kits / "out").mkdir()
    with watched(kits / "out") as page:
        owner = Visitor.of(page)  # type: ignore[arg-type]
        run(False, At(0, lambda: host.away.add("site-3")), At(1, look))
        (now,) = seen
        assert (now["head"]["state"], now["head"]["federation"], now["head"]["round"]) == ("running", True, 1)
        for number, name in enumerate(NAMES):
            row = now["sites"][str(number)]
            assert (row[0], row[11]) == (name, __version__)
            assert time.time() - row[10] < seconds(120)
            assert 355 <= row[13] <= 360
        assert now["sites"]["0"][1:3] == ["has answered", "good"]
        assert now["sites"]["2"][1:3] == ["away", "warn"]
        words, soon = now["head"]["certificates"]
        assert words.startswith(f"Certificates last: {LEADS[0]} 35")
        assert ", server 35" in words
        assert not soon
        assert "sites: site-1, site-2, site-3" in now["log"]
        assert any(line.startswith("site-3 did not answer (missing): ") for line in now["log"])
        stopped = told(owner, lambda each: each["head"]["state"] == "interrupted")
        assert len(ended) == 1
        assert "it goes on from there when it is resumed" in stopped["head"]["why"]
        assert "asked to stop" in stopped["log"]
        assert "Resume" in owner.get("/run/0/actions").text
        host.away.clear()
        run(True)
        over = told(owner, lambda each: each["head"]["state"] == "finished")
        assert over["head"]["done"] == 4
        assert any("goes on with the run" in line for line in over["log"])


def test_a_hospital_sees_how_long_its_certificate_lasts_and_that_it_was_renewed(
    kits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kit, pages = kits / NAMES[0], SitePages(kits / NAMES[0])
    with Console(pages.routes, "collegium site console").in_background() as console:
        owner = Visitor.of(console)
        assert "certificate lasts 359 more days, until " in owner.get("/").text
        before = pages._view.stamp()
        renew(kits, NAMES[0])
        assert pages._view.stamp() != before, "an open page shows it by itself"
        later = SimpleNamespace(time=lambda: time.time() + 340 * 86400)
        monkeypatch.setattr("collegium.flare.kits.kit.time", later)
        shown = owner.get("/").text
        assert "lasts 19 more days" in shown
        assert f"Have it renewed: collegium site renew {kit}" in shown
        (kit / "startup" / "client.crt").write_text("nothing")
        assert "is not a valid certificate: unpack the kit again." in owner.get("/").text
    pages.close()
