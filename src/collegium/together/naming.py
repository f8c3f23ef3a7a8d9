"""Which values a column of text has: those that many records have are found; no other leaves a site.

1. Every site counts its rows in buckets that a keyed hash puts their values into, in several tables. The coordinator
   sees the noisy sums (`values`), and sends them back as `marks`.
2. Sites spell the values whose buckets stand out in the tables together (`names`), blinded: nobody learns who has one.

A value that one record alone has falls into buckets at random. How much a value must stand out follows from the marks
alone: so much that random buckets do with a small probability only, which is part of the claim's delta. (Korolova et
al., "Releasing search queries and clicks privately", 2009, name what is frequent in such a way, and Desfontaines, Voss,
Gipson, Mandayam: "Differentially private partition selection", 2022.)
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr

from collegium.core.releases import Counts, Spellings
from collegium.errors import ConfigError
from collegium.privacy.composition import gaussian_epsilon
from collegium.together.columns import MOST_CATEGORIES
from collegium.together.planning import Floats
from collegium.together.values import text_of

TABLES: Final = 10
BUCKETS: Final = 512
CELLS: Final = TABLES * BUCKETS
COPIES: Final = 4
"""In how many places a value is spelled: where two share one, each is alone in another."""
WIDTH: Final = 10
_LETTERS: Final = 6
"""Bytes in a word: the rest of its 64 bits makes up for an R that is even."""
_CHECK: Final = 6
LONGEST: Final = _LETTERS * WIDTH - 2 - _CHECK
"""The longest value that can be spelled, in bytes."""
_FINENESS: Final = 32
"""A mark is a count in so many parts of its noise."""
_CAPS: Final = (48, 64, 96, 127)
"""A single table shows no more than this, however full a bucket is: others may share it."""
_SPARE: Final = 32
NOTHING: Final = "null"
Marks = NDArray[np.int8]
Value = tuple[int, str]
"""The number of a column, and one of its values as JSON."""


class Bar(NamedTuple):
    """How much a value must stand out."""

    cap: int
    least: int

    def passes(self, marks: Marks, buckets: NDArray[np.int64]) -> bool:
        """Whether the buckets of a value stand out, one in each table."""
        return int(np.minimum(marks[np.arange(TABLES), buckets], self.cap).sum(dtype=np.int64)) >= self.least


ASSUMPTION: Final = (
    "where values of text are found: the coordinator draws the key of their hash at random, and hands on their noisy "
    "counts as they are"
)


def require_categories(column: pd.Series[Any]) -> None:
    """At a site: an error where a column has no categories, but texts or the names of rows."""
    codes, texts = texts_of(column)
    different = len(texts) - 1
    if different > MOST_CATEGORIES and 2 * different > len(codes):
        raise ConfigError(
            f"Column {column.name!r} has too many categories: most rows have one of their own, as texts and names do. "
            "Leave it out, group its values first, or declare those that matter; texts need public texts of their kind."
        )


def hashed(key: str, column: str | int, text: str) -> NDArray[np.int64]:
    """Random numbers below 2^16 that follow from a value and the key."""
    said = json.dumps([str(column), text]).encode()
    digest = hashlib.blake2b(said, key=bytes.fromhex(key), digest_size=2 * (TABLES + COPIES) + _CHECK).digest()
    return np.frombuffer(digest[:-_CHECK], dtype="<u2").astype(np.int64)


def count_values(frame: pd.DataFrame, names: Sequence[Any], key: str) -> Counts:
    """At a site: in how many rows any of these columns has a value of a bucket, table by table.

    A row counts once in a bucket, though two of its values may be there: it changes a count by 1 at most.
    """
    counts = []
    for buckets in np.sort(buckets_of(frame, names, key), axis=2):
        first = np.ones(buckets.shape, dtype=np.bool_)
        first[:, 1:] = np.diff(buckets, axis=1) > 0
        counts.append(np.bincount(buckets[first], minlength=BUCKETS))
    return Counts(np.concatenate(counts).astype(np.int64))


def buckets_of(frame: pd.DataFrame, names: Sequence[Any], key: str) -> NDArray[np.int64]:
    """Table by table, for every row, the buckets of its values."""
    chosen = []
    for name in names:
        codes, texts = texts_of(frame[name])
        chosen.append(np.stack([hashed(key, name, text)[:TABLES] % BUCKETS for text in texts])[codes].T)
    return np.stack(chosen, axis=2)


def texts_of(column: pd.Series[Any]) -> tuple[NDArray[np.int64], list[str]]:
    """A column as numbers of different texts, of which the last is that of a missing value.

    The text of a value follows from the value alone: a record that could change those of others would not be hidden.
    """
    name, missing = str(column.name), column.isna()
    # Values of different types may be equal, as True and 1 are: whichever came first would stand for both.
    texts = [None if gone else text_of(value, name) for value, gone in zip(column.astype(object), missing, strict=True)]
    codes, different = pd.factorize(np.array(texts, dtype=object), use_na_sentinel=True)
    found = np.asarray(codes, dtype=np.int64)
    return np.where(found < 0, len(different), found), [*different, NOTHING]


def marks_of(counts: Floats, noise: float) -> Marks:
    """Noisy counts in parts of their noise, rounded: all that sites need to know of them."""
    parts = np.rint(counts.reshape(TABLES, BUCKETS) / noise * _FINENESS)
    return np.clip(parts, -128, _CAPS[-1]).astype(np.int8)


def bar_of(marks: Marks, chance: float) -> Bar | None:
    """The lowest bar that random buckets pass with probability `chance` at most; None if there is none.

    Coordinator and sites find the same one. Where a value has n times the noise, every table shows about n.
    """
    if marks.shape != (TABLES, BUCKETS) or marks.dtype != np.int8:
        raise ConfigError("An order's marks are not those of so many tables and buckets.")
    bars = []
    for cap in _CAPS:
        shares = [np.bincount(np.minimum(table, cap).astype(np.int64) + 128, minlength=256) for table in marks]
        likely = np.ones(1)
        for each in shares:
            likely = np.convolve(likely, each / BUCKETS)
        above = np.cumsum(likely[::-1])[::-1]
        least = int(np.flatnonzero(np.append(above, 0.0) <= chance)[0]) - 128 * TABLES
        if least <= TABLES * cap:
            bars.append(Bar(cap, least))
    return min(bars, key=lambda bar: bar.least, default=None)


def chance_of(failure: float, multiplier: float, values: int) -> float:
    """How probably random buckets may pass if a record with so many values is to be safe but for `failure`.

    The record itself is in the counts. By their privacy it makes its own buckets pass at most e^epsilon times as
    probably as they would without it, but for half of `failure`; the other half is for the buckets without it.
    """
    return failure / 2 * math.exp(-gaussian_epsilon(multiplier, failure / 2)) / values


def places_for(marks: Marks, bar: Bar | None) -> int:
    """How many places all values that pass will need, with room to spare."""
    if bar is None:
        raise ConfigError(
            "The categories of text columns could not be found: there are too many that many records have, and a hash "
            "cannot tell them apart. Declare those of some columns, or leave columns out."
        )
    level = bar.least / TABLES
    by_chance = BUCKETS * float(ndtr(-level / _FINENESS))
    standing = max(0.0, float((marks >= level).sum(axis=1).mean()) - by_chance)
    return COPIES * math.ceil((1.5 * standing + _SPARE) / COPIES)


def spell(frame: pd.DataFrame, names: Sequence[Any], key: str, marks: Marks, chance: float, places: int) -> Spellings:
    """At a site: those of its values that stand out."""
    bar, words, where = bar_of(marks, chance), list[NDArray[np.uint64]](), list[NDArray[np.int64]]()
    for number, name in enumerate(names):
        codes, texts = texts_of(frame[name])
        for text in [texts[code] for code in np.unique(codes)]:
            numbers = hashed(key, name, text)
            if bar is not None and _fits(text) and bar.passes(marks, numbers[:TABLES] % BUCKETS):
                words.append(_words(number, text))
                where.append(_places(numbers, places))
    rows = np.array(words, dtype=np.uint64).reshape(-1, WIDTH)
    return Spellings(rows, np.array(where, dtype=np.int64).reshape(-1, COPIES), places)


def _fits(text: str) -> bool:
    """Whether a value is short enough to be spelled; half of a pair of surrogates cannot be."""
    try:
        return len(text.encode()) <= LONGEST
    except UnicodeEncodeError:
        return False


def _places(numbers: NDArray[np.int64], places: int) -> NDArray[np.int64]:
    each = places // COPIES
    return numbers[TABLES:] % each + each * np.arange(COPIES)


def _words(column: int, text: str) -> NDArray[np.uint64]:
    said = text.encode()
    spelled = bytes([column, len(said)]) + said.ljust(LONGEST, b"\0")
    spelled += hashlib.blake2b(spelled, digest_size=_CHECK).digest()
    letters = np.frombuffer(spelled, dtype=np.uint8).reshape(WIDTH, _LETTERS)
    return np.pad(letters, ((0, 0), (0, 8 - _LETTERS))).view("<u8").ravel().astype(np.uint64)


def read_spelled(words: NDArray[np.uint64], names: Sequence[str | int], key: str) -> list[Value]:
    """All values that can be read.

    A place that holds one value only can be read; then that value is known in its other places, too.
    """
    left = [[int(word) for word in place] for place in words]
    found, waiting = list[Value](), list(range(len(left)))
    while waiting:
        place = waiting.pop()
        value = _read(left[place])
        if value is None or value[0] >= len(names):
            continue
        homes = _places(hashed(key, names[value[0]], value[1]), len(left)).tolist()
        if place not in homes or value in found:
            continue
        found.append(value)
        factor = left[place][0]
        spelled = [1, *(int(word) for word in _words(*value))]
        for home in homes:
            left[home] = [(had - factor * word) % (1 << 64) for had, word in zip(left[home], spelled, strict=True)]
            waiting.append(home)
    return found


def _read(place: Sequence[int]) -> Value | None:
    """The value of a place that holds one only."""
    factor, *said = place
    if not factor:
        return None
    even = (factor & -factor).bit_length() - 1
    spare = 64 - 8 * _LETTERS
    if even > spare or any(word % (1 << even) for word in said):
        return None
    inverse = pow(factor >> even, -1, 1 << 64)
    words = [((word >> even) * inverse) % (1 << (64 - even)) for word in said]
    if any(word >> (8 * _LETTERS) for word in words):
        return None
    spelled = b"".join(word.to_bytes(_LETTERS, "little") for word in words)
    column, length, text = spelled[0], spelled[1], spelled[2 : 2 + LONGEST]
    if hashlib.blake2b(spelled[:-_CHECK], digest_size=_CHECK).digest() != spelled[-_CHECK:] or length > LONGEST:
        return None
    try:
        return column, text[:length].decode()
    except UnicodeDecodeError:
        return None


def standing(value: Value, names: Sequence[str | int], key: str, counts: Floats) -> float:
    """About how many records have a value."""
    buckets = hashed(key, names[value[0]], value[1])[:TABLES] % BUCKETS
    return float(np.median(counts.reshape(TABLES, BUCKETS)[np.arange(TABLES), buckets]))
