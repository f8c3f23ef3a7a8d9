"""What all private classifiers share: settings, labels, claims and the scikit-learn interface."""

from __future__ import annotations

from abc import abstractmethod
from math import prod
from typing import Any, ClassVar, Final, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from collegium.core.labels import Codes, as_labels, encode_labels
from collegium.core.samples import LabelledData
from collegium.core.settings import check_parameters
from collegium.errors import ConfigError
from collegium.privacy.claims import SEEDED_NOISE, Charge, PrivacyClaim
from collegium.privacy.learners.base import PrivateLearner
from collegium.privacy.noise import Noise, noise_source
from collegium.wire import tables

KNOWN_CLASSES: Final = "the classes are treated as public: they were read from the private labels, not given beforehand"
KNOWN_SIZE: Final = "the number of records is treated as public"


class PrivateClassifier(PrivateLearner, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A private learner with the scikit-learn interface.

    After a fit, `charge_` and `privacy_` are its cost. `epsilon` and `delta` cover `fits` such fits together.
    ``random_state=None`` draws secure noise from the operating system; an integer makes a reproducible simulation, and
    the claim says so. Give every fit of a simulation its own integer: noise that is used twice protects nothing.
    """

    needs_public: ClassVar[bool] = True
    epsilon: float
    delta: float
    public: Any
    random_state: int | None
    classes_: NDArray[Any]
    n_features_in_: int
    privacy_: PrivacyClaim
    _size: int

    @abstractmethod
    def _learn(self, private: LabelledData, public: Any, pseudo: LabelledData | None, charge: Charge) -> None:
        """Fit with the noise described by `charge`. Codes are positions in `classes_`."""

    @abstractmethod
    def _predict_codes(self, X: Any) -> Codes:
        """Positions in `classes_`."""

    def check(self) -> None:
        """A ConfigError if the settings cannot work."""
        check_parameters(self)

    def fit(self, X: Any, y: Any, public: Any = None) -> Self:
        """One private fit on (X, y), with the help of the unlabeled samples `public` (or the constructor's)."""
        return self.fit_private(X, y, public)

    def fit_private(
        self, X: Any, y: Any, public: Any, pseudo: tuple[Any, Any] | None = None, *, classes: Any = None,
        size: int | None = None,
    ) -> Self:  # fmt: skip
        """One private fit, as `PrivateLearner` says."""
        self.check()
        records, labels = tables.as_table(X, f"{self._name}: X"), as_labels(y, f"{self._name}: y")
        if tables.n_rows(records) != len(labels):
            raise ConfigError(f"{self._name}: X has {tables.n_rows(records)} rows and y has {len(labels)} labels.")
        if classes is None and not len(labels):
            raise ConfigError(f"{self._name}: there are no records and therefore no classes: pass `classes`.")
        unlabeled = self._public_rows(public)
        self.classes_ = np.unique(labels if classes is None else as_labels(classes, f"{self._name}: classes"))
        n_public = 0 if unlabeled is None else tables.n_rows(unlabeled)
        self._size = len(labels) if size is None else size
        charge = self.charge(self._size, n_public, len(self.classes_))
        self.n_features_in_ = prod(tables.row_shape(records))
        private = LabelledData(records, encode_labels(labels, self.classes_, self._name))
        self._learn(private, unlabeled, self._pseudo_rows(pseudo), charge)
        self.charge_ = charge.assuming(KNOWN_CLASSES) if classes is None else charge
        self.privacy_ = _claim(self.charge_)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of each row."""
        check_is_fitted(self)
        labels: NDArray[Any] = self.classes_[self._predict_codes(X)]
        return labels

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "privacy_")

    @property
    def _name(self) -> str:
        return type(self).__name__

    def _noise_and_rng(self) -> tuple[Noise, np.random.Generator]:
        """The source of noise, and a generator for everything that needs no protection."""
        if self.random_state is None:
            return noise_source(None), np.random.default_rng()
        for_noise, for_rest = np.random.SeedSequence(self.random_state).spawn(2)
        return noise_source(np.random.default_rng(for_noise)), np.random.default_rng(for_rest)

    def _seeding(self) -> tuple[str, ...]:
        """The claim's assumption about the noise, if any."""
        return () if self.random_state is None else (SEEDED_NOISE,)

    def _public_rows(self, public: Any) -> Any:
        rows = self.public if public is None else public
        if rows is None:
            if self.needs_public:
                raise ConfigError(
                    f"{self._name} learns from public samples: pass unlabeled ones as `public`, to fit() or to "
                    f"{self._name}(); in a study, add a public set."
                )
            return None
        table = tables.as_table(rows, f"{self._name}: public")
        if not tables.n_rows(table):
            raise ConfigError(f"{self._name}: `public` has no rows.")
        return table

    def _pseudo_rows(self, pseudo: tuple[Any, Any] | None) -> LabelledData | None:
        if pseudo is None or not tables.n_rows(pseudo[0]):
            return None
        where = f"{self._name}: pseudo"
        codes = encode_labels(as_labels(pseudo[1], f"{where}-labels"), self.classes_, where)
        return LabelledData(tables.as_table(pseudo[0], where), codes)


def _claim(charge: Charge) -> PrivacyClaim:
    from collegium.privacy import accountant

    return accountant.claim([charge], relation=charge.relation)
