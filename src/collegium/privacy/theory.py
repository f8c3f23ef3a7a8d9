"""What is proved about federated co-training, what is not, and what a privacy budget leaves of a consensus.

Each docstring states whether the result is proved, corrected, or false as printed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Annotated, Final, Literal

import numpy as np
from annotated_types import Ge, Le, Lt
from numpy.typing import NDArray
from scipy.special import gammaln, ndtri, zeta
from scipy.stats import binom

from collegium.core.settings import (
    NonNegativeFloat,
    NonNegativeInt,
    OpenProbability,
    PositiveFloat,
    TwoOrMore,
    checked,
)
from collegium.errors import ConfigError
from collegium.privacy.composition import Uses
from collegium.privacy.losses import LARGEST_COUNT

Vote = Literal["randomized_response", "unary"]
Start = Literal["printed", "corrected"]
Delta = Annotated[float, Ge(0), Lt(1)]
MOST_VOTERS: Final = 150
"""Its factorial does not overflow."""


@checked
def convergence_bound(
    m: Annotated[int, Ge(3), Le(LARGEST_COUNT)],
    c: PositiveFloat,
    t0: Uses,
    public_size: Uses | None = None,
    start: Start = "printed",
) -> float:
    """Upper bound on the probability that the consensus of `m` sites changes after round `t0`: FedCT's Proposition 1.

    It assumes that site accuracies are at least 1 - c/t in round t, and that the sites err independently of each other,
    which the paper does not state. Not clipped: VACUOUS WHEN 1 OR MORE, as with the paper's own |U| = 10,000.

    `public_size` is |U|; None omits that factor, as do the numbers quoted in the paper. ``start="printed"``:
    |U| (4c)^(m/2) zeta(m/2, t0 + 1), as printed. ``start="corrected"``: the sum in the proof begins with round t0, so
    the last factor is zeta(m/2, t0), slightly larger.
    """
    if t0 < 2 * c:
        raise ConfigError(
            f"convergence_bound: accuracies reach 1/2 in round 2c = {2 * c:g}; t0 must not be before that, but is {t0}."
        )
    samples = 1 if public_size is None else public_size
    return float(samples * (4 * c) ** (m / 2) * zeta(m / 2, t0 + (start == "printed")))


@checked
def stability_sensitivity(n: Uses, rate: OpenProbability, delta: OpenProbability) -> int:
    """How many of `n` labels change with one record, by the FedCT paper's Proposition 2: FALSE AS STATED.

    On-average-replace-one stability at `rate` bounds an average over data sets and records; sensitivity is the worst
    case over them, and labels of one model do not change independently. A learner that predicts the parity of its
    labels is a counter-example (`parity_stability`): one record changes all of its labels. So a claim that uses this
    number is conditional, never differential privacy.
    """
    quantile = float(ndtri(1 - delta))
    return math.ceil(n * rate + quantile * math.sqrt(n * rate * (1 - rate)) + quantile**2 / 3)


@checked
def parity_stability(n: Uses) -> float:
    """The stability rate of a learner that predicts, everywhere, the parity of its `n` binary labels. Proved.

    Where labels are 1 with probability p its rate is 2p(1-p)(1-2p)^(n-1); this is the most over p, about 0.368 / n. At
    n = 50,000 `stability_sensitivity` makes at most 3 changed labels of it, while one record changes all 50,000.
    """
    return math.pow((n - 1) / (n + 1), (n - 1) / 2) / (n + 1)


@checked
def consensus_success(
    epsilon: PositiveFloat,
    m: Annotated[int, Ge(1), Le(MOST_VOTERS)],
    n_classes: TwoOrMore,
    agree: NonNegativeInt,
    mechanism: Vote = "randomized_response",
) -> float:
    """The probability that the consensus of `m` noisy votes is right, with epsilon per label and random ties. Exact.

    `agree` sites have the right label, and the others all the same wrong one. ``randomized_response``: each site sends
    a label, and the most frequent wins. ``unary``: each sends a bit per class, flipped with epsilon / 2 because a
    changed label changes two bits, and the class with most bits wins.
    """
    if agree > m:
        raise ConfigError(f"consensus_success: agree must be at most {m}, as many as there are sites, not {agree}.")
    likely = _plurality if mechanism == "randomized_response" else _approval
    return likely(epsilon, m, n_classes, agree)


@checked
def flip_probability(epsilon: PositiveFloat, sensitivity: PositiveFloat) -> float:
    """The probability of flipping each bit if `sensitivity` bits may change and cost epsilon together. Proved.

    At the FedCT paper's epsilon 0.1 and sensitivity 3000 it is 0.49999: the labels are coin flips.
    """
    return 1 / (1 + math.exp(min(epsilon / sensitivity, 700.0)))


@checked
def auc_cap(epsilon: NonNegativeFloat, delta: Delta = 0.0) -> float:
    """The largest AUC of any membership attack on an (epsilon, delta)-differentially private release. Proved."""
    return 1 - (1 - delta) ** 2 / (1 + math.exp(min(epsilon, 700.0)))


@checked
def epsilon_from_auc(auc: OpenProbability, delta: Delta = 0.0) -> float:
    """The least epsilon of a release on which some attack has this AUC: the inverse of `auc_cap`. Proved."""
    if auc < 0.5:
        raise ConfigError(f"epsilon_from_auc: auc must be at least 1/2, not {auc}; negate the scores.")
    odds = (1 - delta) ** 2 / (1 - auc) - 1
    return math.log(odds) if odds > 1 else 0.0


def _plurality(epsilon: float, m: int, n_classes: int, agree: int) -> float:
    """k-ary randomized response and the most frequent label; right is class 0, the others hold class 1."""
    other = 1 / (math.exp(min(epsilon, 700.0)) + n_classes - 1)
    truth = 1 - (n_classes - 1) * other
    joint = np.zeros((m + 1, m + 1))  # how many vote for class 0, and for class 1
    joint[0, 0] = 1.0
    for voter in range(m):
        right, wrong = (truth, other) if voter < agree else (other, truth)
        step = joint * (1 - right - wrong)
        step[1:] += joint[:-1] * right
        step[:, 1:] += joint[:, :-1] * wrong
        joint = step
    total = 0.0
    for votes in range(1, m + 1):
        ties = _spread(m, n_classes - 2, votes)
        for rival in range(min(votes, m - votes) + 1):
            total += float(joint[votes, rival]) * _share_of_wins(ties[:, m - votes - rival], rival == votes)
    return total


def _spread(m: int, classes: int, votes: int) -> NDArray[np.float64]:
    """[t, w]: how likely w votes, spread uniformly over `classes`, give t of them `votes` and the rest fewer."""
    numbers = np.arange(m + 1)
    each = np.exp(-gammaln(numbers + 1) - numbers * math.log(max(classes, 1)))  # an exponential generating function
    fewer = np.where(numbers < votes, each, 0.0)
    table = np.zeros((min(classes, m // votes) + 1, m + 1))
    table[0, 0] = 1.0
    for _ in range(classes):
        step = np.array([np.convolve(row, fewer)[: m + 1] for row in table])
        step[1:, votes:] += table[:-1, : m + 1 - votes] * each[votes]
        table = step
    return np.asarray(table * np.exp(gammaln(numbers + 1)))


def _approval(epsilon: float, m: int, n_classes: int, agree: int) -> float:
    """Unary bits and the class with most of them; the classes' sums are independent."""
    keep = 1 / (1 + math.exp(-epsilon / 2))

    def sums(holders: int) -> NDArray[np.float64]:
        held = binom.pmf(np.arange(holders + 1), holders, keep)
        return np.convolve(held, binom.pmf(np.arange(m - holders + 1), m - holders, 1 - keep))

    right, rival, rest = sums(agree), sums(m - agree), sums(0)
    total = 0.0
    for votes in range(m + 1):
        others = n_classes - 2
        ties = _binomial_terms(others, float(rest[:votes].sum()), float(rest[votes]))
        behind = float(rival[:votes].sum()) * _share_of_wins(ties, False)
        total += right[votes] * (behind + rival[votes] * _share_of_wins(ties, True))
    return float(total)


def _binomial_terms(n: int, below: float, equal: float) -> NDArray[np.float64]:
    """The terms of (below + equal)^n, by how many factors are `equal`."""
    both = below + equal
    chances = binom.pmf(np.arange(n + 1), n, equal / both if both else 0.0)
    return np.asarray(both**n * chances, dtype=np.float64)


def _share_of_wins(ties: Iterable[float], rival_ties: bool) -> float:
    return float(sum(weight / (1 + number + rival_ties) for number, weight in enumerate(ties)))
