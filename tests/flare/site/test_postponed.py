"""Packages that are loaded when they are used: learners do not notice."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import pickle, sys, threading
from collegium.flare.site.postponed import SELDOM_USED, _Postponed, postpone
postpone(SELDOM_USED)
import collegium.flare.site.agent, sklearn.ensemble, sklearn.linear_model, sklearn.tree
from collegium import registry
registry.install_steps()
assert all(isinstance(sys.modules[name], _Postponed) for name in SELDOM_USED), "nobody used them"

from scipy.stats import rankdata
ranks = []
threads = [threading.Thread(target=lambda: ranks.append(list(rankdata([3, 1, 2])))) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert ranks == [[3, 1, 2]] * 8, ranks
import scipy.stats
assert not isinstance(scipy.stats, _Postponed)
assert scipy.stats is sys.modules["scipy.stats"]

import importlib
part = importlib.import_module("sklearn.covariance._shrunk_covariance")  # as pickle does
from sklearn.covariance import OAS, ledoit_wolf
assert part.OAS is OAS
assert part.__spec__.origin.endswith("_shrunk_covariance.py")
assert isinstance(pickle.loads(pickle.dumps(OAS())), part.OAS)

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import roc_auc_score
X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
for shrinkage in (None, "auto", 0.5):  # through functions that were taken out before
    LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(X, y).predict(X)
assert roc_auc_score(y, y) == 1.0
print("all well")
"""


def test_what_was_postponed_is_there_when_it_is_used() -> None:
    paths = {"PYTHONPATH": os.pathsep.join(str(Path(path).resolve()) for path in sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | paths,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.stdout.endswith("all well\n"), done.stderr
