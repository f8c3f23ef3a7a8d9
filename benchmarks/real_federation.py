"""A federation of real processes with little data, for measurements of the processes themselves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from tests.flare.faults import FaultyFederation

_PUBLIC, _PRIVATE = 150, 30
_LEARNERS = ("decision_tree", "naive_bayes", "logistic_regression")
_SITE = """
name = "{name}"
learner = {{ name = "{learner}" }}
[data]
source = "train.csv"
target = "diagnosis"
held_out = 0.25
[policy]
approval = "auto"
"""
_STUDY = """
name = "real"
seed = 3
[data]
source = "public.csv"
[algorithm]
name = "fedct"
rounds = {rounds}
[federation]
classes = ["benign", "malignant"]
at_least = {sites}
patience = 900
outage = 900
"""


def write_federation(folder: Path, sites: int) -> FaultyFederation:
    """Kits with a few patients each; nothing is started yet."""
    names = tuple(f"site-{number}" for number in range(1, sites + 1))
    federation = FaultyFederation(folder, names)
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    frame = X.assign(diagnosis=np.where(y == 1, "benign", "malignant")).sample(frac=1, random_state=0)
    frame[-_PUBLIC:].drop(columns="diagnosis").to_csv(federation.kits / "public.csv", index=False)
    for number, name in enumerate(names):
        part = frame.iloc[number * _PRIVATE : (number + 1) * _PRIVATE]
        part.to_csv(federation.site_kit(name) / "train.csv", index=False)
    return federation


def write_sites(federation: FaultyFederation) -> None:
    """Each site's file and keys."""
    for number, name in enumerate(federation.sites):
        text = _SITE.format(name=name, learner=_LEARNERS[number % len(_LEARNERS)])
        federation.write_site(name, text)


def coordinate(
    federation: FaultyFederation, rounds: int, out: Path, console: Path, *, resume: bool = False
) -> subprocess.Popen[bytes]:
    """The coordinator's program."""
    study = federation.kits / "study.toml"
    study.write_text(_STUDY.format(rounds=rounds, sites=len(federation.sites)), encoding="utf-8")
    command = [sys.executable, "-c", "from collegium.cli import main; main()", "coordinate", str(study)]
    command += ["--kits", str(federation.kits), "--out", str(out), *(["--resume"] if resume else [])]
    with console.open("ab") as said:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
