"""Rehearse a study before any private data is touched: what would be asked, what would leave, in how many bytes.

The sites of a rehearsal are made up: public rows with random labels. The public set, the algorithm and the learners
are the study's own, so orders and releases have their true kinds and sizes. Labels are sent as what has changed since
the last round where that is shorter; `sent_at_most` therefore says how long a reply can be, whatever has changed.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from sklearn.dummy import DummyClassifier

from collegium.core.public_set import PublicSet
from collegium.core.releases import KINDS, HardLabels, Nothing
from collegium.core.site import Site
from collegium.errors import Advice, CollegiumWarning, ConfigError
from collegium.privacy.claims import SEEDED_NOISE, Charge
from collegium.privacy.learners.base import PrivateLearner
from collegium.runs.callbacks import Callback, RoundReport
from collegium.runs.checks import check_privacy
from collegium.runs.results import Run
from collegium.runs.runner import run
from collegium.study.preparing import Prepared, coordinators_part, global_learner, site_learner
from collegium.study.study import Study
from collegium.wire import label_packing, tables
from collegium.wire.replies import Reply, Row, write_reply

_ROWS_PER_SITE: Final = 100
_SITES: Final = 3
_FEW_ROWS: Final = 20
_LATE: Final = 1 << 31
"""An order's number that has as many digits as any run will need."""
_FORMS: Final = 64
"""Bytes by which the structure of a release varies: the numbers in it, and whether labels are written as changes."""
_ANY: Final = "uniform"
"""Any answer will do of a learner where only kinds, sizes and costs are asked for."""
_NO_PUBLIC_ROWS: Final = (
    "A rehearsal makes its sites up from public rows, and this study has none: set data.public to a few rows."
)


class _StopAfter(Callback):
    def __init__(self, rounds: int) -> None:
        self._rounds = rounds

    def on_round(self, report: RoundReport) -> bool:
        return report.round + 1 >= self._rounds


class _AnyAnswer(DummyClassifier):  # type: ignore[misc]
    """Stands in for a learner. It looks at no cell, so that blank ones are none of its concern."""

    def __init__(self, random_state: int | None = None) -> None:
        super().__init__(strategy=_ANY, random_state=random_state)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags


class _AnyPrivateAnswer(PrivateLearner, _AnyAnswer):
    """Stands in for a private learner, and costs what that would cost at the real site."""

    def __init__(self, learner: PrivateLearner, records: int, random_state: int | None = None) -> None:
        self.learner = learner
        self.records = records
        super().__init__(random_state)

    @property
    def fits(self) -> int:  # type: ignore[override]
        """As often as the learner."""
        return self.learner.fits

    def check(self) -> None:
        self.learner.check()

    def charge(self, n_records: int, n_public: int, n_classes: int) -> Charge:
        return self.learner.charge(self.records, n_public, n_classes)

    def fit_private(
        self, X: Any, y: Any, public: Any, pseudo: tuple[Any, Any] | None = None, *, classes: Any = None,
        size: int | None = None,
    ) -> _AnyPrivateAnswer:  # fmt: skip
        self.charge_ = self.learner.charge(self.records, tables.n_rows(public), len(classes)).assuming(SEEDED_NOISE)
        self.fit(np.zeros((len(classes), 1)), classes)
        return self

    def public_learner(self) -> _AnyAnswer:
        return _AnyAnswer()


def explain(study: Study, *, base: Path | None = None) -> Run:
    """All rounds of a study with made-up sites and stand-ins for the learners: what would leave, at what cost.

    Only the sites' sizes are real: a claim may depend on them.
    """
    prepared = study.prepare(base)
    # With the real learners and budgets: what would be an error of the run is one here, and names them.
    public = None if prepared.public is None else PublicSet(prepared.public)
    check_privacy(prepared.algorithm, prepared.sites, public, len(prepared.classes))
    # Nothing can stand in for a net whose weights are asked for.
    return _rehearse(study, prepared, None, (lambda real: real.learner) if prepared.algorithm.needs else _stand_in)


def _stand_in(real: Site) -> Any:
    private = isinstance(real.learner, PrivateLearner)
    return _AnyPrivateAnswer(real.learner, len(real)) if private else _AnyAnswer()


def _rehearsing(real: Site) -> Any:
    return _stand_in(real) if isinstance(real.learner, PrivateLearner) else real.learner


def rehearse(study: Study, *, rounds: int = 3, base: Path | None = None) -> Run:
    """Run a study's first rounds on made-up sites. What a private learner costs depends on its site's true size."""
    if study.federation.classes is not None:
        part = coordinators_part(study, base)
        parties = study.federation.parties or [f"site {number}" for number in range(_SITES)]
        return rehearse_federation(study, part.shared, part.classes, parties, rounds=rounds, opinion=part.opinion)
    return _rehearse(study, study.prepare(base), rounds, _rehearsing)


def rehearse_federation(
    study: Study,
    public: Any,
    classes: Any,
    parties: Sequence[str],
    *,
    rounds: int | None = None,
    callbacks: Sequence[Callback] = (),
    opinion: pd.DataFrame | None = None,
) -> Run:
    """A rehearsal by a coordinator, whose sites keep their rows to themselves: public rows, classes and names suffice.

    `public` are the rows, or ``(X, y)`` where the method learns from their labels. Learners are those of the study's
    `sites`, or stand-ins where any will do; policies and budgets are the sites' own affair. `rounds` is None for all.
    """
    X, y = public if isinstance(public, tuple) else (public, None)
    algorithm, all_classes = study.build_algorithm(), np.unique(np.asarray(classes))
    if X is None or not tables.n_rows(X):
        raise ConfigError(_NO_PUBLIC_ROWS)
    # Methods that compare every point with every other one would take long over rows that say nothing.
    size = max(_FEW_ROWS, len(all_classes)) if algorithm.labels_own_points else _ROWS_PER_SITE
    rows = tables.take(X, np.arange(size) % tables.n_rows(X))
    labels = all_classes[np.arange(size) % len(all_classes)]
    unlabeled = rows if algorithm.labels_own_points else None
    sites = [
        Site(party, rows, labels, learner=site_learner(study, number, party, X, X), unlabeled=unlabeled)
        for number, party in enumerate(parties)
    ]
    prepared = Prepared(algorithm, sites, X, y, None, all_classes, global_learner(study, X), opinion)
    learner_for = (lambda site: site.learner) if algorithm.needs else _stand_in
    return _rehearse(study, prepared, rounds, learner_for, callbacks)


def sent_at_most(rehearsed: Run) -> pd.Series:
    """The bytes that each of `releases` can have on its way, with all that is sent beside its contents.

    Where contents depend on a site's own rows or net, they are those of the rehearsal.
    """
    sizes = len(rehearsed.about["classes"]), rehearsed.about["public_size"]
    bounds = [_sent_at_most(release, *sizes) for _, release in rehearsed.releases.iterrows()]
    return pd.Series(bounds, rehearsed.releases.index, dtype="int64")


def _sent_at_most(release: pd.Series, n_classes: int, public_size: int) -> int:
    kind = KINDS.get(release["kind"], Nothing)  # a refusal that was paid for has no contents
    if issubclass(kind, HardLabels):
        most = label_packing.most_bytes(public_size, n_classes)
    else:
        most = kind.most_bytes(n_classes, public_size) or 0
    contents = max(int(release["bytes"]), most)
    privacy = release["privacy"]  # NaN where a table says that there is none
    row = Row(release["kind"], contents, release["sha256"], release["entry"], None if pd.isna(privacy) else privacy)
    structure = int(release["wire_bytes"] - release["bytes"]) + _FORMS
    return len(write_reply(Reply(_LATE, row, b""))) + structure + contents


def _rehearse(
    study: Study,
    prepared: Prepared,
    rounds: int | None,
    learner_for: Callable[[Site], Any],
    callbacks: Sequence[Callback] = (),
) -> Run:
    rng = np.random.default_rng(study.seed)
    public = prepared.public
    if public is None or not tables.n_rows(public):
        raise ConfigError(_NO_PUBLIC_ROWS)
    sites = []
    for real in prepared.sites:
        rows = rng.integers(tables.n_rows(public), size=min(len(real), _ROWS_PER_SITE))
        labels = prepared.classes[np.arange(len(rows)) % len(prepared.classes)]
        X = tables.take(public, rows)
        budget = real.budget and replace(real.budget, ledger=None)  # a rehearsal spends nothing
        own = 0 if real.unlabeled is None else min(tables.n_rows(real.unlabeled), _ROWS_PER_SITE)
        unlabeled = None if not own else tables.take(public, rng.integers(tables.n_rows(public), size=own))
        extra: dict[str, Any] = {"policy": real.policy, "budget": budget, "unlabeled": unlabeled}
        sites.append(Site(real.name, X, rng.permutation(labels), learner=learner_for(real), **extra))
    with warnings.catch_warnings():
        for kind in (CollegiumWarning, Advice):  # which would be about made-up rows
            warnings.simplefilter("ignore", kind)
        return run(
            prepared.algorithm,
            sites=sites,
            public=prepared.told,
            classes=prepared.classes,
            global_learner=prepared.global_learner,
            seed=study.seed,
            callbacks=[*callbacks, *([] if rounds is None else [_StopAfter(rounds)])],
            progress=False,
        )
