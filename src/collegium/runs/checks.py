"""What is checked before anything is trained. Each error names the site and the remedy."""

from __future__ import annotations

import importlib
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.utils import get_tags

from collegium import registry
from collegium.core.algorithm import Algorithm
from collegium.core.labels import as_labels, encode_labels, look_like_counts, look_like_measurements, names_of, shorten
from collegium.core.public_set import PublicSet
from collegium.core.site import Site
from collegium.errors import Advice, CollegiumWarning, ConfigError, DoubtfulResult, MissingExtra, Refused, SiteError
from collegium.learners.base import LocalUpdate, Trainer, check_rows
from collegium.privacy.budget import Budget
from collegium.privacy.claims import Charge
from collegium.privacy.learners.base import PrivateLearner
from collegium.privacy.mechanisms.base import Mechanism
from collegium.protocols import hamming
from collegium.runs.callbacks import Callback
from collegium.secure.acquaintance import greet
from collegium.secure.distances import talk
from collegium.site.ledger import Ledger, verify_ledger
from collegium.wire import tables

_MEASURED: Final = (
    "{}: they look like measurements, and Collegium learns classes. Divide them into classes first, for example with "
    "pandas.cut. If they are classes, name them all with classes=..., or make words of them."
)
_ROWS_PER_VALUE: Final = 3
"""Whole numbers that are not 0, 1, 2, ... may be codes of classes, if there are this many rows of each."""
_LEAVE_BLANK: Final = (StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler)
"""Transformers that take blank cells and leave them blank."""


def check_algorithm(algorithm: Any) -> None:
    """An instance, not a class or a name."""
    if not isinstance(algorithm, Algorithm):
        hint = f"{algorithm.__name__}(...)" if isinstance(algorithm, type) else "cg.FedCT(rounds=5)"
        raise ConfigError(f"The first argument must be an algorithm, such as {hint}, got {type(algorithm).__name__}.")
    _check_installed(algorithm, algorithm.all_steps())


def _check_installed(algorithm: Algorithm, steps: Mapping[str, Any]) -> None:
    """What its steps import only where they run: there it would merely be said that every site failed."""
    packages = ["cryptography"] if greet.name in steps else []
    if talk.name in steps:
        packages.append(hamming.PACKAGES.get(algorithm.fixed(0).get(talk.name, {}).get("backend", ""), "cryptography"))
    for package in packages:
        try:
            importlib.import_module(package)
        except ImportError:
            what = f"{type(algorithm).__name__}, as it is set,"
            raise MissingExtra(registry.EXTRA_OF_MODULE[package], what) from None


def check_callbacks(callbacks: Any) -> None:
    """Objects with the methods of a Callback."""
    for callback in callbacks:
        if isinstance(callback, type) or not isinstance(callback, Callback):
            name = callback.__name__ if isinstance(callback, type) else type(callback).__name__
            raise ConfigError(
                f"callbacks holds {name}: each must be an instance of a class that derives from Callback."
            )


def check_sites(sites: Sequence[Site], algorithm: Algorithm) -> tuple[Site, ...]:
    """At least one site, with the rows and the learner that the algorithm needs, and a name of its own."""
    if isinstance(sites, Site):
        raise ConfigError("sites must be a list: pass sites=[site].")
    if not sites:
        raise ConfigError("There are no sites: pass sites=[cg.Site(name, X, y, learner=...), ...].")
    me = type(algorithm).__name__
    for site in sites:
        if not isinstance(site, Site):
            raise ConfigError(f"sites holds a {type(site).__name__}: each must be a cg.Site.")
        if not len(site) and (algorithm.needs_labels or site.unlabeled is None or not tables.n_rows(site.unlabeled)):
            what = "no samples" if site.unlabeled is None else f"no samples with labels for {me}"
            raise SiteError(site.name, f"it has {what}. Leave it out, or give it data.")
        if site.unlabeled is not None and (problem := _mismatch(site.X, site.unlabeled)):
            raise SiteError(site.name, f"the features of unlabeled differ from those of X: {problem}.")
        if algorithm.needs_learner or site.learner is not None:
            _check_learner(site)
        with _errors_of(site):
            algorithm.check_site(site)
    name, times = Counter(site.name for site in sites).most_common(1)[0]
    if times > 1:
        raise ConfigError(f"Two sites are called {name!r}: give each a name of its own.")
    if not any(len(site) for site in sites):
        raise ConfigError(f"{me} learns from labels, and no site has any: give at least one site labeled rows.")
    if algorithm.labels_own_points and not any(
        site.unlabeled is not None and tables.n_rows(site.unlabeled) for site in sites
    ):
        raise ConfigError(f"{me} labels the sites' own points: pass them as cg.Site(..., unlabeled=X).")
    if len(sites) == 1:
        warnings.warn("There is only one site: it has nobody to learn from.", CollegiumWarning, stacklevel=3)
    return tuple(sites)


def in_one_order(sites: Sequence[Site], public: Any, test: Any) -> tuple[tuple[Site, ...], Any, Any]:
    """The same tables, with columns in the order of the first site's where only the order differs.

    A public set that a site has a copy or a hash of stays as it is.
    """
    first = sites[0].X

    def sorted_(name: str, X: Any) -> Any:
        other = tables.in_order_of(first, X)
        moved.extend([name] if other is not X else [])
        return other

    moved: list[str] = []
    same = tuple(
        replace(site, X=X, unlabeled=unlabeled) if X is not site.X or unlabeled is not site.unlabeled else site
        for site in sites
        for X, unlabeled in [(sorted_(site.name, site.X), tables.in_order_of(first, site.unlabeled))]
    )
    if not any(site.public is not None or site.policy.public_sha256 is not None for site in sites):
        public = sorted_("the public set", public)
    if isinstance(test, tuple | list) and len(test) == 2:
        test = (sorted_("the test set", test[0]), test[1])
    if moved:
        warnings.warn(
            f"Columns were put into the order of {sites[0].name!r}: those of {', '.join(moved)} stood in another one.",
            Advice,
            stacklevel=3,
        )
    return same, public, test


@contextmanager
def _errors_of(site: Site) -> Iterator[None]:
    """A ConfigError in here is about this site, and names it."""
    try:
        yield
    except SiteError:
        raise
    except ConfigError as error:
        raise SiteError(site.name, str(error)) from None


def _check_learner(site: Site) -> None:
    learner = site.learner
    if learner is None:
        raise SiteError(site.name, "it has no learner. Pass learner=..., for example a scikit-learn classifier.")
    if isinstance(learner, type):
        raise SiteError(site.name, f"its learner is a class. Pass an instance: {learner.__name__}().")
    kind, tags = type(learner).__name__, _tags(learner)
    for method in ("fit", "predict"):
        if not callable(getattr(learner, method, None)):
            raise SiteError(site.name, f"its learner, a {kind}, has no {method!r}. Use a scikit-learn classifier.")
    if tags is not None and tags.estimator_type == "regressor":
        raise SiteError(site.name, f"its learner, a {kind}, is a regressor. Use a classifier.")
    with _errors_of(site):
        check_rows(learner, site.X)


def _tags(learner: Any) -> Any:
    """What scikit-learn knows of a learner; None of one that has no tags."""
    try:
        return get_tags(learner) if hasattr(learner, "__sklearn_tags__") else None
    except (AttributeError, TypeError):
        return None


def find_classes(sites: Sequence[Site], given: Any, public_labels: Any = None) -> NDArray[Any]:
    """The study's classes: those given, or all that any site or the labeled public set has."""
    sites = [site for site in sites if len(site)]
    first, kind = sites[0].name, _label_kind(sites[0].y)
    for site in sites:
        if (own := _label_kind(site.y)) != kind:
            raise SiteError(site.name, f"its labels are {own}, those of site {first!r} are {kind}. Use one type.")
    if given is None:
        refuse_measurements(sites)
        public = [] if public_labels is None else [public_labels]
        if public and _label_kind(public_labels) != kind:
            raise ConfigError(f"The public labels are {_label_kind(public_labels)}; the sites' are {kind}.")
        return np.unique(np.concatenate([np.unique(y) for y in (*(site.y for site in sites), *public)]))
    classes = np.unique(as_labels(given, "classes"))
    if _label_kind(classes) != kind:
        raise ConfigError(f"classes are {_label_kind(classes)}, the sites' labels are {kind}.")
    for site in sites:
        unknown = np.setdiff1d(site.y, classes)
        if len(unknown):
            raise SiteError(site.name, f"it has labels that are not among classes: {shorten(unknown)}.")
    return classes


def refuse_measurements(sites: Sequence[Site]) -> None:
    """Labels are classes, and not the target of a regression, of which every value would be a class."""
    for site in sites:
        if look_like_measurements(site.y):
            raise SiteError(site.name, _MEASURED.format(f"its labels are {len(np.unique(site.y))} different numbers"))
    labels = np.concatenate([site.y for site in sites if site.y.dtype.kind in "iu"] or [np.zeros(0)])
    values = np.unique(labels)
    if look_like_counts(labels) and len(labels) < _ROWS_PER_VALUE * len(values):
        raise ConfigError(_MEASURED.format(f"The sites' {len(labels)} labels are {len(values)} different numbers"))


def _label_kind(y: NDArray[Any]) -> str:
    return "numbers" if y.dtype.kind in "iufb" else "strings" if y.dtype.kind in "US" else str(y.dtype)


def check_features(sites: Sequence[Site], others: dict[str, Any], algorithm: Algorithm | None = None) -> None:
    """All tables have the same columns: the sites' and, by name, the public and the test set.

    Missing values are for learners that take them: the algorithm's, or (no algorithm) the sites' own.
    """
    first = sites[0]
    for site in sites[1:]:
        if problem := _mismatch(first.X, site.X):
            raise SiteError(site.name, f"its features differ from those of site {first.name!r}: {problem}.")
    for name, table in others.items():
        if problem := _mismatch(first.X, table):
            raise ConfigError(f"The {name} set's features differ from those of site {first.name!r}: {problem}.")
    shared = [f"the {name} set" for name, table in others.items() if has_missing_values(table)]
    looked: dict[int, Any] = {}  # sites may share a learner, and a thousand of them need not all read a public set
    for site in sites:
        own = {"X": site.X, "unlabeled": site.unlabeled}
        where = [f"its {name}" for name, table in own.items() if has_missing_values(table)] + shared
        for learner in [site.learner] if algorithm is None else algorithm.learners(site):
            with _errors_of(site):
                for name, table in others.items() if id(learner) not in looked else ():
                    check_rows(learner, table, f"the {name} set")
            looked[id(learner)] = learner
            if where and not takes_missing_values(learner):
                raise SiteError(
                    site.name,
                    f"{type(learner).__name__} does not take missing values, and {where[0]} has some (NaN or "
                    "infinite). Put an imputer in front of it: make_pipeline(SimpleImputer(), learner), or in a study "
                    'learner = ["imputer", ...]; or use a learner that takes them.',
                )


def _mismatch(X: Any, other: Any) -> str | None:
    if isinstance(X, pd.DataFrame) != isinstance(other, pd.DataFrame):
        return "one is a DataFrame and the other is not"
    if sparse.issparse(X) != sparse.issparse(other):
        return "one is sparse and the other is not"
    if tables.row_shape(X) != tables.row_shape(other):
        return f"shape {tables.row_shape(other)} per row instead of {tables.row_shape(X)}"
    if isinstance(X, pd.DataFrame) and list(X.columns) != list(other.columns):
        lacking, only = ([c for c in one.columns if c not in set(two.columns)] for one, two in ((X, other), (other, X)))
        if not lacking:
            return "its columns stand in another order"
        return f"it has no column {str(lacking[0])!r}, and only it has {str(only[0])!r}"
    return None


def has_missing_values(table: Any) -> bool:
    """Whether a table has blank or infinite cells."""
    if isinstance(table, pd.DataFrame):
        return any(has_missing_values(table[name].to_numpy()) for name in table) or bool(table.isna().any(axis=None))
    values = getattr(table, "data", None) if sparse.issparse(table) else table
    return isinstance(values, np.ndarray) and values.dtype.kind == "f" and not np.isfinite(values).all()


def takes_missing_values(learner: Any) -> bool:
    """What scikit-learn's tags say; learners without tags are trusted, and so are transformers, which may fill cells.

    But scalers leave blank cells blank, and PCA takes none.
    """
    if isinstance(learner, Pipeline):
        steps = [step for _, step in learner.steps if step not in (None, "passthrough")]
        first = next((step for step in steps if not isinstance(step, _LEAVE_BLANK)), None)
        return not _is_pca(first) and (first is not steps[-1] or takes_missing_values(first))
    tags = _tags(learner)
    return tags is None or bool(tags.input_tags.allow_nan)


def _is_pca(step: object) -> bool:
    """By its name: to import it would load what a site's process has no other use for."""
    return any(each.__module__ == "sklearn.decomposition._pca" for each in type(step).__mro__)


def check_labelled(algorithm: Algorithm, public: Any) -> tuple[Any, NDArray[Any] | None]:
    """The public set's rows, and its labels where the algorithm learns from them."""
    if not algorithm.learns_public_labels:
        return public, None
    if not isinstance(public, tuple) or len(public) != 2:
        raise ConfigError(
            f"{type(algorithm).__name__} learns from a labeled public set: pass public=(X, y). "
            "(public_truth only measures, and trains nothing.)"
        )
    return public[0], as_labels(public[1], "public: y")


def check_public(algorithm: Algorithm, public: Any, sites: Sequence[Site]) -> PublicSet | None:
    """The public set, the same for everybody."""
    if public is None:
        if algorithm.needs_public:
            raise ConfigError(f"{type(algorithm).__name__} shares opinions on a public set: pass public=X.")
        return None
    if isinstance(public, tuple):
        raise ConfigError("public must be X only, without labels; pass known labels as public_truth.")
    table = public.X if isinstance(public, PublicSet) else tables.as_table(public, "public")
    if not tables.n_rows(table):
        if algorithm.needs_public:
            raise ConfigError("The public set has no rows.")
        return None
    shared = public if isinstance(public, PublicSet) else PublicSet(table)
    for site in sites:
        own = None if site.public is None else tables.digest(site.public)
        pinned = site.policy.public_sha256
        for digest, which in ((own, "its own copy of"), (pinned, "the pinned hash of")):
            if digest is not None and digest != shared.digest:
                raise SiteError(
                    site.name,
                    f"{which} the public set has hash {digest[:12]}..., the study's has {shared.digest[:12]}.... Give "
                    "every site the same public set.",
                )
    return shared


def opinion_about(public: PublicSet | None, classes: NDArray[Any]) -> NDArray[np.float64] | None:
    """How probable each of these classes is for each public row, where the model that made the rows says so."""
    if public is None or public.opinion is None:
        return None
    if not isinstance(public.opinion, pd.DataFrame):
        raise ConfigError("public: what a model says of classes should be a DataFrame with a column for each class.")
    told, wanted = public.opinion.rename(columns=str), names_of(classes)
    if len(told) != len(public):
        raise ConfigError(
            f"public: what a model says of classes is about {len(told)} rows, and there are {len(public)}: pass all "
            "rows that were made, as they are."
        )
    if sorted(told.columns) != sorted(wanted):
        known, here = (shorten(np.array(names, dtype=object)) for names in (list(told.columns), wanted))
        warnings.warn(
            f"The public set was made for the classes {known}, and this run's are {here}. What the model of its rows "
            "says of classes is not used: have the sites make a set for these.",
            DoubtfulResult,
            stacklevel=3,
        )
        return None
    numbers = all(pd.api.types.is_numeric_dtype(dtype) for dtype in told.dtypes)
    shares = told[wanted].to_numpy(np.float64, na_value=np.nan) if numbers else np.full(1, np.nan)
    if not (shares >= 0).all() or not np.allclose(shares.sum(axis=1), 1, atol=1e-3):
        raise ConfigError(
            "public: what a model says of classes should be probabilities that add up to 1 in each row: some are not."
        )
    return np.asarray(shares)


def check_test(test: Any, classes: NDArray[Any]) -> tuple[Any, NDArray[Any]] | None:
    """The test set as (X, codes)."""
    if test is None:
        return None
    if not isinstance(test, tuple | list) or len(test) != 2:
        raise ConfigError("test must be a pair (X, y).")
    X, y = tables.as_table(test[0], "test: X"), as_labels(test[1], "test: y")
    if tables.n_rows(X) != len(y):
        raise ConfigError(f"The test set has {tables.n_rows(X)} rows and {len(y)} labels.")
    if not len(y):
        return None
    return X, _encode(y, classes, "The test set")


def check_privacy(algorithm: Algorithm, sites: Sequence[Site], public: PublicSet | None, n_classes: int) -> None:
    """Private learners, required claims and budgets: all that can be known before anything is trained."""
    size = 0 if public is None else len(public)
    for site in sites:
        with _errors_of(site):
            charge = _first_charge(algorithm, site, size, n_classes)
        guaranteed = charge is not None and charge.kind == "dp"
        if site.policy.requires == "dp" and not guaranteed:
            raise SiteError(
                site.name,
                f"its policy requires differential privacy, and neither its learner {type(site.learner).__name__} nor "
                f"{type(algorithm).__name__}'s mechanism gives it. Use PrivateVoting(learner), or a mechanism such as "
                "RandomizedResponse(epsilon=4) with the worst-case sensitivity.",
            )
        if site.budget is not None:
            _check_budget(site, site.budget, [charge] if charge is not None and guaranteed else [])


def _first_charge(algorithm: Algorithm, site: Site, size: int, n_classes: int) -> Charge | None:
    """What a site's first release will cost; None where nothing protects it."""
    if isinstance(site.learner, PrivateLearner):
        site.learner.check()
        if not size:
            raise ConfigError("its private learner labels a public set, and this study has none.")
    mechanism = algorithm.protection()
    if mechanism is not None:
        _check_observable(site, mechanism)
        observed = None if mechanism.neighbours is None else 1
        return mechanism.charge(size, n_classes, records=len(site), observed=observed)
    in_steps = algorithm.site_charge(size)
    if in_steps is not None:
        return in_steps
    return site.learner.charge(len(site), size, n_classes) if isinstance(site.learner, PrivateLearner) else None


def _check_observable(site: Site, mechanism: Mechanism) -> None:
    if mechanism.neighbours is not None and not Trainer(site.learner, np.arange(2)).fits_anew(LocalUpdate()):
        raise SiteError(
            site.name,
            f"observed_max_change refits the learner on neighboring data, but {type(site.learner).__name__} continues "
            "from its weights. Use a learner that is refitted each time, or another sensitivity.",
        )


def _check_budget(site: Site, budget: Budget, first: list[Charge]) -> None:
    path = None if budget.ledger is None else Path(budget.ledger)
    if path is not None and not path.parent.is_dir():
        raise SiteError(site.name, f"the folder of its ledger {path} does not exist: create it first.")
    spent: list[Charge] = []
    if path is not None and path.exists():
        verify_ledger(path)
        with closing(Ledger(site.name, path)) as ledger:
            spent = ledger.charges(of_all=True)
    try:
        budget.require(spent, first)
    except Refused as refusal:
        raise SiteError(site.name, f"its budget is smaller than one round costs. {refusal}") from None


_CAPABILITIES: Final = {
    "weights": ("initialize", "update", "get_weights", "set_weights"),
    "soft": ("predict_proba",),
    "distill": ("distill",),
    "embed": ("embed",),
}


def check_capabilities(algorithm: Algorithm, sites: Sequence[Site]) -> None:
    """Every learner can do what the method needs; the error names methods that need less."""
    for (capability, purpose), site in product(algorithm.needs.items(), sites):
        methods = _CAPABILITIES.get(capability, (capability,))
        missing = next((name for name in methods if not hasattr(site.learner, name)), None)
        if missing is None:
            continue
        problem = f"{type(site.learner).__name__} has no {missing!r}{_instead_of(site.learner, missing)}"
        if isinstance(site.learner, Pipeline):
            problem = "its learner is a Pipeline, which prepares rows differently at each site. Prepare the data "
            problem += "beforehand (in a study: prepare = 'none')"
        raise SiteError(
            site.name,
            f"{type(algorithm).__name__} {purpose}, but {problem}, or use a method that shares labels: fedct, fedkt.",
        )


def _instead_of(learner: Any, missing: str) -> str:
    """What to use instead of a learner without this method: it may know better."""
    try:
        getattr(learner, missing)
    except AttributeError as error:
        if isinstance(error.__cause__, AttributeError):
            return f" {error.__cause__}"
    return ". Use one that has it, such as cg.TorchClassifier"


def check_truth(
    truth: Any, public: PublicSet | None, classes: NDArray[Any], name: str = "public_truth"
) -> NDArray[Any] | None:
    """The public set's labels as codes, where they are given."""
    if truth is None:
        return None
    y = as_labels(truth, name)
    rows = 0 if public is None else len(public)
    if len(y) != rows:
        raise ConfigError(f"{name} has {len(y)} labels; the public set has {rows} rows.")
    return _encode(y, classes, name)


def _encode(y: NDArray[Any], classes: NDArray[Any], where: str) -> NDArray[Any]:
    if _label_kind(y) != _label_kind(classes):
        raise ConfigError(f"{where} has labels that are {_label_kind(y)}; the sites' are {_label_kind(classes)}.")
    return encode_labels(y, classes, where)
