"""Resuming: a run that is really killed, again and again, ends like one that was not."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pandas as pd
import pytest
from sklearn.tree import DecisionTreeClassifier
from tests.waiting import until

import collegium as cg
from collegium.errors import ConfigError, RecordError, StorageError
from collegium.site import states
from collegium.site.ledger import read_ledger, verify_ledger

SCRIPT = """
    import sqlite3, sys, time
    import collegium as cg
    from collegium.site import states
    from sklearn.datasets import load_breast_cancer
    from sklearn.neural_network import MLPClassifier
    from sklearn.tree import DecisionTreeClassifier

    states._PAUSE = 1e9  # kills are between states
    record, hang = sys.argv[1] + "/record", int(sys.argv[3])  # worker processes have other arguments

    def exchanges():
        return sqlite3.connect(record).execute("SELECT COUNT(*) FROM exchange").fetchone()[0]

    class Hangs(DecisionTreeClassifier):  # in the exchange after so many; the other sites go on
        def fit(self, X, y):
            while exchanges() == hang:
                time.sleep(0.01)
            return super().fit(X, y)

    X, y = load_breast_cancer(return_X_y=True)
    split = cg.split(X, y, sites=3, public=200, test=100, seed=0)
    learners = [Hangs(max_features=3), MLPClassifier((4,), max_iter=3, warm_start=True), DecisionTreeClassifier()]
    sites = [cg.Site(f"site{i}", *part, learner=learners[i]) for i, part in enumerate(split.sites)]
    run = cg.run(cg.FedCT(rounds=6), sites=sites, public=split.public, test=split.test,
                 out=sys.argv[1], resume=True, workers=int(sys.argv[2]))
    print("finished")
"""


def start(tmp_path: Path, out: Path, workers: int, hang: int = -1) -> subprocess.Popen[bytes]:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    command = [sys.executable, "-W", "ignore", str(script), str(out), str(workers), str(hang)]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    return subprocess.Popen(command, stdout=subprocess.PIPE, env=env, start_new_session=True)


def exchanges(out: Path) -> int:
    if not (out / "record").exists():
        return 0
    try:
        db = sqlite3.connect(f"file:{out / 'record'}?mode=ro", uri=True)
        return int(db.execute("SELECT COUNT(*) FROM exchange").fetchone()[0])
    except sqlite3.Error:
        return 0


def same(a: cg.Run, b: cg.Run) -> None:
    pd.testing.assert_frame_equal(a.metrics, b.metrics)
    keep = ["party", "round", "step", "kind", "bytes", "sha256"]
    pd.testing.assert_frame_equal(a.releases[keep], b.releases[keep])
    assert a.labels == b.labels


@pytest.mark.parametrize(("workers", "kill_at"), [(0, (1, 4)), pytest.param(2, (3,), marks=pytest.mark.slow)])
def test_a_killed_run_resumes_bit_for_bit_and_releases_nothing_twice(tmp_path, monkeypatch, workers, kill_at):
    whole, out = tmp_path / "whole", tmp_path / "killed"
    with monkeypatch.context() as patched:  # in this process: starting another one takes longer than the run
        patched.setattr(states, "_PAUSE", states._PAUSE)
        patched.setattr(sys, "argv", ["script.py", str(whole), "0", "-1"])
        exec(textwrap.dedent(SCRIPT), {"__name__": "script"})
    for target in kill_at:
        process = start(tmp_path, out, workers, hang=target)
        until(lambda target=target: exchanges(out) == target)
        time.sleep(0.1)  # one site hangs, the others get on
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    last = start(tmp_path, out, workers)
    assert last.wait() == 0

    same(cg.load(whole), cg.load(out))
    assert verify_ledger(out / "ledger.db") == {f"site{i}": 6 for i in range(3)}
    rows = read_ledger(out / "ledger.db")
    assert len({(row["party"], row["number"]) for row in rows}) == len(rows) == 18
    assert {row["sha256"] for row in rows} == set(cg.load(whole).releases["sha256"])


def test_a_finished_run_replays_without_asking_anybody(cancer, tmp_path):
    first = cancer.run(cg.FedCT(rounds=3), out=tmp_path / "run")
    before = read_ledger(tmp_path / "run" / "ledger.db")
    again = cancer.run(cg.FedCT(rounds=3), out=tmp_path / "run", resume=True)
    same(first, again)
    assert read_ledger(tmp_path / "run" / "ledger.db") == before


def test_resuming_gives_the_same_models(cancer, tmp_path):
    first = cancer.run(cg.FedCT(rounds=2), out=tmp_path / "run")
    again = cancer.run(cg.FedCT(rounds=2), out=tmp_path / "run", resume=True)
    X = cancer.split.test[0]
    assert set(again.models) == set(first.models)
    for party, model in first.models.items():
        assert (model.predict(X) == again.models[party].predict(X)).all()


def test_other_settings_cannot_resume(cancer, tmp_path):
    cancer.run(cg.FedCT(rounds=2), out=tmp_path / "run")
    with pytest.raises(RecordError, match="algorithm differ"):
        cancer.run(cg.FedCT(rounds=3), out=tmp_path / "run", resume=True)
    with pytest.raises(RecordError, match="seed differ"):
        cancer.run(cg.FedCT(rounds=2), out=tmp_path / "run", resume=True, seed=5)


def test_a_folder_in_use_is_not_overwritten(cancer, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("precious")
    with pytest.raises(ConfigError, match="not empty"):
        cancer.run(cg.FedCT(rounds=1), out=tmp_path / "run")
    assert (tmp_path / "run" / "thesis.txt").read_text() == "precious"


def test_damaged_files_are_found_before_anything_is_trained(cancer, tmp_path):
    cancer.run(cg.FedCT(rounds=2), out=tmp_path / "run")
    for name in ("record", "ledger.db"):
        path = tmp_path / "run" / name
        good = path.read_bytes()
        path.write_bytes(good[: len(good) // 2])
        with pytest.raises(StorageError):
            cancer.run(cg.FedCT(rounds=2), out=tmp_path / "run", resume=True)
        path.write_bytes(good)


def test_a_site_with_other_data_or_another_learner_cannot_resume(cancer, tmp_path):
    cancer.run(cg.FedCT(rounds=2), out=tmp_path / "run")
    sites = cancer.sites()
    changed = [cg.Site("site0", sites[0].X + 1e-9, sites[0].y, learner=sites[0].learner), *sites[1:]]
    with pytest.raises(StorageError, match=r"site0.*other data"):
        cancer.run(cg.FedCT(rounds=2), sites=changed, out=tmp_path / "run", resume=True)
    with pytest.raises(StorageError, match="another learner"):
        cancer.run(cg.FedCT(rounds=2), DecisionTreeClassifier(max_depth=2), out=tmp_path / "run", resume=True)
