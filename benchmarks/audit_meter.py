"""RMIA beside ML Privacy Meter's: both attack the same models, by the same signals.

    python -m benchmarks.audit_meter [--meter PATH] [--rows 2_000] [--pairs 4]

`meter` is a checkout of github.com/privacytrustlab/ml_privacy_meter, whose `attacks.py` is run as it is; without it the
table has our numbers alone. As there, models come in pairs: one is fitted on half of the `rows`, the other on the other
half. Each is attacked with `pairs` other pairs, and 1,000 rows that are nobody's, as reference.
"""

from __future__ import annotations

import importlib.util
import logging
import warnings
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.neural_network import MLPClassifier

from benchmarks.data import adult_numbers, data_folder, fashion_mnist
from benchmarks.report import Column, Report, print_with_options, watched
from collegium.auditing.attacks import RMIA_OFFLINE, Seen, score
from collegium.auditing.statistics import auc, tpr_at

POPULATION = 1_000
SMALL: dict[str, Any] = {"rows": 300, "pairs": 1}
Floats = NDArray[np.float64]
Coins = NDArray[np.bool_]


def report(meter: str = "", rows: int = 2_000, pairs: int = 4) -> Report:
    """Attack every model of every kind by both."""
    theirs = _load(Path(meter)) if meter else None
    net = MLPClassifier((64,), max_iter=40, random_state=0)
    forest = RandomForestClassifier(30, min_samples_leaf=2, random_state=0)
    jobs = [("Adult", "net", net), ("Adult", "forest", forest), ("Fashion-MNIST", "net", net)]
    table = []
    for data, name, learner in watched(jobs, "RMIA", len(jobs)):
        signals, coins = _signals(data, learner, rows, pairs)
        for references in sorted({1, max(1, pairs // 2), pairs}):
            with np.errstate(divide="ignore"):  # ML Privacy Meter divides by probabilities that may be zero
                table.append({"data": data, "models": name} | _compared(theirs, signals, coins, references))
    columns = {
        "data": Column("data"),
        "models": Column("models"),
        "pairs": Column("pairs"),
        "AUC, ML Privacy Meter": Column("their_auc", ".4f"),
        "AUC": Column("auc", ".4f"),
        "points apart": Column("apart", "+.2f"),
        "TPR at 1 %, ML Privacy Meter": Column("their_tpr", ".4f"),
        "TPR at 1 %": Column("tpr", ".4f"),
        "its AUC at offline_a = .33": Column("fixed_auc", ".4f"),
    }
    notes = (
        f"Means over all {2 * pairs + 2} models of a kind, each attacked with so many pairs of others; gamma is 1. "
        "ML Privacy Meter tunes offline_a on the model that was fitted on exactly the other half of the rows, which an "
        "attacker of one site does not have. Ours tunes it on the other models where there are four or more, and takes "
        f"{RMIA_OFFLINE:g} with fewer. ML Privacy Meter breaks no ties, which costs it TPR at 1 %."
    )
    if theirs is None:
        notes += " ML Privacy Meter was not at hand: pass --meter with the path of a checkout to compare."
    return Report("RMIA on the same models", columns, table, notes, words=2)


def _load(checkout: Path) -> ModuleType:
    file = checkout / "attacks.py"
    spec = importlib.util.spec_from_file_location("ml_privacy_meter_attacks", file)
    if spec is None or spec.loader is None or not file.is_file():
        raise SystemExit(f"There is no attacks.py in {checkout}: --meter takes a checkout of ML Privacy Meter.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _signals(data: str, learner: Any, rows: int, pairs: int) -> tuple[Floats, Coins]:
    """How probable each row's label is to each model, the population's last; and which rows a model was fitted on."""
    X, y = adult_numbers(data_folder()) if data == "Adult" else _clothes()
    rng = np.random.default_rng(0)
    drawn = rng.permutation(len(X))[: rows + POPULATION]
    X, y = X[drawn], y[drawn]
    halves = rng.permuted(np.tile(np.arange(rows) % 2 == 0, (pairs + 1, 1)), axis=1)
    coins = np.stack([half for one in halves for half in (one, ~one)])
    codes, signals = np.unique(y, return_inverse=True)[1], []
    for inside in coins:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = clone(learner).fit(X[:rows][inside], y[:rows][inside])
        signals.append(model.predict_proba(X)[np.arange(len(X)), codes])
    return np.stack(signals), coins


def _clothes() -> tuple[Any, Any]:
    images, labels = fashion_mnist(data_folder())[0]
    return (images.reshape(len(images), -1) / 255.0).astype(np.float32), labels


def _compared(theirs: ModuleType | None, signals: Floats, coins: Coins, references: int) -> dict[str, Any]:
    """Mean AUC and TPR over the models, each attacked with so many pairs of others."""
    ours: list[Floats] = []
    tuned: list[Floats] = []
    fixed: list[Floats] = []
    for target in range(len(coins)):
        others = [place for place in range(len(coins)) if place // 2 != target // 2][: 2 * references]
        ours.append(_our_scores(signals[[target, *others]], coins[[target, *others]]))
        if theirs is not None:
            known = (signals[:, : coins.shape[1]].T, signals[:, coins.shape[1] :].T, coins.T)
            best = theirs.tune_offline_a(target, *known, logging.getLogger("meter"))[0]
            tuned.append(theirs.run_rmia(target, *known, references, best))
            fixed.append(theirs.run_rmia(target, *known, references, RMIA_OFFLINE))
    row: dict[str, Any] = {"pairs": references, "auc": _mean_auc(ours, coins), "tpr": _mean_tpr(ours, coins)}
    if theirs is None:
        return row
    their_auc = _mean_auc(tuned, coins)
    return row | {
        "their_auc": their_auc,
        "apart": 100 * (row["auc"] - their_auc),
        "their_tpr": _mean_tpr(tuned, coins),
        "fixed_auc": _mean_auc(fixed, coins),
    }


def _our_scores(signals: Floats, coins: Coins) -> Floats:
    """Scores of the first of these models by our attack."""
    none = np.zeros((*signals.shape, 0))
    codes = np.zeros(signals.shape[1], dtype=np.int64)
    seen = Seen(none, signals[:, :, None], coins.shape[1], coins, none[0], np.full((len(codes), 1), 0.5), codes)
    return np.asarray(score(seen, "rmia", 0)[0])


def _mean_auc(scores: list[Floats], coins: Coins) -> float:
    return float(np.mean([auc(one, inside) for one, inside in zip(scores, coins, strict=True)]))


def _mean_tpr(scores: list[Floats], coins: Coins) -> float:
    return float(np.mean([tpr_at(one, inside, 0.01) for one, inside in zip(scores, coins, strict=True)]))


if __name__ == "__main__":
    print_with_options(report, __doc__)
