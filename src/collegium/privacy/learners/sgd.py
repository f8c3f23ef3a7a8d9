"""Neural networks trained with differential privacy (DP-SGD).

Abadi, Chu, Goodfellow, McMahan, Mironov, Talwar, Zhang: "Deep Learning with Differential Privacy", arXiv 1607.00133.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.validation import check_is_fitted

from collegium.core.labels import Codes
from collegium.core.meeting import meet
from collegium.core.samples import LabelledData
from collegium.core.settings import (
    Learner,
    NonNegativeFloat,
    NonNegativeInt,
    OpenProbability,
    PositiveFloat,
    PositiveInt,
)
from collegium.core.terms import Optimizer
from collegium.errors import ConfigError
from collegium.privacy.claims import Charge
from collegium.privacy.events import SampledGaussian
from collegium.privacy.learners.classifier import KNOWN_SIZE, PrivateClassifier
from collegium.privacy.row_by_row import row_by_row
from collegium.wire import tables

if TYPE_CHECKING:
    from collegium.learners.torch.classifier import TorchClassifier
    from collegium.privacy.learners.dp_training import CleanRows


@dataclass(eq=False, repr=False)
class PrivateTorch(PrivateClassifier):
    """A neural network trained by DP-SGD: every record's gradient is clipped, and noise is added to their sum.

    Neighbouring data sets differ by one record more or less. A private fit uses the records only: pseudo-labeled rows
    are for the learner that the site continues with.

    Parameters
    ----------
    net
        As for `TorchClassifier`: a name from `learners.nets.named.NETS`, here with group norm instead of batch norm; an
        ``nn.Module`` or a function. In your own net, the records of a batch must not influence each other: batch norm
        is refused, but the code of `forward` is not inspected.
    epsilon, delta
        The privacy of all `fits` fits together.
    max_grad_norm
        The length to which a record's gradient is clipped.
    epochs, batch_size, steps
        `steps` mini-batch steps (None: `epochs` times the records over `batch_size`), each on a Poisson sample: every
        record with probability `batch_size` over the number of records, which is treated as public.
    lr, optimizer, weight_decay, device, image_shape
        As for `TorchClassifier`. The default is for "linear", which tolerates the most noise: on 6200 census records
        (Adult) with epsilon 1, its test accuracy is .847, and that of "mlp" (with lr=.001) .762; deeper nets need a
        smaller `lr`, more records or a larger epsilon.
    fits
        How many private fits `epsilon` and `delta` cover.
    noise_multiplier
        The noise relative to `max_grad_norm`, instead of deriving it from `epsilon`; the claim follows from it.
    student
        What the site continues with, on public samples labeled by the net and by consensus (None: the same net).
    prepare
        A transformer that turns rows into what the net takes. It is fitted on the public rows, never on the records,
        and must transform rows one by one. A record that it cannot transform counts as zeros: no record is an error.
        (A scaler in front of this learner in a Pipeline would be fitted on the records without any protection.)
    public
        Public rows, used if `fit` is given none. Only `prepare` needs them.
    random_state
        None: secure noise and samples. An integer: a reproducible simulation.
    """

    needs_public: ClassVar[bool] = False
    net: Any = "linear"
    epsilon: PositiveFloat = 8.0
    delta: OpenProbability = 1e-5
    _: KW_ONLY
    max_grad_norm: PositiveFloat = 1.0
    epochs: PositiveInt = 20
    batch_size: PositiveInt = 256
    steps: PositiveInt | None = None
    lr: PositiveFloat = 0.01
    optimizer: Optimizer = "adam"
    weight_decay: NonNegativeFloat = 0.0
    device: str = "cpu"
    image_shape: Sequence[int] | None = None
    fits: PositiveInt = 1
    noise_multiplier: PositiveFloat | None = None
    student: Learner = None
    prepare: Any = None
    public: Any = None
    random_state: NonNegativeInt | None = None
    model_: TorchClassifier = field(init=False)

    def check(self) -> None:
        """A ConfigError if the settings, or what is installed, cannot work."""
        super().check()
        importlib.import_module("collegium.privacy.learners.dp_training")  # says which package is missing
        from collegium.learners.torch.devices import find_device

        find_device(self.device, quietly=True)

    def charge(self, n_records: int, n_public: int, n_classes: int) -> Charge:
        """One sampled Gaussian per step."""
        from collegium.privacy import accountant

        if n_records < 1:
            raise ConfigError("PrivateTorch: there are no records to learn from.")
        sampling = min(1.0, self.batch_size / n_records)
        steps = self.epochs * ceil(n_records / self.batch_size) if self.steps is None else self.steps
        multiplier = self.noise_multiplier or accountant.noise_multiplier(
            self.epsilon, self.delta, steps * self.fits, sampling
        )
        event = SampledGaussian(int(steps), float(multiplier), float(sampling))
        return Charge((event,), relation="add_remove", delta=self.delta, assumptions=(KNOWN_SIZE, *self._seeding()))

    def with_preparation(self, wrap: Callable[[Any], Any]) -> PrivateTorch:
        """The same with the preprocessing the data needs, fitted on public rows; an explicit `prepare` is kept."""
        prepared: PrivateTorch = clone(self, safe=False)
        if self.student is not None:
            prepared.set_params(student=wrap(self.student))
        wrapped = wrap(self._classifier(self.net, None))
        if self.prepare is None and isinstance(wrapped, Pipeline):
            prepared.set_params(prepare=wrapped[:-1])
        return prepared

    def joins_cohort(self, mode: str) -> str | None:
        """Why this learner is not fitted with those of other sites in this mode; None if it is."""
        return self._classifier(self.net, None).joins_cohort(mode)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.prepare is not None  # it is trusted, as a Pipeline is
        return tags

    def public_learner(self) -> Any:
        """The `student`, or a `TorchClassifier` of the same net, starting from the privately trained weights if any.

        With `prepare`, the latter is a Pipeline with new weights.
        """
        if self.student is not None:
            return clone(self.student, safe=False)
        if self.prepare is not None:
            return make_pipeline(clone(self.prepare), self._classifier(self.net, self.random_state))
        if self.__sklearn_is_fitted__():
            return self._classifier(self.model_.to_module(), self.random_state)
        return self._classifier(self.net, self.random_state)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Class probabilities, with columns in the order of `classes_`."""
        check_is_fitted(self)
        return self.model_.predict_proba(self._prepared(X))

    def _learn(self, private: LabelledData, public: Any, pseudo: LabelledData | None, charge: Charge) -> None:
        from collegium.learners.torch.batches import Labelled
        from collegium.learners.torch.devices import RandomStream, find_device
        from collegium.privacy.learners.dp_together import PrivateFit

        (event,) = charge.events
        self._fit_preparation(public)
        rows, codes = self._clean_rows(private.X, public), np.arange(len(self.classes_))
        noise, rng = self._noise_and_rng()
        model = self._classifier(self.net, int(rng.integers(2**31))).initialize(np.zeros((1, *rows.shape)), codes)
        net = model.to_module()
        if not isinstance(self.net, str):  # ours take any numbers
            rows.clear_where_it_fails(net)
        fit = PrivateFit(
            net,
            Labelled(rows, private.codes, codes),
            cast("SampledGaussian", event),
            noise,
            RandomStream(int(rng.integers(2**31))),
            optimizer=self.optimizer,
            lr=self.lr,
            weight_decay=self.weight_decay,
            max_grad_norm=self.max_grad_norm,
            size=self._size,
            device=find_device(self.device),
            is_named=isinstance(self.net, str),
        )
        meet(fit)
        self.model_ = model.set_weights({name: value.cpu().numpy() for name, value in net.state_dict().items()})

    def _classifier(self, net: Any, seed: int | None) -> TorchClassifier:
        from collegium.learners.torch.classifier import TorchClassifier

        return TorchClassifier(
            net,
            norm="group" if isinstance(net, str) else "batch",
            lr=self.lr,
            weight_decay=self.weight_decay,
            optimizer=self.optimizer,
            device=self.device,
            image_shape=self.image_shape,
            random_state=seed,
        )

    def _fit_preparation(self, public: Any) -> None:
        if self.prepare is None:
            return
        if public is None:
            raise ConfigError("PrivateTorch: `prepare` is fitted on public rows, never on the records: pass `public`.")
        self.prepare_ = clone(self.prepare).fit(public)

    def _clean_rows(self, X: Any, public: Any) -> CleanRows:
        """The records as the net takes them.

        What cannot work fails on public rows, or on types and shapes alone; then no record is an error any more.
        """
        from collegium.learners.torch.batches import Rows
        from collegium.privacy.learners.dp_training import CleanRows

        like = tables.take(X, []) if public is None else self._prepared(tables.take(public, [0]))
        Rows(like, self.image_shape)
        if self.prepare is None:
            return CleanRows(X, self.image_shape)
        if _columns(X) != _columns(public):
            raise ConfigError("PrivateTorch: the records and the public rows must have the same columns.")
        return CleanRows(row_by_row(self._prepared, X, 0 * like), self.image_shape)

    def _prepared(self, X: Any) -> Any:
        return X if self.prepare is None else self.prepare_.transform(X)

    def _predict_codes(self, X: Any) -> Codes:
        codes: Codes = self.model_.predict(self._prepared(X))
        return codes


def _columns(X: Any) -> Any:
    return set(X.columns) if isinstance(X, pd.DataFrame) else tables.row_shape(X)
