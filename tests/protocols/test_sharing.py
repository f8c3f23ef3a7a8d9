"""Keys dealt out in shares."""

from __future__ import annotations

from itertools import combinations

import pytest

from collegium.errors import ConfigError
from collegium.protocols.keys import new_secret
from collegium.protocols.sharing import PRIME, SHARE_BYTES, deal, joined


@pytest.mark.parametrize(("needed", "shares"), [(1, 1), (2, 2), (2, 3), (3, 5), (6, 10)])
def test_any_shares_that_are_enough_give_the_key_back(needed: int, shares: int) -> None:
    for key in (new_secret(), bytes(32), b"\xff" * 32):
        dealt = dict(enumerate(deal(key, needed, shares), start=1))
        for some in combinations(dealt, needed):
            assert joined({number: dealt[number] for number in some}) == key
        assert joined(dealt) == key  # more do no harm
        assert {len(share) for share in dealt.values()} == {SHARE_BYTES}


def test_fewer_fit_every_key_alike() -> None:
    dealt = deal(b"\x01" * 32, 3, 5)
    known = {1: dealt[0], 2: dealt[1]}
    for key in (bytes(32), b"\x02" * 32, b"\xff" * 32):
        # The third share that would make it this key exists, and is as likely as any other.
        at_0, at_1, at_2 = (int.from_bytes(each, "big") for each in (key, *known.values()))
        third = (at_0 - 3 * at_1 + 3 * at_2) % PRIME  # of a parabola: third differences are 0
        assert joined(known | {3: third.to_bytes(SHARE_BYTES, "big")}) == key


def test_the_same_key_is_dealt_in_other_shares_each_time() -> None:
    assert not set(deal(bytes(32), 2, 4)) & set(deal(bytes(32), 2, 4))


def test_shares_that_fit_no_key_are_seen() -> None:
    dealt = dict(enumerate(deal(new_secret(), 3, 3), start=1))
    dealt[2] = (int.from_bytes(dealt[2], "big") ^ 1 << 500).to_bytes(SHARE_BYTES, "big")
    assert joined(dealt) is None


@pytest.mark.parametrize(("size", "needed", "shares"), [(31, 2, 3), (32, 0, 3), (32, 4, 3)])
def test_what_cannot_be_dealt(size: int, needed: int, shares: int) -> None:
    with pytest.raises(ConfigError, match="cannot be dealt"):
        deal(bytes(size), needed, shares)
