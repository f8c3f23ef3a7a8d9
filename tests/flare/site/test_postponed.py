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
import collegium.flare.site.agent, sklearn.naive_bayes, sklearn.tree
from collegium import registry
registry.install_steps()
assert all(isinstance(sys.modules[name], _Postponed) for name in SELDOM_USED), "nobody used them"
from scipy.interpolate import BSpline
assert isinstance(BSpline, type), "who is not of SciPy or scikit-learn gets the thing itself"

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

from sklearn.neighbors import KNeighborsClassifier
assert isinstance(KNeighborsClassifier, type)

import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.impute import KNNImputer
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import SplineTransformer
from sklearn.metrics import roc_auc_score
X, y = np.random.default_rng(0).normal(size=(40, 3)), np.arange(40) % 2
for shrinkage in (None, "auto", 0.5):  # through functions that were taken out before
    LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(X, y).predict(X)
assert roc_auc_score(y, y) == 1.0
assert SplineTransformer().fit_transform(X).shape == (40, 21)
assert KNNImputer().fit_transform(X).shape == X.shape
assert LogisticRegression().fit(X, y).predict(X).shape == y.shape
assert KNeighborsClassifier(1).fit(X, y).score(X, y) == 1.0
print("all well")
"""
TEXT = """
import sys
from pathlib import Path
from collegium.flare.site.postponed import do_without_arrow
do_without_arrow(Path(sys.argv[1]) / "site.toml")
import pandas as pd
from collegium.core.public_set import PublicSet
from collegium.data.files import read_rows, read_table
from collegium.wire.tables import from_arrays, to_arrays
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder
from sklearn.tree import DecisionTreeClassifier
X, y = read_table(Path(sys.argv[1]) / "rows.csv", "y")
learner = make_pipeline(OrdinalEncoder(), DecisionTreeClassifier(random_state=0)).fit(X, y)
header, arrays = to_arrays(X)
header["columns"][0]["storage"] = "pyarrow"  # as a coordinator has it
assert PublicSet(from_arrays(header, arrays)).digest == PublicSet(X).digest
print("pyarrow" in sys.modules, PublicSet(X).digest, "".join(learner.predict(X)), sep="|")
"""


def run(program: str, *arguments: str) -> str:
    paths = {"PYTHONPATH": os.pathsep.join(str(Path(path).resolve()) for path in sys.path)}
    command = [sys.executable, "-c", program, *arguments]
    done = subprocess.run(command, env=os.environ | paths, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_was_postponed_is_there_when_it_is_used() -> None:
    assert run(PROGRAM).endswith("all well\n")


def test_text_means_the_same_without_arrow(tmp_path: Path) -> None:
    rows = [f"{'Süd' if i % 3 else ''},{i % 5},{'true' if i % 2 else 'false'},{'ab'[i % 2]}" for i in range(30)]
    (tmp_path / "rows.csv").write_text("\n".join(["where,many,flag,y", *rows]) + "\n", encoding="utf-8")
    said = []
    for source in ("rows.csv", "rows.parquet"):  # the second is never read: it only says that there is Parquet
        (tmp_path / "site.toml").write_text(f'[data]\nsource = "{source}"\n')
        said.append(run(TEXT, str(tmp_path)).strip().split("|"))
    assert [loaded for loaded, *_ in said] == ["False", "True"]
    assert said[0][1:] == said[1][1:]
