"""Did it help me? Each site's model beside the one that it would have had alone, on the same test rows."""

from __future__ import annotations

import hashlib
import uuid
from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING, Any, Final

import cloudpickle
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from collegium.core.federation import Federation
from collegium.core.site import Exam, Site
from collegium.errors import ConfigError, QuorumLost
from collegium.learners.base import LocalUpdate, SiteModel, Trainer
from collegium.links.hosting import Hosting, threads_per_site
from collegium.links.local import LocalLink
from collegium.privacy.learners.base import PrivateLearner
from collegium.site.policy import Policy
from collegium.wire import tables

if TYPE_CHECKING:
    from collegium.core.algorithm import Algorithm
    from collegium.runs.results import Run

Right = NDArray[np.bool_]
COLUMNS: Final = ("site", "alone", "together", "difference", "low", "high", "helped")
LEVEL: Final = 0.95
_RESAMPLES: Final = 4000
_MOST_KEPT: Final = 512
_NEARLY_ALL: Final = 0.95
_ENOUGH: Final = 50
"""Fewer labels than this may all be of one class by chance."""
_KNOWN: OrderedDict[str, Right] = OrderedDict()
"""What sites got right alone, of this process's last runs: methods that are compared share it."""


@dataclass(frozen=True, eq=False)
class Alone:
    """Trains the sites of a run alone, with their learners, rows and seed, for as long as the run did."""

    hosting: Hosting
    exam: Exam
    update: LocalUpdate
    rounds: int

    @classmethod
    def of(cls, algorithm: Algorithm, hosting: Hosting, exam: Exam | None) -> Alone | None:
        """None where there is nothing to compare: no test set, or no models of the sites' own."""
        able = all(site.learner is not None and len(site) for site in hosting.sites)
        if exam is None or not able or not algorithm.trains_sites or algorithm.labels_own_points:
            return None
        epochs = getattr(algorithm, "epochs", None) or getattr(algorithm, "local_epochs", None)
        steps = getattr(algorithm, "steps", None) or getattr(algorithm, "local_steps", None)
        return cls(hosting, exam, LocalUpdate(epochs, steps), algorithm.most_rounds)

    @property
    def is_cheap(self) -> bool:
        """Whether that is one fit per site: learners that start from scratch each time, without private ones."""
        return all(self._rounds(site) == 1 and not isinstance(site.learner, PrivateLearner) for site in self._sites)

    @property
    def _sites(self) -> Sequence[Site]:
        return self.hosting.sites

    def _rounds(self, site: Site) -> int:
        return 1 if Trainer(site.learner, self.hosting.classes).fits_anew(self.update) else self.rounds

    def right(self, parties: Collection[str]) -> dict[str, Right]:
        """Which test rows these sites' models get right; a site that cannot be trained alone is left out."""
        asked = [site for site in self._sites if site.name in parties]
        keys = {site.name: self._key(site) for site in asked}
        unknown = [site for site in asked if keys[site.name] not in _KNOWN]
        for rounds in sorted({self._rounds(site) for site in unknown}):
            for name, right in self._trained(
                [site for site in unknown if self._rounds(site) == rounds], rounds
            ).items():
                _KNOWN[keys[name]] = right
        found = {name: _KNOWN[key] for name, key in keys.items() if key in _KNOWN}
        while len(_KNOWN) > _MOST_KEPT:
            _KNOWN.popitem(last=False)
        return found

    def _trained(self, sites: Sequence[Site], rounds: int) -> dict[str, Right]:
        from collegium.algorithms.local import Local

        # Nothing leaves here, so nothing is spent and no policy is asked.
        free = tuple(replace(site, budget=None, policy=Policy()) for site in sites)
        hosting = replace(
            self.hosting,
            sites=free,
            parties=(),
            exam=None,
            run=uuid.uuid4().hex,
            folder=None,
            cohort=self.hosting.cohort,
        )
        link = LocalLink(hosting)
        try:
            n_classes = len(hosting.classes)
            fed = Federation(link, run=hosting.run, n_classes=n_classes, seed=hosting.seed, public=hosting.public)
            with threads_per_site(), suppress(QuorumLost):  # those whose learners failed have no model
                Local(rounds, self.update.epochs, self.update.steps).coordinate(fed)
            with threads_per_site():
                return answered_right(link.models, self.exam)
        finally:
            link.close()

    def _key(self, site: Site) -> str:
        try:
            learner = hashlib.sha256(cloudpickle.dumps(site.learner)).hexdigest()
        except Exception:  # whatever a user's learner may raise; it is then trained each time
            learner = uuid.uuid4().hex
        labels = hashlib.sha256(repr(site.y.tolist()).encode()).hexdigest()
        classes = repr(self.hosting.classes.tolist())
        test = hashlib.sha256(self.exam.codes.tobytes()).hexdigest() + tables.digest(self.exam.X)
        size = f"{self.update} {self._rounds(site)} {self.hosting.seed} {self.hosting.cohort}"
        text = f"{site.name} {tables.digest(site.X)} {labels} {learner} {classes} {test} {size}"
        return hashlib.sha256(text.encode()).hexdigest()


def answered_right(models: Mapping[str, SiteModel], exam: Exam) -> dict[str, Right]:
    """Which rows of a test set each model gets right; one that fails on it is left out."""
    right = {}
    for name, model in models.items():
        with suppress(Exception):  # whatever a user's learner may raise
            right[name] = model.predict_codes(exam.X) == exam.codes
    return right


def judge(alone: Mapping[str, Right], together: Mapping[str, Right], seed: int) -> pd.DataFrame:
    """One row per site: accuracy alone and together, and the difference with a 95% interval over the test rows."""
    rows = []
    for site in (name for name in together if name in alone):
        low, high = interval(together[site].astype(int) - alone[site], np.random.default_rng(seed))
        before, after = float(alone[site].mean()), float(together[site].mean())
        rows.append((site, before, after, after - before, low, high, low > 0))
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"helped": bool})


def interval(changes: NDArray[np.integer[Any]], rng: np.random.Generator) -> tuple[float, float]:
    """A paired bootstrap over test rows that became right (1), became wrong (-1), or stayed what they were (0).

    It says how far the difference depends on which rows were tested, and nothing about other private rows or seeds.
    """
    n = len(changes)
    shares = [np.count_nonzero(changes == value) / n for value in (1, -1, 0)]
    drawn = rng.multinomial(n, shares, size=_RESAMPLES)
    low, high = np.quantile((drawn[:, 0] - drawn[:, 1]) / n, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


def verdict_over(runs: Sequence[Run]) -> pd.DataFrame:
    """The verdict over repeats with other seeds: mean differences, with Student's 95% interval over the runs.

    A site for which all repeats are the same, as with learners that draw nothing, has the mean of the runs' intervals
    over the test rows: that the seed changes nothing says nothing of other rows.
    """
    if len(runs) < 2:
        raise ConfigError("A verdict over repeats needs two runs or more, such as those of seeds 0, 1 and 2.")
    every = pd.concat([run.verdict for run in runs])
    rows = []
    for site, own in every.groupby("site", sort=False):
        mean, n = own["difference"].mean(), len(own)
        width = np.inf if n < 2 else float(stats.t.ppf((1 + LEVEL) / 2, n - 1) * own["difference"].std() / np.sqrt(n))
        means = (own["alone"].mean(), own["together"].mean(), mean)
        low, high = (mean - width, mean + width) if n < 2 or np.ptp(own["difference"]) else own[["low", "high"]].mean()
        rows.append((site, *means, float(low), float(high), low > 0))
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype({"helped": bool})


def concerns(run: Run) -> list[str]:
    """What somebody who looks at a run should know first, a sentence each: nothing, if all is well."""
    said = faults(run)
    judged = run.judged()
    if judged is not None and len(judged):
        lost, lower = judged["high"] < 0, (judged["difference"] < 0) & (judged["high"] >= 0)
        if lost.any():
            said.append(f"It did not help everybody: {_named(judged[lost])} would have been better off alone.")
        if lower.any():
            said.append(f"Lower than alone, but within the error of the test set: {_named(judged[lower])}.")
    return said


def in_html(judged: pd.DataFrame) -> str:
    """A verdict as a table for notebooks: sites that lost are red, those that it helped are green."""
    head = "".join(f"<th>{name}</th>" for name in ("site", "alone", "together", "difference", "95% interval"))
    rows = []
    for row in judged.to_dict("records"):
        color = "#b00020" if row["high"] < 0 else "#00703c" if row["helped"] else "inherit"
        numbers = (f"{row['alone']:.3f}", f"{row['together']:.3f}", f"{row['difference']:+.3f}")
        cells = (escape(str(row["site"])), *numbers, f"{row['low']:+.3f} {row['high']:+.3f}")
        rows.append(f'<tr style="color:{color}">{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>')
    return f"<table><caption>Did it help?</caption><tr>{head}</tr>{''.join(rows)}</table>"


def _named(judged: pd.DataFrame) -> str:
    return ", ".join(f"{row['site']} ({row['difference']:+.1%})" for row in judged.to_dict("records"))


def faults(run: Run) -> list[str]:
    """What is wrong with a run's results themselves."""
    return [*_untested(run), *_one_class(run)]


def _untested(run: Run) -> list[str]:
    """A site that failed its test is in no mean: that must not be silent."""
    measured, models = set(run.accuracy.columns), set(run._models) - set(run.incomplete)  # which is said elsewhere
    missing = [party for party in run.about["parties"] if party in models and party not in measured]
    if not measured or not missing:
        return []
    return [f"Not in the mean accuracy, because their models could not be tested: {', '.join(missing)}."]


def _one_class(run: Run) -> list[str]:
    """A consensus that is nearly one class although the sites' rows are not."""
    labels = run.final_codes
    if labels is None or len(run.classes) < 2 or len(labels) < _ENOUGH:
        return []
    share = np.bincount(labels, minlength=len(run.classes)) / len(labels)
    rows = run.class_counts.to_numpy().sum(axis=0) if len(run.class_counts) else np.zeros(0)
    usual = rows.max() / rows.sum() if rows.sum() else 1 / len(run.classes)
    if share.max() < _NEARLY_ALL or share.max() < usual + (1 - usual) / 2:
        return []
    name = run.classes[int(share.argmax())]
    text = f"The consensus is nearly one class: {share.max():.1%} of its labels are {str(name)!r}"
    return [f"{text}, but {usual:.1%} at most of the sites' rows. Models that learn it will say little else."]
