"""Certainty scores: solved to a certified error, never moved further than the bound, and the right way round."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit
from torch import nn

import collegium as cg
from collegium.algorithms._certainty import (
    LEAST_RIDGE,
    TAU,
    XI,
    bounded,
    certainty,
    likeness,
    noisy_mean,
    noisy_separator,
    sensitivity,
    separate,
    summed_separator,
    whitening,
)
from collegium.core.public_set import PublicSet
from collegium.core.site import ActiveSite
from collegium.errors import ConfigError
from collegium.privacy.composition import classic_gaussian_sigma, gaussian_sigma

OUTLIERS = [
    np.array([0.0, 0.0, 1e9]), np.array([-1e30, 0.0, 0.0]), np.zeros(3), np.full(3, np.nan), np.array([np.inf, 1, 1]),
    np.array([-1.0, -1.0, -1.0]), np.array([1.0, 1.0, 1.0]),
]  # fmt: skip


def rows(n: int, shift: float = 0.0, d: int = 3) -> np.ndarray:
    """The same whenever they are asked for, whatever other tests have drawn before."""
    return np.random.default_rng([1, n, int(10 * shift), d]).normal(size=(n, d)) + shift


# The regression


@pytest.mark.parametrize("ridge", [1e-5, 1e-3, 0.1, 10.0])
def test_it_is_solved_and_the_error_is_certified(ridge):
    own, negatives = bounded(rows(40, 1.0), 2.0), bounded(rows(60), 2.0)
    w = separate(own, negatives, ridge)
    signed = np.concatenate([own, -negatives])
    gradient = ridge * w - signed.T @ expit(-(signed @ w)) / 100
    assert np.linalg.norm(gradient) <= TAU

    def objective(v):
        return np.logaddexp(0, -(signed @ v)).mean() + ridge / 2 * v @ v

    np.testing.assert_allclose(w, minimize(objective, np.zeros(3)).x, atol=1e-3 * np.linalg.norm(w) + 1e-6)


def test_own_rows_score_high_and_by_the_papers_sign_they_would_score_low():
    own = np.tile([1.0, 0.0], (100, 1))
    assert certainty(separate(own, -own, 0.1), own)[0] == pytest.approx(0.837, abs=5e-4)
    # log(1 + exp(+z)), as printed, exchanges own rows and negatives.
    assert certainty(separate(-own, own, 0.1), own)[0] == pytest.approx(0.163, abs=5e-4)


def test_a_score_is_a_sigmoid_and_never_nothing():
    features = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    np.testing.assert_allclose(certainty(np.array([2.0, 0.0]), features), expit([2.0, 0.0, -2.0]) + XI)
    assert certainty(np.array([1e6, 0.0]), features)[2] == XI


def test_less_ridge_tells_own_rows_from_others_better():
    own, negatives = bounded(rows(50, 1.0, d=40), 6.0), bounded(rows(300, d=40), 6.0)
    ratio = [
        certainty(w, own).mean() / certainty(w, negatives).mean()
        for w in (separate(own, negatives, ridge) for ridge in (0.1, 0.01, 0.001))
    ]
    assert ratio == sorted(ratio)
    assert ratio[0] < 1.5
    assert ratio[2] > 1.3 * ratio[0]


def test_features_are_bounded_by_a_public_number():
    features = np.array([[3.0, 4.0], [0.3, 0.4], [0.0, 0.0], [np.nan, 1.0], [np.inf, 2.0]])
    np.testing.assert_allclose(bounded(features, 2.0), [[0.6, 0.8], [0.15, 0.2], [0, 0], [0, 0.5], [0, 1]])


# Sensitivity


def test_the_noise_that_the_papers_setting_needs():
    assert sensitivity(500, 20_000, 0.1) == pytest.approx(9.756098e-4, rel=1e-6)
    moves = sensitivity(500, 20_000, 0.1)
    assert gaussian_sigma(0.1, 1e-5, moves) == pytest.approx(2.999958e-2, rel=1e-6)
    assert classic_gaussian_sigma(0.1, 1e-5, moves) == pytest.approx(4.726639e-2, rel=1e-6)


def test_the_solvers_error_is_part_of_it():
    assert sensitivity(10, 10, 0.5) - 2 / (0.5 * 20) == pytest.approx(2 * TAU / 0.5, rel=1e-3)


@pytest.mark.parametrize("ridge", [1e-3, 0.1, 1.0, 100.0])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (5, 3), (12, 30)])
def test_no_replaced_record_moves_the_solution_further(ridge, n, m):
    own, negatives, bound = rows(n, 1.0), bounded(rows(m), 2.0), sensitivity(n, m, ridge)
    w = separate(bounded(own, 2.0), negatives, ridge)
    furthest = 0.0
    for i in range(n):
        for other in [*OUTLIERS, -1e3 * own[i], *rows(3, 0.0)]:
            replaced = own.copy()
            replaced[i] = other
            moved = np.linalg.norm(separate(bounded(replaced, 2.0), negatives, ridge) - w)
            furthest = max(furthest, float(moved))
    assert 0 < furthest <= bound
    if ridge == 100.0:  # the bound is not far off either: every gradient is half as long as it may be at w = 0
        assert furthest > 0.35 * bound


@pytest.mark.parametrize("ratio", [10, 100])
def test_a_maximum_that_depends_on_private_rows_breaks_the_bound(ratio):
    """The paper's h / max |h| over private rows too: one outlier rescales the features of everybody."""
    own = np.tile([1.0, 0.0], (100, 1))
    outlier = own.copy()
    outlier[0] = [0.0, ratio]

    def moved(norm):
        return np.linalg.norm(separate(*norm(own, -own), 0.1) - separate(*norm(outlier, -own), 0.1))

    def by_all_rows(own, negatives):
        largest = np.linalg.norm(np.concatenate([own, negatives]), axis=1).max()
        return own / largest, negatives / largest

    bound = sensitivity(100, 100, 0.1)
    assert moved(by_all_rows) > 10 * bound
    assert moved(lambda own, negatives: (bounded(own, 1.0), bounded(negatives, 1.0))) <= bound


# At a site


class Identity:
    """A learner whose features are the rows themselves."""

    def fit(self, X, y):
        return self

    def predict(self, X):
        return np.zeros(len(X), dtype=int)

    def embed(self, X):
        return X


def active(learner=None, own=None) -> ActiveSite:
    own = np.random.default_rng(1).normal(size=(30, 50)) + 0.5 if own is None else own
    site = cg.Site("a", own, np.arange(len(own)) % 2, learner=learner or Identity())
    public = np.random.default_rng(2).normal(size=(80, 50))
    return ActiveSite(site, np.arange(2), PublicSet(public), 0, simulation=True)


def test_the_noise_is_as_large_as_claimed_and_the_fit_is_charged_once():
    site, negatives = active(), np.arange(40)
    exact = separate(bounded(site.data.closed().X, 9.0), bounded(site.public.X[:40], 9.0), 0.1)
    noise = [noisy_separator(site, negatives, 9.0, 0.1, 2.0, 1e-5) - exact for _ in range(60)]
    sigma = gaussian_sigma(2.0, 1e-5, sensitivity(30, 40, 0.1))
    assert np.std(noise) == pytest.approx(sigma, rel=0.05)
    assert abs(np.mean(noise)) < 0.1 * sigma
    assert not site.exposure.read
    assert len(site.exposure.unpaid) == 60
    (charge,) = set(site.exposure.unpaid)
    assert (charge.kind, charge.unit, charge.relation, charge.delta) == ("dp", "record", "replace", 1e-5)
    assert charge.events[0].noise_multiplier == pytest.approx(gaussian_sigma(2.0, 1e-5))


def test_the_sum_of_the_losses_tells_rows_apart_and_claims_nothing():
    site, negatives = active(), np.arange(40)
    own, away = bounded(site.data.closed().X, 9.0), bounded(site.public.X[:40], 9.0)
    w = summed_separator(site, negatives, 9.0, 0.1, 1e6, 1e-5)
    signed = np.concatenate([own, -away])
    gradient = 0.1 * w - signed.T @ expit(-(signed @ w))  # of the sum and ridge / 2 |w|^2
    assert np.linalg.norm(gradient) < 1e-4
    apart = [certainty(each, own).mean() / certainty(each, away).mean() for each in (w, separate(own, away, 0.1))]
    assert apart[0] > 1.5 > 1.3 > apart[1]
    assert site.exposure.read  # what leaves is unprotected
    assert not site.exposure.unpaid


# The mean


def test_public_features_have_mean_0_and_variance_1_in_their_main_directions():
    spread = np.array([9.0, 4.0, 1.0, 0.0])  # nothing is told by a direction in which nothing varies
    features = np.random.default_rng(0).normal(size=(500, 4)) * spread + 5.0
    center, directions = whitening(features, 3)
    seen = (features - center) @ directions
    np.testing.assert_allclose(seen.mean(axis=0), 0, atol=1e-9)
    np.testing.assert_allclose(np.cov(seen.T), np.eye(3), atol=1e-9)
    assert whitening(features, 2)[1].shape == (4, 2)
    np.testing.assert_allclose(np.abs(directions[0, 0] * 9.0), 1, atol=0.1)  # the first is the widest
    assert whitening(features, 64)[1].shape == (4, 3)


def test_likeness_is_the_chance_that_a_row_is_of_the_site():
    """For two normal densities with one variance, of which a site's and the public ones are equally frequent."""
    mean, bound = np.array([0.3, -0.1]), 4.0
    x = np.array([[0.5, 0.5], [0.0, 0.0], [0.3, -0.1]])
    own = np.exp(-(bound**2) * ((x - mean) ** 2).sum(axis=1) / 2)
    other = np.exp(-(bound**2) * (x**2).sum(axis=1) / 2)
    np.testing.assert_allclose(likeness(mean, x, bound), own / (own + other) + XI)


@pytest.mark.parametrize("other", [*OUTLIERS, np.array([3.0, -2.0, 1.0])], ids=str)
def test_a_record_moves_the_mean_by_no_more_than_its_sensitivity(other):
    own = rows(20, 1.0, d=50)
    changed = own.copy()
    changed[3, :3] = other
    center, directions = rows(1, d=50)[0], 7.0 * rows(50)
    told = [noisy_mean(active(own=data), center, directions, 0.5, 1e9, 1e-5) for data in (own, changed)]
    assert np.linalg.norm(told[0] - told[1]) <= 2 / 20 + 1e-4


def test_the_noise_of_a_mean_is_as_large_as_claimed_and_it_is_charged_once():
    site = active()
    center, directions = whitening(site.public.X, 8)
    exact = bounded((site.data.closed().X - center) @ directions, 2.0).mean(axis=0)
    noise = [noisy_mean(site, center, directions, 2.0, 2.0, 1e-5) - exact for _ in range(200)]
    sigma = gaussian_sigma(2.0, 1e-5, 2 / 30)
    assert np.std(noise) == pytest.approx(sigma, rel=0.05)
    assert abs(np.mean(noise)) < 0.1 * sigma
    assert not site.exposure.read
    assert len(site.exposure.unpaid) == 200
    (charge,) = set(site.exposure.unpaid)
    assert (charge.kind, charge.unit, charge.relation, charge.delta) == ("dp", "record", "replace", 1e-5)
    assert charge.events[0].noise_multiplier == pytest.approx(gaussian_sigma(2.0, 1e-5))


@pytest.mark.parametrize("shapes", [((49,), (50, 8)), ((50,), (49, 8)), ((50,), (50,))])
def test_a_view_of_other_features_is_refused_before_rows_are_read(shapes):
    site = active()
    with pytest.raises(ConfigError, match="not of this net's features"):
        noisy_mean(site, np.zeros(shapes[0]), np.zeros(shapes[1]), 2.0, 2.0, 1e-5)
    assert not site.exposure.unpaid


def test_a_mean_under_a_true_epsilon_tells_sites_apart_where_a_separator_does_not():
    rng = np.random.default_rng(3)
    public = rng.normal(size=(80, 50))
    own = rng.normal(size=(400, 50)) + np.repeat([2.0, 0.0], [4, 46])
    alike, unlike = own[:100], rng.normal(size=(100, 50))
    site = active(own=own)
    center, directions = whitening(public, 49)
    bound = float(np.quantile(np.linalg.norm((public - center) @ directions, axis=1), 0.1))
    mean = noisy_mean(site, center, directions, bound, 1.0, 1e-5)
    by_mean = [likeness(mean, bounded((each - center) @ directions, bound), bound).mean() for each in (alike, unlike)]
    # One separator is anything between none and .5: its noise decides.
    ws = [noisy_separator(site, np.arange(40), 6.0, 0.01, 1.0, 1e-5) for _ in range(20)]
    by_separator = np.mean([[certainty(w, bounded(each, 6.0)).mean() for each in (alike, unlike)] for w in ws], axis=0)
    assert by_mean[0] - by_mean[1] > 0.55 > 0.45 > by_separator[0] - by_separator[1]


def test_a_budget_is_asked_before_private_rows_are_read():
    class Unread(Identity):
        def embed(self, X):
            assert len(X) != 30, "private rows were read"
            return X

    site = active(Unread())

    def refuse(charge):
        raise RuntimeError("no budget")

    site.before_private_fit = refuse
    with pytest.raises(RuntimeError, match="no budget"):
        noisy_separator(site, np.arange(40), 9.0, 0.1, 2.0, 1e-5)
    assert not site.exposure.unpaid


@pytest.mark.parametrize("cell", [np.nan, np.inf, 1e300])
def test_no_record_is_an_error(cell):
    """A net refuses such rows: whether it did would tell of the site's records."""
    own = np.random.default_rng(1).normal(size=(30, 50))
    own[4, 3] = cell
    net = cg.TorchClassifier(nn.Linear(50, 2), random_state=0)
    site = active(net, own)
    site.load(net.initialize(site.public.X, [0, 1]).get_weights())
    assert np.isfinite(noisy_separator(site, np.arange(40), 9.0, 0.1, 2.0, 1e-5)).all()


@pytest.mark.parametrize("seed", range(5))
def test_rows_as_awkward_as_can_be_are_solved(seed):
    rng = np.random.default_rng(seed)
    own = bounded(rng.normal(size=(20, 300)) * 10.0 ** rng.integers(-8, 8, size=(20, 1)), 1.0)
    negatives = bounded(np.repeat(own[:3], 5, axis=0) * rng.choice([-1, 1, 1e-9], size=(15, 1)), 1.0)
    for ridge in (LEAST_RIDGE, 1e-2):
        w = separate(own, negatives, ridge)
        signed = np.concatenate([own, -negatives])
        assert np.linalg.norm(ridge * w - signed.T @ expit(-(signed @ w)) / 35) <= TAU


def test_features_that_depend_on_other_rows_are_an_error_before_private_rows_are_read():
    net = cg.TorchClassifier(
        nn.Sequential(nn.BatchNorm1d(50, track_running_stats=False), nn.Linear(50, 2)), random_state=0
    )
    site = active(net)
    site.load(net.initialize(site.public.X, [0, 1]).get_weights())
    with pytest.raises(ConfigError, match="rows beside it"):
        noisy_separator(site, np.arange(40), 9.0, 0.1, 2.0, 1e-5)
    assert not site.exposure.fits


@pytest.mark.parametrize(
    "settings", [{"bound": 0.0}, {"bound": np.nan}, {"ridge": 0.0}, {"ridge": 1e-5}, {"epsilon": 0.0}, {"delta": 1.0}]
)
def test_settings_without_a_guarantee_are_refused_at_the_site_too(settings):
    options = {"bound": 9.0, "ridge": 0.1, "epsilon": 1.0, "delta": 1e-5} | settings
    with pytest.raises(ConfigError, match=next(iter(settings))):
        noisy_separator(active(), np.arange(40), **options)
