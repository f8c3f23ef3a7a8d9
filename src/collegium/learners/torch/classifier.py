"""Neural networks with the scikit-learn interface."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from functools import cache, lru_cache
from math import prod
from types import FunctionType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from collegium.errors import ConfigError, MissingExtra

try:
    import torch
    from torch import nn
except ModuleNotFoundError as missing:
    raise MissingExtra("torch", "TorchClassifier") from missing

from collegium.core.meeting import meet
from collegium.core.settings import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    check,
    check_parameters,
    checked,
)
from collegium.core.softmax import softmax
from collegium.core.terms import LocalTerms, Optimizer, Part, Precision, SoftTargets, Trained, UpdateReport, Weights
from collegium.learners.nets import named as nets
from collegium.learners.torch.answers import Late, Question, Said
from collegium.learners.torch.batches import (
    Beside,
    Floats,
    Labelled,
    Rows,
    classes_in,
    labels_of,
    per_row,
    weights_of,
)
from collegium.learners.torch.beginnings import Beginnings
from collegium.learners.torch.devices import find_device
from collegium.learners.torch.training import NO_TERMS, Schedule, Training, Update, check_output, not_a_net
from collegium.learners.torch.works import AnswerWork, UpdateWork
from collegium.wire import tables


@dataclass(eq=False, repr=False)
class TorchClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A neural network as a scikit-learn classifier that can also continue training, round after round.

    X is a numeric array with one row per case and any further dimensions, a numeric data frame, or a sparse matrix. It
    may be memory-mapped: rows are read a batch at a time. Labels may have any type.

    Parameters
    ----------
    net
        A name from `learners.nets.named.NETS`, an ``nn.Module`` (copied, never trained in place), or a function
        ``(input_shape, n_classes) -> nn.Module``. The net returns one logit per class.
    norm
        "group" replaces the batch norm of a net from `NETS` by group norm: it has no running statistics, which differ
        between sites, and no row depends on the others in its batch, as DP-SGD requires.
    lr, weight_decay, optimizer
        The optimizer is "adam", "adamw", "sgd" or "momentum" (sgd with momentum .9). Its state is kept between updates,
        except where local terms reset it.
    batch_size
        Rows per mini-batch. With pseudo-labeled rows, a mini-batch has as many of those in addition.
    epochs, steps
        How long `fit` and `update` train: `epochs` sweeps over the data or, when given, `steps` mini-batches.
    augment
        Whether to train on a random view of each row: a shifted image, also mirrored if in color, or a row with some
        features swapped with another row's (`collegium.learners.torch.views`).
    warm_start
        Whether `fit` continues from the current weights, as `update` always does.
    device
        Where to train: "cpu" or "cuda". Without CUDA, it falls back to the CPU with a `CollegiumWarning`;
        `last_update_.device` is the device used.
    precision
        How precisely the net computes: "float32"; "tf32", which is faster on GPUs that have it, with products of 10
        binary digits (elsewhere it is float32); or "bfloat16", the forward pass with 7 digits. Weights stay float32.
    image_shape
        (channels, height, width), if the rows of X are flat but the net takes images.
    random_state
        An integer makes the weights reproducible, bit for bit, on the same CPU, torch version and number of torch
        threads. None uses fresh entropy. torch's global generator is left unchanged. Nets with dropout, and all nets
        that are not from `NETS`, train one at a time within a process, because torch's layers share that generator;
        your own code must not draw from it in another thread meanwhile.

    Attributes
    ----------
    classes_ : the classes, in the order of the columns of `predict_proba`.
    input_shape_ : the shape of a row as the net sees it.
    last_update_ : the `UpdateReport` of the last `fit`, `update` or `distill`.
    diverged_ : whether some weight is NaN or infinite.
    """

    net: Any = "mlp"
    _: KW_ONLY
    norm: Literal["batch", "group"] = "batch"
    lr: NonNegativeFloat = 1e-3
    batch_size: PositiveInt = 64
    epochs: PositiveInt = 10
    steps: PositiveInt | None = None
    optimizer: Optimizer = "adam"
    weight_decay: NonNegativeFloat = 0.0
    augment: bool = False
    warm_start: bool = False
    device: str = "cpu"
    precision: Precision = "float32"
    image_shape: Sequence[int] | None = None
    random_state: NonNegativeInt | None = None
    _training: Training = field(init=False)
    _checked: Sequence[Any] = field(init=False, default=())
    _last_classes: NDArray[Any] | None = field(init=False, default=None)
    classes_: NDArray[Any] = field(init=False)
    input_shape_: tuple[int, ...] = field(init=False)
    last_update_: UpdateReport = field(init=False)

    def fit(self, X: Any, y: Any, pseudo: tuple[Any, Any] | None = None, sample_weight: Any = None) -> TorchClassifier:
        """Train from scratch (or continue, with `warm_start`) on (X, y) and on pseudo-labeled rows `pseudo=(U, L)`.

        The classes are those in y and L. Every row is checked before training starts. `sample_weight` weights the rows
        of X and is scaled to mean 1, the weight of a pseudo-labeled row.
        """
        anew = not (self.warm_start and self.__sklearn_is_fitted__())
        given = self._read(X, y, pseudo, sample_weight, anew=anew)
        classes = classes_in([each.y for each in given]) if anew else self.classes_
        return self._train(given, classes, self.epochs, self.steps, anew=anew, check_all=True)

    def initialize(self, X: Any, classes: Any) -> TorchClassifier:
        """Create the net for rows like those of X and for these classes, without training it.

        Its weights are those that `update` would start from.
        """
        check_parameters(self)
        order = _class_order(classes)
        rows = self._rows(X, None)
        self._training = self._new_training(rows.shape, len(order))
        self.classes_, self.input_shape_ = order, rows.given_shape
        return self

    def update(
        self,
        X: Any,
        y: Any,
        *,
        classes: Any,
        pseudo: tuple[Any, Any] | None = None,
        epochs: int | None = None,
        steps: int | None = None,
        sample_weight: Any = None,
        terms: LocalTerms | None = None,
    ) -> TorchClassifier:
        """Continue training from the current weights, optimizer state and position in the shuffled data.

        `classes` are all classes of the study, including those without a case at this site; they must be the same in
        every call. Each mini-batch has `batch_size` rows of X and as many of `pseudo=(U, L)`; an epoch covers the
        larger of the two once. `epochs` or `steps` override the constructor's. With `steps`, only the drawn rows are
        checked, so that a single mini-batch step is cheap however large the data.

        `terms` add to the loss or the gradient, or train the head only: see `LocalTerms`. With terms the optimizer is
        reset, unless they set `keep_optimizer`. Rows that they bring are added to each mini-batch.
        """
        anew = not self.__sklearn_is_fitted__()
        order = self.classes_ if not anew and classes is self._last_classes else _class_order(classes)
        if not anew and order is not self.classes_ and not np.array_equal(order, self.classes_):
            raise ConfigError("These are not the classes, in their order, that this classifier was first trained with.")
        if epochs is None:
            epochs = self.epochs
            steps = self.steps if steps is None else steps
        terms = terms or NO_TERMS
        given = self._read(X, y, pseudo, sample_weight, anew=anew, terms=terms)
        self._train(given, order, epochs, steps, anew=anew, check_all=steps is None, terms=terms)
        # An array that cannot be changed is the same the next time, if it is the same one.
        self._last_classes = classes if isinstance(classes, np.ndarray) and not classes.flags.writeable else None
        return self

    @checked
    def distill(
        self,
        X: Any,
        targets: Any,
        *,
        epochs: PositiveInt = 1,
        lr: NonNegativeFloat = 5e-5,
        batch_size: PositiveInt = 128,
        steps: PositiveInt | None = None,
        temperature: PositiveFloat = 1.0,
        train: Trained = "all",
        keep_optimizer: bool = False,
    ) -> TorchClassifier:
        """Learn to predict the class probabilities `targets` for the rows of X, from the current weights.

        The loss is KL(targets || predictions). The optimizer is a new Adam or, with `keep_optimizer`, that of the last
        `distill` which kept it; that of `update` is unchanged.
        A `temperature` T softens both: targets to the power 1/T, and logits divided by T. The defaults are FedAUX's.
        """
        check_is_fitted(self)
        soft_targets = SoftTargets(X, targets, temperature=temperature)
        terms = LocalTerms([soft_targets], train=train, keep_optimizer=keep_optimizer)
        schedule = self._schedule(epochs, steps, lr, batch_size, weight_decay=0)
        soft = Beside(self._rows(X, self.input_shape_), targets, len(self.classes_))
        if steps is None:
            soft.check(schedule.device)
        self.last_update_ = self._carry_out(self._training.begin_distilling(soft, schedule, terms))
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row."""
        positions = self.predict_positions(X)
        labels: NDArray[Any] = self.classes_[positions]
        return labels

    def predict_positions(self, X: Any) -> NDArray[Any]:
        """The most probable class of each row, as its position in `classes_`."""
        return self._begin(X, "classes")()

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Class probabilities, with columns in the order of `classes_`."""
        return softmax(self.predict_logits(X))

    @checked
    def predict_logits(
        self, X: Any, *, norm_batch: PositiveInt | None = None, norm_rows: PositiveInt | None = None
    ) -> Floats:
        """The net's outputs before the softmax, with columns in the order of `classes_`.

        With `norm_batch`, batch norms use the statistics of each batch of about so many rows, in their order, instead
        of the running ones, which stay as they are: a row's answer then depends on the rows beside it. With
        `norm_rows`, they use those of so many rows, spread over X, for all of them.
        """
        return self.begin_logits(X, norm_batch=norm_batch, norm_rows=norm_rows)()

    @checked
    def begin_logits(
        self, X: Any, *, norm_batch: PositiveInt | None = None, norm_rows: PositiveInt | None = None
    ) -> Callable[[], Floats]:
        """`predict_logits` for later: what this returns is to be called for them.

        A GPU computes them meanwhile, with the weights as they are now: other weights may be set before.
        """
        if norm_batch is not None and norm_rows is not None:
            raise ConfigError("predict_logits takes norm_batch or norm_rows, not both.")
        return self._begin(X, "logits", norm_batch, norm_rows)

    def embed(self, X: Any) -> Floats:
        """The features of each row: the input of the net's last linear layer."""
        return self._begin(X, "features")()

    def _begin(self, X: Any, said: Said, norm_batch: int | None = None, norm_rows: int | None = None) -> Late:
        if not self.__sklearn_is_fitted__():  # which is asked in every round, and scikit-learn takes a while to
            check_is_fitted(self)
        rows = self._rows(X, self.input_shape_)
        device = find_device(self.device, quietly=True)
        return meet(AnswerWork(self._training, Question(rows, device, self.precision, said, norm_batch, norm_rows)))

    def _carry_out(self, update: Update) -> UpdateReport:
        return meet(UpdateWork(update))

    def release(self) -> None:
        """Give back what was kept, on a GPU above all, to train this net again and sooner: others' rows among it."""
        if self.__sklearn_is_fitted__():
            self._training.forget()

    def joins_cohort(self, mode: str) -> str | None:
        """Why this classifier is not trained with those of other sites in this mode; None if it is."""
        if mode == "auto" and find_device(self.device, quietly=True).type == "cpu":
            return "its device is the CPU"
        return None

    def get_weights(self, part: Part = "all") -> dict[str, NDArray[np.float32]]:
        """A copy of the weights by name; `part` may be "features" or "head" (the last linear layer).

        Batch norm's running means and variances are included: average them like weights. Its `num_batches_tracked` is
        not.
        """
        check_is_fitted(self)
        return self._training.get_weights(part)

    def set_weights(self, weights: Weights, part: Part = "all") -> TorchClassifier:
        """Set weights with the names and shapes of `get_weights(part)`. The optimizer's state is unchanged."""
        check_is_fitted(self)
        self._training.set_weights(weights, part)
        return self

    def to_module(self) -> nn.Module:
        """A copy of the net, on the CPU and in eval mode."""
        check_is_fitted(self)
        return self._training.copy_net()

    @property
    def diverged_(self) -> bool:
        """Whether some weight is NaN or infinite."""
        check_is_fitted(self)
        return self._training.has_diverged()

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_training")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.three_d_array = True
        return tags

    def _read(
        self,
        X: Any,
        y: Any,
        pseudo: tuple[Any, Any] | None,
        sample_weight: Any,
        *,
        anew: bool,
        terms: LocalTerms = NO_TERMS,
    ) -> list[_Given]:
        """The private and, if any, the pseudo-labeled rows, with their labels."""
        private = self._rows(X, None if anew else self.input_shape_)
        given = [_Given(private, labels_of(y, private), weights_of(sample_weight, private))]
        if pseudo is not None:
            public = self._rows(pseudo[0], private.given_shape, name="the pseudo-labeled X")
            labels = labels_of(pseudo[1], public, name="the pseudo-labels")
            sure = None
            if terms.confidences is not None:
                sure = per_row(terms.confidences, public, "confidences").astype(np.float32)
            given.append(_Given(public, labels, sure))
        learned = [each for each in given if len(each.rows) > 0]
        if not learned and terms.unlabeled is None:
            raise ConfigError("There are no rows to learn from.")
        return learned or given[:1]

    def check_rows(self, X: Any, name: str = "X") -> None:
        """A ConfigError if it cannot learn from such rows, as far as that shows before it does."""
        self.check_settings()
        rows = Rows(tables.take(X, np.arange(min(1, tables.n_rows(X)))), self.image_shape, name=name)
        if isinstance(self.net, str):
            _check_net(self.net, rows.shape, self.norm)

    def check_settings(self) -> None:
        """A ConfigError for settings that are wrong whatever the rows are."""
        check_parameters(self)
        find_device(self.device, quietly=True)
        if isinstance(self.net, str) and self.net not in nets.NETS:
            nets.build(self.net, (1,), 2, self.norm)  # which says so
        if not (isinstance(self.net, str | nn.Module) or callable(self.net)):
            raise not_a_net(self.net)

    def _rows(self, X: Any, expected: tuple[int, ...] | None, *, name: str = "X") -> Rows:
        rows = Rows(X, self.image_shape, name=name)
        if type(X) is np.ndarray and expected == rows.shape and not hasattr(self, "feature_names_in_"):
            return rows  # the usual case: nothing is left to check
        if rows.are_flat:
            validate_data(self, X, reset=expected is None, skip_check_array=True)
        elif expected is None:
            self.n_features_in_ = prod(rows.shape)
        if expected not in (None, rows.shape):
            raise ConfigError(f"A row of {name} has shape {rows.shape}, but the net takes {expected}.")
        return rows

    def _train(
        self,
        given: list[_Given],
        classes: NDArray[Any],
        epochs: int,
        steps: int | None,
        *,
        anew: bool,
        check_all: bool,
        terms: LocalTerms = NO_TERMS,
    ) -> TorchClassifier:
        schedule = self._schedule(epochs, steps, self.lr, self.batch_size, self.weight_decay)
        schedule = schedule if terms.rate == 1 else replace(schedule, lr=terms.rate * schedule.lr)
        sets = [Labelled(each.rows, each.y, classes, each.weights) for each in given]
        rows = given[0].rows
        beside = self._beside(terms, rows.given_shape, len(classes))
        if check_all:
            for each in sets:
                each.check(schedule.device)
            if beside is not None:
                beside.check(schedule.device)
        training = self._new_training(rows.shape, len(classes)) if anew else self._training
        sets = [each for each in sets if len(each) > 0]
        update = training.begin(sets, schedule, terms, beside, optimizer=self.optimizer)
        self.last_update_ = self._carry_out(update)
        self._training, self.classes_, self.input_shape_ = training, classes, rows.given_shape
        return self

    def _beside(self, terms: LocalTerms, shape: tuple[int, ...], n_classes: int) -> Beside | None:
        """The rows of a step without labels."""
        if terms.unlabeled is None:
            return None
        X, targets = terms.unlabeled
        return Beside(self._rows(X, shape, name="the unlabeled X"), targets, n_classes)

    def _new_training(self, input_shape: tuple[int, ...], n_classes: int) -> Training:
        def make() -> Training:
            return Training(
                lambda: self._new_net(input_shape, n_classes),
                input_shape,
                optimizer=self.optimizer,
                seed=self.random_state,
                deterministic=isinstance(self.net, str),
                layers=(self.net, self.norm) if isinstance(self.net, str) else None,
            )

        if self.random_state is None or not (isinstance(self.net, str) or _is_plain(self.net)):
            return make()
        key = (self.net, self.norm, input_shape, n_classes, self.optimizer, self.random_state)
        return BEGINNINGS.make(key, make)

    def _new_net(self, input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
        if isinstance(self.net, str):
            return nets.build(self.net, input_shape, n_classes, self.norm)
        if self.norm != "batch":
            raise ConfigError(f"norm={self.norm!r} applies to named nets only: build your own with nn.GroupNorm.")
        if isinstance(self.net, nn.Module):
            net = copy.deepcopy(self.net)
        else:
            net = self.net(input_shape, n_classes) if callable(self.net) else self.net
        return check_output(net, input_shape, n_classes)

    def _schedule(self, epochs: int, steps: int | None, lr: float, batch_size: int, weight_decay: float) -> Schedule:
        self._check_all(epochs, steps)
        device = find_device(self.device)
        return Schedule(batch_size, epochs, steps, lr, weight_decay, device, bool(self.augment), self.precision)

    def _check_all(self, epochs: int, steps: int | None) -> None:
        """Check the parameters, if they are not those that were checked last: a run asks again and again."""
        cls: Any = type(self)
        now = [*_parameters_of(cls)(self), epochs, steps]
        if len(self._checked) == len(now) and all(map(operator.is_, self._checked, now)):
            return
        check_parameters(self)
        check(PositiveInt, epochs, f"{cls.__name__}: epochs")
        check(PositiveInt | None, steps, f"{cls.__name__}: steps")
        self._checked = now


@cache
def _parameters_of(cls: Any) -> operator.attrgetter[Any]:
    """What reads all parameters of such a classifier."""
    return operator.attrgetter(*(each.name for each in fields(cls) if each.init))


@lru_cache(maxsize=64)
def _check_net(name: str, shape: tuple[int, ...], norm: Literal["batch", "group"]) -> None:
    """A ConfigError if this net takes no such rows: made once, without weights."""
    with torch.device("meta"):
        nets.build(name, shape, 2, norm)


BEGINNINGS: Beginnings[Training] = Beginnings()


def _is_plain(net: Any) -> bool:
    """Whether it is a function without a memory of its own: it makes the same net from the same random numbers."""
    return isinstance(net, FunctionType) and net.__closure__ is None


class _Given(NamedTuple):
    rows: Rows
    y: NDArray[Any]
    weights: Floats | None


def _class_order(classes: Any) -> NDArray[Any]:
    order = np.array(classes)
    if order.ndim != 1 or len(order) == 0 or len(set(order.tolist())) < len(order):
        raise ConfigError("classes must be a list of the distinct classes of the study.")
    return order
