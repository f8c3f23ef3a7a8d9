"""Secret words: the sum can be read, whoever spells a value, and a site that drops out is left out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from tests.core.exchanges import Disturbed

import collegium as cg
from collegium.core import Federation, step
from collegium.core.releases import Spellings
from collegium.core.sensitivity import Sensitivity
from collegium.core.site import ActiveSite
from collegium.errors import QuorumLost
from collegium.links.hosting import Hosting
from collegium.links.local import LocalLink
from collegium.privacy.mechanisms.blinding import Blinding

HAVE = [[7], [7, 9], [9], [11]]


@step(sensitivity=Sensitivity(chance=1e-6, relation="add_remove"))
def say(site: ActiveSite, places: int, width: int) -> Spellings:
    """The numbers that the test handed to this site: each in the place that it has the number of."""
    numbers = site.data.X[0][site.data.X[0] > 0].astype(np.uint64)
    return Spellings(numbers[:, None], numbers[:, None].astype(np.int64), places)


def words() -> Any:
    return say(16, 1).through(Blinding()).secretly("secret_words")


@pytest.fixture(params=["nobody", "s2", "s3"])
def federation(request: pytest.FixtureRequest) -> Iterator[tuple[Federation, str]]:
    """Four sites, of which one may be lost."""
    padded = [[*have, *[0] * (2 - len(have))] for have in HAVE]
    sites = tuple(cg.Site(f"s{i}", np.array([row], dtype=float), [0]) for i, row in enumerate(padded))
    with closing(LocalLink(Hosting(sites, np.arange(2), None, None, 0, "run 1"))) as inner:
        link = Disturbed(inner, request.param, "test_secret_words.say", None)
        yield Federation(link, run="run 1", n_classes=2, seed=0), request.param


def test_a_value_can_be_read_off_as_long_as_one_site_has_it(federation: tuple[Federation, str]) -> None:
    fed, lost = federation
    total = fed.total(words())
    assert total.sites == (4 if lost == "nobody" else 3)
    there = {place for place, (factor, _) in enumerate(total.words.tolist()) if factor}
    assert there == ({7, 9} if lost == "s3" else {7, 9, 11})
    for place in there:
        factor, said = total.words[place].tolist()
        assert (factor * place) % 2**64 == said
        assert factor not in (0, 1)


def test_words_leave_in_a_masked_sum_only(federation: tuple[Federation, str]) -> None:
    fed, _ = federation
    with pytest.raises(QuorumLost, match="s0: mask-denied"):
        fed.ask(say(16, 1).through(Blinding()))
    with pytest.raises(QuorumLost):
        fed.total(say(16, 1).secretly("secret_words"))
    assert "MaskedWords" not in {row["kind"] for row in fed.observed.releases}
