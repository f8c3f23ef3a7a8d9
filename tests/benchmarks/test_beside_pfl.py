"""pfl's benchmark and ours: both read the same files, and ours runs. pfl itself is not installed here."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.benchmarks.clothes import images
from torch import nn

from benchmarks import beside_pfl


@pytest.fixture
def pictures(monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """Sixty pictures and twenty more for tests, in place of CIFAR-10."""
    X, y = images(80, 3, 32, 32)
    monkeypatch.setattr(beside_pfl, "read_benchmark", lambda *_: (X[:60], y[:60], (X[60:], y[60:])))
    return X


def test_files_hold_what_pfl_reads(pictures: np.ndarray, tmp_path: Path) -> None:
    beside_pfl.write_pickles(tmp_path, tmp_path, 60, 20, scrambled=False)
    (X, y), (T, t) = beside_pfl.read_pickles(tmp_path)
    assert (X.shape, T.shape) == ((60, 3, 32, 32), (20, 3, 32, 32))
    assert (y.dtype, y.shape, t.shape) == (np.int64, (60,), (20,))
    np.testing.assert_allclose(X.mean(axis=(0, 2, 3)), 0, atol=1e-5)
    np.testing.assert_allclose(X.std(axis=(0, 2, 3)), 1, atol=1e-5)
    plane = pictures[:60, 1]
    np.testing.assert_allclose(X[:, 1], (plane - plane.mean()) / plane.std(), atol=1e-4)


def test_scrambled_pixels_are_the_bytes_of_planes_in_order(pictures: np.ndarray, tmp_path: Path) -> None:
    beside_pfl.write_pickles(tmp_path, tmp_path, 60, 20, scrambled=True)
    (X, _), _ = beside_pfl.read_pickles(tmp_path)
    first = pictures[0].reshape(-1)  # pfl takes three bytes of one plane for the three colors of a pixel
    order = [np.argsort(X[0, :, 0, 0]).tolist(), np.argsort(first[:3]).tolist()]
    assert len(set(first[:3].tolist())) == 3
    assert order[0] == order[1]


def test_ours_runs_and_is_tested_every_ten_rounds(pictures: np.ndarray, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    small = {"rounds": 12, "train": 60, "tests": 20, "cohort": 1, "pixels": "plain"}
    report = beside_pfl.report(**small, data=str(tmp_path), out=str(file))
    (row,) = report.rows
    assert row["who"] == "Collegium, float32"
    assert 0 <= row["accuracy"] == row["best"] <= 1
    assert 0 < row["seconds"] <= row["whole"]
    assert row["ms"] == pytest.approx(1000 * row["seconds"] / 12)
    again = beside_pfl.report(out=str(file), measure=0)
    assert list(again.rows) == list(report.rows)


def test_the_ratio_is_to_the_fastest_pfl_on_the_same_pixels(tmp_path: Path) -> None:
    pfl = [{"who": f"pfl, {n}", "processes": n, "seconds": s, "rounds": 100} for n, s in ((1, 40.0), (4, 20.0))]
    ours = {"who": "Collegium", "seconds": 30.0, "rounds": 1500}
    failed = {"who": "pfl, 8 processes: failed", "rounds": 100}
    rows = [row | {"pixels": "plain", "machine": "a machine"} for row in (*pfl, failed, ours)]
    file = tmp_path / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in [*rows, rows[-1] | {"pixels": "scrambled"}]))
    shown = beside_pfl.report(out=str(file), measure=0).rows
    assert [(row["who"], row["ratio"]) for row in shown] == [
        ("pfl, 1", 0.5), ("pfl, 4", 1.0), ("Collegium", 10.0), ("Collegium", None),
    ]  # fmt: skip


def test_the_net_is_pfls() -> None:
    net = beside_pfl.simple_cnn((3, 32, 32), 10)
    assert sum(each.numel() for each in net.parameters()) == 1_626_442
    assert [type(layer) for layer in net].count(nn.Dropout) == 2


def test_a_pfl_that_fails_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = beside_pfl.by_pfl(
        beside_pfl.Setting(tmp_path, rounds=1, cohort=1, device="cpu"), tmp_path / "benchmarks", sys.executable, 1
    )
    assert found == {"who": "pfl, 1 process: failed"}
    assert "No module named 'pfl'" in capsys.readouterr().err


def test_processes_that_would_wait_for_a_failed_one_are_ended() -> None:
    programs = ("import time; time.sleep(1000)", "raise SystemExit(3)")
    started = [subprocess.Popen([sys.executable, "-c", program]) for program in programs]
    assert beside_pfl.first_to_fail(started) == 1
    assert [process.returncode for process in started] == [-signal.SIGKILL, 3]
    assert beside_pfl.first_to_fail([subprocess.Popen([sys.executable, "-c", ""])]) is None
