"""What a run writes for whoever watches it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import until

import collegium as cg
from collegium.core.observations import Observations
from collegium.runs import locks
from collegium.runs.tracing import Tracer
from collegium.runs.trail import COMMAND, FILE, STOP, Trail


def lines(folder: Path, kind: str | None = None) -> list[dict[str, Any]]:
    read = [json.loads(line) for line in (folder / FILE).read_text(encoding="utf-8").splitlines() if line]
    return [line for line in read if kind in (None, line["k"])]


def by_round(folder: Path, metric: str) -> dict[int, dict[int, float]]:
    """A metric by round and party, as a reader of the trail puts it together."""
    found: dict[int, dict[int, float]] = {}
    for line in lines(folder, "m"):
        values = line.get("v", {}).get(metric, {})
        pairs = enumerate(values) if isinstance(values, list) else values.items()
        found.setdefault(line["n"], {}).update({int(i): value for i, value in pairs})
    return found


def test_a_trail_tells_what_the_results_say(cancer, tmp_path):
    run = cancer.run(cg.FedCT(rounds=4), public_truth=cancer.split.public_truth, out=tmp_path / "run")
    told = by_round(tmp_path / "run", "test.accuracy")
    for number, row in run.accuracy.iterrows():
        assert told[number] == pytest.approx(dict(enumerate(row)), abs=1e-6)
    assert [line["n"] for line in lines(tmp_path / "run", "done")] == [0, 1, 2, 3]
    sent = run.costs[run.costs["party"] != "coordinator"].groupby("round")["bytes_up"].sum()
    assert [line["up"] for line in lines(tmp_path / "run", "done")] == sent.tolist()
    total = lines(tmp_path / "run", "total")[-1]
    assert total["up"] == run.summary()["bytes_up"].iloc[:-1].tolist()
    assert total["out"] == run.releases.groupby("party").size().tolist()
    assert lines(tmp_path / "run")[-1]["how"] == "finished"


def test_failures_are_told_with_their_codes(cancer, tmp_path):
    class Broken:
        def fit(self, X: Any, y: Any) -> Any:
            raise RuntimeError("patient 17")

        def predict(self, X: Any) -> Any:
            raise RuntimeError

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            return {}

    sites = cancer.sites()
    sites[2] = cg.Site("site2", sites[2].X, sites[2].y, learner=Broken())
    with pytest.warns(cg.CollegiumWarning):
        cancer.run(cg.FedCT(rounds=2), sites=sites, out=tmp_path / "run")
    failed = [row for line in lines(tmp_path / "run", "fail") for row in line["x"]]
    assert {(row[1], row[3]) for row in failed} == {(2, "step-failed")}
    assert sum(row[4] for row in failed) == 2
    assert "patient" not in (tmp_path / "run" / FILE).read_text()


def test_a_run_that_goes_on_appends_to_it_even_after_half_a_line(cancer, tmp_path):
    class Killed(cg.Callback):
        def on_round(self, report: Any) -> None:
            if report.round == 1:
                raise MemoryError

    with pytest.raises(MemoryError):
        cancer.run(cg.FedCT(rounds=3), out=tmp_path / "run", callbacks=[Killed()])
    assert lines(tmp_path / "run", "end")[-1]["how"] == "failed"
    with (tmp_path / "run" / FILE).open("a") as file:
        file.write('{"k":"m","n":')
    cancer.run(cg.FedCT(rounds=3), out=tmp_path / "run", resume=True)
    whole = [line for line in (tmp_path / "run" / FILE).read_text().splitlines() if line]
    assert whole.count('{"k":"m","n":') == 1
    opened = [json.loads(line) for line in whole if line.startswith('{"k":"open"')]
    assert [line["again"] for line in opened] == [False, True]
    assert json.loads(whole[-1])["how"] == "finished"


def test_a_run_without_room_for_its_trail_goes_on(cancer, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / FILE).mkdir()  # so it cannot be a file
    assert cancer.run(cg.FedCT(rounds=1), out=tmp_path / "run", resume=True).finished


def test_a_run_in_another_thread_stops_after_the_round(cancer, tmp_path):
    class Ask(cg.Callback):
        def on_round(self, report: Any) -> None:
            if report.round == 0:
                (tmp_path / "run" / STOP).touch()
            until(lambda: not (tmp_path / "run" / STOP).exists())

    caught: list[BaseException] = []

    def work() -> None:
        try:
            cancer.run(cg.FedCT(rounds=50), out=tmp_path / "run", callbacks=[Ask()])
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert [type(error) for error in caught] == [KeyboardInterrupt]
    assert lines(tmp_path / "run", "end")[-1]["how"] == "interrupted"
    assert len(lines(tmp_path / "run", "done")) < 50
    assert cancer.run(cg.FedCT(rounds=3), out=tmp_path / "other").finished


def test_who_writes_it_has_it(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from collegium.runs.trail import Trail\n"
        "trail = Trail(Path(sys.argv[1])); trail.say('here'); print('told', flush=True); time.sleep(600)"
    )
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", code, str(tmp_path)]
    assert locks.holder(tmp_path / FILE) is None
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env) as other:
        assert other.stdout is not None
        other.stdout.readline()
        try:
            assert locks.holder(tmp_path / FILE) == other.pid
            second = Trail(tmp_path)
            second.say("not mine")  # nothing is written into what another process has
            assert [line["k"] for line in lines(tmp_path)] == ["open", "say"]
        finally:
            other.kill()
    assert locks.holder(tmp_path / FILE) is None


def test_it_says_which_command_would_go_on(tmp_path):
    token = COMMAND.set(["run", "study.toml", "--resume"])
    try:
        with Trail(tmp_path) as trail:
            trail.say("one")
    finally:
        COMMAND.reset(token)
    trail.close()
    assert lines(tmp_path, "open")[0]["command"] == ["run", "study.toml", "--resume"]


def test_what_is_known_of_a_site_is_told_once(tmp_path):
    trail = Trail(tmp_path)
    for state in ("busy", "busy", "done", "busy"):
        trail.site("north", state=state)
    trail.close()
    assert [line["state"] for line in lines(tmp_path, "site")] == ["busy", "done", "busy"]


def test_a_tracer_tells_each_row_once_and_who_is_at_work():
    observed = Observations()
    parties = ["a", "b"]
    tracer = Tracer(observed, lambda: parties)
    observed.begin_round(0, 5)
    for party in parties:
        observed.sent(0, party, "m.train m.label", 10, 0.0)
    observed.received(0, "a", 7, 0.0)
    observed.metric(0, "a", "test", "accuracy", 0.5)
    first = tracer.news()
    assert [line for line in first if line["k"] == "m"] == [{"k": "m", "n": 0, "v": {"test.accuracy": {0: 0.5}}}]
    (now,) = tracer.news()  # where it stands is told once it has been so for two looks
    assert (now["k"], now["busy"]) == ("now", {"m.train m.label": [1]})
    assert tracer.is_calm
    assert tracer.news() == []
    observed.received(0, "b", 7, 0.0)
    observed.sent(0, "a", "m.label", 10, 0.0)
    observed.received(0, "a", 0, 0.0)
    observed.sent(0, "b", "m.label", 10, 0.0)
    assert tracer.news() == []  # others than before are at work, and perhaps not for long
    assert not tracer.is_calm
    (now,) = tracer.news()
    assert (now["busy"], tracer.is_calm) == ({"m.label": [1]}, True)
    parties.append("c")
    assert tracer.news()[0] == {"k": "joined", "parties": ["c"]}
    observed.refusal(0, "b", "m.label", "missing")
    assert not tracer.stirred.is_set()
    tracer.ended(0, 5)
    assert tracer.stirred.is_set(), "nobody waits longer than needed for a round that is over"
    last = {line["k"]: line for line in tracer.news(last=True)}
    assert not tracer.stirred.is_set()
    assert last["fail"]["x"] == [[0, 1, "m.label", "missing", 1]]
    assert (last["done"]["up"], last["done"]["down"]) == (14, 40)
    assert last["total"]["up"] == [7, 7, 0]
