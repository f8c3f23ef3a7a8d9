"""Mini-batches of private and pseudo-labeled rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse

from collegium.errors import ConfigError
from collegium.learners.torch import rows_on_gpu
from collegium.learners.torch.devices import CPU
from collegium.learners.torch.hands import Deck, Hands, Indices, deal_steps, deal_sweeps

Floats = NDArray[np.float32]
Codes = NDArray[np.int64]

_FEW = 100
CHUNK_ROWS = 4096
CHUNK_VALUES = 2**22  # so that a chunk of large images fits into memory too


class Rows:
    """The rows of `X`, read a few at a time as float32 arrays of one `shape`.

    `X` itself is not copied, except that a data frame is converted to one array first.
    """

    def __init__(self, X: Any, image_shape: Sequence[int] | None = None, *, name: str = "X") -> None:
        self._name = name
        self._given = X
        self._is_sparse = sparse.issparse(X)
        self._values = _values(X, name)
        self.are_flat = self._values.ndim == 2
        self.shape = _row_shape(self._values.shape[1:], image_shape, name)

    def __len__(self) -> int:
        return int(self._values.shape[0])

    @property
    def given_shape(self) -> tuple[int, ...]:
        """The shape of a row for its user, where that is not the one that the net takes."""
        return self.shape

    def take(self, rows: Indices | slice) -> Floats:
        """These rows as a new array; NaN and infinite values are refused."""
        block = self.block(rows)
        if not np.isfinite(block).all():
            raise ConfigError(
                f"{self._name} contains NaN, infinite or too large values (beyond float32): impute or drop them first."
            )
        return block

    def block(self, rows: Indices | slice) -> Floats:
        """These rows as a new array, whatever they hold."""
        taken = self._values[rows]
        with np.errstate(over="ignore"):
            values: Floats = (taken.toarray() if self._is_sparse else taken).astype(np.float32)
        return values.reshape(len(values), *self.shape)

    def tensor(self, rows: Indices | slice, device: torch.device) -> torch.Tensor:
        """The same on a device, from its resident copy of all rows if there is one."""
        everything = self.resident(device)
        if everything is None:
            return torch.from_numpy(self.take(rows)).to(device)
        return everything[rows if isinstance(rows, slice) else torch.from_numpy(rows).to(device)]

    def check(self, device: torch.device) -> None:
        """Read every row once, so that bad ones are refused before any training."""
        if self.resident(device) is None:
            for chunk in self.chunks():
                self.take(chunk)

    @property
    def identity(self) -> Any:
        """Equal for the same rows in the same shape, as long as they live."""
        return id(self._given), self.shape

    def copy_to(self, device: torch.device) -> torch.Tensor:
        """All rows, on the device."""
        with torch.inference_mode(False):  # what is made for predicting is trained with, too
            everything = torch.empty((len(self), *self.shape), device=device)
            self.copy_into(everything)
        return everything

    def copy_into(self, place: torch.Tensor) -> None:
        """Put all rows there."""
        for chunk in self.chunks():
            place[chunk] = torch.from_numpy(self.take(chunk)).to(place.device)
        if place.is_cuda:
            torch.cuda.current_stream(place.device).synchronize()  # other streams may read it from now on

    def resident(self, device: torch.device) -> torch.Tensor | None:
        """The copy of all rows that the device keeps, if it does."""
        if device.type == "cpu" or not self.can_stay:
            return None
        return rows_on_gpu.keep(self._given, device, lambda: self.copy_to(device)).view(len(self), *self.shape)

    @property
    def can_stay(self) -> bool:
        """Whether a device may keep a copy: nobody can change the rows."""
        return rows_on_gpu.can_stay(self._given)

    def chunks(self, most: int = CHUNK_ROWS, most_values: int = CHUNK_VALUES) -> Iterator[slice]:
        """Slices that cover all rows; there is one even if there are none."""
        size = max(1, min(most, most_values // max(1, prod(self.shape))))
        return (slice(start, min(start + size, len(self))) for start in range(0, max(1, len(self)), size))


class Labelled:
    """Rows with their labels, which are returned as positions in `classes`. `weights`, if any, have mean 1."""

    def __init__(self, rows: Rows, y: NDArray[Any], classes: NDArray[Any], weights: Floats | None = None) -> None:
        self.rows = rows
        self._y = y
        self.weights = weights
        self._classes = classes
        self._are_codes = classes.dtype.kind in "iu" and y.dtype.kind in "iu" and _counts_up(classes)

    def __len__(self) -> int:
        return len(self._y)

    def codes(self, rows: Indices | slice) -> Codes:
        """The positions of these rows' labels."""
        labels = self._y[rows]
        if self._are_codes:
            codes = labels.astype(np.int64)
            codes[codes >= len(self._classes)] = -1
        else:
            codes = _positions(labels, self._classes)
        if (codes < 0).any():
            raise ConfigError("Some labels are not among the classes: pass all classes of the study.")
        return codes

    def has_labels_of(self, other: Labelled) -> bool:
        """Whether both have the same array of labels, of the same classes."""
        return self._y is other._y and (
            self._classes is other._classes or np.array_equal(self._classes, other._classes)
        )

    def weights_at(self, rows: Indices) -> Floats:
        """The weights of these rows: 1 where none were given."""
        return np.ones(len(rows), dtype=np.float32) if self.weights is None else self.weights[rows]

    def check(self, device: torch.device = CPU) -> None:
        """Read every row and label once, so that bad ones are refused before any training."""
        self.codes(slice(None))
        self.rows.check(device)


def _counts_up(classes: NDArray[Any]) -> bool:
    """Whether they are 0, 1, 2 ...; few are compared faster in a list, and every update asks."""
    n = len(classes)
    return classes.tolist() == list(range(n)) if n <= _FEW else bool(np.array_equal(classes, np.arange(n)))


class Beside:
    """Rows without labels and, for soft targets, their target class probabilities."""

    def __init__(self, rows: Rows, targets: Any, n_classes: int) -> None:
        self.rows = rows
        self._targets = None if targets is None else np.asarray(targets)
        if self._targets is not None and self._targets.shape != (len(rows), n_classes):
            raise ConfigError(
                f"Soft targets must have shape {(len(rows), n_classes)}, one column per class, not "
                f"{self._targets.shape}."
            )
        if len(rows) == 0:
            raise ConfigError("There are no rows to distill from.")

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def has_targets(self) -> bool:
        """Whether there are target class probabilities."""
        return self._targets is not None

    def has_same_targets(self, other: Beside) -> bool:
        """Whether another has the same target class probabilities."""
        same: bool = self._targets is other._targets or np.array_equal(self._targets, other._targets)  # type: ignore[arg-type]
        return same

    def targets(self, rows: Indices | slice) -> Floats | None:
        """The target probabilities of these rows, if any."""
        if self._targets is None:
            return None
        targets: Floats = self._targets[rows].astype(np.float32)
        # Written so that NaN fails too.
        if not (np.all(targets >= 0) and np.all(np.abs(targets.sum(axis=1) - 1) <= 1e-3)):
            raise ConfigError("Soft targets must be probabilities that sum to 1 in each row: softmax logits first.")
        return targets

    def check(self, device: torch.device = CPU) -> None:
        """Read every row and target once, so that bad ones are refused before any training."""
        self.targets(slice(None))
        self.rows.check(device)


class Batch(NamedTuple):
    """The rows of one step, on their device: those with labels, then those with soft targets or without any."""

    X: torch.Tensor
    codes: torch.Tensor
    weights: torch.Tensor | None
    soft: torch.Tensor | None
    beside: torch.Tensor | None = None
    """The indices of the rows without labels."""


class Batches:
    """Draws mini-batches, and remembers across calls which rows come next."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._decks: list[Deck] = []

    def deal(
        self, sets: Sequence[Labelled], beside: Beside | None, *, batch_size: int, epochs: int, steps: int | None
    ) -> Hands:
        """The rows of `steps` mini-batches, or of `epochs` sweeps over the largest set, with equal shares of all sets.

        Smaller sets are repeated.
        """
        decks = [self._deck(place, len(rows)) for place, rows in enumerate(_every(sets, beside))]
        share = min(batch_size, max(map(len, decks)))
        return deal_sweeps(decks, share, epochs) if steps is None else deal_steps(decks, share, steps)

    def _deck(self, place: int, n: int) -> Deck:
        """The deck of the set at this position: a new one if the set's length has changed."""
        if place == len(self._decks):
            self._decks.append(Deck(n, self._rng))
        if len(self._decks[place]) != n:
            self._decks[place] = Deck(n, self._rng)
        return self._decks[place]


def batches_of(hands: Hands, sets: Sequence[Labelled], beside: Beside | None, device: torch.device) -> Iterator[Batch]:
    """The mini-batches themselves, one at a time."""
    weighted = any(labelled.weights is not None for labelled in sets)

    def there(values: NDArray[Any] | None) -> torch.Tensor | None:
        return None if values is None else torch.from_numpy(values).to(device)

    for start, k in zip(hands.starts, hands.sizes, strict=True):
        own = [rows[start : start + k] for rows in hands.rows]
        X = [each.rows.tensor(hand, device) for each, hand in zip(_every(sets, beside), own, strict=True)]
        labelled = list(zip(sets, own, strict=False))
        codes = np.concatenate([each.codes(hand) for each, hand in labelled] or [np.zeros(0, dtype=np.int64)])
        yield Batch(
            X[0] if len(X) == 1 else torch.cat(X),
            torch.from_numpy(codes).to(device),
            there(np.concatenate([each.weights_at(hand) for each, hand in labelled]) if weighted else None),
            there(None if beside is None else beside.targets(own[-1])),
            there(None if beside is None else own[-1]),
        )


def _every(sets: Sequence[Labelled], beside: Beside | None) -> list[Labelled | Beside]:
    return [*sets, *([] if beside is None else [beside])]


def _positions(labels: NDArray[Any], classes: NDArray[Any]) -> Codes:
    """Where each label is among the classes; -1 for one that is not."""
    if labels.dtype.kind in "biu" and classes.dtype.kind in "biu":  # fast, for what nearly all labels are
        order = np.argsort(classes, kind="stable")
        places = np.searchsorted(classes, labels, sorter=order).clip(max=len(classes) - 1)
        among: Codes = np.where(classes[order[places]] == labels, order[places], -1).astype(np.int64)
        return among
    position = {label: place for place, label in enumerate(classes.tolist())}
    found = [position.get(label, -1) for label in labels.ravel().tolist()]
    return np.array(found, dtype=np.int64).reshape(labels.shape)


def labels_of(y: Any, rows: Rows, name: str = "y") -> NDArray[Any]:
    """`y` as an array with one label per row."""
    if y is None:
        raise ConfigError(f"A classifier requires y to be passed, but the target {name} is None.")
    labels = np.asarray(y)
    if labels.ndim != 1:
        raise ConfigError(f"{name} must have one label per row, but has {labels.ndim} dimensions.")
    if len(labels) != len(rows):
        raise ConfigError(f"There are {len(rows)} rows, but {len(labels)} labels in {name}.")
    return labels


def weights_of(sample_weight: Any, rows: Rows) -> Floats | None:
    """`sample_weight` as one number per row, scaled to mean 1; None stays None."""
    if sample_weight is None or len(rows) == 0:
        return None
    weights = per_row(sample_weight, rows, "sample_weight").astype(np.float64)
    if not 0 < weights.sum() < np.inf:
        raise ConfigError("sample_weight must not be all zero, and its sum must be finite.")
    return np.asarray(weights / weights.mean(), dtype=np.float32)


def per_row(values: Any, rows: Rows, name: str) -> NDArray[Any]:
    """`values` as an array with one number per row."""
    numbers: NDArray[Any] = np.asarray(values)
    # Written so that NaN fails too.
    if (
        numbers.shape != (len(rows),)
        or numbers.dtype.kind not in "biuf"
        or not np.all((numbers >= 0) & (numbers < np.inf))
    ):
        raise ConfigError(f"{name} must have one finite number of at least 0 for each of the {len(rows)} rows.")
    return numbers


def classes_in(labels: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """The sorted distinct labels."""
    if any(pd.isna(part).any() for part in labels):
        raise ConfigError("Some labels are missing: drop those rows first.")
    if any(part.dtype.kind == "f" and not (np.isfinite(part) & (part == np.round(part))).all() for part in labels):
        raise ConfigError("The labels are continuous, but a classifier needs classes. Unknown label type.")
    try:
        return np.unique(np.concatenate(labels))
    except TypeError:
        raise ConfigError("The labels have different types, such as numbers and text: convert them to one.") from None


def _values(X: Any, name: str) -> Any:
    """`X` as an array of numbers or a csr matrix."""
    values: Any = X
    if isinstance(X, pd.DataFrame):
        values = _frame_values(X, name)
    elif sparse.issparse(X):
        values = values.tocsr()
    else:
        values = np.asarray(X)
    if values.ndim < 2:
        raise ConfigError(f"{name} must have at least two dimensions, (rows, features): Reshape your data.")
    if values.dtype.kind not in "biuf":
        raise ConfigError(f"{name} must contain real numbers, but has dtype {values.dtype}. Encode text first.")
    if 0 in values.shape[1:]:
        raise ConfigError(f"{name} has 0 feature(s) (shape={values.shape}) while a minimum of 1 is required.")
    return values


def _frame_values(frame: pd.DataFrame, name: str) -> Floats:
    kinds = pd.api.types
    text = [
        str(column)
        for column, dtype in frame.dtypes.items()
        if not (kinds.is_any_real_numeric_dtype(dtype) or kinds.is_bool_dtype(dtype))
    ]
    if text:
        raise ConfigError(f"Some columns of {name} are not numeric: {', '.join(text)}. Encode or drop them first.")
    return frame.to_numpy(dtype=np.float32, na_value=np.nan)


def _row_shape(given: tuple[int, ...], image_shape: Sequence[int] | None, name: str) -> tuple[int, ...]:
    """The shape of a row: as given, or flat features (or images without a channel axis) as `image_shape`."""
    if image_shape is None:
        return given
    wanted = tuple(image_shape)
    if given == wanted or (1, *given) == wanted or given == (prod(wanted),):
        return wanted
    hint = f"{prod(wanted)} features are needed" if len(given) == 1 else "bring the axes into that order"
    raise ConfigError(f"A row of {name} has shape {given}, which does not fit image_shape={wanted}: {hint}.")
