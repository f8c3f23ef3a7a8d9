"""What methods that average weights share: their settings, the common start, and the updates of one round.

Weights travel as named arrays. A batch norm's running means and variances are among them and are averaged like weights;
its count of batches stays at its site. A site keeps no optimizer from one round to the next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError

from collegium.core import ActiveSite, Algorithm, Federation, Nothing, Order, Weights, step
from collegium.core.labels import shorten
from collegium.core.sharing import weights_of
from collegium.core.soft import Arrays, average, different_nets, shapes_of
from collegium.errors import BudgetSpent, ConfigError, QuorumLost
from collegium.privacy.mechanisms.base import check_choice, check_share

W = TypeVar("W", bound=Weights)
Weighting = Literal["samples", "equal"]


@step
def receive(site: ActiveSite, w: Arrays) -> Nothing:
    """Take over the final model."""
    site.load(w)
    return Nothing()


@dataclass(frozen=True)
class Averaging(Algorithm):
    """Settings of a method whose sites train a common net. Each method's own file has its loop."""

    needs_public: ClassVar[bool] = False
    needs: ClassVar[Mapping[str, str]] = {"weights": "averages weights"}
    rounds: int = 20
    """T: communication rounds."""
    local_epochs: int = 1
    """E: sweeps over a site's data per round."""
    local_steps: int | None = None
    """Instead of epochs: mini-batches per round."""
    participation: float = 1.0
    """C: share of the sites, drawn anew for every round."""
    start: Any = None
    """Weights to start from: a fitted model, such as another run's `global_model`, or arrays by name; or a list of
    those, each for the nets that it fits. Arrays that are not named keep their first values (None: all do)."""

    def __post_init__(self) -> None:
        self.at_least_one("rounds", "local_epochs", "local_steps")
        me = type(self).__name__
        check_share(me, "participation", self.participation)
        if self.start is not None and not isinstance(self.start, Start):
            given = self.start if isinstance(self.start, list | tuple) else [self.start]
            if not given:
                raise ConfigError(f"{me}: start is an empty list: leave it out to start from new weights.")
            known = [getattr(each, "classes_", None) for each in given]
            object.__setattr__(self, "start", Start([_arrays(each, me) for each in given], known))


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
                raise ConfigError("start has weights of another net than any site's: use the same net and classes.")
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


def common_start(fed: Federation, start: Start | None) -> tuple[str, Arrays]:
    """One start for all sites, and a site that has such a net; sites with different nets are an error."""
    _, first = prototypes(fed, start)
    like, *others = first
    if others:
        raise different_nets(like, others[0])
    return like, first[like]


def updates(
    fed: Federation, orders: Mapping[str, Order[W]], sent: Mapping[str, Arrays], *, always: bool = False
) -> dict[str, W]:
    """What the sites come to from what they were sent, in the sites' order, so that sums are the same bit for bit.

    A site that refuses (its weights may have diverged) or sends another net is left out, and reported. Nobody may be
    left: the run then goes on where others can be drawn in the next round, or `always`, unless a quorum was set.
    """
    replies: Mapping[str, W] = {}
    try:
        replies = fed.ask(orders)
    except BudgetSpent:
        raise
    except QuorumLost:
        if fed.quorum > 0 or not (always or len(orders) < len(fed.parties)):
            raise
    parts = {}
    for party in (party for party in fed.parties if party in replies):
        if shapes_of(replies[party].arrays) == shapes_of(sent[party]):
            parts[party] = replies[party]
        else:
            fed.observed.refusal(fed.round, party, orders[party].step, "bad-reply")
    return parts


def average_or(before: Arrays, parts: Mapping[str, W], shares: Mapping[str, float]) -> Arrays:
    """The weighted mean of what the sites came to; what there was before, where no site came to anything."""
    return average(parts, shares) if parts else before


def shares(parts: Mapping[str, Weights], weighting: Weighting) -> dict[str, float]:
    """How much each site's weights count in the average."""
    return {party: float(part.samples) if weighting == "samples" else 1.0 for party, part in parts.items()}


def check_weighting(algorithm: Algorithm, weighting: str) -> None:
    """A ConfigError unless it is one that there is."""
    check_choice(type(algorithm).__name__, "weighting", weighting, Weighting)


def _arrays(given: Any, where: str) -> Arrays:
    arrays = _weights_in(given)
    if arrays is None:
        raise ConfigError(f"{where}: start is a fitted model with weights, or arrays by name, not {given!r}.")
    if not arrays:
        raise ConfigError(f"{where}: start has no weights.")
    try:
        with np.errstate(over="ignore"):
            numbers = {str(name): np.array(value, dtype=np.float32) for name, value in arrays.items()}
    except (TypeError, ValueError):
        raise ConfigError(f"{where}: start has weights that are no numbers.") from None
    if not all(np.isfinite(value).all() for value in numbers.values()):
        raise ConfigError(f"{where}: start has weights that are infinite or no numbers.")
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
