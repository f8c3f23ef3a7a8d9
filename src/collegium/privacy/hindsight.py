"""What noisy votes cost in hindsight: less than their data-independent cost if the voters agree, and never more.

Li, He, Song: "Model-Agnostic Round-Optimal Federated Learning via Knowledge Transfer" (FedKT), Theorem 2 with Lemma 7;
Papernot et al.: "Scalable Private Learning with PATE", for Gaussian noise. Such a cost depends on the votes and so on
private data: it is marked as not publishable. Budgets count the data-independent cost, which the charge keeps, too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigError
from collegium.privacy import accountant, pate
from collegium.privacy.claims import Charge
from collegium.privacy.events import Renyi
from collegium.privacy.mechanisms.noisy_max import GaussianNoisyMax, LaplaceNoisyMax, NoisyMax

ORDERS: Final = tuple(range(1, 65))
"""Of the moments; moment l belongs to the Renyi divergence of order l + 1."""
Accounted = LaplaceNoisyMax | GaussianNoisyMax


def check_accounted(where: str, mechanism: NoisyMax) -> Accounted:
    """The mechanism, if its cost can be computed from the votes; else an error that begins with `where`."""
    if not isinstance(mechanism, Accounted):
        raise ConfigError(
            f"{where}: {type(mechanism).__name__} has no data-dependent accounting: use accounting='data_independent'."
        )
    return mechanism


def hindsight_charge(mechanism: NoisyMax, counts: NDArray[Any], beforehand: Charge) -> Charge:
    """The cost of answering from these counts, of shape (queries, classes); `beforehand` is the cost charged before.

    If the voters disagree, the bound by their votes is the looser one, and `beforehand` is charged. That is not
    publishable either, since it reveals that they disagreed.
    """
    accounted = check_accounted("hindsight", mechanism)
    curves = [_curve(accounted, row) for row in np.asarray(counts, dtype=np.float64)]
    orders = tuple(float(order + 1) for order in ORDERS)
    event = Renyi(1, orders, tuple(np.sum(curves, axis=0).tolist()))
    known = replace(beforehand, publishable=False, beforehand=beforehand.events)
    return min(known, replace(known, events=(event,)), key=_epsilon)


def _epsilon(charge: Charge) -> float:
    return accountant.epsilon_of(charge.events, charge.delta)[0]


def _curve(mechanism: Accounted, counts: NDArray[np.float64]) -> list[float]:
    moved = mechanism.changed_votes
    match mechanism:
        case LaplaceNoisyMax():
            q = pate.noisy_max_error(counts, mechanism.gamma)
            return [pate.fedkt_moment(q, mechanism.gamma, order, moved) / order for order in ORDERS]
        case GaussianNoisyMax():
            log_q = pate.gnmax_log_error(counts, mechanism.sigma)
            return [pate.gnmax_renyi(log_q, mechanism.sigma, float(order + 1), moved) for order in ORDERS]
