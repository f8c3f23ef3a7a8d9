"""A site: as its owner declares it (`Site`), and as the steps of an algorithm find it (`ActiveSite`)."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.core import tables
from collegium.core.labels import Codes, Labels, code_dtype
from collegium.core.policy import Policy
from collegium.core.samples import LabelledData, Mixture
from collegium.errors import ConfigError, SiteError
from collegium.learners.base import LocalUpdate, SiteModel, Trainer

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Site:
    """An organisation with private labelled data, a learner and a policy.

    ``Site("ukb", X, y, learner=RandomForestClassifier())``. `X` is an array, a sparse matrix or a DataFrame, `y` holds
    labels of any type. `public` may hold the site's own copy of the public set: its hash must then be the study's.
    """

    name: str
    X: Any
    y: Any
    learner: Any = None
    policy: Policy = field(default_factory=Policy)
    public: Any = None

    def __post_init__(self) -> None:
        if (
            not isinstance(self.name, str)
            or not self.name
            or any(c in self.name for c in "/\\\0")
            or self.name[0] == "."
        ):
            raise ConfigError(f"A site's name is a string without slashes that could name a folder, not {self.name!r}.")
        if self.name in ("coordinator", "mean"):
            raise ConfigError(f"A site cannot be called {self.name!r}: tables use that name for something else.")
        object.__setattr__(self, "X", tables.as_table(self.X, f"Site {self.name!r}: X"))
        object.__setattr__(self, "y", as_labels(self.y, f"Site {self.name!r}: y"))
        if tables.n_rows(self.X) != len(self.y):
            raise SiteError(self.name, f"X has {tables.n_rows(self.X)} rows and y has {len(self.y)} labels.")
        if self.public is not None:
            object.__setattr__(self, "public", tables.as_table(self.public, f"Site {self.name!r}: public"))

    def __len__(self) -> int:
        return len(self.y)


def as_labels(y: Any, where: str) -> NDArray[Any]:
    """Labels as one flat array; missing labels are an error, since a private sample without one teaches nothing."""
    values = np.asarray(y)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ConfigError(f"{where} must be one label per row, not an array of shape {values.shape}.")
    if np.any(pd.isna(values)):
        raise ConfigError(f"{where} has missing labels: drop those rows, or keep them as unlabelled data.")
    if values.dtype == object:
        kinds = {type(value) for value in values}
        if len(kinds) > 1:
            raise ConfigError(f"{where} mixes labels of types {sorted(kind.__name__ for kind in kinds)}: use one type.")
        values = np.array(values.tolist())
    return values


class PublicSet:
    """The unlabelled data that everybody has, identified by its hash."""

    def __init__(self, X: Any) -> None:
        self.X = X
        self.digest = tables.digest(X)
        self._derived: dict[str, Any] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return tables.n_rows(self.X)

    def derived(self, name: str, make: Callable[[Any], T]) -> T:
        """Something computed from the public rows alone, once for all sites in this process."""
        with self._lock:
            if name not in self._derived:
                self._derived[name] = make(self.X)
            value: T = self._derived[name]
            return value

    def labelled(self, L: Labels | None) -> LabelledData:
        """(U, L): the public samples that have a label (none of them, before the first consensus)."""
        if L is None:
            return LabelledData(tables.take(self.X, np.zeros(0, dtype=np.intp)), np.zeros(0, dtype=np.int8))
        known = L.known
        if known.all():
            return LabelledData(self.X, L.codes)
        return LabelledData(tables.take(self.X, known), L.codes[known])


class Stopwatch:
    """Seconds spent, by activity."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def time(self, activity: str) -> Iterator[None]:
        """Add the time of a block to an activity."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[activity] = self.seconds.get(activity, 0.0) + time.perf_counter() - start


@dataclass(frozen=True, eq=False)
class Exam:
    """A test set for a simulation: sites note how well they do on it. It trains nothing."""

    X: Any
    codes: Codes


class ActiveSite:
    """A site during one run, as a step sees it: data, public set, model, generator, and room for state."""

    def __init__(self, site: Site, classes: NDArray[Any], public: PublicSet | None, seed: int) -> None:
        self.name = site.name
        self.classes = classes
        self.n_classes = len(classes)
        self.data = LabelledData(site.X, encode_labels(site.y, classes, f"Site {site.name!r}"))
        self.model: SiteModel | None = None
        self.state: dict[str, Any] = {}
        self.rng = np.random.default_rng(seed)
        self.watch = Stopwatch()
        self._public = public
        self._seed = seed
        self._site = site
        self._trainer = Trainer(site.learner, classes)

    @cached_property
    def fingerprint(self) -> str:
        """Tells whether data and learner are those of an earlier session. It stays at the site."""
        labels = hashlib.sha256(self.data.codes.tobytes()).hexdigest()
        learner = re.sub(r" at 0x[0-9a-f]+", "", repr(self._site.learner))  # addresses differ between sessions
        return hashlib.sha256(f"{tables.digest(self._site.X)} {labels} {learner}".encode()).hexdigest()

    @property
    def public(self) -> PublicSet:
        """The public set."""
        if self._public is None:
            raise ConfigError("This study has no public set.")
        return self._public

    def begin(self, number: int) -> None:
        """Start order `number`: its randomness depends on nothing that came before it."""
        name = int.from_bytes(hashlib.sha256(self.name.encode()).digest()[:8])
        self.rng = np.random.default_rng([self._seed, name, number])

    def fit(self, data: LabelledData | Mixture, epochs: int | None = None, steps: int | None = None) -> SiteModel:
        """Train this site's model: the only door to training. The model is kept as `site.model`."""
        mixture = data if isinstance(data, Mixture) else data + self._no_rows()
        with self.watch.time("fit"):
            self.model = self._trainer.fit(mixture, self.model, self.rng, LocalUpdate(epochs, steps))
        return self.model

    def predict(self, X: PublicSet | Any) -> Labels:
        """What this site's model says, as class codes."""
        if self.model is None:
            raise ConfigError("This site has no model yet: train before asking for labels.")
        with self.watch.time("predict"):
            codes = self.model.predict_codes(X.X if isinstance(X, PublicSet) else X)
        return Labels(codes, self.n_classes)

    def _no_rows(self) -> LabelledData:
        return LabelledData(tables.take(self.data.X, np.zeros(0, dtype=np.intp)), self.data.codes[:0])


def encode_labels(y: NDArray[Any], classes: NDArray[Any], where: str) -> Codes:
    """Labels as positions in the study's classes."""
    positions = np.searchsorted(classes, y)
    found = np.minimum(positions, len(classes) - 1)
    if len(y) and not np.all(classes[found] == y):
        unknown = np.unique(y[classes[found] != y])
        raise ConfigError(
            f"{where} has labels that are no class of this study: {shorten(unknown)}. Classes: {shorten(classes)}."
        )
    return found.astype(code_dtype(len(classes)))


def shorten(values: NDArray[Any], most: int = 8) -> str:
    """A few values for a message."""
    shown = ", ".join(repr(value) for value in values[:most].tolist())
    return shown + (", ..." if len(values) > most else "")
