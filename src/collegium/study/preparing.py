"""From a study to data: load the source, split it, deal it to sites, give each site its learner."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from collegium.core.algorithm import Algorithm
from collegium.core.building import build
from collegium.core.site import Site
from collegium.data.files import read_rows, read_table
from collegium.data.public import split
from collegium.data.sources import Dataset, load_source
from collegium.errors import ConfigError
from collegium.learners.prepare import with_preparation
from collegium.privacy.budget import Budget
from collegium.privacy.learners.base import PrivateLearner
from collegium.site.policy import Policy
from collegium.wire import tables

if TYPE_CHECKING:
    from collegium.study.study import BudgetSection, Prepared, SiteSection, Study


def prepare_study(study: Study, base: Path | None = None, folder: Path | None = None) -> Prepared:
    """Load the data and build everything that `cg.run` takes."""
    from collegium.study.study import Prepared

    if study.federation.classes is not None:
        raise ConfigError(
            "federation.classes: the sites of this study bring their own data. Run it between organisations, by "
            "`collegium coordinate`; for a simulation leave this setting out, and let data.source hold all rows."
        )
    dataset = load_source(study.data.source, target=study.data.target, folder=folder, base=base)
    own_test = study.data.test in ("own", None) and dataset.test is not None
    if study.data.test == "own" and dataset.test is None:
        raise ConfigError(f"data.test: {dataset.name} has no test rows of its own. Give a count or a fraction.")
    try:
        parts = split(
            *_rows(dataset, own_test=own_test),
            sites=study.partition.sites,
            public=study.data.public,
            test=0 if own_test else _size(study.data.test),
            train=study.data.train,
            partition=study.build_partition(),
            seed=study.seed,
        )
    except ConfigError as error:
        raise ConfigError(f"data, partition: {error}") from None
    test = _own_test(dataset) if own_test else parts.test
    sections = [study.sites[number % len(study.sites)] for number in range(len(parts.names))]
    sites = [
        _site(name, X, y, section, number % len(study.sites), base or Path(), parts.public)
        for number, (name, (X, y), section) in enumerate(zip(parts.names, parts.sites, sections, strict=True))
    ]
    sites = [_without_labels(site, study, number) for number, site in enumerate(sites)]
    global_learner = None
    if study.global_learner is not None:
        global_learner = with_preparation(build("learner", study.global_learner, "global_learner"), parts.public)
    return Prepared(
        algorithm=study.build_algorithm(),
        sites=sites,
        public=parts.public,
        public_truth=parts.public_truth,
        test=test,
        classes=np.unique(dataset.y),
        global_learner=global_learner,
    )


def _rows(dataset: Dataset, *, own_test: bool) -> tuple[Any, Any]:
    """All rows to split: the data set's own test rows are among them, unless they are kept for testing."""
    if dataset.test is None or own_test:
        return scaled(dataset.X), dataset.y
    return scaled(tables.stack([dataset.X, dataset.test[0]])), np.concatenate([dataset.y, dataset.test[1]])


def _size(value: Any) -> Any:
    return 0.2 if value is None else value


def _site(name: str, X: Any, y: Any, section: SiteSection, number: int, base: Path, public: Any) -> Site:
    learner = build("learner", section.learner, f"sites[{number}].learner")
    if section.prepare == "auto":
        # What stands before a private learner is chosen by public rows: even that a column has gaps may be private.
        learner = with_preparation(learner, public if isinstance(learner, PrivateLearner) else X)
    policy = Policy(**section.policy.model_dump())
    return Site(name, X, y, learner=learner, policy=policy, budget=_budget(name, section.budget, base))


def _without_labels(site: Site, study: Study, number: int) -> Site:
    """The same site, a share of whose rows has lost its labels."""
    if not study.data.unlabeled:
        return site
    order = np.random.default_rng([study.seed, number]).permutation(len(site))
    lost, kept = (np.sort(rows) for rows in np.split(order, [round(study.data.unlabeled * len(site))]))
    return replace(site, X=tables.take(site.X, kept), y=site.y[kept], unlabeled=tables.take(site.X, lost))


def _budget(name: str, section: BudgetSection | None, base: Path) -> Budget | None:
    if section is None:
        return None
    ledger = None if section.ledger is None else base / section.ledger.replace("{site}", name)
    return Budget(section.epsilon, section.delta, ledger)


def _own_test(dataset: Dataset) -> tuple[Any, Any]:
    if dataset.test is None:
        raise ConfigError(f"{dataset.name} has no test rows of its own.")
    return scaled(dataset.test[0]), dataset.test[1]


def scaled(X: Any) -> Any:
    """Images of bytes as numbers in 0 .. 1."""
    return (X / 255.0).astype(np.float32) if isinstance(X, np.ndarray) and X.dtype == np.uint8 and X.ndim > 2 else X


@dataclass(frozen=True, eq=False)
class CoordinatorsPart:
    """What the coordinator has: public rows, what is known of their labels, and a test set where the study has one."""

    algorithm: Algorithm
    public: Any
    truth: Any
    classes: NDArray[Any]
    test: tuple[Any, Any] | None
    global_learner: Any


def coordinators_part(study: Study, base: Path | None = None) -> CoordinatorsPart:
    """The coordinator's part of a study. Private rows of a study that simulates them are not looked at."""
    algorithm = study.build_algorithm()
    if algorithm.simulation_only:
        raise ConfigError(
            f"{type(algorithm).__name__} can only be simulated: sites would send what must not leave them."
        )
    if study.federation.classes is None:
        prepared = study.prepare(base)
        return CoordinatorsPart(
            algorithm, prepared.public, prepared.public_truth, prepared.classes, prepared.test, prepared.global_learner
        )
    classes = np.unique(np.asarray(study.federation.classes))
    file = (base or Path.cwd()) / Path(study.data.source).expanduser()
    truth = None
    if study.data.target is None:
        public = scaled(read_rows(file))
    else:
        table, truth = read_table(file, study.data.target, least_classes=1)
        public = scaled(table)
    learner = None
    if study.global_learner is not None:
        learner = with_preparation(build("learner", study.global_learner, "global_learner"), public)
    return CoordinatorsPart(algorithm, public, truth, classes, None, learner)
