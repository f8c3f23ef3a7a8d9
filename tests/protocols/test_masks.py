from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from collegium.errors import ConfigError
from collegium.protocols import Reused
from collegium.protocols.masks import Masks

WORD = np.dtype("<u8")


def mask(
    member: Any, purpose: str = "p", name: str = "1", parties: str = "abc", block: str = "x", rows: int = 4
) -> bytes:
    # A copy of the member forgets the round afterwards, so that only what the mask is bound to can make it differ.
    masks = Masks(pickle.loads(pickle.dumps(member)), purpose, name, list(parties))
    return masks.shared_with("b", block, (rows, 2), WORD)[:3].tobytes()


def test_a_mask_is_bound_to_all_that_makes_a_message(meet: Any) -> None:
    a = meet(*"abcd")["a"]
    assert mask(a) == mask(a)
    variants: list[dict[str, Any]] = [{"purpose": "q"}, {"name": "2"}, {"parties": "abd"}, {"block": "y"}, {"rows": 5}]
    assert len({mask(a), *(mask(a, **variant) for variant in variants)}) == len(variants) + 1
    assert mask(a) != mask(meet(*"abcd")["a"])


def test_masks_of_all_participants_cancel(meet: Any) -> None:
    total = sum(Masks(member, "p", "1", list("abcd")).cancelling("x", (50,), WORD) for member in meet(*"abcd").values())
    assert not np.any(total)


def test_a_round_is_used_once_per_circle_and_purpose(meet: Any) -> None:
    a = meet(*"abc")["a"]
    Masks(a, "p", "1", list("abc"))
    Masks(a, "q", "1", list("abc"))
    with pytest.raises(Reused, match="p/1"):
        Masks(a, "p", "1", list("ab"))


@pytest.mark.parametrize("parties", ["a", "bc", "abx", ""])
def test_only_sites_that_have_met_share_masks(meet: Any, parties: str) -> None:
    with pytest.raises(ConfigError, match="needs this site"):
        Masks(meet(*"abc")["a"], "p", "1", list(parties))
