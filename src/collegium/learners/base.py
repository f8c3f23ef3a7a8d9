"""What a study adds around a learner: the study's classes, seeds, warm starts.

Any scikit-learn classifier or Pipeline is a learner. It is never modified: each site fits clones.
A learner continues from its current weights, instead of being fitted from scratch, when it

- has an ``update`` method (`TorchClassifier`),
- has ``warm_start=True`` and is trained by iteration (`MLPClassifier`, `SGDClassifier`, ...), or
- has ``partial_fit`` and ``max_iter`` and the algorithm sets the size of a local update.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.dummy import DummyClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.validation import has_fit_parameter

from collegium.core.labels import Codes, code_dtype, read_only
from collegium.core.samples import LabelledData, Mixture, PseudoLabelled
from collegium.core.terms import LocalTerms
from collegium.errors import ConfigError
from collegium.wire import tables

Draws = np.random.Generator | Callable[[], np.random.Generator]
"""A generator, or what gives it when something is to be drawn: a net that goes on draws nothing here."""
# Libraries whose classifiers take only the labels 0 .. k-1, all of them present.
_WANT_CODES: Final = {"xgboost", "imodels"}
_BATCH: Final = 64


@dataclass(frozen=True)
class LocalUpdate:
    """The length of one local update of an iterative learner; None leaves it to the learner."""

    epochs: int | None = None
    steps: int | None = None
    terms: LocalTerms | None = None
    """Terms added to the loss of a learner with weights."""


@dataclass(eq=False, repr=False)
class SiteModel(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted model that predicts the study's classes, whatever classes its site had.

    `predict` returns the user's own label values, `predict_proba` has one column per class of the study (`classes_`),
    and `estimator` is the fitted scikit-learn object.
    """

    estimator: Any
    classes: NDArray[Any]
    estimator_codes: Codes
    estimator_labels: NDArray[Any]

    @property
    def classes_(self) -> NDArray[Any]:
        """The study's classes."""
        return self.classes

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def fit(self, X: Any, y: Any) -> SiteModel:
        """Not supported: a run trains a site's model. (scikit-learn's tools require this method.)"""
        raise ConfigError("A site's model is trained by cg.run. To train on other data, clone its `estimator`.")

    def release(self) -> None:
        """Give back what its learner kept to be trained again: a run that is over does not train it."""
        last = self.estimator.steps[-1][1] if isinstance(self.estimator, Pipeline) else self.estimator
        if hasattr(last, "release"):
            last.release()

    def predict_codes(self, X: Any) -> Codes:
        """Class codes, as positions in `classes_`."""
        if hasattr(self.estimator, "predict_positions"):  # its classes are in the order of `estimator_codes`
            positions = self.estimator.predict_positions(X)
            # Usually a position is the code itself, and need not be looked up: that takes far longer.
            dtype = self.estimator_codes.dtype
            known: Codes = positions.astype(dtype) if self._has_every_class else self.estimator_codes[positions]
            return known
        answers = np.asarray(self.estimator.predict(_taken(self.estimator, X))).reshape(-1)
        return self.estimator_codes[np.searchsorted(self.estimator_labels, answers)]

    @cached_property
    def _has_every_class(self) -> bool:
        """Whether its estimator's classes are all those of the study, in their order."""
        return np.array_equal(self.estimator_codes, np.arange(len(self.classes)))

    def predict(self, X: Any) -> NDArray[Any]:
        """The user's own label values."""
        return self.classes[self.predict_codes(X)]

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Probabilities, one column per class of the study; 0 for classes the site never saw."""
        known = np.asarray(self.estimator.predict_proba(_taken(self.estimator, X)), dtype=float)
        if np.array_equal(self.estimator_codes, np.arange(len(self.classes))):
            return known
        aligned = np.zeros((len(known), len(self.classes)))
        aligned[:, self.estimator_codes] = known
        return aligned


def _taken(estimator: Any, X: Any) -> Any:
    """The rows as an estimator takes them: one that begins with texts gets a column, without gaps, and not a table."""
    if not takes_texts(_first_step(estimator)):
        return X
    texts = tables.texts_of(X)
    blank = texts.isna() if isinstance(texts, pd.Series) else None
    return texts if blank is None or not blank.any() else texts.astype(object).where(~blank, "")


def _first_step(estimator: Any) -> Any:
    while isinstance(estimator, Pipeline):
        estimator = estimator.steps[0][1]
    return estimator


def check_rows(learner: Any, X: Any, name: str = "X") -> None:
    """A ConfigError if the learner cannot learn from such rows, as far as that shows before a run."""
    if hasattr(learner, "check_rows"):
        learner.check_rows(X, name)
        return
    if isinstance(learner, Pipeline) and hasattr(learner.steps[-1][1], "check_settings"):
        learner.steps[-1][1].check_settings()  # its rows are not yet known
    first = _first_step(learner)
    if takes_texts(first) and (problem := tables.no_texts(X)):
        raise ConfigError(
            f"{type(first).__name__} takes texts, but {name} {problem}. Give a list of texts, or a table with one "
            "column of them."
        )


def takes_texts(estimator: Any) -> bool:
    """Whether it takes texts, one per row, and no table."""
    tags = get_tags(estimator).input_tags if hasattr(estimator, "__sklearn_tags__") else None
    return tags is not None and tags.string and not tags.two_d_array


class Trainer:
    """Fits one site's learner, round after round."""

    def __init__(self, learner: Any, classes: NDArray[Any]) -> None:
        self._learner = learner
        self._classes = classes
        # scikit-learn takes labels such as 0.5 for a regression's.
        fractions = classes.dtype.kind == "f" and not np.array_equal(classes, np.round(classes))
        self._wants_codes = fractions or wants_codes(learner)
        self._every = np.arange(len(classes), dtype=code_dtype(len(classes)))
        self._last_targets: tuple[Codes, NDArray[Any]] | None = None

    def fit(
        self,
        data: Mixture,
        previous: SiteModel | None,
        rng: Draws,
        update: LocalUpdate | None = None,
    ) -> SiteModel:
        """A model of `data`, continuing from `previous` if the learner can."""
        update = update or LocalUpdate()
        unlabeled = None if update.terms is None else update.terms.unlabeled
        if not len(data.private) and not len(data.pseudo) and unlabeled is None:
            raise ConfigError("There is nothing to train on: the site has no rows and was given none.")
        if hasattr(self._learner, "update"):
            return self._update(data, previous, rng, update)
        rng = _generator(rng)
        if update.terms is not None:
            raise ConfigError(f"{learner_name(self._learner)} takes no local terms: use a TorchClassifier.")
        if data.weights is not None and not takes_weights(self._learner):
            data = data.thinned(rng)
        joined = data.joined()
        present = np.unique(joined.codes)
        if (update.epochs or update.steps) and is_iterative(self._learner):
            return self._partial_fit(joined, previous, rng, update, data.sample_weight)
        if len(present) == 1:
            return self._constant(joined, present)
        return self._fit(joined, present, previous, rng, data.sample_weight)

    def fits_anew(self, update: LocalUpdate) -> bool:
        """Whether every fit starts from scratch, so that it depends on its data alone."""
        iterative = bool(update.epochs or update.steps) and is_iterative(self._learner)
        return not (hasattr(self._learner, "update") or iterative or goes_on(self._learner))

    def untrained(self, X: Any, seed: int) -> SiteModel:
        """A net with initial weights, for rows like those of X, which may be empty."""
        estimator = seeded_clone(self._learner, np.random.default_rng(seed))
        estimator.initialize(tables.take(X, np.arange(min(1, tables.n_rows(X)))), self._all_targets)
        return self._model(estimator, self._every)

    def fit_private(
        self,
        private: LabelledData,
        pseudo: LabelledData,
        public: Any,
        rng: np.random.Generator | None,
        *,
        size: int | None = None,
    ) -> SiteModel:
        """One fit of a private learner; without a generator, its noise is secure and not reproducible.

        `size` is how many records are known to be there, if these are not all.
        """
        estimator = clone(self._learner, safe=False) if rng is None else seeded_clone(self._learner, rng)
        labelled = (pseudo.X, pseudo.codes) if len(pseudo) else None
        every = np.arange(len(self._classes))
        estimator.fit_private(private.X, private.codes, public=public, pseudo=labelled, classes=every, size=size)
        return SiteModel(estimator, self._classes, self._every, every)

    def fit_public(
        self, data: LabelledData, previous: SiteModel | None, rng: np.random.Generator, update: LocalUpdate
    ) -> SiteModel:
        """Continue after private fits with public rows only: nothing private is used."""
        private = previous is not None and hasattr(previous.estimator, "fit_private")
        first = previous is None or private or isinstance(previous.estimator, DummyClassifier)
        empty = LabelledData(tables.take(data.X, np.zeros(0, dtype=np.intp)), data.codes[:0])
        # A net continues from the privately trained weights, if its learner passes them on.
        source = previous.estimator if private and previous is not None else self._learner
        inner = Trainer(source.public_learner(), self._classes)
        return inner.fit(data + empty, None if first else previous, rng, update)

    def _fit(
        self,
        data: LabelledData,
        present: Codes,
        previous: SiteModel | None,
        rng: np.random.Generator,
        weights: NDArray[np.float64] | None,
    ) -> SiteModel:
        warm = (
            previous is not None and goes_on(previous.estimator) and np.array_equal(previous.estimator_codes, present)
        )
        estimator = previous.estimator if warm and previous is not None else seeded_clone(self._learner, rng)
        weighted = {} if weights is None else {weight_parameter(estimator): weights}
        estimator.fit(_taken(estimator, data.X), self._targets(data.codes, present), **weighted)
        return self._model(estimator, present)

    def _partial_fit(
        self,
        data: LabelledData,
        previous: SiteModel | None,
        rng: np.random.Generator,
        update: LocalUpdate,
        weights: NDArray[np.float64] | None,
    ) -> SiteModel:
        same = previous is not None and np.array_equal(previous.estimator_codes, self._every)
        estimator = previous.estimator if same and previous is not None else seeded_clone(self._learner, rng)
        y, labels = self._targets(data.codes, self._every), self._all_targets

        def learn(rows: NDArray[np.intp]) -> None:
            weighted = {} if weights is None else {"sample_weight": weights[rows]}
            estimator.partial_fit(tables.take(data.X, rows), y[rows], classes=labels, **weighted)

        for _ in range(update.epochs or 0 if update.steps is None else 0):
            learn(rng.permutation(len(data)))
        for _ in range(update.steps or 0):
            learn(rng.integers(len(data), size=min(2 * _BATCH, len(data))))
        return self._model(estimator, self._every)

    def _update(self, data: Mixture, previous: SiteModel | None, rng: Draws, update: LocalUpdate) -> SiteModel:
        estimator = seeded_clone(self._learner, _generator(rng)) if previous is None else previous.estimator
        pseudo = (data.pseudo.X, self._pseudo_targets(data.pseudo)) if len(data.pseudo) else None
        terms = update.terms
        if data.weights is not None:
            # Momentum goes on, as it does without weights.
            terms = replace(terms or LocalTerms(keep_optimizer=True), confidences=data.weights)
        estimator.update(
            data.private.X,
            self._private_targets(data.private.codes),
            classes=self._all_targets,
            pseudo=pseudo,
            epochs=update.epochs,
            steps=update.steps,
            **({} if terms is None else {"terms": terms}),
        )
        return self._model(estimator, self._every) if previous is None else previous

    def constant(self) -> SiteModel:
        """A model that knows nothing: it always predicts the first class."""
        first = self._every[:1]
        return self._constant(LabelledData(np.zeros((1, 1)), first), first)

    def _constant(self, data: LabelledData, present: Codes) -> SiteModel:
        """Most classifiers refuse data with a single class; a site with only one always predicts it."""
        shape = np.zeros((len(data), 1))
        estimator = DummyClassifier(strategy="most_frequent").fit(shape, self._targets(data.codes, present))
        return self._model(estimator, present)

    def _model(self, estimator: Any, present: Codes) -> SiteModel:
        codes = present.astype(code_dtype(len(self._classes)))
        return SiteModel(estimator, self._classes, codes, self._targets(present, present))

    @cached_property
    def _all_targets(self) -> NDArray[Any]:
        return read_only(self._targets(self._every, self._every))

    def _private_targets(self, codes: Codes) -> NDArray[Any]:
        """Those of the last call are kept: a site's own rows are the same in every round."""
        if self._last_targets is None or self._last_targets[0] is not codes:
            self._last_targets = codes, read_only(self._targets(codes, self._every))
        return self._last_targets[1]

    def _pseudo_targets(self, pseudo: LabelledData) -> NDArray[Any]:
        if isinstance(pseudo, PseudoLabelled) and not self._wants_codes:
            return pseudo.values(self._classes)
        return self._targets(pseudo.codes, self._every)

    def _targets(self, codes: Codes, present: Codes) -> NDArray[Any]:
        return np.searchsorted(present, codes) if self._wants_codes else self._classes[codes]


def _generator(rng: Draws) -> np.random.Generator:
    return rng if isinstance(rng, np.random.Generator) else rng()


def seeded_clone(learner: Any, rng: np.random.Generator) -> Any:
    """An unfitted copy whose unset `random_state`s (nested ones too) are drawn from the site's generator."""
    try:
        copy = clone(learner, safe=False)
    except RuntimeError:  # CatBoost keeps a copy of a list such as cat_features, which scikit-learn takes for a fault
        copy = deepcopy(learner)
    if hasattr(copy, "get_params"):
        open_seeds = [
            name
            for name, value in sorted(copy.get_params(deep=True).items())
            if value is None and name.rpartition("__")[2] == "random_state"
        ]
        copy.set_params(**{name: int(rng.integers(2**31 - 1)) for name in open_seeds})
    return copy


def wants_codes(learner: Any) -> bool:
    """Whether this learner, or one inside it, takes only the labels 0 .. k-1."""
    inner = learner.get_params(deep=True).values() if hasattr(learner, "get_params") else []
    return any(type(part).__module__.partition(".")[0] in _WANT_CODES for part in (learner, *inner))


def goes_on(learner: Any) -> bool:
    """Whether a second `fit` continues from the first. (An ensemble would only add trees: it is fitted anew.)"""
    ensemble = hasattr(learner, "n_estimators") or type(learner).__module__.startswith("sklearn.ensemble")
    return bool(getattr(learner, "warm_start", False)) and not ensemble


def is_iterative(learner: Any) -> bool:
    """Whether it can be trained a few mini-batch steps at a time."""
    return hasattr(learner, "partial_fit") and hasattr(learner, "max_iter")


def takes_weights(learner: Any) -> bool:
    """Whether its `fit` takes a weight per row. One that passes them on to another learner says so itself."""
    learns = last_step(learner)
    return bool(getattr(learns, "takes_sample_weight", has_fit_parameter(learns, "sample_weight")))


def weight_parameter(learner: Any) -> str:
    """The name under which its `fit` takes weights: a Pipeline passes them on to its final estimator."""
    if not isinstance(learner, Pipeline):
        return "sample_weight"
    return f"{learner.steps[-1][0]}__{weight_parameter(learner.steps[-1][1])}"


def last_step(learner: Any) -> Any:
    """What learns in it: the final estimator of a Pipeline."""
    return last_step(learner.steps[-1][1]) if isinstance(learner, Pipeline) else learner


def learner_name(learner: Any) -> str:
    """Its name in tables."""
    return type(last_step(learner)).__name__
