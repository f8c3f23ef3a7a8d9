"""Texts as rows of token ids."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from collegium.errors import ConfigError
from collegium.learners.on_disk import FeatureFiles

NOTHING: Final = -1
"""Fills up rows: no token has it."""
MOST_KEPT: Final = 2**28
"""Bytes that a `Memo` keeps."""
LISTS_KEPT: Final = 64
"""Lists whose rows stay together as they were given: those of some sites, the public and the test texts."""
WRITTEN_AT_ONCE: Final = 1024
"""Texts whose rows go into one file: whoever is interrupted has not computed them all for nothing."""
SHOWN: Final = 5


def texts_in(X: Any, columns: Sequence[str] | str | None = None, *, name: str = "X") -> list[str]:
    """The texts of a list, Series, array or one-column table; those of several `columns` are joined.

    A missing text is one without words.
    """
    if isinstance(X, str):
        raise ConfigError(f"{name} is one text: give a list of texts.")
    if isinstance(X, pd.DataFrame):
        parts = [_texts(column, f"column {column.name!r} of {name}") for column in _columns(X, columns, name)]
        return parts[0] if len(parts) == 1 else [" ".join(filter(None, row)) for row in zip(*parts, strict=True)]
    if columns is not None:
        raise ConfigError(f"columns={columns!r} are of a table, but {name} is a {type(X).__name__}.")
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == 1:
        X = X[:, 0]
    if not isinstance(X, pd.Series | np.ndarray | list | tuple) or getattr(X, "ndim", 1) != 1:
        shape = f" of shape {X.shape}" if hasattr(X, "shape") else ""
        raise ConfigError(
            f"{name} must be texts, as a list, a Series or a table with one column, not a {type(X).__name__}{shape}."
        )
    return _texts(X if isinstance(X, pd.Series) else pd.Series(list(X), dtype=object), name)


def _columns(X: pd.DataFrame, wanted: Sequence[str] | str | None, name: str) -> list[pd.Series]:
    if wanted is None:
        if X.shape[1] != 1:
            shown = ", ".join(map(repr, X.columns[:SHOWN]))
            raise ConfigError(
                f"{name} has {X.shape[1]} columns ({shown}{', ...' if X.shape[1] > SHOWN else ''}): say which have the "
                "texts, as columns=['title', 'body'], or give a table with one column."
            )
        return [X.iloc[:, 0]]
    names = [wanted] if isinstance(wanted, str) else list(wanted)
    missing = [each for each in names if each not in X.columns]
    if missing or not names:
        raise ConfigError(
            f"columns={wanted!r}: {name} has no column {missing[0]!r}." if missing else "columns is empty."
        )
    return [X[each] for each in names]


def _texts(column: pd.Series, name: str) -> list[str]:
    blank = column.isna().to_numpy(dtype=bool)
    if (is_numeric_dtype(column) or is_bool_dtype(column)) and not blank.all():
        raise _no_texts(name, str(column.dtype))
    cells = column.astype(object).tolist()
    for cell, is_blank in zip(cells, blank.tolist(), strict=True):
        if not is_blank and not isinstance(cell, str):
            raise _no_texts(name, type(cell).__name__)
    return ["" if is_blank else cell for cell, is_blank in zip(cells, blank.tolist(), strict=True)]


def _no_texts(name: str, what: str) -> ConfigError:
    then = "Use a learner for tables or, if they are words of a code, make them texts: column.astype(str)."
    if what == "bytes":
        then = "Make them texts: column.str.decode('utf-8')."
    return ConfigError(f"TextClassifier takes texts, but {name} holds values of type {what}. {then}")


class Tokens:
    """A tokenizer that gives every text a row of `length` ids, filled up with `NOTHING`."""

    def __init__(self, tokenizer: Any, length: int) -> None:
        self._tokenizer, self._length = tokenizer, length
        self._lock = threading.Lock()  # it keeps its settings in itself, and two threads would change them

    def __call__(self, texts: Sequence[str]) -> NDArray[np.int32]:
        """The ids of these texts."""
        rows = np.full((len(texts), self._length), NOTHING, dtype=np.int32)
        if not texts:
            return rows
        sound = [text.encode("utf-8", "replace").decode() for text in texts]  # half a character is none
        with self._lock:
            found = self._tokenizer(
                sound,
                truncation=True,
                max_length=self._length,
                padding=False,
                return_attention_mask=False,
                return_token_type_ids=False,
                verbose=False,
            )["input_ids"]
        for row, ids in zip(rows, found, strict=True):
            ids = ids or [self._empty]
            row[: len(ids)] = ids
        return rows

    @property
    def _empty(self) -> int:
        """What stands for a text without any token: a net must have something to read."""
        own = self._tokenizer
        marks = (own.bos_token_id, own.cls_token_id, own.eos_token_id, own.sep_token_id, own.unk_token_id, 0)
        return next(int(each) for each in marks if each is not None)


class Memo:
    """Rows that were computed of texts, so that those which come again are not computed again.

    Texts are known by their hashes: none of them is kept. Equal lists get the same array, which nobody can change. With
    files, rows are there for other processes, too.
    """

    def __init__(
        self,
        compute: Callable[[list[str]], NDArray[Any]],
        most: int = MOST_KEPT,
        files: FeatureFiles | None = None,
    ) -> None:
        self._compute, self._most, self._files = compute, most, files
        self._kept: OrderedDict[bytes, NDArray[Any]] = OrderedDict()
        self._bytes = 0
        self._lists: deque[tuple[list[bytes], NDArray[Any]]] = deque()
        self._lock = threading.RLock()

    def __call__(self, texts: Sequence[str]) -> NDArray[Any]:
        """The rows of these texts."""
        keys = [hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest() for text in texts]
        with self._lock:
            for known, rows in self._lists:
                if known == keys:
                    return rows
            fresh = {key: text for key, text in zip(keys, texts, strict=True) if key not in self._kept}
            found = self._found(fresh)
            each = [found[key] if key in found else self._kept[key] for key in keys]
            rows = np.stack(each) if each else self._compute([])
            rows.flags.writeable = False
            self._keep(found)
            self._keep_list(keys, rows)
            return rows

    def _found(self, fresh: dict[bytes, str]) -> dict[bytes, NDArray[Any]]:
        """Their rows: from the files, where they are there, or computed."""
        if self._files is None:
            return dict(zip(fresh, self._compute(list(fresh.values())), strict=True)) if fresh else {}
        found = dict(zip(*self._files.read(fresh), strict=True))
        missing = [key for key in fresh if key not in found]
        for start in range(0, len(missing), WRITTEN_AT_ONCE):
            some = missing[start : start + WRITTEN_AT_ONCE]
            computed = self._compute([fresh[key] for key in some])
            self._files.write(some, computed)
            found |= zip(some, computed, strict=True)
        return found

    def _keep_list(self, keys: list[bytes], rows: NDArray[Any]) -> None:
        self._lists.append((keys, rows))
        while len(self._lists) > LISTS_KEPT or sum(known.nbytes for _, known in self._lists) > max(
            self._most, rows.nbytes
        ):
            self._lists.popleft()

    def _keep(self, found: dict[bytes, NDArray[Any]]) -> None:
        for key, row in found.items():
            self._kept[key] = row.copy()  # not a view of all that were computed with it
            self._bytes += row.nbytes
        while self._bytes > self._most:
            self._bytes -= self._kept.popitem(last=False)[1].nbytes
