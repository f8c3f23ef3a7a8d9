"""Which coordinators are at work on a server's machine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from collegium.errors import ConfigError
from collegium.flare.coordinator.register import coordinators, end_coordinator, registered

WORK = """
import sys, time
from pathlib import Path
from collegium.flare.coordinator.register import registered
with registered(Path(sys.argv[1]), "sepsis", Path("runs/sepsis")):
    print("there", flush=True)
    time.sleep(60)
"""


def test_a_coordinator_is_listed_while_it_works(tmp_path: Path) -> None:
    assert coordinators(tmp_path) == []
    with registered(tmp_path, "sepsis [bold]", Path("runs/sepsis")):
        (found,) = coordinators(tmp_path)
        assert (found.study, found.alive) == ("sepsis [bold]", True)
        assert found.folder == str(Path("runs/sepsis").resolve())
        (file,) = (tmp_path / "coordinator" / "runs").iterdir()
        assert file.stat().st_mode & 0o077 == 0
    assert coordinators(tmp_path) == []


def test_one_that_works_is_asked_to_end_and_one_that_was_killed_is_forgotten(tmp_path: Path) -> None:
    for signalled in (False, True):
        child = subprocess.Popen([sys.executable, "-c", WORK, str(tmp_path)], stdout=subprocess.PIPE)
        try:
            assert child.stdout.readline() == b"there\n"
            (found,) = coordinators(tmp_path)
            assert found.alive
            if signalled:
                child.kill()
                child.wait()
                assert not coordinators(tmp_path)[0].alive
            end_coordinator(tmp_path, child.pid)
            assert child.wait() == (-signal.SIGKILL if signalled else -signal.SIGTERM)
        finally:
            child.kill()
            child.communicate()
        for each in coordinators(tmp_path):  # the first one ended before it could take itself off the list
            end_coordinator(tmp_path, each.process)
        assert coordinators(tmp_path) == []


def test_one_that_was_killed_and_resumed_is_listed_once_and_then_no_more(tmp_path: Path) -> None:
    place = tmp_path / "coordinator" / "runs"
    with registered(tmp_path, "sepsis", Path("runs/sepsis")):
        (file,) = place.iterdir()
        about = json.loads(file.read_text())
    killed = {"begun": 1.0, "since": "2026-01-01T00:00:00+00:00"}
    for number, folder in ((1, about["folder"]), (2, "/elsewhere")):
        entry = about | killed | {"process": about["process"] + number, "folder": folder}
        (place / f"{entry['process']}.json").write_text(json.dumps(entry))

    def stopped() -> None:
        with registered(tmp_path, "sepsis", Path("runs/sepsis")):
            assert [each.folder for each in coordinators(tmp_path)] == ["/elsewhere", about["folder"]]
            assert [each.alive for each in coordinators(tmp_path)] == [False, True]
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stopped()
    assert len(coordinators(tmp_path)) == 2, "it has not come to its end, and can be resumed"
    with registered(tmp_path, "sepsis", Path("runs/sepsis")):
        pass
    assert [each.folder for each in coordinators(tmp_path)] == ["/elsewhere"]


def test_a_process_that_got_the_number_later_is_left_alone(tmp_path: Path) -> None:
    with registered(tmp_path, "sepsis", tmp_path):
        (file,) = (tmp_path / "coordinator" / "runs").iterdir()
        about = json.loads(file.read_text())
        file.write_text(json.dumps(about | {"begun": about["begun"] - 1000}))
        assert not end_coordinator(tmp_path, about["process"]).alive


def test_what_is_not_there_cannot_be_ended(tmp_path: Path) -> None:
    place = tmp_path / "coordinator" / "runs"
    place.mkdir(parents=True)
    (place / "7.json").write_text("garbage")
    with pytest.raises(ConfigError, match="server status"):
        end_coordinator(tmp_path, 7)
