"""What votes cost in hindsight: less where the voters agree, never more, and never for publication."""

from __future__ import annotations

import numpy as np
import pytest

from collegium.errors import ConfigError
from collegium.privacy import accountant
from collegium.privacy.budget import Budget
from collegium.privacy.claims import Charge
from collegium.privacy.events import Renyi
from collegium.privacy.hindsight import check_accounted, hindsight_charge
from collegium.privacy.mechanisms.noisy_max import ConfidentNoisyMax, GaussianNoisyMax, LaplaceNoisyMax, NoisyMax

NOISE: list[NoisyMax] = [LaplaceNoisyMax(0.05), GaussianNoisyMax(20.0)]


def epsilon(charge: Charge) -> float:
    return accountant.claim([charge]).epsilon


@pytest.mark.parametrize("mechanism", NOISE)
def test_voters_that_agree_make_it_cheaper(mechanism: NoisyMax) -> None:
    beforehand = mechanism.charge(74, 2)
    charge = hindsight_charge(mechanism, np.tile([400, 0], (74, 1)), beforehand)
    assert epsilon(charge) < 0.5 * epsilon(beforehand)
    assert isinstance(charge.events[0], Renyi)
    assert not charge.publishable
    assert charge.as_known_beforehand() == beforehand
    assert Charge.from_plain(charge.to_plain()) == charge


def test_a_budget_counts_what_was_known_beforehand() -> None:
    mechanism = NOISE[0]
    beforehand, budget = mechanism.charge(74, 2), Budget(100.0)
    charges = [hindsight_charge(mechanism, np.tile(votes, (74, 1)), beforehand) for votes in ([400, 0], [5, 5])]
    assert {budget.total([charge]) for charge in charges} == {budget.total([beforehand])}


@pytest.mark.parametrize("mechanism", NOISE)
def test_voters_that_disagree_never_make_it_dearer_and_it_is_not_for_publication_all_the_same(
    mechanism: NoisyMax,
) -> None:
    beforehand = mechanism.charge(74, 2)
    charge = hindsight_charge(mechanism, np.tile([5, 5], (74, 1)), beforehand)
    assert epsilon(charge) == epsilon(beforehand)
    assert beforehand.publishable
    assert not charge.publishable


def test_a_mechanism_without_such_a_rule_is_an_error() -> None:
    confident = ConfidentNoisyMax(3, 1.0, 1.0)
    with pytest.raises(ConfigError, match="FedKT: ConfidentNoisyMax has no data-dependent accounting"):
        check_accounted("FedKT", confident)
    with pytest.raises(ConfigError, match="no data-dependent accounting"):
        hindsight_charge(confident, np.ones((3, 2)), confident.charge(3, 2))
