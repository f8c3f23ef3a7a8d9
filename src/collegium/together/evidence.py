"""For an audit: how much a noisy sum speaks for a record being there, to somebody who knows all other records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.core.samples import LabelledData
from collegium.together import naming
from collegium.together.counting import frame_of, grouped, named, shapes, split, table
from collegium.together.grids import NOWHERE, Grid
from collegium.together.planning import Floats


def evidence(
    counts: Floats, noise: float, known: LabelledData, doubtful: LabelledData, args: Mapping[str, Any]
) -> Floats:
    """How much a sum speaks for each doubtful record being there, beside all known ones.

    About half of the doubtful records are there. What cells hold more than that counts by how sure it is: a cell has
    the noise, and the doubt about others that share it. `args` are those of the order that the sum answers.
    """
    if "key" in args:
        return _of_values(counts, noise, known, doubtful, args)
    columns, groups = [Grid.from_plain(plain) for plain in args["grids"]], [np.asarray(g) for g in args["groups"]]
    sizes = shapes(groups, args["marginals"])
    asked, beside = (grouped(frame_of(rows.X), rows.codes, columns, groups)[0] for rows in (doubtful, known))
    total = np.zeros(len(doubtful))
    for marginal, noisy, shape in zip(args["marginals"], split(counts, sizes), sizes, strict=True):
        sure, unsure = (table([each[column] for column in marginal], shape) for each in (beside, asked))
        left = _left(noisy.ravel(), sure, unsure, noise)
        cells = [asked[column] for column in marginal]
        place = np.ravel_multi_index(np.maximum(cells, 0), shape)
        total += np.where(np.min(cells, axis=0) == NOWHERE, 0.0, left[place])
    return total


def _of_values(
    counts: Floats, noise: float, known: LabelledData, doubtful: LabelledData, args: Mapping[str, Any]
) -> Floats:
    """By the buckets that a record's values are in."""
    frames = [frame_of(rows.X) for rows in (known, doubtful)]
    sure, unsure = (naming.count_values(each, named(each, args["columns"]), args["key"]).counts for each in frames)
    left = _left(counts, sure, unsure, noise).reshape(naming.TABLES, naming.BUCKETS)
    chosen = naming.buckets_of(frames[1], named(frames[1], args["columns"]), args["key"])
    return np.asarray(sum(left[number][buckets].sum(axis=1) for number, buckets in enumerate(chosen)))


def _left(counts: Floats, sure: NDArray[Any], unsure: NDArray[Any], noise: float) -> Floats:
    return np.asarray((counts - sure - unsure / 2) / (unsure / 4 + noise**2))
