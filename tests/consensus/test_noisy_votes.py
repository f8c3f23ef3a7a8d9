"""Settings of noise on votes that FedKT and DPPate share. Their own tests have the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from collegium.consensus.noisy_votes import NoisyVotes
from collegium.errors import ConfigError
from collegium.privacy.mechanisms.noisy_max import ConfidentNoisyMax, GaussianNoisyMax, LaplaceNoisyMax


def votes(**settings: Any) -> NoisyVotes:
    return NoisyVotes(**settings)


@pytest.mark.parametrize(
    ("settings", "delta"),
    [
        ({}, 1e-5),
        ({"gamma": 0.05}, 1e-5),
        ({"gamma": 0.05, "delta": 1e-6}, 1e-6),
        ({"mechanism": LaplaceNoisyMax(0.05)}, 1e-5),
        ({"mechanism": LaplaceNoisyMax(0.05, delta=1e-8)}, 1e-8),
        ({"mechanism": LaplaceNoisyMax(0.05, delta=1e-8), "delta": 1e-8}, 1e-8),
        ({"mechanism": LaplaceNoisyMax(0.05), "delta": 1e-6}, 1e-6),
    ],
)
def test_epsilon_is_stated_at_the_delta_that_was_given(settings: dict[str, Any], delta: float) -> None:
    made = votes(**settings)
    assert made.stated_delta == delta
    if made.has_noise:
        assert made.noisy_max(10, changed_votes=1, unit="record").delta == delta


def test_two_deltas_that_differ_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"NoisyVotes: delta is 1e-05 and the mechanism's own is 1e-08: give one"):
        votes(mechanism=GaussianNoisyMax(4.0, delta=1e-8), delta=1e-5)


def test_another_mechanism_brings_its_own_delta() -> None:
    made = votes(mechanism=LaplaceNoisyMax(0.05, delta=1e-8))
    assert replace(made, mechanism=LaplaceNoisyMax(0.05, delta=1e-6)).stated_delta == 1e-6


def test_a_mechanism_without_data_dependent_accounting_is_an_error_at_once() -> None:
    confident = ConfidentNoisyMax(3, 1.0, 1.0)
    with pytest.raises(ConfigError, match="NoisyVotes: ConfidentNoisyMax has no data-dependent accounting"):
        votes(mechanism=confident, accounting="data_dependent")
    assert votes(mechanism=confident).has_noise
    assert votes(mechanism=GaussianNoisyMax(4.0), accounting="data_dependent").has_noise


def test_numbers_are_plain_afterwards() -> None:
    made = votes(gamma=np.float32(0.1), queries=np.int64(10))
    assert (type(made.gamma), type(made.queries)) == (float, int)
    assert type(votes(epsilon=np.int64(2)).epsilon) is float


def test_noise_needs_two_classes() -> None:
    votes(gamma=0.1).check_classes(2)
    votes().check_classes(1)
    with pytest.raises(ConfigError, match="NoisyVotes: noise on votes needs at least two classes, not 1"):
        votes(gamma=0.1).check_classes(1)
