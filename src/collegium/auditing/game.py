"""The game: a site with some canaries, by coins; a run of the real algorithm; and what an attacker saw of it.

Everything but the site's data is as in a real run: algorithm, learners, policies and mechanisms. Budgets that are kept
in a file are not touched: an audit spends nothing.
"""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import RandomForestClassifier

from collegium.auditing.canaries import FEWEST, Canaries
from collegium.auditing.evidence import Evidence, Targets, nearest_rows
from collegium.auditing.views import View, Witness
from collegium.core.algorithm import Algorithm
from collegium.core.attendance import Cohort
from collegium.core.labels import encode_labels
from collegium.core.public_set import PublicSet, with_opinion
from collegium.core.samples import LabelledData
from collegium.core.site import Site
from collegium.core.workbench import Workbench
from collegium.errors import CollegiumWarning
from collegium.learners.base import LocalUpdate, SiteModel, Trainer
from collegium.learners.prepare import with_preparation
from collegium.privacy.budget import read_charges
from collegium.privacy.claims import Charge
from collegium.runs.results import Run
from collegium.runs.runner import run
from collegium.together.making import like
from collegium.wire import tables

Forged = Literal["static", "adaptive"]
_POPULATION: Final = 500
_TREES: Final = 100
_PERTURBED: Final = 3
_STEP: Final = 0.05


@dataclass(frozen=True, eq=False)
class Played:
    """What came of one run of the game."""

    evidence: Evidence
    charges: tuple[Charge, ...] | None
    """What the site's releases cost; None if nothing protected some of them."""
    made_public: tuple[Charge, ...]
    """What the coordinator's own noise cost."""
    released: bool
    """Whether anything left the site."""
    refused: str | None = None
    """The code of its first refusal."""


@dataclass(frozen=True, eq=False)
class Game:
    """All that is fixed before the coins are thrown."""

    algorithm: Algorithm
    sites: tuple[Site, ...]
    target: int
    """Which of the sites is attacked; it has the records that are no canaries."""
    public: Any
    """The public rows, ``(X, y)`` where the method learns from their labels, None, or the algorithm that makes them."""
    classes: NDArray[Any]
    canaries: Canaries
    view: View
    forged: Forged | None
    replaces: bool
    """Whether a canary that is not there is replaced by the record that it was made from."""
    cohort: Cohort = "auto"
    """Whether alike nets are trained together."""
    opinion: pd.DataFrame | None = None
    """How probable each class is for each public row, by the model that made them up."""

    @property
    def site(self) -> Site:
        """The site under attack, without canaries."""
        return self.sites[self.target]

    @property
    def member(self) -> Site:
        """Another site."""
        return self.sites[0 if self.target else 1]

    def play(self, coins: NDArray[np.bool_], seed: int, reference: SiteModel | None = None) -> Played:
        """One run with these coins, or two where the second public set is chosen after the first run.

        With a `reference`, which has seen no canary, its opinion is kept beside what the attacker reads.
        """
        if not isinstance(self.public, Algorithm):
            return self._play(coins, seed, reference)
        made, outcome = self._make_public(self.public, coins, seed, reference)
        if outcome.made is None:  # a site did not take part, and there is nothing to label
            return made
        known = replace(self, public=like(outcome.made, self.site.X), opinion=outcome.opinion)
        return _together(made, known._play(coins, seed, reference), "with it")

    def _make_public(
        self, algorithm: Algorithm, coins: NDArray[np.bool_], seed: int, reference: SiteModel | None
    ) -> tuple[Played, Run]:
        """The run in which sites make the public set, canaries and all."""
        bare = tuple(replace(site, learner=None, public=None) for site in self.sites)
        nowhere = np.zeros((len(self.canaries), 0), dtype=np.intp)
        making = replace(self, algorithm=algorithm, sites=bare, public=None, forged=None)
        return making._run(coins, seed, None, None, nowhere, reference)

    def _play(self, coins: NDArray[np.bool_], seed: int, reference: SiteModel | None) -> Played:
        X, y = self._public_with(self.canaries.X, self.canaries.truth) if self.forged else self._public()
        rows = nearest_rows(X, self.canaries.X, own_row=self.forged is not None)
        first, _ = self._run(coins, seed, X, y, rows, reference)
        if self.forged != "adaptive":
            return first
        more, truth, places = self._second_look(first.evidence, np.random.default_rng([seed, 1]))
        X, y = self._public_with(more, truth)
        return _together(first, self._run(coins, seed + 1, X, y, places, reference)[0], "again")

    def _run(
        self, coins: NDArray[np.bool_], seed: int, X: Any, y: Any, rows: NDArray[np.intp], reference: SiteModel | None
    ) -> tuple[Played, Run]:
        sites, targets = self._sites(coins), self._targets(X, rows, seed, reference)
        witness = Witness(self.view, self.site.name, targets)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CollegiumWarning)
            outcome = run(
                self.algorithm,
                sites=sites,
                public=with_opinion(X if y is None else (X, y), None if self.forged else self.opinion),
                classes=self.classes,
                seed=seed,
                cohort=self.cohort,
                callbacks=[witness],
                progress=False,
                global_learner=DummyClassifier(),  # nobody looks at a model of the consensus
            )
        self._look_at_models(outcome, witness, targets)
        codes = outcome.refusals.loc[outcome.refusals["party"] == self.site.name, "code"]
        refused = str(codes.iloc[0]) if len(codes) else None
        return Played(witness.evidence, *_costs(outcome, self.site.name), refused), outcome

    def _sites(self, coins: NDArray[np.bool_]) -> list[Site]:
        here = [(self.site.X, self.site.y), self.canaries.present(coins)]
        if self.replaces:
            here.append(self.canaries.absent(coins))
        X, y = tables.stack([rows for rows, _ in here]), np.concatenate([labels for _, labels in here])
        sites = list(self.sites)
        sites[self.target] = replace(self.site, X=X, y=y)
        if self.forged and self.algorithm.labels_own_points:  # a member that asks for labels of the canaries
            place = self.sites.index(self.member)
            own = [self.canaries.X] if self.member.unlabeled is None else [self.canaries.X, self.member.unlabeled]
            sites[place] = replace(self.member, unlabeled=tables.stack(own))
        # An audit spends nothing: budgets count within each of its runs alone.
        return [
            site if site.budget is None else replace(site, budget=replace(site.budget, ledger=None)) for site in sites
        ]

    def _targets(self, X: Any, rows: NDArray[np.intp], seed: int, reference: SiteModel | None) -> Targets:
        others = self.population
        asked = tables.stack([self.canaries.X, others.X]) if len(others) else self.canaries.X
        codes = np.concatenate([self.canaries.codes, others.codes])
        nets = Workbench(self.sites, self.classes, None if X is None else PublicSet(X), None, seed)
        expected = at_rows = None
        if reference is not None:
            expected = reference.predict_proba(asked)[np.arange(len(codes)), codes][:, None]
            if rows.shape[1]:
                at_rows = reference.predict_proba(X)[rows, self.canaries.codes[:, None]]
        return Targets(asked, codes, len(self.canaries), rows, nets.net, expected, at_rows, self._known)

    @property
    def _known(self) -> LabelledData:
        """All records but the canaries, for an attacker who knows them: whom a claim is about has no other secret."""
        rows = [site for site in self.sites if len(site)]
        y = np.concatenate([site.y for site in rows])
        return LabelledData(tables.stack([site.X for site in rows]), encode_labels(y, self.classes, "the sites"))

    @property
    def population(self) -> LabelledData:
        """Records of other sites: the attacker knows that they are not at this one."""
        others = [site for site in self.sites if site is not self.site and len(site)]
        if not others:
            return LabelledData(tables.take(self.site.X, []), np.zeros(0, dtype=np.int64))
        share = max(1, _POPULATION // len(others))
        X = tables.stack([tables.take(site.X, np.arange(min(share, len(site)))) for site in others])
        y = np.concatenate([site.y[:share] for site in others])
        return LabelledData(X, encode_labels(y, self.classes, "the other sites").astype(np.int64))

    def reference(self, seed: int) -> SiteModel:
        """A model of the site's records without any canary, which the attacker is granted.

        Where the site has hardly any other record, one of the other sites' records.
        """
        known = LabelledData(self.site.X, encode_labels(self.site.y, self.classes, "the site"))
        if len(known) < FEWEST and len(self.population):
            known = self.population
        nothing, rng = LabelledData(tables.take(known.X, []), known.codes[:0]), np.random.default_rng(seed)
        forest = with_preparation(RandomForestClassifier(_TREES, random_state=seed), self.site.X)
        try:
            return Trainer(forest, self.classes).fit(known + nothing, None, rng, LocalUpdate())
        except (TypeError, ValueError):  # rows that no forest takes, such as text
            guess = DummyClassifier(strategy="prior")
            return Trainer(guess, self.classes).fit(known + nothing, None, rng, LocalUpdate())

    def _look_at_models(self, outcome: Run, witness: Witness, targets: Targets) -> None:
        if self.view.model is None:
            return
        name = self.site.name if self.view.model == "site" else self.member.name
        model = outcome.models.get(name)
        if model is not None:
            witness.evidence.add(f"{name}/model/end", model, targets.by_model(model))
        if isinstance(outcome.labels, dict) and self.forged and name in outcome.labels:
            said = outcome.labels[name][: len(self.canaries)] == self.canaries.y
            sure = outcome.confidences[name][: len(self.canaries)]
            witness.evidence.add(f"{name}/points/end", None, targets.by_labels(said, sure))

    def _public(self) -> tuple[Any, Any]:
        return self.public if isinstance(self.public, tuple) else (self.public, None)

    def _public_with(self, rows: Any, truth: NDArray[Any]) -> tuple[Any, Any]:
        """The public set with these rows in front."""
        X, y = self._public()
        if X is None:
            return None, None
        return tables.stack([rows, X]), None if y is None else np.concatenate([truth, y])

    def _second_look(self, first: Evidence, rng: np.random.Generator) -> tuple[Any, NDArray[Any], NDArray[np.intp]]:
        """Rows for the second public set: the canaries again, and slightly changed copies of the doubtful ones."""
        told = np.mean([each.values[: len(self.canaries), 0] for each in first.readings.values()], axis=0)
        order = np.argsort(np.abs(told - np.median(told)), kind="stable")
        doubtful = order[: max(1, len(order) // 2)]
        copies = [_perturbed(tables.take(self.canaries.X, doubtful), rng) for _ in range(_PERTURBED)]
        own = np.arange(len(self.canaries))
        places = np.tile(own[:, None], (1, 1 + _PERTURBED))
        for number in range(_PERTURBED):
            places[doubtful, 1 + number] = len(own) + number * len(doubtful) + np.arange(len(doubtful))
        truth = np.concatenate([self.canaries.truth, np.tile(self.canaries.truth[doubtful], _PERTURBED)])
        return tables.stack([self.canaries.X, *copies]), truth, places


def _perturbed(X: Any, rng: np.random.Generator) -> Any:
    """Rows with a little noise on their numbers."""
    if isinstance(X, np.ndarray) and X.dtype.kind == "f":
        spread = X.std(axis=0, keepdims=True) * _STEP
        return (X + rng.normal(size=X.shape) * spread).astype(X.dtype)
    if hasattr(X, "select_dtypes"):
        numbers = X.select_dtypes("floating").columns
        noise = rng.normal(size=(len(X), len(numbers))) * X[numbers].std(axis=0).fillna(0).to_numpy() * _STEP
        return X.assign(**{str(name): X[name] + noise[:, place] for place, name in enumerate(numbers)})
    return X


def _together(first: Played, second: Played, when: str) -> Played:
    """Two runs against the same records: the attacker sees both, and the site pays for both."""
    unread = Counter(first.evidence.unread) + Counter(second.evidence.unread)
    evidence = Evidence(dict(first.evidence.readings), dict(unread))
    evidence.readings |= {f"{when}/{name}": reading for name, reading in second.evidence.readings.items()}
    costs = None if first.charges is None or second.charges is None else first.charges + second.charges
    made_public = first.made_public + second.made_public
    return Played(evidence, costs, made_public, first.released or second.released, first.refused or second.refused)


def _costs(outcome: Run, site: str) -> tuple[tuple[Charge, ...] | None, tuple[Charge, ...], bool]:
    mine = outcome.releases[outcome.releases["party"] == site]
    paid = [read_charges(text)[0] if isinstance(text, str) else None for text in mine["privacy"]]
    bare = any(each is None for each in paid)
    charges = None if bare else tuple(charge for each in paid for charge in each or ())
    own = tuple(charge for text in outcome.about.get("claims", {}).values() for charge in read_charges(text)[0])
    return charges, own, bool(len(mine))
