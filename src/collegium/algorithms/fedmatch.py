"""FedMatch: sites agree with helpers, and learn from labels and from other rows with different parts of the weights.

Jeong, Yoon, Yang, Hwang: "Federated Semi-Supervised Learning with Inter-Client Consistency & Disjoint Learning", ICLR
2021, arXiv 2006.12097, in the labels-at-client scenario. The net's weights are theta = sigma + psi:

    sigma <- sigma - eta grad lambda_s CE(y, p_theta(x))                                       labeled rows; psi fixed
    psi   <- psi - eta grad [lambda_ICCS Phi(u) + lambda_L2 |sigma - psi|^2 + lambda_L1 |psi|_1]   others; sigma fixed
    Phi(u) = CE(y^, p_theta(pi(u))) + 1/H sum_j KL(p_j(u) | p_theta(u))              where max p_theta(u) >= tau

y^ is the class that most of the net and its H helpers see, pi a distorted view. Helpers are the other sites whose nets
were most alike, by what they say of one row of noise. The server averages sigma and psi.

Reproduces: the FedMatch rows of Table 4 of Scott, Yeo, Lampert, TMLR 2023, on other data; see
benchmarks/semi_supervised.py.

Deviations, on purpose:

- lambda_L2 and lambda_L1 act as proximal steps: the published 10 diverges by gradients from a learning rate of .1 on.
  The published strengths belong to SGD with a rate of .001; with a larger rate use a smaller `supervised`.
- A mini-batch has as many labeled rows as others (paper: an epoch goes once through both). pi is SimCLR's view of
  images (paper: RandAugment), and swaps some features of other rows.
- All of sigma and psi travels; the paper sends only what changed much, and of psi what is not 0.
- The start is sigma + psi = w, so that a given start is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from collegium.algorithms._averaging import average_or, common_start, receive, shares, updates
from collegium.algorithms._semi_supervised import SemiSupervised, count_labels, joined, part_of, sample, with_labels
from collegium.core import ActiveSite, Federation, LocalTerm, LocalTerms, Steps, Weights, step
from collegium.core.settings import NonNegativeFloat, PositiveInt, Probability
from collegium.core.terms import Unlabeled, check_not_negative, check_share
from collegium.core.weights import Arrays


@dataclass(frozen=True, eq=False)
class Disjoint(LocalTerm):
    """sigma learns from labels, psi from rows without; both are `parts` of the update's report, "sigma" and "psi"."""

    loss: ClassVar[str] = "disjoint"
    alone: ClassVar[bool] = True
    X: Any
    psi: Arrays
    """psi at the start; all else of the net's weights is sigma."""
    helpers: Sequence[NDArray[Any]] = ()
    """What each helper says of the rows: class probabilities, (rows, classes)."""
    supervised: float = 10.0
    consistency: float = 0.01
    confidence: float = 0.75
    l2: float = 10.0
    l1: float = 1e-4

    def __post_init__(self) -> None:
        for name in ("supervised", "consistency", "l2", "l1"):
            check_not_negative(f"{name} of FedMatch", getattr(self, name))
        check_share("The confidence of FedMatch", self.confidence)

    @property
    def unlabeled(self) -> Unlabeled:
        return Unlabeled(self.X)


@step
def update(
    site: ActiveSite, both: Arrays, helpers: list[Arrays], strengths: dict[str, float], epochs: int, steps: int | None
) -> Weights:
    """Hear the helpers, sigma + psi_j each; then train sigma and psi."""
    said = []
    for psi in helpers:
        site.load(_whole(both, psi))
        said.append(site.probabilities(site.unlabeled.X))
    psi = part_of(both, "psi")
    site.load(_whole(both, psi))
    disjoint = Disjoint(site.unlabeled.X, psi, said, **strengths)
    report = site.fit(site.data, epochs, steps, LocalTerms([disjoint])).estimator.last_update_
    site.weights()  # which refuses a net that has diverged
    return Weights(joined(report.parts), site.records + len(site.unlabeled))


@dataclass(frozen=True)
class FedMatch(SemiSupervised):
    """Sites train a common net to agree with those of similar sites."""

    asks_for: ClassVar[Steps] = (count_labels, update, receive)
    helpers: PositiveInt = 2
    """H: how many other sites' nets a site hears."""
    every: PositiveInt = 10
    """Helpers are sent only in every n-th round, as in the authors' code."""
    confidence: Probability = 0.75
    """tau: the net is sure of a row from this probability on."""
    supervised: NonNegativeFloat = 10.0
    """lambda_s"""
    consistency: NonNegativeFloat = 0.01
    """lambda_ICCS"""
    l2: NonNegativeFloat = 10.0
    """lambda_L2"""
    l1: NonNegativeFloat = 1e-4
    """lambda_L1"""
    psi: NonNegativeFloat = 0.2
    """psi at the start, as a share of sigma."""

    def coordinate(self, fed: Federation) -> None:
        like, w = common_start(fed, self.start)
        sigma = {name: (value / (1 + self.psi)).astype(np.float32) for name, value in w.items()}
        both = joined({"sigma": sigma, "psi": {name: w[name] - sigma[name] for name in w}})
        strengths = {name: float(getattr(self, name)) for name in _STRENGTHS}
        labelled = with_labels(fed)
        psis: dict[str, Arrays] = {}
        impressions: dict[str, NDArray[np.float64]] = {}
        for t in fed.rounds(self.rounds):
            S = sample(fed, labelled, self.participation)
            orders = {}
            for party in S:
                near = _nearest(party, impressions, self.helpers) if (t + 1) % self.every == 0 else []
                helpers = [psis[other] for other in near]
                orders[party] = update(both, helpers, strengths, self.local_epochs, self.local_steps)
            parts = updates(fed, orders, dict.fromkeys(S, both))
            for party, part in parts.items():
                psis[party] = part_of(part.arrays, "psi")
                impressions[party] = fed.workbench.impression(like, _whole(part.arrays, psis[party]))
            both = average_or(both, parts, shares(parts, self.weighting))
            fed.publish(_whole(both, part_of(both, "psi")), like)
        fed.tell(receive(_whole(both, part_of(both, "psi"))))


_STRENGTHS = ("supervised", "consistency", "confidence", "l2", "l1")


def _whole(both: Arrays, psi: Arrays) -> Arrays:
    """theta = sigma + psi"""
    return {name: value + psi[name] for name, value in part_of(both, "sigma").items()}


def _nearest(party: str, impressions: dict[str, NDArray[np.float64]], many: int) -> list[str]:
    """The other parties whose nets are most like this one's; none before it has sent one."""
    if party not in impressions:
        return []
    others = [other for other in impressions if other != party]
    distances = [float(np.linalg.norm(impressions[other] - impressions[party])) for other in others]
    return [others[i] for i in np.argsort(distances, kind="stable")[:many]]
