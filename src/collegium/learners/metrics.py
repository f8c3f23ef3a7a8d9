"""Numbers by which models are judged on a test set: scikit-learn's scorers by name, a few of our own, or a function.

Names are scored on class codes, so that text labels work everywhere: of two classes the last one in sorted order is the
positive one, as in scikit-learn. With more than two, sensitivity, specificity, F1, precision, recall and AUC are means
over the classes (AUC: one against the rest).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics as sk
from sklearn.base import BaseEstimator, ClassifierMixin

from collegium import registry
from collegium.core.labels import Codes
from collegium.errors import ConfigError
from collegium.learners.base import SiteModel

Score = float | Mapping[str, float]
Values = NDArray[np.float64]
_BINS: Final = 10


@dataclass(frozen=True)
class Metric:
    """A number, or several by name, of a model on test rows."""

    name: str
    score: Callable[[SiteModel, Any, Codes], Score]


def read_metrics(given: Sequence[str | Callable[..., float]]) -> tuple[Metric, ...]:
    """Metrics from names, and functions ``score(model, X, y) -> float`` such as scikit-learn's scorers."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ConfigError(f"metrics must be a list, such as ['balanced_accuracy', 'roc_auc'], got {given!r}.")
    read = tuple(_named(each) if isinstance(each, str) else _own(each) for each in given)
    names = [each.name for each in read]
    twice = next((name for name in names if names.count(name) > 1 or name == "accuracy"), None)
    if twice is not None:
        why = "is measured anyway" if twice == "accuracy" else "is named twice"
        raise ConfigError(f"metrics: {twice!r} {why}. Leave it out, or give the function another __name__.")
    return read


def measure(metrics: Sequence[Metric], model: SiteModel, X: Any, codes: Codes) -> tuple[dict[str, float], list[str]]:
    """All numbers of a model by name, NaN where one cannot be had; and the reasons for that."""
    numbers: dict[str, float] = {}
    problems = []
    for metric in metrics:
        try:
            found = metric.score(model, X, codes)
        except Exception as error:  # whatever a learner without probabilities, or a user's function, may raise
            found = np.nan
            problems.append(f"{metric.name}: {type(error).__name__}: {error}")
        if isinstance(found, Mapping):
            numbers |= {f"{metric.name}[{part}]": float(value) for part, value in found.items()}
        else:
            numbers[metric.name] = float(found)
    return numbers, problems


def part_names(metrics: Sequence[Metric], classes: NDArray[Any]) -> list[str]:
    """The names of all numbers that `measure` can give for these metrics, in order."""
    pairs = [f"{true},{said}" for true in classes.tolist() for said in classes.tolist()]
    parts = {"confusion_matrix": pairs, "calibration_curve": [f"{(b + 1) / _BINS:.1f}" for b in range(_BINS)]}
    return [
        name
        for each in metrics
        for name in ([f"{each.name}[{part}]" for part in parts[each.name]] if each.name in parts else [each.name])
    ]


def base_rate(codes: Codes) -> float:
    """The accuracy of always saying the most frequent class."""
    return float(np.bincount(codes).max() / len(codes))


def _own(score: Any) -> Metric:
    name = getattr(score, "__name__", None) or getattr(getattr(score, "_score_func", None), "__name__", None)
    if not callable(score) or name is None:
        raise ConfigError(f"metrics: expected a name or a function score(model, X, y), got {score!r}.")
    return Metric(str(name), lambda model, X, codes: float(score(model, X, model.classes_[codes])))


def _named(name: str) -> Metric:
    if name in OURS:
        return Metric(name, OURS[name])
    known = sorted({*OURS, *sk.get_scorer_names()})
    if name not in known:
        raise ConfigError(f"metrics: there is no metric {name!r}.{registry.nearest(name, known)}")
    scorer = sk.get_scorer(name)
    return Metric(name, lambda model, X, codes: float(scorer(_InCodes(model), X, codes)))


class _InCodes(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A model that answers in class codes."""

    def __init__(self, model: SiteModel) -> None:
        self.model = model
        self.classes_ = np.arange(len(model.classes_))

    def fit(self, X: Any, y: Any) -> _InCodes:
        """It is fitted."""
        return self

    def predict(self, X: Any) -> Codes:
        return self.model.predict_codes(X)

    def predict_proba(self, X: Any) -> Values:
        return self.model.predict_proba(X)


def _rates(model: SiteModel, X: Any, codes: Codes) -> tuple[Values, Values]:
    """Sensitivity and specificity of each class that there are rows of; of two classes, of the positive one."""
    n = len(model.classes_)
    counts = sk.confusion_matrix(codes, model.predict_codes(X), labels=np.arange(n)).astype(float)
    right, of_class, said, every = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0), counts.sum()
    chosen = [1] if n == 2 else [code for code in range(n) if 0 < of_class[code] < every]
    with np.errstate(invalid="ignore", divide="ignore"):
        specificity = (every - of_class - said + right) / (every - of_class)
        return (right / of_class)[chosen], specificity[chosen]


def _averaged(score: Callable[..., float]) -> Callable[[SiteModel, Any, Codes], float]:
    def by_classes(model: SiteModel, X: Any, codes: Codes) -> float:
        n = len(model.classes_)
        how = {"average": "binary"} if n == 2 else {"average": "macro", "labels": np.unique(codes)}
        return float(score(codes, model.predict_codes(X), zero_division=0, **how))

    return by_classes


def _roc_auc(model: SiteModel, X: Any, codes: Codes) -> float:
    chances = model.predict_proba(X)
    if chances.shape[1] == 2:
        return float(sk.roc_auc_score(codes, chances[:, 1]))
    present = [code for code in range(chances.shape[1]) if 0 < np.count_nonzero(codes == code) < len(codes)]
    return float(np.mean([sk.roc_auc_score(codes == code, chances[:, code]) for code in present]))


def _brier(model: SiteModel, X: Any, codes: Codes) -> float:
    """The mean squared error of the probabilities; with more than two classes, summed over them."""
    chances, truth = model.predict_proba(X), np.eye(len(model.classes_))[codes]
    return float(((chances - truth) ** 2).sum(axis=1).mean()) / (2 if chances.shape[1] == 2 else 1)


def _by_confidence(model: SiteModel, X: Any, codes: Codes) -> list[tuple[float, float, float, int]]:
    """For ten ranges of the probability of the answer: its upper end, the mean of it, the accuracy, how many."""
    chances = model.predict_proba(X)
    sure, right = chances.max(axis=1), chances.argmax(axis=1) == codes
    place = np.minimum((sure * _BINS).astype(int), _BINS - 1)
    parts = [(b, place == b) for b in range(_BINS) if (place == b).any()]
    return [((b + 1) / _BINS, float(sure[own].mean()), float(right[own].mean()), int(own.sum())) for b, own in parts]


def _calibration_error(model: SiteModel, X: Any, codes: Codes) -> float:
    """How far the probabilities of the answers are from their accuracy, on average."""
    parts = _by_confidence(model, X, codes)
    return sum(n * abs(sure - right) for _, sure, right, n in parts) / len(codes)


def _calibration_curve(model: SiteModel, X: Any, codes: Codes) -> dict[str, float]:
    return {f"{end:.1f}": right for end, _, right, _ in _by_confidence(model, X, codes)}


def _confusion_matrix(model: SiteModel, X: Any, codes: Codes) -> dict[str, float]:
    counts = sk.confusion_matrix(codes, model.predict_codes(X), labels=np.arange(len(model.classes_)))
    names = [str(value) for value in model.classes_.tolist()]
    return {f"{names[i]},{names[j]}": float(n) for (i, j), n in np.ndenumerate(counts)}


OURS: Final[dict[str, Callable[[SiteModel, Any, Codes], Score]]] = {
    "sensitivity": lambda *of: float(np.mean(_rates(*of)[0])),
    "specificity": lambda *of: float(np.mean(_rates(*of)[1])),
    "f1": _averaged(sk.f1_score),
    "precision": _averaged(sk.precision_score),
    "recall": _averaged(sk.recall_score),
    "roc_auc": _roc_auc,
    "log_loss": lambda model, X, codes: float(
        sk.log_loss(codes, model.predict_proba(X), labels=np.arange(len(model.classes_)))
    ),
    "brier": _brier,
    "calibration_error": _calibration_error,
    "calibration_curve": _calibration_curve,
    "confusion_matrix": _confusion_matrix,
}
