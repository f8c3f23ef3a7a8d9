"""Weights to start from: a fitted model's, another run's, or arrays by name."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from collegium.algorithms._shared_models import weights_of
from collegium.core import ActiveSite, Algorithm, Federation, Nothing, Steps, step
from collegium.core.labels import shorten
from collegium.core.weights import Arrays, shapes_of
from collegium.errors import ConfigError


@step
def begin_from(site: ActiveSite, w: Arrays) -> Nothing:
    """Take over the weights to start from."""
    site.load(w)
    return Nothing()


class Started(Algorithm):
    """A method whose sites train models of their own, and may begin with weights that are there already.

    Each method's own file has `start` among its settings: a fitted model, such as another run's `global_model`, arrays
    by name, or the path of an .npz file that holds them; or a list of those, each for the nets that it fits. All sites'
    learners must then have weights.
    """

    start: Any

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "start", as_start(self.start, type(self).__name__))
        if self.start is not None:
            # Of the instance: only then it matters what the sites' learners are.
            object.__setattr__(self, "needs", {**self.needs, "weights": "starts from weights"})

    def unasked(self) -> Steps:
        return (begin_from,) if self.start is None else ()

    def begin(self, fed: Federation) -> None:
        """Tell all sites where to start, if there is such a place."""
        if self.start is not None:
            like, first = prototypes(fed, self.start)
            fed.tell({party: begin_from(first[like[party]]) for party in like})


def as_start(given: Any, where: str) -> Start | None:
    """What a user gave for `start`, ready to be used; a ConfigError where it holds no weights."""
    if given is None or isinstance(given, Start):
        return given
    if isinstance(given, str | Path):
        given = _read(Path(given), where)
    points = given if isinstance(given, list | tuple) else [given]
    if not points:
        raise ConfigError(f"{where}: start is an empty list: leave it out to start from new weights.")
    return Start([_arrays(each, where) for each in points], [getattr(each, "classes_", None) for each in points])


class Start:
    """Weights to start from. They are shown, and compared, by their hash.

    `classes` are those of the models that they came from, as far as these know them.
    """

    def __init__(self, points: Sequence[Mapping[str, NDArray[Any]]], classes: Sequence[Any] = ()) -> None:
        self.points = points
        self._classes = [np.asarray(each) for each in classes if each is not None]
        digest = hashlib.sha256()
        for point in points:
            for name in sorted(point):
                digest.update(f"{name} {point[name].shape} ".encode() + point[name].tobytes())
        self.digest = digest.hexdigest()

    def put_into(self, nets: dict[str, Arrays]) -> None:
        """Replace first weights by those of the first point that fits; one that fits no net is an error."""
        for point in reversed(self.points):
            shapes = shapes_of(point)
            fitting = [like for like, net in nets.items() if shapes.items() <= shapes_of(net).items()]
            if not fitting:
                raise ConfigError("start has the weights of a net that no site has: use the same net and classes.")
            for like in fitting:
                nets[like] = nets[like] | point

    def check_classes(self, classes: NDArray[Any]) -> None:
        """A ConfigError where a model was fitted for other classes: its outputs would stand for other things."""
        for known in self._classes:
            if not np.array_equal(known, classes):
                raise ConfigError(
                    f"start was fitted for the classes {shorten(known)}, and this study has {shorten(classes)}: start "
                    "from a model of the same classes, or from its arrays by name where they mean the same."
                )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Start) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<weights {self.digest[:12]}>"


def prototypes(fed: Federation, start: Start | None) -> tuple[dict[str, str], dict[str, Arrays]]:
    """Which net each site has, named by the first site that has it; and each such net's common start."""
    like, first = fed.workbench.first_nets()
    if start is not None:
        start.check_classes(fed.workbench.classes)
        start.put_into(first)
    # A site without a net is asked all the same, so that its failure is reported.
    return dict.fromkeys(fed.parties, next(iter(first))) | like, first


def _read(file: Path, where: str) -> Mapping[str, NDArray[Any]]:
    """Arrays by name, as `np.savez(file, **weights)` wrote them."""
    try:
        with np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, TypeError, BadZipFile):  # a lone array is no archive
        raise ConfigError(f"{where}: start names {file}, which is no .npz file of weights that can be read.") from None


def _arrays(given: Any, where: str) -> Arrays:
    arrays = _weights_in(given)
    if arrays is None:
        raise ConfigError(f"{where}: start must be a fitted model with weights, or arrays by name, not {given!r}.")
    if not arrays:
        raise ConfigError(f"{where}: start has no weights.")
    try:
        with np.errstate(over="ignore"):
            numbers = {str(name): np.array(value, dtype=np.float32) for name, value in arrays.items()}
    except (TypeError, ValueError):
        raise ConfigError(f"{where}: start has weights that are not numeric.") from None
    if not all(np.isfinite(value).all() for value in numbers.values()):
        raise ConfigError(f"{where}: start has weights that are NaN or infinite.")
    return numbers


def _weights_in(given: Any) -> Mapping[Any, Any] | None:
    """None where there are none to be had, such as in a model that is not fitted, or in a class."""
    with suppress(NotFittedError):
        if isinstance(given, Mapping):
            return given
        if hasattr(given, "get_weights") and not isinstance(given, type):
            weights: Mapping[Any, Any] = given.get_weights()
            return weights
        if hasattr(given, "estimator"):
            return weights_of(given)
    return None
