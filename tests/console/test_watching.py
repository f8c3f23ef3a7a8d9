"""The pages of `collegium watch`, without a browser."""

from __future__ import annotations

import http.client
import itertools
import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.console.trails import BEGUN, a_round, beginning, totals, write, writing
from tests.console.visiting import Visitor
from tests.waiting import seconds, until

import collegium as cg
from collegium.console import controls, inspecting
from collegium.console.following import Follower
from collegium.console.gathering import Gathering, pace
from collegium.console.inspection import PATIENCE, Inspection
from collegium.console.parts import _chain
from collegium.console.serving import Console
from collegium.console.telling import MOST_LINES, Teller
from collegium.console.watching import Watch
from collegium.console.words import explained
from collegium.errors import ConfigError
from collegium.runs.trail import FILE, STOP

PARTIES = ["north", "<b>south</b>"]
FINISHED = {"k": "end", "t": BEGUN + 3, "how": "finished", "why": ""}


def finished(folder: Path, rounds: int = 3) -> Path:
    told = [line for number in range(rounds) for line in a_round(number, [0.5 + number / 10, 0.7])]
    fail = {"k": "fail", "t": BEGUN, "x": [[1, 1, "fedct.label", "budget-exhausted", 2]]}
    write(folder, [*beginning(PARTIES), *told, fail, totals(2), FINISHED])
    return folder


@pytest.fixture
def served(tmp_path) -> Iterator[tuple[Console, Gathering]]:
    gathering = Gathering([finished(tmp_path / "run")])
    with Console(Watch(gathering).routes, "collegium watch").in_background() as console:
        yield console, gathering


def first_event(visitor: Visitor, path: str) -> dict[str, Any]:
    """The first thing that a stream tells."""
    connection = http.client.HTTPConnection("127.0.0.1", visitor.console.port, timeout=60)
    try:
        connection.request("GET", path, headers=visitor.headers)
        answer = connection.getresponse()
        for line in itertools.islice(answer.fp, 20):  # a stream that has nothing to tell still has a heart that beats
            if line.startswith(b"data: "):
                return dict(json.loads(line[6:]))
        raise AssertionError("the stream ended, or tells nothing")
    finally:
        connection.close()


def test_the_first_event_is_all_there_is(served):
    news = first_event(Visitor.of(served[0]), "/run/0/events")
    assert news["all"] is True
    head = news["head"]
    assert (head["state"], head["done"], head["of"], head["failures"]) == ("finished", 3, 9, 2)
    assert (head["mean"], head["low"], head["high"]) == (0.7, 0.7, 0.7)
    assert news["curves"]["y"] == [[50.0, 60.0, 70.0], [70.0, 70.0, 70.0]]
    assert news["sites"]["1"][0] == "<b>south</b>"
    assert news["failures"][0][:5] == ["<b>south</b>", "label", "budget-exhausted", 2, 1]
    assert news["failures"][0][6].startswith("The site's privacy budget is spent")
    assert [line[1] for line in news["log"]][-1] == "finished"


def test_later_events_are_what_has_changed(tmp_path):
    write(tmp_path, [*beginning(PARTIES), *a_round(0, [0.5, 0.7])])
    follower = Follower(tmp_path, "run")
    follower.look()
    teller = Teller(follower)
    assert set(teller.news()) == {"head", "metrics", "failures", "releases", "sites", "curves", "log"}
    assert teller.news() == {}
    write(tmp_path, a_round(1, [0.6, 0.7]))
    follower.look()
    news = teller.news()
    assert set(news) == {"head", "sites", "curves"}
    assert set(news["sites"]) == {"0"}
    assert (news["curves"]["from"], news["curves"]["x"]) == (0, [0, 1])
    for number in range(2, 6):
        write(tmp_path, a_round(number, [0.6, 0.7]))
        follower.look()
        news = teller.news()
    assert (news["curves"]["from"], news["curves"]["x"]) == (3, [3, 4, 5])


def test_of_many_sites_and_rounds_few_points_are_sent(tmp_path):
    sites, rounds = 250, 2000
    told = [line for number in range(rounds) for line in a_round(number, [number / rounds] * sites, of=rounds)]
    write(tmp_path, [*beginning([f"site{i}" for i in range(sites)]), *told])
    follower = Follower(tmp_path, "run")
    while follower.look():
        pass
    teller = Teller(follower)
    curves = teller.news()["curves"]
    assert len(curves["y"]) <= MOST_LINES
    assert len(curves["x"]) <= 400
    assert curves["x"][-1] == rounds - 1
    write(tmp_path, a_round(rounds, [1.0] * sites, of=rounds))
    follower.look()
    assert len(json.dumps(teller.news()["curves"])) < 5000


def test_a_part_can_be_looked_at_more_closely(served):
    visitor = Visitor.of(served[0])
    assert first_event(visitor, "/run/0/events")["all"]
    found = json.loads(visitor.get("/run/0/range?first=1&end=99").text)
    assert (found["x"], found["y"][0]) == ([1, 2], [60.0, 70.0])
    for wrong in ("", "?first=x&end=3", "?first=1"):
        assert visitor.get(f"/run/0/range{wrong}").status == 400


def test_pages_without_runs_say_so(served):
    answer = Visitor.of(served[0]).get("/run/7")
    assert answer.status == 409
    assert answer.line.startswith("There is no such run")


def test_names_of_sites_are_escaped_in_parts_that_the_server_makes(cancer, tmp_path):
    sites = cancer.sites()
    hostile = "<img src=x onerror=alert(1)>"
    sites[0] = cg.Site(hostile, sites[0].X, sites[0].y, learner=sites[0].learner)
    cancer.run(cg.FedCT(rounds=1), sites=sites, out=tmp_path / "run")
    found = inspecting.facts(tmp_path / "run")
    assert hostile not in found["privacy"]
    assert found["ledger"]["rows"] == {site.name: 1 for site in sites}
    gathering = Gathering([tmp_path / "run"])
    gathering.inspections[0].found, gathering.inspections[0].when = found, 1.0
    with Console(Watch(gathering).routes, "collegium watch").in_background() as console:
        visitor = Visitor.of(console)
        shown = visitor.get("/run/0/ledger").text
        assert "Hash chain intact: 5 releases" in shown
        assert "&lt;img src=x" in shown
        assert "<img" not in shown
        assert "1 to 5 of 5 releases" in shown
        with sqlite3.connect(tmp_path / "run" / "ledger.db") as ledger:
            ledger.execute("UPDATE ledger SET bytes = 1 WHERE seq = 1")
        gathering.inspections[0].found = inspecting.facts(tmp_path / "run")
        broken = visitor.get("/run/0/ledger").text
        assert "The ledger is not whole" in broken
        assert "does not match its hash" in broken
        assert "<img" not in broken
        report = visitor.get("/run/0/report")
        assert report.headers["content-disposition"].startswith("attachment")


def test_the_privacy_of_a_run_that_goes_on_is_worked_out_once_it_costs_little(tmp_path, monkeypatch):
    worked_out: list[str] = []

    async def work(self: Inspection) -> None:
        worked_out.append(self.folder.name)

    monkeypatch.setattr(Inspection, "_work", work)
    with writing(tmp_path / "run") as run:
        run.write(*beginning(PARTIES)[1:])
        gathering = Gathering([tmp_path / "run"])
        with Console(Watch(gathering).routes, "collegium watch").in_background() as console:
            owner, follower = Visitor.of(console), gathering.runs[0]
            until(lambda: gathering.look() or follower.state == "running")
            follower.history.opened = time.time() - PATIENCE / 2
            shown = owner.get("/run/0/privacy").text
            assert "once it has gone on for 17 minutes" in shown
            assert "Work it out now" in shown
            assert "verified whenever the privacy" in _chain(gathering.inspections[0])
            assert worked_out == []
            owner.post("/run/0/privacy", {"csrf": owner.csrf("/run/0/privacy")}, HX_Request="true")
            until(lambda: worked_out == ["run"])
            follower.history.opened = time.time() - PATIENCE - 1
            owner.get("/run/0/privacy")
            until(lambda: worked_out == ["run", "run"])


def test_the_chain_is_told_anew_with_the_privacy(tmp_path):
    gathering = Gathering([finished(tmp_path)])
    found = {"rounds": 3, "privacy": "", "concerns": [], "ledger": {"rows": {"north": 3}}, "seconds": 2.0}
    gathering.inspections[0].found, gathering.inspections[0].when = found, time.time()
    with Console(Watch(gathering).routes, "collegium watch").in_background() as console:
        told = Visitor.of(console).get("/run/0/privacy").text
    assert 'id="chain" hx-swap-oob="true">Hash chain intact: 3 releases' in told


def test_the_owner_stops_a_run_and_a_guest_does_not(tmp_path):
    with writing(tmp_path / "run") as run:
        run.write(*beginning(PARTIES)[1:])
        gathering = Gathering([tmp_path / "run"])
        with Console(Watch(gathering).routes, "collegium watch").in_background() as console:
            owner, guest = Visitor.of(console), Visitor.of(console, "guest")
            until(lambda: gathering.look() or gathering.runs[0].state == "running")
            assert "Stop" in owner.get("/run/0/actions").text
            assert guest.get("/run/0/actions").text == ""
            assert guest.post("/run/0/stop", {"csrf": "x"}).status == 403
            assert not (tmp_path / "run" / STOP).exists()
            secret = owner.csrf("/run/0/actions")
            assert owner.post("/run/0/stop", {"csrf": "x"}).status == 403
            assert not (tmp_path / "run" / STOP).exists()
            answer = owner.post("/run/0/stop", {"csrf": secret}, HX_Request="true")
            assert "The run was asked to stop." in answer.text
            assert (tmp_path / "run" / STOP).exists()


def killed(folder: Path, command: Any) -> Follower:
    write(folder, [beginning(PARTIES)[0] | {"command": command}, beginning(PARTIES)[1]])
    follower = Follower(folder, "run")
    follower.look()
    assert follower.state == "killed"
    return follower


def test_what_resumes_a_run_is_one_of_our_commands_that_this_user_wrote(tmp_path):
    good = ["run", "study.toml", "--resume"]
    assert controls.continuation(killed(tmp_path / "good", good)) == good
    for number, command in enumerate([None, [], ["site", "clean"], ["rm", "-rf"], "run", ["run", 3]]):
        follower = killed(tmp_path / f"bad{number}", command)
        assert controls.continuation(follower) is None
        with pytest.raises(ConfigError, match="started by a program"):
            controls.resume(follower)
    (tmp_path / "good" / FILE).chmod(0o666)
    assert controls.continuation(killed(tmp_path / "good", good)) is None


def test_a_run_that_cannot_go_on_says_why(tmp_path):
    follower = killed(tmp_path, ["run", str(tmp_path / "gone.toml"), "--out", str(tmp_path), "--resume"])
    controls.resume(follower)
    with pytest.raises(ConfigError, match="already"):
        controls.resume(follower)
    assert follower.continued is not None
    assert follower.continued.wait(seconds(60)) == 2
    head = Teller(follower).news()["head"]
    assert head["why"].startswith("The run could not be continued. What it said last: collegium: ")
    assert "gone.toml" in head["why"]


def test_a_run_that_was_continued_and_stopped_can_be_continued_again_at_once(tmp_path):
    follower = killed(tmp_path, ["run", "study.toml", "--resume"])
    going: Any = SimpleNamespace(poll=lambda: None)  # it has told its end, and its process is about to
    follower.continued, follower.continued_at = going, BEGUN + 50
    assert explained(follower) == "The run is being continued: it is starting."
    interrupted = {"k": "end", "t": BEGUN + 61, "how": "interrupted", "why": ""}
    write(tmp_path, [*beginning(PARTIES, t=BEGUN + 60), interrupted])
    follower.look()
    assert explained(follower).startswith("The run was stopped.")
    assert not follower.is_starting


def test_only_what_ended_is_resumed_and_only_what_runs_is_stopped(tmp_path):
    follower = Follower(finished(tmp_path), "run")
    follower.look()
    with pytest.raises(ConfigError, match="nothing to continue"):
        controls.resume(follower)
    with pytest.raises(ConfigError, match="nothing to stop"):
        controls.stop(follower)


def test_folders_of_runs_are_compared_and_later_ones_join(tmp_path):
    finished(tmp_path / "grid" / "fedct" / "seed-0")
    finished(tmp_path / "other")
    gathering = Gathering([tmp_path / "grid", tmp_path / "other"])
    assert [run.name for run in gathering.runs] == ["fedct/seed-0", "other"]
    assert not gathering.is_one
    finished(tmp_path / "grid" / "local" / "seed-0")
    gathering._searched = 0.0
    gathering.look()
    with Console(Watch(gathering).routes, "collegium watch").in_background() as console:
        news = first_event(Visitor.of(console), "/events")
    assert [head["name"] for head in news["heads"]] == ["fedct/seed-0", "other", "local/seed-0"]
    assert news["lines"][0] == [60.0, 65.0, 70.0]


def test_a_run_of_another_version_is_not_taken_for_one_that_waits(tmp_path):
    finished(tmp_path / "other")
    write(tmp_path / "strange", [beginning(PARTIES)[0] | {"trail": 99, "version": "9.0"}])
    gathering = Gathering([tmp_path])
    gathering.look()
    heads = {run.name: Teller(run).news()["head"] for run in gathering.runs}
    assert {name: head["word"] for name, head in heads.items()} == {"other": "finished", "strange": "cannot be shown"}
    assert heads["strange"]["why"].endswith("another version of Collegium (9.0): watch it with that version.")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: None, "There is no folder"),
        (lambda folder: folder.mkdir(), "holds no run"),
        (lambda folder: folder.write_text("x"), "holds no run"),
    ],
)
def test_a_folder_that_is_no_run_is_said_in_one_line(tmp_path, make, said):
    make(tmp_path / "it")
    with pytest.raises(ConfigError, match=said) as caught:
        Gathering([tmp_path / "it"])
    assert "\n" not in str(caught.value)
    assert "name" in str(caught.value)
    assert "`collegium run`" in str(caught.value)


def test_a_page_that_takes_much_looks_less_often():
    assert [pace(cost) for cost in (0.0, 0.0005, 0.0012, 0.05)] == pytest.approx([0.2, 0.2, 0.3, 0.47])
