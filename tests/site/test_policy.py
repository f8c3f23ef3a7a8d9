from __future__ import annotations

import pytest

from collegium.errors import ConfigError
from collegium.site.policy import Policy


def test_names_may_hold_a_star():
    policy = Policy(steps=("fedct.*",), unprotected=("HardLabels",))
    assert policy.allows_step("fedct.label")
    assert not policy.allows_step("centralized.hand_over")
    assert policy.allows_unprotected("HardLabels")
    assert not policy.allows_unprotected("RawRecords")


@pytest.mark.parametrize("wrong", [{"steps": "fedct.*"}, {"unprotected": (1,)}, {"max_release_bytes": -1}])
def test_a_policy_that_means_nothing_is_refused(wrong):
    with pytest.raises(ConfigError):
        Policy(**wrong)
