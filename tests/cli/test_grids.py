from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
from tests.cli.commands import collegium, program

pytestmark = pytest.mark.xdist_group("grid commands")  # its fixtures are made once

STUDY = """
name = "ward"
seeds = [0, 1]
[data]
target = "ill"
public = "public.csv"
test = "test.csv"
[[algorithms]]
name = "local"
[[algorithms]]
name = "fedct"
rounds = 2
[sites.north]
data = "north.csv"
learner = "decision_tree"
[sites.east]
data = "east.csv"
learner = "mine:Deadly"
"""

LEARNER = """
import os, signal
from pathlib import Path
from sklearn.tree import DecisionTreeClassifier

class Deadly(DecisionTreeClassifier):
    def fit(self, X, y, sample_weight=None):
        if len(X) > 60 and not Path("killed").exists():  # with public rows: in fedct
            Path("killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().fit(X, y, sample_weight)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, rng = tmp_path_factory.mktemp("ward"), np.random.default_rng(0)
    for name, rows in {"north": 50, "east": 50, "public": 60, "test": 60}.items():
        X = pd.DataFrame(rng.normal(size=(rows, 2)), columns=["a", "b"])
        X.assign(ill=(X["a"] > 0).map({True: "yes", False: "no"})).to_csv(folder / f"{name}.csv", index=False)
    (folder / "study.toml").write_text(STUDY)
    (folder / "mine.py").write_text(LEARNER)
    return folder


@pytest.fixture(scope="module")
def killed(folder):
    return program("run", "study.toml", cwd=folder)


@pytest.fixture(scope="module")
def done(folder, killed):
    return collegium("run", "study.toml", "--json", cwd=folder)


@pytest.mark.slow
def test_after_a_kill_the_same_command_runs_what_is_missing(killed, done):
    assert killed.returncode == -9
    assert killed.stderr.split("\n")[:3] == [
        "local, seed 0 (run 1 of 4)", "local, seed 1 (run 2 of 4)", "fedct, seed 0 (run 3 of 4)",
    ]  # fmt: skip
    assert done.returncode == 0, done.stderr
    begun = [line for line in done.stderr.splitlines() if "(run " in line]
    assert begun == ["fedct, seed 0 (run 3 of 4)", "fedct, seed 1 (run 4 of 4)"]


def test_it_ends_with_a_comparison(done, folder):
    said = json.loads(done.stdout)
    assert set(said["algorithms"]) == {"local", "fedct"}
    assert said["algorithms"]["fedct"]["runs"] == 2
    assert [row["site"] for row in said["verdict"]["fedct"]] == ["north", "east"]
    values = [said["runs"]["fedct"][seed]["accuracy"]["mean"] for seed in ("0", "1")]
    assert said["algorithms"]["fedct"]["accuracy"] == pytest.approx(np.mean(values))
    assert (folder / said["comparison"]).is_file()
    assert (folder / "runs" / "ward" / "fedct" / "seed-1" / "report.html").is_file()


def test_80_columns_show_the_comparison(done, folder):
    shown = collegium("run", "study.toml", cwd=folder)
    assert shown.returncode == 0, shown.stderr
    assert "(run " not in shown.stderr
    assert all(word in shown.stdout for word in ("to alone", "comparison.html"))
    assert "local: Every site has the model that it would have had alone." in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= 80


def test_force_runs_all_again(done, folder):
    again = collegium("run", "study.toml", "--force", "--set", 'algorithms=["local"]', cwd=folder)
    assert again.returncode == 0, again.stderr
    assert again.stderr.count("(run ") == 2
    assert not (folder / "runs" / "ward" / "fedct" / "seed-0").exists()


def test_a_check_looks_at_the_data_once(folder):
    result = collegium("check", "study.toml", "--json", cwd=folder)
    assert json.loads(result.stdout) == []


@pytest.mark.parametrize("command", [["rehearse"], ["privacy", "explain"]])
def test_other_commands_look_at_every_algorithm(command, folder):
    result = collegium(*command, "study.toml", "--set", "algorithms.0.name=fedkt", cwd=folder)
    assert result.returncode == 0, result.stderr
    assert result.stdout.index("fedkt") < result.stdout.index("fedct.label")
