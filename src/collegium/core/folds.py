"""What a site's learner says of its own rows when it has not seen them: each fold by a model of the other folds."""

from __future__ import annotations

import traceback
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from collegium.core.labels import Codes
from collegium.core.samples import LabelledData, Mixture
from collegium.wire import tables

if TYPE_CHECKING:
    from collegium.core.site import ActiveSite

FOLDS: Final = 5
UNKNOWN: Final = -1
"""The answer for rows of which no fold's model could be fitted."""


def deal_folds(codes: Codes, folds: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """The fold of each row. Every class is dealt out evenly, so that two rows of one are enough to learn it from."""
    fold_of = np.empty(len(codes), dtype=np.intp)
    dealt = 0
    for code in np.unique(codes):
        rows = rng.permutation(np.flatnonzero(codes == code))
        fold_of[rows] = (np.arange(len(rows)) + dealt) % folds
        dealt += len(rows)
    return fold_of


def out_of_fold(
    site: ActiveSite, rows: LabelledData, fold_of: NDArray[np.intp], beside: Mixture | None = None
) -> Codes:
    """Predictions of the site's learner for `rows`, each by a model of the other folds.

    The models also learn the pseudo-labeled rows of `beside`, with their weights.
    The models are thrown away. UNKNOWN where the learner could not be fitted: that must not tell of the rows.
    """
    answers = np.full(len(rows), UNKNOWN, dtype=np.int64)
    for fold in np.unique(fold_of):
        held_out = fold_of == fold
        kept = LabelledData(tables.take(rows.X, np.flatnonzero(~held_out)), rows.codes[~held_out])
        if not len(kept):
            continue
        try:
            model = site.train(kept if beside is None else replace(beside, private=kept))
            answers[held_out] = model.predict_codes(tables.take(rows.X, np.flatnonzero(held_out)))
        except Exception:
            site.log(f"the learner could not be fitted without a fold of the rows:\n{traceback.format_exc()}")
    return answers
