"""How many labels are charged for, and what is said about it."""

from __future__ import annotations

from typing import Any

import pytest

from collegium.errors import ConfigError
from collegium.privacy import events
from collegium.privacy.mechanisms.labels import LabelMechanism, true_codes
from collegium.privacy.mechanisms.randomized_response import RandomizedResponse
from collegium.privacy.mechanisms.unary import UnaryEncoding
from collegium.privacy.mechanisms.xor import XorMechanism

MAKERS = [RandomizedResponse, UnaryEncoding, XorMechanism]
every_maker = pytest.mark.parametrize("make", MAKERS)


def test_the_worst_case_charges_every_label_and_is_differential_privacy() -> None:
    charge = RandomizedResponse(2).charge(500, 7, records=3, observed=1)
    assert charge.events == (events.RandomizedResponse(500, 2.0, 7),)
    assert (charge.kind, charge.unit, charge.relation, charge.delta) == ("dp", "record", "any", 1e-5)
    assert charge.publishable
    assert charge.assumptions == ()


def test_two_bits_are_charged_for_every_label() -> None:
    assert UnaryEncoding(2).charge(500, 7).events == (events.RandomizedResponse(1000, 1.0, 2),)
    assert XorMechanism(-2).charge(500, 7).events == (events.RandomizedResponse(1000, 2.0, 2),)


@pytest.mark.parametrize(
    ("size", "rate", "failure", "changes"),
    [(50_000, 0.03, 0.05, 1564), (50_000, 0.03, 1e-5, 1669), (10_000, 0.01, 0.05, 118), (10, 0.9, 0.05, 10)],
)
def test_assumed_stability_charges_what_proposition_2_says_and_says_that_it_is_assumed(
    size: int, rate: float, failure: float, changes: int
) -> None:
    made = RandomizedResponse(
        1, sensitivity="assumed_stability", stability_rate=rate, stability_failure=failure, delta=1e-6
    )
    charge = made.charge(size, 10, records=777)
    assert charge.events == (events.RandomizedResponse(changes, 1.0, 10),)
    assert (charge.kind, charge.relation, charge.delta) == ("conditional", "replace", 1e-6)
    said = " ".join(charge.assumptions)
    for words in ("not verified", str(rate), str(failure), "777 records", "false as stated"):
        assert words in said


def test_the_parity_learner_shows_that_assumed_stability_is_no_guarantee() -> None:
    """On average stable at 0.368 / n, and yet all labels change with one record: n of them, not 3."""
    n = 50_000
    made = UnaryEncoding(1, sensitivity="assumed_stability", stability_rate=0.368 / n)
    assert made.charge(n, 2, records=n).events[0].count == 2 * 3
    assert made.charge(n, 2, records=n).kind != "dp"
    assert made.epsilon(n) == n


def test_an_observed_change_is_nominal_and_not_for_publication() -> None:
    made = RandomizedResponse(1, sensitivity="observed_max_change")
    assert made.neighbours == 5
    charge = made.charge(100, 3, observed=17)
    assert charge.events == (events.RandomizedResponse(17, 1.0, 3),)
    assert charge.kind == "nominal"
    assert not charge.publishable
    assert "no guarantee" in charge.assumptions[0]
    assert "17" not in charge.assumptions[0]  # it depends on private data
    assert made.charge(100, 3, observed=0).events[0].count == 1
    assert made.charge(100, 3, observed=1000).events[0].count == 100
    assert RandomizedResponse(1, sensitivity="observed_max_change", neighbours=9).neighbours == 9
    assert RandomizedResponse(1).neighbours is None


@pytest.mark.parametrize("observed", [None, -1, 1.5, True])
def test_an_observed_change_has_to_be_observed(observed: Any) -> None:
    with pytest.raises(ConfigError, match="observed"):
        UnaryEncoding(1, sensitivity="observed_max_change").charge(10, 2, observed=observed)


@every_maker
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sensitivity": "best_case"}, "'worst_case', 'assumed_stability' or 'observed_max_change'"),
        ({"sensitivity": None}, "sensitivity"),
        ({"sensitivity": "assumed_stability"}, "stability_rate"),
        ({"sensitivity": "assumed_stability", "stability_rate": 0}, "stability_rate"),
        ({"sensitivity": "assumed_stability", "stability_rate": 1.0}, "stability_rate"),
        ({"sensitivity": "assumed_stability", "stability_rate": float("nan")}, "stability_rate"),
        ({"sensitivity": "assumed_stability", "stability_rate": 0.1, "stability_failure": 0}, "stability_failure"),
        ({"sensitivity": "assumed_stability", "stability_rate": 0.1, "neighbours": 3}, "neighbours belongs"),
        ({"stability_rate": 0.1}, "belong to"),
        ({"stability_failure": 0.1}, "belong to"),
        ({"sensitivity": "observed_max_change", "stability_rate": 0.1}, "belong to"),
        ({"neighbours": 5}, "neighbours belongs"),
        ({"sensitivity": "observed_max_change", "neighbours": 0}, "neighbours"),
        ({"sensitivity": "observed_max_change", "neighbours": 2.5}, "neighbours"),
    ],
)
def test_settings_that_do_not_fit_are_refused(make: type[LabelMechanism], settings: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        make(1.0, **settings)
    assert make.__name__ in str(caught.value)


@pytest.mark.parametrize("labels", [[0, 3], [-1, 0], [0.0, 1.0], [[0, 1]], 1, ["a"], [True], [0, 2**40]], ids=repr)
def test_labels_without_a_class_are_refused(labels: Any) -> None:
    with pytest.raises(ConfigError, match="label"):
        true_codes("here", labels, 3)


def test_an_abstention_is_refused_in_words_that_help() -> None:
    with pytest.raises(ConfigError, match="abstention"):
        RandomizedResponse(1).release([0, 1, -1], 3)


@every_maker
def test_no_labels_are_no_noise_and_no_cost(make: type[LabelMechanism]) -> None:
    made: Any = make(1.0)  # type: ignore[call-arg, arg-type]
    assert len(made.release([], 3)) == 0
    assert made.charge(0, 3).events == ()


@every_maker
@pytest.mark.parametrize("n_classes", [1, 0, 2.0, True])
def test_fewer_than_two_classes_are_refused(make: type[LabelMechanism], n_classes: Any) -> None:
    made: Any = make(1.0)  # type: ignore[call-arg, arg-type]
    for ask in (
        lambda: made.release([0, 0], n_classes),
        lambda: made.charge(2, n_classes),
        lambda: made.epsilon(2, n_classes),
    ):
        with pytest.raises(ConfigError, match="n_classes"):
            ask()


def test_epsilon_is_that_of_the_worst_case_whatever_is_charged() -> None:
    made = UnaryEncoding(0.5, sensitivity="observed_max_change")
    assert made.epsilon() == 0.5
    assert made.epsilon(public_size=30, n_classes=10, rounds=4) == pytest.approx(60)


def test_with_a_delta_many_labels_cost_less_than_their_sum() -> None:
    made = RandomizedResponse(0.1)
    assert made.epsilon(400, 2) == pytest.approx(40)
    assert made.epsilon(400, 2, delta=1e-5) == pytest.approx(9.936810, rel=1e-3)
    assert made.epsilon(20, 2, rounds=20, delta=1e-5) == pytest.approx(9.936810, rel=1e-3)
    assert RandomizedResponse(1).epsilon(20, 10, delta=1e-5) == pytest.approx(12.82688, rel=1e-3)


@pytest.mark.parametrize(
    "settings", [{"public_size": 0}, {"rounds": 0}, {"delta": 1}, {"delta": -0.1}, {"delta": float("nan")}]
)
def test_epsilon_of_nothing_is_refused(settings: Any) -> None:
    with pytest.raises(ConfigError, match=next(iter(settings))):
        RandomizedResponse(1).epsilon(**settings)
