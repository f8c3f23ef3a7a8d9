"""Disks that are full, sites that start slowly: nothing is lost that comes back in time, and both sides are told."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.flare.conftest import NAMES
from tests.flare.coordinator.test_link import At, assert_same, carry_out, released, study
from tests.flare.offices import OfficeHost, OfficeSession

from collegium.flare.site.file import SiteNotify
from collegium.flare.site.notices import Notices
from collegium.flare.supervise.news import hear_notice
from collegium.study.study import Study

pytestmark = pytest.mark.filterwarnings("ignore::collegium.errors.CollegiumWarning")


class SmallDisk:
    """A disk of two megabytes, which can be filled to the last byte."""

    def __init__(self, folder: Path) -> None:
        self._ballast = folder / "ballast"

    def fill(self) -> None:
        with suppress(OSError), self._ballast.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(512))

    def free(self) -> None:
        self._ballast.unlink()


@pytest.fixture
def disk(kits: Path) -> Iterator[SmallDisk]:
    """Where site-2's agent has its folder."""
    folder, copy = kits / "site-2" / "agent", kits / "agent"
    shutil.copytree(folder, copy)
    mount = ["mount", "-t", "tmpfs", "-o", "size=2M,mode=0700", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting a small disk needs root")
    try:
        shutil.copytree(copy, folder, dirs_exist_ok=True)
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_disk_that_is_full_for_a_while_loses_nothing(
    kits: Path, disk: SmallDisk, tmp_path_factory: pytest.TempPathFactory
) -> None:
    copy = tmp_path_factory.mktemp("copy") / "kits"
    shutil.copytree(kits, copy)
    undisturbed = carry_out(OfficeHost({name: copy / name for name in NAMES}), copy)
    host = OfficeHost({name: kits / name for name in NAMES})
    said: list[str] = []
    told: list[str] = []
    host.offices["site-2"]._tell = told.append

    def say(text: str) -> None:
        said.append(text)
        if "cannot store" in text:
            disk.free()

    run = carry_out(host, kits, study=study(federation__patience=60.0), callbacks=[At(0, disk.fill)], say=say)
    assert run.refusals.empty
    assert_same(run, undisturbed)
    assert released(kits) == dict.fromkeys(NAMES, 6), "three rounds of labels and scores, each released once"
    assert said.count("site-2 cannot store what it does (storage-failed); asking again for up to 60 s") == 1
    assert "cannot store" in told[0]
    assert "No space left on disk" in told[0]
    assert told[1:] == ["can store what it does again."]
    log = (kits / "site-2" / "agent" / "site.log").read_text()
    assert "storage-failed: No space left on disk" in log, "lines that did not fit are written later"


def test_a_disk_that_stays_full_is_named_and_the_site_comes_back_when_there_is_room(
    kits: Path, disk: SmallDisk
) -> None:
    host = OfficeHost({name: kits / name for name in NAMES})
    faults = [At(0, disk.fill), At(2, disk.free)]
    run = carry_out(host, kits, study=study(algorithm__rounds=5), callbacks=faults)
    refused = run.refusals
    assert set(refused["party"]) == {"site-2"}
    assert set(refused["code"]) == {"storage-failed"}
    assert set(refused["round"]) == {1, 2}
    assert {3, 4} <= set(run.releases.query("party == 'site-2' and kind == 'HardLabels'")["round"])


class Hours:
    """The link's clock, which tests put forward."""

    def __init__(self) -> None:
        self.ahead = 0.0
        self.sleep, self.time = time.sleep, time.time

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


def test_a_deadline_does_not_count_the_time_that_a_session_takes_to_begin(
    host: OfficeHost, kits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, begin = Hours(), host.begin
    monkeypatch.setattr("collegium.flare.coordinator.link.time", clock)

    def slowly(parties: frozenset[str]) -> OfficeSession:
        clock.ahead += 3600
        return begin(parties)

    host.begin = slowly  # type: ignore[method-assign]
    run = carry_out(host, kits, study=study(engine__deadline=600.0))
    assert run.refusals.empty
    assert clock.ahead >= 3600


def test_what_an_agent_tells_its_owner_reaches_the_console(capsys: pytest.CaptureFixture[str]) -> None:
    console: list[str] = []
    Notices("site-1", Path("kit"), SiteNotify(), console.append).agent_says("cannot store what it does.")
    for line in [*capsys.readouterr().out.splitlines(), "Traceback (most recent call last):"]:
        hear_notice(line, console.append)
    assert console == ["the agent cannot store what it does."]


def test_a_run_folder_made_by_a_program_is_private_too(host: OfficeHost, kits: Path) -> None:
    out = kits / "out"
    out.mkdir(mode=0o755)
    carry_out(host, kits)
    assert stat.S_IMODE(out.stat().st_mode) == 0o700


def test_what_takes_long_after_the_last_round_is_said_and_bounded(
    host: OfficeHost, kits: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collegium.flare.coordinator.coordinate._MOST_ROWS", 40)
    said: list[str] = []
    settings = study().model_dump(exclude_unset=True)
    usual, chosen = (Study.from_dict(settings | {"global_learner": learner}) for learner in (None, "random_forest"))
    few = carry_out(host, kits, "few", study=usual, say=said.append).global_model
    every = carry_out(host, kits, "every", study=chosen, say=said.append).global_model
    assert few is not None
    assert every is not None
    sizes = [len(model.estimator.estimators_samples_[0]) for model in (few, every)]
    assert 38 <= sizes[0] <= 40
    assert sizes[1] == 150
    for rows in sizes:
        assert f"fitting the global model (RandomForestClassifier) on {rows} public rows" in said
    assert f"writing results and report to {kits / 'few'}" in said
