"""The checks of settings: what they take, what they give back, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from collegium.errors import ConfigError
from collegium.privacy.mechanisms.base import check_positive, check_share, check_whole


@pytest.mark.parametrize("value", [10, np.int64(10), np.uint8(10)])
def test_a_whole_number_of_any_kind_becomes_a_plain_one(value: Any) -> None:
    assert type(check_whole("FedKT", "queries", value)) is int


@pytest.mark.parametrize("check", [check_positive, check_share])
@pytest.mark.parametrize("value", [1, 0.5, np.int64(1), np.float32(0.5), np.float64(0.5)])
def test_a_number_of_any_kind_becomes_a_plain_float(check: Callable[..., float], value: Any) -> None:
    found = check("FedKT", "gamma", value)
    assert type(found) is float
    assert found == value


@pytest.mark.parametrize("check", [check_positive, check_share, check_whole])
@pytest.mark.parametrize("value", ["0.5", None, True, np.bool_(True), float("nan"), float("inf"), -1, 1j, [1], 0])
def test_what_is_no_such_number_is_an_error_that_names_the_setting(check: Callable[..., Any], value: Any) -> None:
    with pytest.raises(ConfigError, match="FedKT: gamma is a"):
        check("FedKT", "gamma", value)


def test_zero_is_taken_where_it_makes_sense() -> None:
    assert check_positive("SimCLR", "weight_decay", 0, zero=True) == 0
    assert check_share("FedAUX", "norm_quantile", 0, zero=True) == 0
    for check in (check_positive, check_share):
        with pytest.raises(ConfigError, match="of at least 0"):
            check("here", "it", -0.1, zero=True)


def test_a_share_is_at_most_all() -> None:
    assert check_share("FedCT", "participation", 1) == 1
    with pytest.raises(ConfigError, match=r"FedCT: participation is a number above 0 and at most 1, not 1\.1"):
        check_share("FedCT", "participation", 1.1)
