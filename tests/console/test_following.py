"""A run's trail, read while it is written."""

from __future__ import annotations

import errno
import math
import subprocess
from types import SimpleNamespace

import pytest
from tests.console.trails import BEGUN, a_round, beginning, totals, write, writing
from tests.waiting import until

import collegium as cg
from collegium.console import inspecting
from collegium.console.following import Follower
from collegium.console.history import ACCURACY, History
from collegium.console.words import explained
from collegium.runs.trail import FILE

PARTIES = ["north", "south"]


def read(folder, name="run") -> Follower:
    follower = Follower(folder, name)
    while follower.look():
        pass
    return follower


def test_rounds_are_put_together(tmp_path):
    write(tmp_path, [*beginning(PARTIES), *a_round(0, [0.5, 0.7]), *a_round(1, [0.6, 0.8]), totals(2)])
    history = read(tmp_path).history
    assert (history.parties, history.done, history.of) == (PARTIES, 2, 9)
    assert history.metrics[ACCURACY].spread() == pytest.approx((0.7, 0.6, 0.8))
    assert history.wall.at([0, 1]) == [1.0, 1.0]
    assert history.totals.up == [100, 100]


def test_it_follows_a_process_through_its_kill_and_its_continuation(tmp_path):
    with writing(tmp_path) as run:
        run.write(*beginning(PARTIES)[1:], *a_round(0, [0.5, 0.7]))
        follower = read(tmp_path)
        until(lambda: follower.look() or follower.holder)
        assert (follower.state, follower.holder) == ("running", run.pid)
        assert explained(follower) == ""
        run.kill()
    until(lambda: follower.look() or follower.state == "killed")
    assert f"Process {run.pid} ended without saying so" in explained(follower)
    with writing(tmp_path) as again:
        again.write(*beginning(PARTIES)[1:], *a_round(0, [0.5, 0.7]), *a_round(1, [0.6, 0.8]))
        until(lambda: follower.look() or follower.state == "running")
        assert follower.history.done == 2
        assert any("it was killed" in line.text for line in follower.history.log)
        again.write({"k": "end", "how": "finished", "why": ""})
    until(lambda: follower.look() or follower.state == "finished")


def test_what_is_told_again_counts_once(tmp_path):
    fail = {"k": "fail", "t": BEGUN, "x": [[0, 1, "fedct.label", "missing", 2]]}
    first = [*beginning(PARTIES), *a_round(0, [0.5, 0.7]), fail, totals(2)]
    write(tmp_path, [*first, *beginning(PARTIES, t=BEGUN + 100), *a_round(0, [0.5, 0.7], t=BEGUN + 100), fail])
    history = read(tmp_path).history
    assert history.wall.at([0]) == [1.0]  # a replay takes no time
    assert [failure.times for failure in history.failures.values()] == [2]
    assert history.seconds["fit"] == 1.0


def test_a_process_that_has_just_begun_is_not_taken_for_one_that_was_killed(tmp_path, monkeypatch):
    follower = read(tmp_path)
    assert (follower.state, follower.lasted) == ("waiting", 0.0)
    monkeypatch.setattr("collegium.console.following.locks.holder", lambda file: 7)
    write(tmp_path, beginning(PARTIES))
    follower.look()  # at once: who holds the file was looked at a moment ago
    assert follower.state == "running"
    assert 0 < follower.lasted < math.inf
    write(tmp_path, [{"k": "end", "t": BEGUN + 3, "how": "interrupted", "why": ""}])
    follower.look()
    assert (follower.state, follower.lasted) == ("interrupted", math.inf)


def test_half_lines_and_strange_lines_tell_nothing(tmp_path):
    write(tmp_path, [*beginning(PARTIES), *a_round(0, [0.5, 0.7])])
    with (tmp_path / FILE).open("a") as file:
        file.write(
            '{"k":"done","n":\n[1]\n"x"\n{"k":"done"}\n{"k":"m","t":1,"n":"x","v":5}\n{"k":"later","t":1}\n\n{"k":"e'
        )
    follower = read(tmp_path)
    assert follower.history.done == 1
    with (tmp_path / FILE).open("a") as file:  # the rest of the line comes later
        file.write('nd","t":1,"how":"finished","why":""}\n')
    follower.look()
    assert follower.state == "finished"


def test_a_disk_that_fails_is_said_once_and_read_again_later(tmp_path, monkeypatch):
    write(tmp_path, [*beginning(PARTIES), *a_round(0, [0.5, 0.7])])
    follower = read(tmp_path)
    broken = SimpleNamespace(read=lambda size: _fail(), tell=lambda: 0, close=lambda: None)
    monkeypatch.setattr(follower, "_file", broken)
    assert not follower.look()
    assert follower.problem == f"Cannot read {tmp_path}: Input/output error."
    follower.look()
    assert (follower.problem, follower.history.done) == ("", 1)


def _fail() -> bytes:
    raise OSError(errno.EIO, "Input/output error")


def test_tables_that_take_too_long_are_said_in_one_line(tmp_path, monkeypatch):
    def late(command, **_):
        raise subprocess.TimeoutExpired(command, 1)

    (tmp_path / "run.json").write_text("{}")
    monkeypatch.setattr("collegium.console.inspection.subprocess.run", late)
    assert "takes too long to read" in read(tmp_path).problem


def test_another_run_in_the_folder_is_another_run(tmp_path):
    write(tmp_path, [*beginning(PARTIES), *a_round(0, [0.5, 0.7])])
    follower = read(tmp_path)
    (tmp_path / FILE).unlink()
    follower.look()
    assert follower.state == "waiting"
    write(tmp_path, beginning(["east"]))
    follower.look()
    assert (follower.history.parties, follower.history.done) == (["east"], 0)


def test_a_trail_of_another_version_is_said_in_one_line(tmp_path):
    write(tmp_path, [beginning(PARTIES)[0] | {"trail": 99, "version": "9.0"}])
    problem = read(tmp_path).problem
    assert problem == f"{tmp_path} was written by another version of Collegium (9.0): watch it with that version."


def test_a_run_that_left_no_trail_is_read_from_its_tables(cancer, tmp_path):
    run = cancer.run(cg.FedCT(rounds=2), out=tmp_path / "run")
    whole, tables = read(tmp_path / "run").history, History()
    for line in inspecting.trail(cg.load(tmp_path / "run")):
        tables.take(line)
    assert (tables.how, tables.done) == ("finished", 2)
    table = tables.metrics[ACCURACY]
    assert [series.last for series in table.sites] == pytest.approx(run.accuracy.iloc[-1].tolist(), abs=1e-6)
    assert (tables.totals.up, tables.totals.out) == (whole.totals.up, whole.totals.out)


def test_tables_of_another_version_are_said_in_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "run.json").write_text('{"format": 7}')
    monkeypatch.setattr("sys.argv", ["inspecting", "trail", str(tmp_path)])
    inspecting.main()
    said = capsys.readouterr().out
    monkeypatch.setattr("collegium.console.inspection.subprocess.run", lambda *_, **__: SimpleNamespace(stdout=said))
    problem = read(tmp_path).problem
    assert problem == f"{tmp_path} was written by another version of Collegium (format 7): open it with that version."
