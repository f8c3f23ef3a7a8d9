"""Rehearse a study before any private data is touched: what would be asked, what would leave, in how many bytes.

The sites of a rehearsal are made up: public rows with random labels. The public set, the algorithm and the learners
are the study's own, so orders and releases have their true kinds and sizes; labels of random models change more from
round to round than those of real ones, so sizes of later rounds are upper bounds.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Final

import numpy as np

from collegium.callbacks import Callback, RoundReport
from collegium.core import tables
from collegium.core.site import Site
from collegium.errors import CollegiumWarning
from collegium.results import Run
from collegium.runner import run
from collegium.study import Study

_ROWS_PER_SITE: Final = 100


class _StopAfter(Callback):
    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def on_round(self, report: RoundReport) -> bool:
        return report.round + 1 >= self._rounds


def rehearse(study: Study, *, rounds: int = 3, base: Path | None = None) -> Run:
    """Run a study's first rounds on made-up sites."""
    prepared = study.prepare(base)
    rng = np.random.default_rng(study.seed)
    public = prepared.public
    sites = []
    for real in prepared.sites:
        rows = rng.integers(tables.n_rows(public), size=min(len(real), _ROWS_PER_SITE))
        labels = prepared.classes[np.arange(len(rows)) % len(prepared.classes)]
        X = tables.take(public, rows)
        sites.append(Site(real.name, X, rng.permutation(labels), learner=real.learner, policy=real.policy))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CollegiumWarning)
        return run(
            prepared.algorithm,
            sites=sites,
            public=public,
            classes=prepared.classes,
            global_learner=prepared.global_learner,
            seed=study.seed,
            callbacks=[_StopAfter(rounds)],
            progress=False,
        )
