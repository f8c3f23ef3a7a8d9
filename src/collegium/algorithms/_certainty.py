"""Certainty scores: how much a public row looks like a site's own rows, told with differential privacy for records.

There are two ways. A site separates its rows from public ones, the negatives, by ridge-logistic regression on features
whose norm a public number bounds, and puts Gaussian noise on the solution w. What may go wrong here goes wrong with
privacy, so:

- With records replaced one by one, w moves by at most 2 / (ridge (records + negatives)): the mean loss changes by two
  gradients of norm 1 over their number, and it is `ridge`-strongly convex. The number of records is no secret.
- The solver stops at a gradient of norm `TAU` at most, so that its answer is within TAU / ridge of the solution. Twice
  that is part of the sensitivity.
- Everything else that enters (weights of the net, negatives, bound) is public: whatever it is, the claim holds.

Or it tells the mean of its features, seen so that those of public rows have mean 0 and variance 1 in a few directions.
How rows scatter is known from the public ones, so that a mean is all that a linear discriminant needs of a site, and
with norms of at most 1 a record moves it by 2 / records: a hundred times less than it moves a separator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from collegium.core.settings import PositiveFloat, check
from collegium.core.site import ActiveSite
from collegium.errors import ConfigError
from collegium.privacy import events
from collegium.privacy.claims import SEEDED_NOISE, Charge
from collegium.privacy.composition import classic_gaussian_sigma, gaussian_sigma
from collegium.privacy.row_by_row import row_by_row
from collegium.wire import tables

Floats = NDArray[np.float64]
XI: Final = 1e-8
"""Added to every score, so that a mean weighted by scores always has a weight."""
TAU: Final = 1e-11
"""The gradient norm at which the regression counts as solved: far above rounding, far below what one record moves."""
LEAST_RIDGE: Final = 1e-4
"""Solutions for less ridge may be so long that rounding keeps their gradient above `TAU`."""
ONLY_SCORES: Final = (
    "covers the certainty scores only: trained weights that leave the site are not protected by it; how many records "
    "the site has is no secret"
)
_FLAT: Final = 1e-6
"""Of the largest variance: directions in which public rows vary less than this say nothing."""
_SOME: Final = 32
"""Public rows that show whether features of a row depend on the rows beside it."""
_ROUNDING: Final = 1e-2
"""GPUs multiply with 10 bits (TF32), and not alike for few rows and for many."""


def bounded(features: NDArray[Any], bound: float) -> Floats:
    """Features of norm 1 at most: h min(1, bound / |h|) / bound. NaN and infinite values count as 0."""
    values = np.nan_to_num(np.asarray(features, dtype=np.float64), nan=0.0, posinf=0.0, neginf=0.0)
    values = values.reshape(len(values), -1)
    # The same formula, without dividing by the norm of a row of zeros.
    return np.asarray(values / np.maximum(np.linalg.norm(values, axis=1, keepdims=True), bound))


def whitening(features: Floats, components: int) -> tuple[Floats, Floats]:
    """What makes of public features numbers of mean 0 and variance 1: their center, and their main directions."""
    center = features.mean(axis=0)
    variances, directions = np.linalg.eigh(np.cov(features, rowvar=False).reshape(len(center), -1))
    largest = np.argsort(-variances)[:components]
    kept = largest[variances[largest] > _FLAT * variances.max()]
    return center, np.asarray(directions[:, kept] / np.sqrt(variances[kept]))


def likeness(mean: Floats, features: Floats, bound: float) -> Floats:
    """s(x) = 1 / (1 + p(x) / p_i(x)) + xi for normal densities around 0 and around a site's mean, with one variance.

    Both are in units of `bound`, as `bounded` has them.
    """
    return np.asarray(expit(bound**2 * (features @ mean - mean @ mean / 2)) + XI)


def certainty(w: Floats, features: Floats) -> Floats:
    """s(x) = 1 / (1 + exp(-<w, h(x)>)) + xi, for bounded features."""
    return np.asarray(expit(features @ w) + XI)


def separate(own: Floats, negatives: Floats, ridge: float) -> Floats:
    """The w with the smallest mean of log(1 + exp(-t <w, h>)) + ridge/2 |w|^2; t is 1 for own rows, else -1.

    Newton steps by conjugate gradients, halved until the gradient shrinks, which strong convexity makes sure of: it is
    solved for any rows. An error here would depend on private ones.
    """
    signed = np.concatenate([own, -negatives])  # t h
    n = len(signed)

    def gradient(w: Floats) -> Floats:
        return np.asarray(ridge * w - signed.T @ expit(-(signed @ w)) / n)

    w = np.zeros(signed.shape[1])
    g = gradient(w)
    length = 1.0
    while _norm(g) > TAU and length > TAU:
        p = expit(signed @ w)
        direction = _newton_direction(signed, p * (1 - p) / n, ridge, g)
        length = 1.0
        while length > TAU and _norm(gradient(w - length * direction)) > (1 - length / 4) * _norm(g):
            length /= 2
        w = w - length * direction
        g = gradient(w)
    return w


def sensitivity(records: int, negatives: int, ridge: float) -> float:
    """By how much w changes at most (Euclidean norm) when one record is replaced by any other."""
    return 2 / float(check(PositiveFloat, ridge, "sensitivity: ridge")) * (1 / (records + negatives) + TAU)


def noisy_separator(
    site: ActiveSite, negatives: NDArray[np.integer[Any]], bound: float, ridge: float, epsilon: float, delta: float
) -> Floats:
    """w of this site's private rows against these rows of the public set, with noise; (epsilon, delta) is charged.

    Features are those of the site's present net, which must not have seen private rows yet.
    """
    bound = check(PositiveFloat, bound, "certainty scores: bound")
    if ridge < LEAST_RIDGE:
        raise ConfigError(f"certainty scores: ridge must be at least {LEAST_RIDGE}, not {ridge}.")
    moves = sensitivity(len(site.data.closed()), len(negatives), ridge)
    public = _features_row_by_row(site, tables.take(site.public.X, negatives))
    away = bounded(public, bound)

    def separator() -> Floats:
        own = row_by_row(site.embed, site.data.closed().X, np.zeros_like(public[:1]))
        with site.watch.time("scores"):
            return separate(bounded(own, bound), away, ridge)

    return _told(site, separator, away.shape[1], moves, epsilon, delta)


def noisy_mean(
    site: ActiveSite, center: Floats, directions: Floats, bound: float, epsilon: float, delta: float
) -> Floats:
    """The mean of this site's private rows as seen by `whitening`, in units of `bound`, with noise; it is charged.

    Features are those of the site's present net, which must not have seen private rows yet. Whatever the center and the
    directions are, a row has norm 1 at most: the claim does not depend on them.
    """
    bound = check(PositiveFloat, bound, "certainty scores: bound")
    public = _features_row_by_row(site, tables.take(site.public.X, np.arange(min(_SOME, len(site.public)))))
    if center.shape != public.shape[1:] or directions.shape[:1] != center.shape or directions.ndim != len("dk"):
        raise ConfigError("certainty scores: the center and the directions are not of this net's features.")
    records = len(site.data.closed())

    def mean() -> Floats:
        own = row_by_row(site.embed, site.data.closed().X, np.zeros_like(public[:1]))
        with site.watch.time("scores"):
            return np.asarray(bounded((own - center) @ directions, bound).sum(axis=0) / records)

    return _told(site, mean, directions.shape[1], 2 / records * (1 + TAU), epsilon, delta)


def _told(site: ActiveSite, use: Callable[[], Floats], size: int, moves: float, epsilon: float, delta: float) -> Floats:
    """What `use` finds in private rows, with noise; it is charged. Replacing a row moves it by so much at most."""
    multiplier = gaussian_sigma(epsilon, delta)  # the published charge does not depend on the number of records
    charge = Charge(
        (events.Gaussian(1, multiplier),),
        relation="replace",
        delta=delta,
        assumptions=(ONLY_SCORES, *((SEEDED_NOISE,) if site.noise.seeded else ())),
    )
    found = site.privately(charge, use, lambda: np.zeros(size))
    site.noted["score_noise"] = multiplier * moves
    return site.noise.add_normal(found, multiplier * moves, moves)


def summed_separator(
    site: ActiveSite, negatives: NDArray[np.integer[Any]], bound: float, ridge: float, epsilon: float, delta: float
) -> Floats:
    """The same for the SUM of the losses, with the noise of the mean: what FedAUX's code does, and NOT private.

    The sum counts a record as many times as there are rows, and the noise does not: one record may move w by 2 / ridge,
    where 2 / (ridge rows) is made up for. Nothing is charged and nothing is claimed, so that the release counts as
    unprotected and a policy may refuse it.
    """
    bound = check(PositiveFloat, bound, "certainty scores: bound")
    own = bounded(site.embed(site.data.X), bound)
    away = bounded(site.embed(tables.take(site.public.X, negatives)), bound)
    rows = len(own) + len(away)
    sigma = classic_gaussian_sigma(epsilon, delta, 2 / (ridge * rows))
    with site.watch.time("scores"):
        w = separate(own, away, ridge / rows)  # where the sum with this ridge is smallest
    site.noted["score_noise"] = sigma
    return site.noise.add_normal(w, sigma, 2 / ridge)


def _features_row_by_row(site: ActiveSite, X: Any) -> NDArray[Any]:
    """Features of public rows; an error if a row's depend on the others, for then one record would change them all."""
    features = site.embed(X)
    alone = site.embed(tables.take(X, np.zeros(2, dtype=np.intp)))  # twice, since some layers refuse a single row
    scale = float(np.abs(features).max(initial=0.0))
    if not np.allclose(features[:1], alone[:1], rtol=_ROUNDING, atol=_ROUNDING * scale, equal_nan=True):
        raise ConfigError(
            "This net's features of a row depend on the rows beside it, so scores made of them have no bounded "
            "sensitivity. Use layers that treat rows one by one: a batch norm with running statistics, or norm='group'."
        )
    return features


def _norm(vector: Floats) -> float:
    return float(np.linalg.norm(vector))


def _newton_direction(signed: Floats, curvature: Floats, ridge: float, g: Floats) -> Floats:
    """Where the Hessian times it is g, but for a hundredth: conjugate gradients, so that none is written out."""
    found, rest = np.zeros_like(g), g
    search = rest
    while _norm(rest) > 0.01 * _norm(g):
        bent = signed.T @ (curvature * (signed @ search)) + ridge * search
        length = (rest @ rest) / (search @ bent)
        found, left = found + length * search, rest - length * bent
        search, rest = left + (left @ left) / (rest @ rest) * search, left
    return found
