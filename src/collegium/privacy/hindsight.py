"""What noisy votes cost in hindsight: less than was known beforehand, where the voters agree.

Li, He, Song: "Model-Agnostic Round-Optimal Federated Learning via Knowledge Transfer" (FedKT), Theorem 2 with Lemma 7;
Papernot et al.: "Scalable Private Learning with PATE", for Gaussian noise. Such a figure depends on the votes and so on
private data: it is marked as not publishable, and a budget is checked against what is known beforehand.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigError
from collegium.privacy import pate
from collegium.privacy.claims import Charge
from collegium.privacy.events import Renyi
from collegium.privacy.mechanisms.noisy_max import GaussianNoisyMax, LaplaceNoisyMax, NoisyMax

ORDERS: Final = tuple(range(1, 65))
"""Of the moments; moment l belongs to the Renyi divergence of order l + 1."""


def hindsight_charge(mechanism: NoisyMax, counts: NDArray[Any], beforehand: Charge) -> Charge:
    """What answering from these counts, of shape (queries, classes), cost; `beforehand` is what it was checked at."""
    curves = [_curve(mechanism, row) for row in np.asarray(counts, dtype=np.float64)]
    orders = tuple(float(order + 1) for order in ORDERS)
    event = Renyi(1, orders, tuple(np.sum(curves, axis=0).tolist()))
    return replace(beforehand, events=(event,), publishable=False)


def _curve(mechanism: NoisyMax, counts: NDArray[np.float64]) -> list[float]:
    moved = mechanism.changed_votes
    match mechanism:
        case LaplaceNoisyMax():
            q = pate.noisy_max_error(counts, mechanism.gamma)
            return [pate.fedkt_moment(q, mechanism.gamma, order, moved) / order for order in ORDERS]
        case GaussianNoisyMax():
            log_q = pate.gnmax_log_error(counts, mechanism.sigma)
            return [pate.gnmax_renyi(log_q, mechanism.sigma, float(order + 1), moved) for order in ORDERS]
    raise ConfigError(
        f"{type(mechanism).__name__} has no data-dependent accounting: use accounting='data_independent'."
    )
