"""What private uses add up to: published vectors, exact sums, dp-accounting, and its limits."""

from __future__ import annotations

import math
import subprocess
import sys
import time
from typing import Any

import pytest

from collegium import privacy
from collegium.errors import ConfigError
from collegium.privacy import accountant, discretized, losses
from collegium.privacy.claims import Charge
from collegium.privacy.events import (
    Event,
    Failure,
    Gaussian,
    Laplace,
    Pure,
    RandomizedResponse,
    Renyi,
    SampledGaussian,
)
from collegium.privacy.losses import LARGEST_COUNT, randomized_response_losses

DELTA = 1e-5


def exact(value: float, digits: int = 6) -> Any:
    return pytest.approx(value, abs=0.51 * 10**-digits)


@pytest.mark.parametrize(
    ("rounds", "how", "epsilon"),
    [
        (400, "basic", 40.0),
        (400, "advanced", 13.803889),
        (400, "rdp", 10.637952),
        (400, "exact", 9.936810),
        (300, "exact", 8.324894),
        (1000, "exact", 17.787128),
        (2000, "exact", 28.305043),
    ],
)
def test_composition_of_pure_releases(rounds: int, how: Any, epsilon: float) -> None:
    assert privacy.compose(0.1, rounds, DELTA, how) == exact(epsilon)


def test_composition_is_the_binomial_sum() -> None:
    assert privacy.randomized_response_delta(10, 0.5, 2.0) == exact(0.145466)
    assert privacy.compose(0.5, 10, 1e-3) == exact(4.878372)
    keep = 1 / (1 + math.exp(-0.5))
    for total in (0.0, 0.3, 2.0, 4.9, 5.0, 7.0):
        terms = (
            math.comb(10, j) * keep**j * (1 - keep) ** (10 - j) * -math.expm1(min(0, total - (2 * j - 10) * 0.5))
            for j in range(11)
        )
        assert privacy.randomized_response_delta(10, 0.5, total) == pytest.approx(sum(terms), rel=1e-12, abs=1e-15)


def test_one_release_costs_a_little_less_than_its_epsilon() -> None:
    assert privacy.compose(0.1, 1, DELTA) == pytest.approx(math.log(math.exp(0.1) - DELTA * (1 + math.exp(0.1))))
    assert privacy.compose(1e-6, 1, 0.1) == 0.0


@pytest.mark.parametrize(
    ("epsilon", "rounds"), [(1e-4, 10**8), (1e-5, LARGEST_COUNT), (1e5, 3), (1e3, 10**6), (50.0, 1)]
)
def test_composition_without_overflow_and_fast(epsilon: float, rounds: int) -> None:
    start = time.process_time()
    total = privacy.compose(epsilon, rounds, DELTA)
    assert time.process_time() - start < 2
    assert 0 < total <= epsilon * rounds
    if epsilon < 1e-3:  # the limit of many small losses is a Gaussian
        assert total == pytest.approx(privacy.gaussian_epsilon(1 / (epsilon * math.sqrt(rounds)), DELTA), rel=1e-4)


def test_per_round() -> None:
    assert privacy.per_round(1, DELTA, 400) == exact(0.01344007, 8)
    assert privacy.per_round(0.1, DELTA, 3000) == exact(5.938915e-4, 10)
    assert privacy.per_round(1, DELTA, 400, "basic") == 1 / 400


@pytest.mark.parametrize("how", ["basic", "advanced", "rdp", "exact"])
@pytest.mark.parametrize(("total", "rounds"), [(0.1, 1), (1.0, 7), (8.0, 400), (300.0, 20)])
def test_per_round_undoes_compose_and_never_passes_the_total(how: Any, total: float, rounds: int) -> None:
    each = privacy.per_round(total, DELTA, rounds, how)
    assert privacy.compose(each, rounds, DELTA, how) == pytest.approx(total, rel=1e-5)
    assert privacy.compose(each, rounds, DELTA, how) <= total * (1 + 1e-9)


@pytest.mark.parametrize(("epsilon", "sigma"), [(0.1, 30.749566), (1.0, 3.730632), (8.0, 0.600229), (10.0, 0.499889)])
def test_analytic_gaussian(epsilon: float, sigma: float) -> None:
    assert privacy.gaussian_sigma(epsilon, DELTA) == exact(sigma)
    assert privacy.gaussian_sigma(epsilon, DELTA, 5.0) == pytest.approx(5 * privacy.gaussian_sigma(epsilon, DELTA))
    assert privacy.gaussian_epsilon(privacy.gaussian_sigma(epsilon, DELTA, 5.0), DELTA, 5.0) == pytest.approx(epsilon)
    assert privacy.gaussian_delta(privacy.gaussian_sigma(epsilon, DELTA), epsilon) == pytest.approx(DELTA)


def test_classic_gaussian_is_wrong_on_both_sides() -> None:
    assert privacy.classic_gaussian_sigma(0.1, DELTA) == exact(48.448053)
    assert privacy.classic_gaussian_sigma(10, DELTA) == exact(0.484481)
    assert privacy.classic_gaussian_sigma(10, DELTA) < privacy.gaussian_sigma(10, DELTA)


def test_gaussian_noise_far_too_small() -> None:
    """AIMHI's setting: parameters clipped to 2, noise .01, 150 rounds."""
    assert privacy.gaussian_epsilon(0.01, DELTA, sensitivity=4 * math.sqrt(150)) == pytest.approx(1.20e7, rel=2e-3)


def test_many_outcomes_exactly() -> None:
    """10-ary randomized response, epsilon 1, 20 times: worked out with 40 digits."""
    epsilon, words = privacy.epsilon_of([RandomizedResponse(20, 1.0, 10)], DELTA)
    assert (epsilon, words) == (exact(12.826871), "exact (randomized response)")


@pytest.mark.parametrize(("count", "epsilon", "outcomes"), [(1, 1.0, 3), (7, 0.5, 4), (12, 3.0, 10), (5, 30.0, 3)])
def test_many_outcomes_against_all_of_them(count: int, epsilon: float, outcomes: int) -> None:
    other = 1 / (math.exp(epsilon) + outcomes - 1)
    table = dict.fromkeys(range(-count, count + 1), 0.0)
    for truths in range(count + 1):
        for lies in range(count + 1 - truths):
            rest = count - truths - lies
            ways = math.comb(count, truths) * math.comb(count - truths, lies)
            chance = (math.exp(epsilon) * other) ** truths * other**lies * ((outcomes - 2) * other) ** rest
            table[truths - lies] += ways * chance
    for total in (0.0, epsilon / 2, epsilon * count * 0.9):
        expected = sum(weight * -math.expm1(min(0, total - loss * epsilon)) for loss, weight in table.items())
        assert randomized_response_losses(count, epsilon, outcomes).delta(total) == pytest.approx(expected, abs=1e-13)
        assert privacy.delta_of([RandomizedResponse(count, epsilon, outcomes)], total)[0] == pytest.approx(
            expected, abs=1e-13
        )


def test_many_outcomes_many_times() -> None:
    """The limit is a Gaussian with the same variance of the loss: count * epsilon^2 * 2 / outcomes."""
    total = privacy.epsilon_of([RandomizedResponse(10**8, 1e-4, 3)], DELTA)[0]
    assert total == pytest.approx(privacy.gaussian_epsilon(math.sqrt(3 / 2), DELTA), rel=1e-4)


def test_dp_accounting_counts_randomized_response_once() -> None:
    """Its PLDAccountant (0.6.0) ignores the count: the reason why randomized response is composed here."""
    import dp_accounting as dpa

    event = dpa.RandomizedResponseDpEvent(2 / (1 + math.exp(0.1)), 2)
    theirs = dpa.pld.PLDAccountant(dpa.NeighboringRelation.REPLACE_ONE)
    theirs.compose(dpa.SelfComposedDpEvent(event, 400))
    assert theirs.get_epsilon(DELTA) == exact(0.100081)
    ours, words = privacy.epsilon_of([RandomizedResponse(400, 0.1)], DELTA)
    assert (ours, words) == (exact(9.936810), "exact (randomized response)")


def test_dp_accounting_rounds_randomized_response_up() -> None:
    """On a grid of epsilon itself its losses land one point too high: the reason why losses are split here."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    theirs = pld.from_randomized_response(10 / (math.e + 9), 10, value_discretization_interval=1.0).self_compose(20)
    assert theirs.get_epsilon_for_delta(DELTA) > 12.9
    fine = pld.from_randomized_response(10 / (math.e + 9), 10, value_discretization_interval=1e-4).self_compose(20)
    assert fine.get_epsilon_for_delta(DELTA) == pytest.approx(12.82688, abs=1e-5)


def test_steps_on_samples() -> None:
    steps = [SampledGaussian(20_000, 4.0, 0.032)]
    assert privacy.epsilon_of(steps, DELTA) == (exact(5.161052), "PLD (dp-accounting)")
    assert privacy.renyi_epsilon(steps, DELTA) == exact(5.571449)
    assert privacy.delta_of(steps, 5.161052)[0] == pytest.approx(DELTA, rel=1e-4)


@pytest.mark.parametrize(("epsilon", "multiplier", "digits"), [(8.0, 2.813, 3), (1.0, 16.91, 2)])
def test_noise_of_steps_on_samples(epsilon: float, multiplier: float, digits: int) -> None:
    found = privacy.noise_multiplier(epsilon, DELTA, 20_000, sampling=64 / 2000)
    assert found == exact(multiplier, digits)
    assert privacy.epsilon_of([SampledGaussian(20_000, found, 0.032)], DELTA)[0] <= epsilon


@pytest.mark.parametrize(
    ("count", "sampling"),
    [pytest.param(100, 0.01, marks=pytest.mark.slow), pytest.param(50, 0.999, marks=pytest.mark.slow), (1, 0.5)],
)
def test_noise_of_other_samples(count: int, sampling: float) -> None:
    found = privacy.noise_multiplier(1.0, DELTA, count, sampling)
    assert privacy.epsilon_of([SampledGaussian(count, found, sampling)], DELTA)[0] == pytest.approx(1.0, rel=1e-3)
    assert found < privacy.noise_multiplier(1.0, DELTA, count) * 1.001


@pytest.mark.parametrize(("epsilon", "multiplier", "digits"), [(0.1, 614.991, 3), (1.0, 74.6126, 4), (8.0, 12.0046, 4)])
def test_noise_of_rounds(epsilon: float, multiplier: float, digits: int) -> None:
    found = privacy.noise_multiplier(epsilon, DELTA, 400)
    assert found == exact(multiplier, digits)
    assert privacy.epsilon_of([Gaussian(400, found)], DELTA) == (pytest.approx(epsilon), "exact (Gaussian)")


@pytest.mark.parametrize("count", [1, 148])
def test_laplace_multiplier(count: int) -> None:
    found = privacy.laplace_multiplier(1.0, DELTA, count)
    spent = privacy.epsilon_of([Laplace(count, found)], DELTA)[0]
    assert spent <= 1
    assert spent == pytest.approx(1, rel=1e-4)
    assert found < count


def test_calibrate() -> None:
    def votes(noise: float) -> list[Event]:
        return [Laplace(40, noise), Gaussian(1, 10 * noise)]

    found = privacy.calibrate(votes, 2.0, DELTA, 1.0, 1000.0)
    assert privacy.epsilon_of(votes(found), DELTA)[0] == pytest.approx(2, rel=1e-4)
    assert privacy.epsilon_of(votes(found), DELTA)[0] <= 2
    assert privacy.calibrate(votes, 2.0, DELTA, 500.0, 1000.0) == 500.0
    with pytest.raises(ConfigError, match="larger high"):
        privacy.calibrate(votes, 2.0, DELTA, 1.0, 2.0)


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "nothing was used"),
        ([Pure(3, 0.1), RandomizedResponse(5, 0.1)], "exact (randomized response)"),
        ([RandomizedResponse(5, 0.1, 3)], "exact (randomized response)"),
        ([Gaussian(3, 20.0), Gaussian(1, 5.0), SampledGaussian(2, 50.0, 1.0)], "exact (Gaussian)"),
        ([Pure(3, 0.1), Pure(2, 0.3)], "PLD (dp-accounting)"),
        ([Laplace(3, 10.0)], "PLD (dp-accounting)"),
        ([Gaussian(1, 20.0), Renyi(1, (2.0, 30.0), (0.001, 0.02))], "RDP (dp-accounting)"),
    ],
)
def test_how_events_are_added_up(events: list[Event], words: str) -> None:
    epsilon, how = privacy.epsilon_of(events, DELTA)
    assert how == words
    assert math.isfinite(epsilon)
    delta, again = privacy.delta_of(events, epsilon)
    assert again == words
    assert delta == pytest.approx(DELTA, rel=1e-4) if epsilon else delta <= DELTA


def test_failures_take_their_part_of_delta() -> None:
    noise = Gaussian(1, 4.0)
    epsilon, how = privacy.epsilon_of([noise, Failure(2, 1e-6), Failure(1, 1e-6)], DELTA)
    assert how == "exact (Gaussian)"
    assert epsilon == pytest.approx(privacy.gaussian_epsilon(4.0, DELTA - 3e-6), rel=1e-12)
    assert privacy.delta_of([noise, Failure(3, 1e-6)], 1.0)[0] == pytest.approx(privacy.gaussian_delta(4.0, 1.0) + 3e-6)
    assert privacy.epsilon_of([Failure(1, 1e-6)], DELTA)[0] == 0
    assert privacy.epsilon_of([noise, Failure(2, DELTA / 2)], DELTA)[0] == math.inf
    assert accountant.renyi_epsilon([noise, Failure(1, 9e-6)], DELTA) > accountant.renyi_epsilon([noise], DELTA)


def test_equal_events_are_merged() -> None:
    assert accountant.merged([Pure(3, 0.1), RandomizedResponse(5, 0.1), Gaussian(3, 2.0), Gaussian(1, 2.0)]) == (
        Gaussian(1, 1.0),
        RandomizedResponse(8, 0.1),
    )
    assert privacy.epsilon_of([Gaussian(4, 2.0)], DELTA)[0] == privacy.gaussian_epsilon(1.0, DELTA)


def mixes() -> list[tuple[list[Event], list[Any]]]:
    import dp_accounting as dpa

    return [
        ([Gaussian(5, 20.0), Laplace(10, 15.0)], [(dpa.GaussianDpEvent(20.0), 5), (dpa.LaplaceDpEvent(15.0), 10)]),
        (
            [SampledGaussian(100, 2.0, 0.01), Gaussian(1, 3.0)],
            [(dpa.PoissonSampledDpEvent(0.01, dpa.GaussianDpEvent(2.0)), 100), (dpa.GaussianDpEvent(3.0), 1)],
        ),
        ([Laplace(148, 12.5)], [(dpa.LaplaceDpEvent(12.5), 148)]),
    ]


@pytest.mark.parametrize("case", range(3))
def test_mixes_agree_with_dp_accounting(case: int) -> None:
    import dp_accounting as dpa

    ours, theirs = mixes()[case]
    reference = dpa.pld.PLDAccountant()
    for event, count in theirs:
        reference.compose(event, count)
    assert privacy.epsilon_of(ours, DELTA)[0] == pytest.approx(reference.get_epsilon(DELTA), abs=1e-6)


def test_response_among_others_is_split_on_the_grid() -> None:
    """A mix of epsilons that a common grid has exactly: worked out by hand from both sums."""
    parts = randomized_response_losses(40, 0.1), randomized_response_losses(10, 0.25)
    total = privacy.epsilon_of([Pure(40, 0.1), Pure(10, 0.25)], DELTA)[0]
    delta = sum(
        weight * parts[0].delta(total - loss) for loss, weight in zip(parts[1].values, parts[1].weights, strict=True)
    )
    assert delta == pytest.approx(DELTA, rel=1e-3)
    assert delta <= DELTA * (1 + 1e-6)


def test_a_mix_costs_no_less_than_its_parts_and_no_more_than_their_sum() -> None:
    parts: list[list[Event]] = [
        [RandomizedResponse(100, 0.07, 5)],
        [Gaussian(1, 4.0)],
        [SampledGaussian(50, 1.5, 0.02)],
    ]
    alone = [privacy.epsilon_of(part, DELTA / 3)[0] for part in parts]
    together = privacy.epsilon_of([event for part in parts for event in part], DELTA)[0]
    assert max(alone) < together < sum(alone)


@pytest.mark.parametrize(
    "events",
    [
        [Pure(1, 1e5), RandomizedResponse(10**8, 1e-4)],
        [Pure(1, 1e5), SampledGaussian(1000, 1.0, 0.01)],
        [Gaussian(1, 1e-3), Pure(1, 0.1)],
        [SampledGaussian(10**8, 600.0, 0.01)],
        [SampledGaussian(100, 0.01, 0.1)],
        [SampledGaussian(100, 1e-5, 1e-4)],
        [Gaussian(1, 1e-5), Pure(1, 0.1)],
        [Laplace(10**6, 0.01)],
        [RandomizedResponse(LARGEST_COUNT, 1.0), SampledGaussian(LARGEST_COUNT, 0.5, 0.5)],
    ],
)
def test_time_and_memory_stay_bounded(events: list[Event]) -> None:
    interval = discretized.grid(accountant.merged(events))
    start = time.process_time()
    epsilon, _ = privacy.epsilon_of(events, DELTA)
    assert time.process_time() - start < 15
    assert 0 < epsilon < math.inf
    assert interval is None or interval > 0


def test_tiny_delta_uses_renyi_divergences() -> None:
    epsilon, words = privacy.epsilon_of([SampledGaussian(100, 2.0, 0.01)], 1e-14)
    assert words == "RDP (dp-accounting)"
    assert epsilon > privacy.epsilon_of([SampledGaussian(100, 2.0, 0.01)], 1e-9)[0]
    assert privacy.epsilon_of([Pure(10, 0.5)], 1e-14)[1] == "exact (randomized response)"


@pytest.mark.parametrize(
    "event",
    [
        Pure(10, 0.2),
        RandomizedResponse(10, 0.2, 10),
        Gaussian(10, 8.0),
        Laplace(10, 6.0),
        SampledGaussian(50, 1.0, 0.1),
    ],
)
def test_renyi_divergences_bound_from_above(event: Event) -> None:
    tight = privacy.epsilon_of([event], DELTA)[0]
    assert tight < privacy.renyi_epsilon([event], DELTA) < 2 * tight + 0.5


def test_renyi_event_says_the_same_as_the_mechanism() -> None:
    orders = tuple(float(order) for order in range(2, 200))
    event = Renyi(3, orders, tuple(order / (2 * 4.0**2) for order in orders))
    pure = Gaussian(3, 4.0)
    both = privacy.epsilon_of([event, Gaussian(1, 1e9)], DELTA)[0]
    assert both == pytest.approx(privacy.renyi_epsilon([pure], DELTA), rel=1e-3)


def test_renyi_events_of_other_orders() -> None:
    """Divergences grow with the order, so the next known one bounds; beyond the last nothing is known."""
    first, second = Renyi(1, (2.0, 8.0), (0.01, 0.04)), Renyi(1, (4.0,), (0.02,))
    total = privacy.epsilon_of([first, second], DELTA)[0]
    assert total <= privacy.epsilon_of([Renyi(1, (4.0,), (0.06,))], DELTA)[0] + 1e-12


@pytest.mark.parametrize("event", [Pure(1, 0.1), RandomizedResponse(1, 0.1, 10), Gaussian(1, 50.0)])
def test_a_budget_is_checked_before_each_of_400_releases(event: Event) -> None:
    privacy.epsilon_of([event], 1e-6)
    start = time.process_time()
    for released in range(1, 401):
        privacy.epsilon_of([event] * released, 1e-6)
    assert time.process_time() - start < 1


def test_importing_stays_light() -> None:
    """dp-accounting takes a second to import: only what needs it does."""
    code = (
        "import sys, collegium.privacy as p, collegium.privacy.theory; p.compose(.1, 400, 1e-5); "
        "from collegium.privacy import accountant; from collegium.privacy.events import Pure; "
        "accountant.epsilon_of([Pure(3, .1)], 1e-5); assert 'dp_accounting' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_all_names_of_the_package_are_there() -> None:
    for name in dir(privacy):
        assert getattr(privacy, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        privacy.nonsense  # noqa: B018


def test_claim() -> None:
    charges = [
        Charge((Pure(1, 0.1),), assumptions=("a", "b")),
        Charge((Pure(1, 0.1),), delta=1e-6, assumptions=("b", "c")),
    ]
    found = privacy.claim(charges * 200)
    assert (found.epsilon, found.delta, found.rounds) == (exact(9.936810), 1e-5, 400)
    assert (found.kind, found.unit, found.relation, found.publishable) == ("dp", "record", "replace", True)
    assert found.assumptions == ("a", "b", "c")
    assert found.accountant == "exact (randomized response)"
    assert privacy.claim(charges, delta=1e-3).delta == 1e-3
    assert not privacy.claim([*charges, Charge((Pure(),), publishable=False)]).publishable


def test_claims_of_different_kinds_are_never_added_up() -> None:
    one = Charge((Pure(),))
    for other in (Charge((Pure(),), kind="nominal"), Charge((Pure(),), unit="party")):
        with pytest.raises(ConfigError, match="never added up"):
            privacy.claim([one, other])
    with pytest.raises(ConfigError, match="at least one charge"):
        privacy.claim([])


def test_claims_for_different_neighbours_are_not_added_up() -> None:
    any_, replace, add = (Charge((Pure(),), relation=name) for name in ("any", "replace", "add_remove"))
    assert privacy.claim([any_, add]).relation == "add_remove"
    assert privacy.claim([any_], relation="add_remove").relation == "add_remove"
    for charges, relation in (([replace, add], "any"), ([replace], "add_remove")):
        with pytest.raises(ConfigError, match="different neighbours"):
            privacy.claim(charges, relation=relation)  # type: ignore[arg-type]


@pytest.mark.parametrize("bad", [0, -1.0, math.nan, math.inf, "1", True, None])
def test_bad_epsilon(bad: Any) -> None:
    for call in (
        lambda: privacy.compose(bad, 10, DELTA),
        lambda: privacy.per_round(bad, DELTA, 10),
        lambda: privacy.gaussian_sigma(bad, DELTA),
        lambda: privacy.classic_gaussian_sigma(bad, DELTA),
        lambda: privacy.gaussian_epsilon(bad, DELTA),
        lambda: privacy.gaussian_epsilon(1.0, DELTA, bad),
        lambda: privacy.noise_multiplier(bad, DELTA, 10),
        lambda: privacy.laplace_multiplier(bad, DELTA, 10),
        lambda: privacy.calibrate(lambda z: [Gaussian(1, z)], bad, DELTA, 1.0, 2.0),
        lambda: privacy.calibrate(lambda z: [Gaussian(1, z)], 1.0, DELTA, bad, 2.0),
        lambda: privacy.randomized_response_delta(3, bad, 1.0),
    ):
        with pytest.raises(ConfigError, match="finite number above 0"):
            call()
    if bad != 0 or bad is None:
        with pytest.raises(ConfigError, match="finite number of at least 0"):
            privacy.delta_of([Pure()], bad)


@pytest.mark.parametrize("bad", [0, 0.0, 1.0, 1, -0.1, math.nan, "x", True])
def test_bad_delta(bad: Any) -> None:
    for call in (
        lambda: privacy.compose(0.1, 10, bad),
        lambda: privacy.per_round(0.1, bad, 10),
        lambda: privacy.gaussian_sigma(1.0, bad),
        lambda: privacy.gaussian_epsilon(1.0, bad),
        lambda: privacy.classic_gaussian_sigma(1.0, bad),
        lambda: privacy.epsilon_of([Pure()], bad),
        lambda: privacy.renyi_epsilon([Pure()], bad),
        lambda: privacy.noise_multiplier(1.0, bad, 10),
    ):
        with pytest.raises(ConfigError, match="delta must be a number above 0 and below 1"):
            call()


@pytest.mark.parametrize("bad", [0, -1, 1.5, math.nan, "3", True, LARGEST_COUNT + 1])
def test_bad_rounds(bad: Any) -> None:
    for call in (
        lambda: privacy.compose(0.1, bad, DELTA),
        lambda: privacy.per_round(0.1, DELTA, bad),
        lambda: privacy.randomized_response_delta(bad, 0.1, 1.0),
        lambda: privacy.noise_multiplier(1.0, DELTA, bad),
        lambda: privacy.laplace_multiplier(1.0, DELTA, bad),
    ):
        with pytest.raises(ConfigError, match="an integer of at least 1"):
            call()


def test_other_bad_input() -> None:
    with pytest.raises(ConfigError, match="'basic', 'advanced', 'rdp' or 'exact'"):
        privacy.compose(0.1, 10, DELTA, "magic")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="'basic', 'advanced', 'rdp' or 'exact'"):
        privacy.per_round(0.1, DELTA, 10, "magic")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="sampling must be a number above 0 and at most 1"):
        privacy.noise_multiplier(1.0, DELTA, 10, sampling=1.5)
    with pytest.raises(ConfigError, match="no rule"):
        privacy.epsilon_of([Event()], DELTA)
    with pytest.raises(ConfigError, match="count must be an integer"):
        privacy.epsilon_of([Pure(LARGEST_COUNT, 0.1), Pure(1, 0.1)], DELTA)
    with pytest.raises(ConfigError, match="not known"):
        discretized.grid((Renyi(),))


def test_a_few_points_of_a_loss_are_summed_up_without_scipy_to_the_same_bits(monkeypatch):
    loss = losses.randomized_response_losses(1000, 0.01)
    few = loss.epsilon(1e-5)
    monkeypatch.setattr(losses, "_FEW_POINTS", 0)
    assert loss.epsilon(1e-5) == few > 0
