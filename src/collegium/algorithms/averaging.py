"""What methods that average weights share: their settings, the common start, and the updates of one round.

Weights travel as named arrays. A batch norm's running means and variances are among them and are averaged like weights;
its count of batches stays at its site. A site keeps no optimizer from one round to the next.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from collegium.core import ActiveSite, Algorithm, Federation, Nothing, Order, Weights, step
from collegium.core.sharing import weights_of
from collegium.core.soft import Arrays, same_shapes, shapes_of
from collegium.errors import ConfigError
from collegium.privacy.mechanisms.base import check_choice

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
        if not 0 < self.participation <= 1:
            raise ConfigError(f"{type(self).__name__}: participation must be above 0 and at most 1.")
        if self.start is not None and not isinstance(self.start, Start):
            given = self.start if isinstance(self.start, list | tuple) else [self.start]
            object.__setattr__(self, "start", Start([_arrays(each, type(self).__name__) for each in given]))


class Start:
    """Weights to start from. They are shown, and compared, by their hash."""

    def __init__(self, points: Sequence[Mapping[str, NDArray[Any]]]) -> None:
        self.points = points
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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Start) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<weights {self.digest[:12]}>"


def prototypes(fed: Federation, start: Start | None) -> tuple[dict[str, str], dict[str, Arrays]]:
    """Which net each site has, named by the first site that has it; and each such net's common start."""
    like, first = fed.workbench.first_nets()
    if not first:
        raise ConfigError("No site's learner could make its net: see what it says when it is fitted by itself.")
    if start is not None:
        start.put_into(first)
    # A site without a net is asked all the same, so that its failure is reported.
    return dict.fromkeys(fed.parties, next(iter(first))) | like, first


def common_start(fed: Federation, start: Start | None) -> tuple[str, Arrays]:
    """One start for all sites, and a site that has such a net; sites with different nets are an error."""
    _, first = prototypes(fed, start)
    same_shapes(first)
    return next(iter(first.items()))


def updates(fed: Federation, orders: Mapping[str, Order[W]], sent: Mapping[str, Arrays]) -> dict[str, W]:
    """What the sites come to from what they were sent, in the sites' order, so that sums are the same bit for bit.

    A site that refuses (its weights may have diverged) or sends another net is left out, and reported.
    """
    replies = fed.ask(orders)
    parts = {}
    for party in (party for party in fed.parties if party in replies):
        if shapes_of(replies[party].arrays) == shapes_of(sent[party]):
            parts[party] = replies[party]
        else:
            fed.observed.refusal(fed.round, party, orders[party].step, "bad-reply")
    return parts


def shares(parts: Mapping[str, Weights], weighting: Weighting) -> dict[str, float]:
    """How much each site's weights count in the average."""
    return {party: float(part.samples) if weighting == "samples" else 1.0 for party, part in parts.items()}


def check_weighting(algorithm: Algorithm, weighting: str) -> None:
    """A ConfigError unless it is one that there is."""
    check_choice(type(algorithm).__name__, "weighting", weighting, Weighting)


def _arrays(given: Any, where: str) -> Arrays:
    if isinstance(given, Mapping):
        arrays = dict(given)
    elif hasattr(given, "get_weights"):
        arrays = given.get_weights()
    elif hasattr(given, "estimator"):
        arrays = weights_of(given)
    else:
        raise ConfigError(f"{where}: start is a fitted model with weights, or arrays by name, not {given!r}.")
    try:
        return {str(name): np.array(value, dtype=np.float32) for name, value in arrays.items()}
    except (TypeError, ValueError):
        raise ConfigError(f"{where}: start has weights that are no numbers.") from None
