from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from collegium.core import one_core
from collegium.core.one_core import OneCore
from collegium.core.places import Places

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="threads cannot be kept on a core here")


@pytest.fixture(autouse=True)
def few_are_enough(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """On any machine, and with locks of our own."""
    monkeypatch.setattr(one_core, "ENOUGH", 1)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, before)


def claimed() -> OneCore:
    return OneCore.claim() or pytest.fail("there is no core")


def test_a_thread_stays_on_its_core_and_leaves_it_for_a_block() -> None:
    every, core = os.sched_getaffinity(0), claimed()
    seen: list[set[int]] = []

    def work() -> None:
        core.stay()
        seen.append(os.sched_getaffinity(0))
        with core.left():
            seen.append(os.sched_getaffinity(0))
        seen.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(seen[0]) == 1
    assert seen == [seen[0], every, seen[0]]
    assert os.sched_getaffinity(0) == every  # other threads are where they were


def test_no_two_have_the_same_core_until_one_gives_it_back() -> None:
    number = len(os.sched_getaffinity(0))
    cores = [claimed() for _ in range(number)]
    assert len({each._core for each in cores}) == number
    assert OneCore.claim() is None
    cores[0].release()
    cores[0].release()
    assert claimed()._core == cores[0]._core


def test_another_process_has_other_cores() -> None:
    mine = {claimed()._core for _ in os.sched_getaffinity(0)}
    program = (
        "import tempfile\nfrom collegium.core import one_core\n"
        f"one_core.ENOUGH, tempfile.tempdir = 1, {tempfile.gettempdir()!r}\n"
        "print(one_core.OneCore.claim())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert mine
    assert done.stdout.strip() == "None"


def test_threads_that_began_on_the_core_are_on_any_core_when_it_is_given_back() -> None:
    every, core = os.sched_getaffinity(0), claimed()
    go_on, seen = threading.Event(), list[set[int]]()

    def last() -> None:
        seen.append(os.sched_getaffinity(0))
        go_on.wait()
        seen.append(os.sched_getaffinity(0))

    def work() -> None:
        core.stay()
        threads.append(threading.Thread(target=last))
        threads[0].start()

    threads: list[threading.Thread] = []
    begun = threading.Thread(target=work)
    begun.start()
    begun.join()
    core.release()
    go_on.set()
    threads[0].join()
    assert seen == [{core._core}, every]


def test_who_is_still_at_work_when_it_is_given_back_does_not_come_back_to_it() -> None:
    every, core = os.sched_getaffinity(0), claimed()
    core.stay()
    with core.left():
        core.release()
    assert os.sched_getaffinity(0) == every
    core.stay()
    assert os.sched_getaffinity(0) == every


def test_a_child_process_does_not_keep_it() -> None:
    core = claimed()
    again, heard = os.pipe()
    child = os.fork()
    if not child:
        os.read(again, 1)
        os._exit(0)
    try:
        core.release()
        os.close(one_core._locked_file(core._core))
    finally:
        os.write(heard, b".")
        os.waitpid(child, 0)
        os.close(again)
        os.close(heard)


def test_few_cores_are_left_to_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(one_core, "ENOUGH", len(os.sched_getaffinity(0)) + 1)
    assert OneCore.claim() is None


def test_without_a_folder_for_locks_threads_are_on_any_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    assert OneCore.claim() is None


def test_a_link_in_place_of_a_lock_is_not_followed(tmp_path: Path) -> None:
    for core in os.sched_getaffinity(0):
        (tmp_path / f"collegium-{os.getuid()}-core-{core}.lock").symlink_to(tmp_path / "victim")
    assert OneCore.claim() is None
    assert not (tmp_path / "victim").exists()


def test_who_leaves_a_place_leaves_the_core() -> None:
    every, core = os.sched_getaffinity(0), claimed()
    places = Places(1, core)
    core.stay()
    places.take()
    with places.left():
        assert os.sched_getaffinity(0) == every
    assert os.sched_getaffinity(0) == {core._core}
