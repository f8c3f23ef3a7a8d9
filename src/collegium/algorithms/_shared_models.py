"""Fitted models as plain data, where that is safe: weights, XGBoost's JSON, LightGBM's text.

Whoever receives a model builds its learner from what is installed there and puts numbers or text into it. A model that
only a pickle could carry would bring code along, and is refused before anything runs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.core.labels import Codes, code_dtype
from collegium.core.recipes import Recipe, build_learner
from collegium.core.releases import SharedModels
from collegium.errors import ConfigError, WireError
from collegium.wire import tables

if TYPE_CHECKING:
    from collegium.learners.base import SiteModel

Arrays = dict[str, NDArray[Any]]
_TEXT: Final = "text"
_REQUIRED: Final = (
    "Use share='votes', which sends less and gives the same result, or a student of xgboost, lightgbm or torch."
)


@dataclass(frozen=True)
class _Format:
    """How one library's models are written, and what a written one says of rows (positions in its classes)."""

    write: Callable[[Any], Arrays]
    predict: Callable[[Any, Arrays, int, Any], NDArray[Any]]


def weights_of(model: SiteModel) -> dict[str, NDArray[np.float32]]:
    """A model's weights by name, for a method that starts from them: ``weights_of(run.global_model)``."""
    if not hasattr(model.estimator, "get_weights"):
        raise ConfigError(
            f"{type(model.estimator).__name__} has no weights to start from: use a learner with weights, such as "
            "TorchClassifier, as student or as global_learner."
        )
    weights: dict[str, NDArray[np.float32]] = model.estimator.get_weights()
    return weights


def check_shareable(learner: Any, where: str) -> None:
    """A ConfigError where this learner's models cannot be sent."""
    if learner is None:
        raise ConfigError(f"{where} sends the students' models: set student= to their learner.")
    if format_of(learner) is None:
        raise ConfigError(f"{where}: {type(learner).__name__} can only be sent as a pickle, which is code. {_REQUIRED}")


def format_of(learner: Any) -> str | None:
    """The name of the safe format of a learner's models; None where there is none."""
    if hasattr(learner, "get_weights"):
        return "weights"
    library = type(learner).__module__.partition(".")[0]
    return library if library in _FORMATS else None


def share(models: Sequence[SiteModel]) -> SharedModels:
    """Models of one learner, for the wire."""
    trained = [model for model in models if len(model.estimator_codes) > 1]
    name = "constant" if not trained else str(format_of(trained[0].estimator))
    if trained and name not in _FORMATS:
        raise ConfigError(f"{type(trained[0].estimator).__name__} has no safe wire format.")
    plain = [
        {"codes": model.estimator_codes, "parts": _FORMATS[name].write(model.estimator) if model in trained else {}}
        for model in models
    ]
    return SharedModels(name, plain)


def predictions(shared: SharedModels, recipe: Recipe | None, X: Any, n_classes: int) -> list[Codes]:
    """What each of the models says of the rows X; `recipe` describes their learner. Anything odd is a WireError."""
    return [_prediction(shared.format, model, recipe, X, n_classes) for model in shared.models]


def _prediction(name: str, model: dict[str, Any], recipe: Recipe | None, X: Any, n_classes: int) -> Codes:
    codes = model["codes"].astype(code_dtype(n_classes))
    if len(codes) == 1:
        return np.full(tables.n_rows(X), codes[0], dtype=codes.dtype)
    try:
        learner = build_learner(recipe or {})
        if format_of(learner) != name:
            raise WireError("A model came in another format than that of its learner.")
        found: Codes = codes[_FORMATS[name].predict(learner, model["parts"], len(codes), X)]
        return found
    except WireError:
        raise
    except Exception:  # the libraries each raise their own kinds on a damaged model
        raise WireError("A shared model cannot be read.") from None


def _predict_weights(learner: Any, parts: Arrays, n_classes: int, X: Any) -> NDArray[Any]:
    net = learner.initialize(tables.take(X, np.arange(1)), np.arange(n_classes)).set_weights(parts)
    return np.asarray(net.predict(X))


def _write_xgboost(estimator: Any) -> Arrays:
    return {_TEXT: np.frombuffer(bytes(estimator.get_booster().save_raw("json")), dtype=np.uint8)}


def _predict_xgboost(learner: Any, parts: Arrays, n_classes: int, X: Any) -> NDArray[Any]:
    text = bytearray(parts[_TEXT].tobytes())
    if not text.startswith(b"{"):  # other formats of the library are binary
        raise WireError("An XGBoost model that is not JSON.")
    learner.load_model(text)
    return np.asarray(learner.predict(X)).astype(np.intp)


def _write_lightgbm(estimator: Any) -> Arrays:
    return {_TEXT: np.frombuffer(estimator.booster_.model_to_string().encode(), dtype=np.uint8)}


def _predict_lightgbm(learner: Any, parts: Arrays, n_classes: int, X: Any) -> NDArray[Any]:
    library = importlib.import_module(type(learner).__module__.partition(".")[0])
    scores = np.asarray(library.Booster(model_str=parts[_TEXT].tobytes().decode()).predict(X))
    return scores.argmax(axis=1) if scores.ndim == 2 else (scores > 0.5).astype(np.intp)


_FORMATS: Final = {
    "weights": _Format(lambda estimator: dict(estimator.get_weights()), _predict_weights),
    "xgboost": _Format(_write_xgboost, _predict_xgboost),
    "lightgbm": _Format(_write_lightgbm, _predict_lightgbm),
}
