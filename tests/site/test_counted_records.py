"""How many records a site has is private data: no release made of it counts as protected."""

from __future__ import annotations

import numpy as np
import pytest
from tests.site.real_sites import ask, open_really, rows

import collegium as cg
from collegium.algorithms import _semi_supervised
from collegium.consensus import weighted
from collegium.core import ActiveSite, step
from collegium.core.releases import Numbers

PRIVATE = cg.PrivateVoting(teachers=10, epsilon=0.9)


@step
def size_as_number(site: ActiveSite) -> Numbers:
    """Hides the number of records in a kind that may be protected."""
    return Numbers(np.array([float(site.records)]))


@step
def unlabeled_as_number(site: ActiveSite) -> Numbers:
    """The same for rows without labels."""
    return Numbers(np.array([float(len(site.unlabeled))]))


@pytest.mark.parametrize(
    "order",
    [_semi_supervised.count_labels(), weighted.sample_count(), size_as_number(), unlabeled_as_number()],
    ids=lambda order: order.step,
)
@pytest.mark.parametrize("settings", [{"policy": cg.Policy(requires="dp", unprotected=())}, {"budget": cg.Budget(2.0)}])
def test_a_count_does_not_leave_as_if_no_private_data_was_used(order, settings) -> None:
    for n in (100, 101):
        agent = open_really(cg.Site("ukb", *rows(n), learner=PRIVATE, **settings))
        header, payload = ask(agent, 1, order)
        assert (header["refused"], payload) == ("unprotected", b"")


def test_where_a_policy_allows_it_a_count_leaves_as_unprotected() -> None:
    agent = open_really(cg.Site("ukb", *rows(), learner=PRIVATE))
    header, _ = ask(agent, 1, weighted.sample_count())
    assert header["privacy"] is None


def test_a_claim_of_a_real_site_does_not_say_how_many_records_there_are() -> None:
    assumed = {"name": "randomized_response", "epsilon": 1.0, "sensitivity": "assumed_stability", "stability_rate": 0.1}
    from collegium.algorithms import fedct

    agent = open_really(cg.Site("ukb", *rows(173), learner=PRIVATE))
    header, _ = ask(agent, 1, fedct.train(None, None, None), weighted.sample_count(), fedct.label(), mechanism=assumed)
    assert "173" not in header["privacy"]
