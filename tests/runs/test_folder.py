from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import pytest
from sklearn.tree import DecisionTreeClassifier

import collegium as cg
from collegium.cli.studies import folder_for
from collegium.errors import ConfigError
from collegium.runs.callbacks import Callback
from collegium.runs.folder import RunFolder
from collegium.study.study import Study

STUDY = {"name": "test", "data": {"source": "iris"}, "algorithm": "fedct"}


class Interrupted(Callback):
    """A run that dies in its third round."""

    def on_round(self, report):
        if report.round == 2:
            raise KeyboardInterrupt


def test_a_run_that_dies_leaves_a_folder_that_can_be_read(cancer, tmp_path, monkeypatch):
    monkeypatch.setattr("collegium.runs.folder._SECONDS_BETWEEN_SNAPSHOTS", 0.0)
    with pytest.raises(KeyboardInterrupt):
        cancer.run(cg.FedCT(rounds=5), out=tmp_path / "run", callbacks=[Interrupted()])
    run = cg.load(tmp_path / "run")
    assert not run.finished
    assert set(run.metrics["round"]) == {0, 1, 2}
    assert run.models == {}
    assert len(run.releases) == 15
    assert run.summary().loc["mean", "accuracy"] > 0.6
    run.report(tmp_path / "report.html")
    cg.verify_ledger(tmp_path / "run" / "ledger.db")

    resumed = cancer.run(cg.FedCT(rounds=5), out=tmp_path / "run", resume=True)
    whole = cancer.run(cg.FedCT(rounds=5))
    assert resumed.metrics.equals(whole.metrics)
    assert cg.load(tmp_path / "run").finished


def test_an_earlier_run_is_overwritten_where_that_is_asked_for_and_nothing_else_is(cancer, tmp_path):
    cancer.run(cg.FedCT(rounds=2), out=tmp_path / "run")
    with pytest.raises(ConfigError, match="overwrite=True"):
        cancer.run(cg.Local(), out=tmp_path / "run")
    cancer.run(cg.Local(), out=tmp_path / "run", overwrite=True)
    assert cg.load(tmp_path / "run").about["algorithm"].startswith("Local")
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "text.txt").write_text("precious")
    with pytest.raises(ConfigError, match="not a run"):
        cancer.run(cg.Local(), out=tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis" / "text.txt").read_text() == "precious"


def test_tables_are_made_only_when_they_are_written_and_long_ones_more_seldom(cancer, tmp_path, monkeypatch):
    run, made = cancer.run(cg.Local()), []
    times = iter([100.0, 101.0, 120.0, 121.5, 121.6])  # the first takes a second
    monkeypatch.setattr("collegium.runs.folder.time", SimpleNamespace(monotonic=lambda: next(times)))
    folder = RunFolder(tmp_path / "run", resume=False)
    for _ in range(3):
        folder.snapshot(lambda: made.append(run) or run)
    folder.close()
    assert len(made) == 2
    assert cg.load(tmp_path / "run").metrics.equals(run.metrics)


def test_the_environment_names_versions_and_no_machine(cancer, tmp_path):
    import getpass
    import platform

    cancer.run(cg.Local(), out=tmp_path / "run")
    text = (tmp_path / "run" / "env.json").read_text()
    assert "scikit-learn" in json.loads(text)["packages"]
    assert platform.node() not in text or len(platform.node()) < 3
    assert str(tmp_path) not in text
    assert getpass.getuser() not in json.loads(text)["packages"]


def test_a_study_of_a_learner_defined_in_a_script_is_kept(cancer, tmp_path):
    class Mine(DecisionTreeClassifier):
        pass

    cancer.run(cg.FedCT(rounds=1), Mine(), out=tmp_path / "run")
    assert len(cg.load(tmp_path / "run").models) == 5


HOLDS = """
    import sys, time
    from pathlib import Path
    from collegium.runs.folder import RunFolder

    folder = RunFolder(Path(sys.argv[1]), resume=True)
    (folder.path / "record").touch()
    print("has it", flush=True)
    time.sleep(600)
"""


def test_a_folder_that_another_process_runs_is_not_resumed_nor_removed(cancer, tmp_path):
    command = [sys.executable, "-c", textwrap.dedent(HOLDS), str(tmp_path / "run")]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=env) as other:
        assert other.stdout is not None
        other.stdout.readline()
        try:
            with pytest.raises(ConfigError, match=rf"is being run by process {other.pid}: wait for it"):
                cancer.run(cg.FedCT(rounds=1), out=tmp_path / "run", resume=True)
            with pytest.raises(ConfigError, match="is being run by process"):
                folder_for(Study.from_dict(STUDY), tmp_path / "run", resume=False, force=True)
            assert (tmp_path / "run" / "record").exists()
        finally:
            other.kill()
    (tmp_path / "run" / "record").unlink()
    assert cancer.run(cg.FedCT(rounds=1), out=tmp_path / "run", resume=True).finished  # its end frees the folder


def test_a_run_that_cannot_start_leaves_its_folder_empty(tmp_path):
    folder = RunFolder(tmp_path / "run", resume=False)
    folder.close()
    assert list((tmp_path / "run").iterdir()) == []
