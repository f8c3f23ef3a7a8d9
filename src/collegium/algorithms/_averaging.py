"""What methods that average weights share: their settings, the common start, and the updates of one round.

Weights travel as named arrays. A batch norm's running means and variances are among them and are averaged like weights;
its count of batches stays at its site. A site keeps no optimizer from one round to the next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from collegium.algorithms._starting import Start, as_start, prototypes
from collegium.core import ActiveSite, Algorithm, Federation, Nothing, Order, Weights, step
from collegium.core.settings import PositiveInt, Share
from collegium.core.weights import Arrays, average, different_nets, shapes_of
from collegium.errors import BudgetSpent, QuorumLost

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
    rounds: PositiveInt = 20
    """T: communication rounds."""
    local_epochs: PositiveInt = 1
    """E: sweeps over a site's data per round."""
    local_steps: PositiveInt | None = None
    """Instead of epochs: mini-batches per round."""
    participation: Share = 1.0
    """C: share of the sites, drawn anew for every round."""
    start: Any = None
    """Weights to start from: a fitted model, such as another run's `global_model`, arrays by name, or the path of an
    .npz file with those; or a list of them, each for the nets that it fits. Arrays that are not named keep their first
    values (None: all do)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "start", as_start(self.start, type(self).__name__))


class LastRounds:
    """The models of the last rounds, by kind of net."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._kept: dict[str, deque[Arrays]] = {}

    def mean(self, kind: str, model: Arrays | None = None) -> Arrays:
        """Their mean, with a further one."""
        kept = self._kept.setdefault(kind, deque(maxlen=self._rounds))
        if model is not None:
            kept.append(model)
        parts = {str(at): Weights(each, 1) for at, each in enumerate(kept)}
        return kept[0] if len(kept) == 1 else average(parts, dict.fromkeys(parts, 1.0))


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
    """The sites' weights after training from what they were sent.

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
    for party, reply in replies.items():
        if shapes_of(reply.arrays) == shapes_of(sent[party]):
            parts[party] = reply
        else:
            fed.reject(party)
    return parts


def average_or(before: Arrays, parts: Mapping[str, W], shares: Mapping[str, float]) -> Arrays:
    """The weighted mean of the sites' weights; the weights before, where no site sent any."""
    return average(parts, shares) if parts else before


def shares(parts: Mapping[str, Weights], weighting: Weighting) -> dict[str, float]:
    """How much each site's weights count in the average."""
    return {party: float(part.samples) if weighting == "samples" else 1.0 for party, part in parts.items()}
