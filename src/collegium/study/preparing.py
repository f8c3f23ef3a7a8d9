"""From a study to data: load the source, split it, deal it to sites, give each site its learner."""

from __future__ import annotations

import warnings
from collections.abc import Sized
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.core.algorithm import Algorithm
from collegium.core.building import build
from collegium.core.labels import names_of, shorten
from collegium.core.public_set import PublicSet, with_opinion
from collegium.core.site import Site
from collegium.data.files import read_frame, read_rows, read_table
from collegium.data.public import split
from collegium.data.sources import Dataset, load_source
from collegium.errors import Advice, ConfigError
from collegium.learners.prepare import with_preparation
from collegium.privacy.budget import Budget
from collegium.privacy.learners.base import PrivateLearner
from collegium.registry import nearest
from collegium.site.policy import Policy
from collegium.study.site_files import (
    TOGETHER,
    Dealt,
    check_dropped,
    columns_of,
    read_public_file,
    read_site_files,
    read_test_file,
    without_columns,
)
from collegium.together.columns import read_columns, template_of
from collegium.together.making import like, stand_ins
from collegium.together.opinions import is_about
from collegium.wire import tables

if TYPE_CHECKING:
    from collegium.study.study import BudgetSection, Study

_SHADES: Final = (np.arange(256) / 255.0).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Prepared:
    """A study with its data loaded and its components built: what `cg.run` takes."""

    algorithm: Algorithm
    sites: list[Site]
    public: Any
    public_truth: Any
    test: tuple[Any, Any] | None
    classes: NDArray[Any]
    global_learner: Any
    opinion: pd.DataFrame | None = None
    """How probable each class is for each public row, where a file of the study says so."""

    @property
    def shared(self) -> Any:
        """What `cg.run` takes as public: with labels only where the algorithm learns from them."""
        return (self.public, self.public_truth) if self.algorithm.learns_public_labels else self.public

    @property
    def told(self) -> Any:
        """The same, with what the model behind made-up rows says of them."""
        return with_opinion(self.shared, self.opinion)


def prepare_study(
    study: Study, base: Path | None = None, folder: Path | None = None, made: PublicSet | None = None
) -> Prepared:
    """Load the data and build everything that `cg.run` takes; `made` is a public set that the sites have made."""
    if study.federation.classes is not None:
        raise ConfigError(
            "federation.classes: the sites of this study bring their own data. Run it between organisations, by "
            "`collegium coordinate`; for a simulation leave this setting out, and let data.source hold all rows."
        )
    dealt = read_site_files(study, base) if study.data.source is None else _deal(study, study.data.source, base, folder)
    test = None if dealt.test is None else (_rescaled(study, dealt.test[0]), dealt.test[1])
    public = _rescaled(study, dealt.public)
    if unknown := [site.name for site in study.sites if site.name is not None and site.name not in dealt.sites]:
        hint = nearest(unknown[0], dealt.sites)
        raise ConfigError(f"sites: there is no site {unknown[0]!r}.{hint} The sites are {', '.join(dealt.sites)}.")
    rows = {name: (_rescaled(study, X), y) for name, (X, y) in dealt.sites.items()}
    if study.data.public == TOGETHER:
        public = _made_or_any(study, next(iter(rows.values()))[0], made)
    sites = [
        _without_labels(_site(study, number, name, *own, base or Path(), public, test and test[0]), study, number, rows)
        for number, (name, own) in enumerate(rows.items())
    ]
    algorithm, learner = study.build_algorithm(), global_learner(study, public, test and test[0])
    if algorithm.needs_public and public is None:
        what = f"{type(algorithm).__name__} shares opinions on a public set"
        raise ConfigError(f"data.public: {what}: name a file of public rows, or the share of all rows that is public.")
    opinion = _opinion(study, base, public, dealt.classes)
    return Prepared(algorithm, sites, made or public, dealt.truth, test, dealt.classes, learner, opinion)


def _opinion(study: Study, base: Path | None, public: Any, classes: NDArray[Any]) -> pd.DataFrame | None:
    """What the file of `data.opinion` says, if there is one and it is about these rows."""
    if study.data.opinion is None:
        return None
    where = f"data.opinion: {study.data.opinion}"
    file = study.data.source if study.federation.classes is not None else study.data.public
    if not isinstance(file, str) or file == TOGETHER or public is None:
        raise ConfigError(
            f"{where} is about a file of public rows that were made up. Rows that this study makes come with theirs, "
            "and real ones have none."
        )
    found = read_frame((base or Path.cwd()) / Path(study.data.opinion).expanduser())
    rows = (base or Path.cwd()) / Path(file).expanduser()
    if not is_about(found, read_rows(rows)):
        raise ConfigError(f"{where} is about other rows than {file}: take the file that was written beside these rows.")
    if len(found) != tables.n_rows(public):
        raise ConfigError(
            f"{where} has {len(found)} rows, and the public set {tables.n_rows(public)}: take the file that lies "
            "beside these public rows, in the folder of the run that made them."
        )
    numbers = [pd.api.types.is_numeric_dtype(dtype) and dtype != np.bool_ for dtype in found.dtypes]
    if not all(numbers) or not found.ge(0).all(axis=None) or not np.allclose(found.sum(axis=1), 1):
        raise ConfigError(f"{where} should have a column for each class, and probabilities that add up to 1 per row.")
    if sorted(map(str, found.columns)) != sorted(names_of(classes)):
        told, here = (shorten(np.array(names, dtype=object)) for names in (list(found.columns), names_of(classes)))
        raise ConfigError(f"{where} is about the classes {told}, and this study has {here}.")
    if not getattr(getattr(study.build_algorithm(), "consensus", None), "weighs_opinion", False):
        warnings.warn(f'{where} changes nothing: only the rule "informed" uses it.', Advice, stacklevel=2)
    return found


def _deal(study: Study, source: str, base: Path | None, folder: Path | None) -> Dealt:
    """The rows of one source, dealt to sites."""
    dataset = load_source(source, target=study.data.target, folder=folder, base=base)
    wanted: Any = 0.2 if study.data.test is None else study.data.test
    own_test = study.data.test in ("own", None) and dataset.test is not None
    if study.data.test == "own" and dataset.test is None:
        raise ConfigError(f"data.test: {dataset.name} has no test rows of its own. Give a count, a fraction or a file.")
    public: Any = 0.5 if study.data.public is None else study.data.public
    X, y = _all_rows(dataset, own_test=own_test)
    check_dropped(study.data.drop, columns_of(X))
    X = without_columns(X, study.data.drop)
    try:
        parts = split(
            X,
            y,
            sites=study.partition.sites,
            public=0 if study.data.public_source or isinstance(public, str) else public,
            test=0 if own_test or isinstance(wanted, str) else wanted,
            train=study.data.train,
            partition=study.build_partition(),
            seed=study.seed,
        )
    except ConfigError as error:
        raise ConfigError(f"data, partition: {error}") from None
    shared, test = parts.public, parts.test
    truth: NDArray[Any] | None = parts.public_truth
    if own_test and dataset.test is not None:
        test = without_columns(dataset.test[0], study.data.drop), dataset.test[1]
    elif isinstance(wanted, str):
        test = read_test_file(study, wanted, base, parts.sites[0][0])
    if study.data.public_source:
        shared, truth = _public_from(study, study.data.public_source, base, folder), None
    elif public == TOGETHER:
        truth = None  # its rows are yet to be made
    elif isinstance(public, str):
        shared, truth = read_public_file(study, public, base, parts.sites[0][0])
    sites = dict(zip(parts.names, parts.sites, strict=True))
    return Dealt(sites, shared, truth, test, np.unique(dataset.y))


def _made_or_any(study: Study, rows: Any, made: PublicSet | None) -> Any:
    """The public set that the sites have made, or any rows with its columns."""
    if study.build_algorithm().learns_public_labels:
        raise ConfigError(
            "data.public: this algorithm learns from labels of the public set, and made-up rows have none."
        )
    if made is not None:
        return made.X
    columns = read_columns(study.together.columns, template_of(rows, "data"))
    any_rows = stand_ins(columns, study.together.rows, np.random.default_rng(study.seed))
    return like(any_rows, rows)


def public_rows(study: Study, folder: Path | None = None) -> Any:
    """The public rows of a study as its sites get them; a source of their own is read without the private one."""
    if study.data.public_source is None:
        return study.prepare(folder=folder).public
    return _rescaled(study, _public_from(study, study.data.public_source, None, folder))


def _public_from(study: Study, source: str, base: Path | None, folder: Path | None) -> Any:
    """Public rows of another source, drawn by the study's seed."""
    rows, wanted = load_source(source, folder=folder, base=base).X, study.data.public
    n = tables.n_rows(rows)
    if isinstance(wanted, str):
        raise ConfigError(
            'data.public_source: with data.public = "together" the sites make the public set themselves.'
            if wanted == TOGETHER
            else "data.public, data.public_source: name a file of public rows, or a source to draw them from."
        )
    many = wanted if isinstance(wanted, int) else round((0.5 if wanted is None else wanted) * n)
    if not 0 < many <= n:
        raise ConfigError(f"data.public: {source} has {n} rows, but {many} were asked for.")
    drawn = np.random.default_rng(study.seed).permutation(n)[:many]
    return tables.take(rows, np.sort(drawn))


def global_learner(study: Study, public: Any, *others: Any) -> Any:
    """What the study's global model is fitted with, where it names that."""
    if study.global_learner is None:
        return None
    return with_preparation(build("learner", study.global_learner, "global_learner"), public, *others)


def _all_rows(dataset: Dataset, *, own_test: bool) -> tuple[Any, Any]:
    """All rows to split: the data set's own test rows are among them, unless they are kept for testing."""
    if dataset.test is None or own_test:
        return dataset.X, dataset.y
    return tables.stack([dataset.X, dataset.test[0]]), np.concatenate([dataset.y, dataset.test[1]])


def _rescaled(study: Study, X: Any) -> Any:
    """The rows in numbers of 0 .. 1 where they are images and, if the study says so, standardized."""
    values, by = scaled(X), study.data.standardize
    if by is None or values is None:
        return values
    channels = 1 if values.ndim == 3 else values.shape[1]
    if values.ndim < 3 or not len(by.mean) == len(by.std) == channels:
        raise ConfigError(f"data.standardize: give one mean and one std for each of the images' {channels} channels.")
    shape = (-1, *[1] * (values.ndim - 2)) if values.ndim > 3 else (1,)
    mean, std = (np.reshape(np.asarray(part, dtype=np.float32), shape) for part in (by.mean, by.std))
    return (values - mean) / std


def site_learner(study: Study, number: int, party: str, rows: Any, public: Any, *others: Any) -> Any:
    """The learner of a study's n-th site, with what prepares its rows and `others` that it will answer about."""
    where, section = study.section_for(number, party)
    learner = build("learner", section.learner, f"{where}.learner")
    if section.prepare == "none":
        return learner
    # What stands before a private learner is chosen by public rows: even that a column has gaps may be private.
    shown = (public,) if isinstance(learner, PrivateLearner) else (rows, public, *others)
    return with_preparation(learner, *shown)


def _site(study: Study, number: int, name: str, X: Any, y: Any, base: Path, public: Any, test: Any) -> Site:
    (_, section), learner = study.section_for(number, name), site_learner(study, number, name, X, public, test)
    policy = Policy(**section.policy.model_dump())
    return Site(name, X, y, learner=learner, policy=policy, budget=_budget(name, section.budget, base))


def _without_labels(site: Site, study: Study, number: int, all_sites: Sized) -> Site:
    """The same site, a share of whose rows has lost its labels; or all of them."""
    has_labels = number < max(1, round(study.data.labeled_sites * len(all_sites)))
    share = study.data.unlabeled if has_labels else 1.0
    if not share:
        return site
    order = np.random.default_rng([study.seed, number]).permutation(len(site))
    if study.data.labels == "even":  # those that come first lose theirs, so that the first of each class comes last
        order = order[np.argsort(-turns(site.y[order]), kind="stable")]
    lost, kept = (np.sort(rows) for rows in np.split(order, [round(share * len(site))]))
    return replace(site, X=tables.take(site.X, kept), y=site.y[kept], unlabeled=tables.take(site.X, lost))


def turns(y: NDArray[Any]) -> NDArray[np.intp]:
    """For each row, how many rows of its class come before it."""
    before = np.zeros(len(y), dtype=np.intp)
    for label in np.unique(y):
        own = np.flatnonzero(y == label)
        before[own] = np.arange(len(own))
    return before


def _budget(name: str, section: BudgetSection | None, base: Path) -> Budget | None:
    if section is None:
        return None
    ledger = None if section.ledger is None else base / section.ledger.replace("{site}", name)
    return Budget(section.epsilon, section.delta, ledger)


def scaled(X: Any) -> Any:
    """Images of bytes as numbers in 0 .. 1: each is looked up, which takes a sixth of the time of dividing them all."""
    return _SHADES[X] if isinstance(X, np.ndarray) and X.dtype == np.uint8 and X.ndim > 2 else X


def coordinators_part(study: Study, base: Path | None = None) -> Prepared:
    """The coordinator's part of a study: no sites. Private rows of a study that simulates them are not looked at."""
    algorithm = study.build_algorithm()
    if algorithm.simulation_only:
        raise ConfigError(
            f"{type(algorithm).__name__} can only be simulated: sites would send what must not leave them."
        )
    if study.federation.classes is None:
        return replace(study.prepare(base), sites=[])
    classes = np.unique(np.asarray(study.federation.classes))
    if study.data.public == TOGETHER:
        raise ConfigError(
            'data.public = "together" is for simulations. Between organisations, first coordinate a study with the '
            "algorithm together, which writes public.parquet, and then this one with that file as data.source."
        )
    if algorithm.makes_public:
        return Prepared(algorithm, [], None, None, None, classes, None, _opinion(study, base, None, classes))
    if study.data.source is None:
        raise ConfigError("data.source: between organisations this is the file of public rows, and required.")
    file = (base or Path.cwd()) / Path(study.data.source).expanduser()
    target = study.data.target
    rows, truth = (read_rows(file), None) if target is None else read_table(file, target, least_classes=1)
    public = scaled(rows)
    learner = global_learner(study, public)
    return Prepared(algorithm, [], public, truth, None, classes, learner, _opinion(study, base, public, classes))
