"""Secret counts: the sum has the noise of all, and nothing less leaves a site."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.core.exchanges import Disturbed

import collegium as cg
from collegium.core import Federation, step
from collegium.core.releases import Counts
from collegium.core.sensitivity import Sensitivity
from collegium.core.site import ActiveSite
from collegium.core.steps import Order
from collegium.errors import ConfigError, QuorumLost
from collegium.links.hosting import Hosting
from collegium.links.local import LocalLink
from collegium.privacy.mechanisms.distributed import DistributedGaussian
from collegium.secure.acquaintance import greet, meet
from collegium.wire.orders import Mask

COUNTS = np.arange(5)[:, None] * np.array([1, 10, 100])
Open = Callable[..., tuple[Federation, Disturbed]]


@step(sensitivity=Sensitivity(l2=1.0, relation="add_remove"))
def number(site: ActiveSite, cells: int) -> Counts:
    """The counts that the test handed to this site as its data."""
    return Counts(site.data.X[0].astype(np.int64))


def noisy(fewest: int, multiplier: float = 0.5) -> Order[Any]:
    return number(3).through(DistributedGaussian(multiplier, fewest=fewest)).secretly("secret_counts")


@pytest.fixture
def federation() -> Iterator[Open]:
    """The sites s0 .. s4 over a link that may lose one of them."""
    with ExitStack() as links:

        def hold(party: str = "nobody", asked: str = "") -> Any:
            sites = tuple(cg.Site(f"s{i}", row[None], [0]) for i, row in enumerate(COUNTS))
            inner = LocalLink(Hosting(sites, np.arange(2), None, None, 0, "run 1"))
            links.callback(inner.close)
            link = Disturbed(inner, party, asked, None)
            return Federation(link, run="run 1", n_classes=2, seed=0), link

        yield hold


def test_the_sum_is_that_of_all_counts_with_noise(federation: Open) -> None:
    fed, _ = federation()
    total = fed.total(noisy(4, 0.01))
    assert total.sites == 5
    assert 0.01 < total.noise < 0.2  # where it would be less than whole numbers allow, it is more
    np.testing.assert_allclose(total.counts, COUNTS.sum(axis=0), atol=1)
    assert {row["kind"] for row in fed.observed.releases} == {"Greeting", "Met", "MaskedCounts", "MaskShares"}


def test_a_site_that_drops_out_is_left_out_and_the_claim_stays(federation: Open) -> None:
    fed, _ = federation("s2", "test_secret_counts.number")
    total = fed.total(noisy(4, 0.01))
    assert total.sites == 4
    np.testing.assert_allclose(total.counts, COUNTS[[0, 1, 3, 4]].sum(axis=0), atol=1)


def test_no_site_gives_its_counts_to_fewer_sites_than_its_noise_is_for(federation: Open) -> None:
    fed, _ = federation()
    with pytest.raises(QuorumLost):
        fed.total(noisy(5), ["s0", "s1", "s2", "s3"])
    assert {row["code"] for row in fed.observed.refusals} == {"mask-denied"}
    assert "MaskedCounts" not in {row["kind"] for row in fed.observed.releases}


def test_nothing_leaves_without_a_mask_or_without_noise(federation: Open) -> None:
    fed, _ = federation()
    with pytest.raises(QuorumLost):
        fed.ask(replace(noisy(3), secret=None))
    with pytest.raises(QuorumLost):
        fed.ask(number(3))
    hellos = {party: said.to_plain() for party, said in fed.ask(greet("here")).items()}
    fed.ask(meet("here", hellos))
    mask = Mask("secret_counts", "here", "sum 1", list(fed.parties))
    with pytest.raises(QuorumLost):
        fed.ask(replace(number(3), mask=mask, gives="MaskedCounts"))
    assert {row["code"] for row in fed.observed.refusals} == {"mask-denied"}
    assert {row["kind"] for row in fed.observed.releases} == {"Greeting", "Met"}


def test_two_sites_are_too_few(federation: Open) -> None:
    fed, _ = federation()
    with pytest.raises(ConfigError, match="Secret counts need at least 3 sites"):
        fed.total(noisy(1), ["s0", "s1"])


def test_the_shares_of_all_sites_make_up_the_noise() -> None:
    made = DistributedGaussian(3.0, fewest=8, sensitivity=2.0)
    sums = np.sum([made.release(np.zeros(20_000, dtype=int), seed) for seed in range(8)], axis=0) / made.scale
    assert pytest.approx(made.sigma, rel=0.05) == 6.0
    assert sums.std() == pytest.approx(made.sigma, rel=0.03)
    assert abs(sums.mean()) < 0.2
    assert DistributedGaussian(0.1, fewest=100).scale > 1  # finer than whole numbers, where noise is small
