"""The estimator: a graphical model of noisy counts by the package mbi, and rows drawn from it.

mbi (Apache-2.0, extra `together`) is Private-PGM's successor: McKenna, Sheldon, Miklau: "Graphical-model based
estimation and inference for differential privacy", ICML 2019. It needs JAX, which compiles a program for every shape of
tables: that takes most of the time.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.errors import MissingExtra
from collegium.together.planning import Floats, Groups, Measured

_ITERATIONS: Final = 1500
"""They take less time than compiling; with 250, large tables are not fitted yet."""
_GAIN: Final = 1e-3
"""An estimate that gets better by less than this is done."""


def require_mbi() -> Any:
    """The package, or an error that names the extra."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it speaks of a cache of compiled programs
            import mbi
    except ImportError:
        raise MissingExtra("together", 'Together(model="fitted" or "adaptive")') from None
    return mbi


def domain_of(groups: Sequence[Groups]) -> Any:
    """Columns by number, each with as many values as it has groups of cells."""
    return require_mbi().Domain(list(range(len(groups))), [int(group.max()) + 1 for group in groups])


def estimate(domain: Any, histograms: Sequence[Floats], tables: Sequence[Measured], before: Any = None) -> Any:
    """The model that fits all counts best; it begins with the one `before`."""
    mbi, noise = require_mbi(), min(each.noise for each in tables)
    counts = [mbi.LinearMeasurement(each, (column,), noise) for column, each in enumerate(histograms)]
    counts += [mbi.LinearMeasurement(t.counts.ravel(), t.columns, t.noise) for t in tables]
    estimator, total = mbi.estimation.MirrorDescent(), float(histograms[0].sum())
    return estimator.estimate(
        domain, counts, known_total=total, iters=_ITERATIONS, warm_start=before, tol=_GAIN
    )  # fmt: skip


def draw_from(model: Any, columns: int, rows: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """Made-up rows, as numbers of groups."""
    with _drawing_from(rng):
        made = model.synthetic_data(rows=rows, method="sample").to_dict()
    return np.stack([np.asarray(made[column], dtype=np.int64) for column in range(columns)], axis=1)


@contextmanager
def _drawing_from(rng: np.random.Generator) -> Iterator[None]:
    """mbi draws from NumPy's global generator: for as long as it does, that follows from ours."""
    before = np.random.get_state()
    np.random.seed(int(rng.integers(1 << 32)))
    try:
        yield
    finally:
        np.random.set_state(before)
