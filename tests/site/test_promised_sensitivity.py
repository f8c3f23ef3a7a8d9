"""A coordinator names the noise. What one record may change, and what private fits owe, it does not name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from tests.site.real_sites import ask, charges, open_really, rows

import collegium as cg
from collegium.algorithms import fedaux, fedct
from collegium.core import ActiveSite, Nothing, step
from collegium.core.releases import Numbers, VoteCounts
from collegium.errors import ConfigError
from collegium.site.agent import Agent

STRICT = cg.Policy(requires="dp", unprotected=())


@step(sensitivity=cg.Sensitivity(l1=3.0, l2=2.0, relation="add_remove"))
def bounded_sum(site: ActiveSite) -> Numbers:
    """Numbers of a declared sensitivity."""
    return Numbers(np.clip(site.data.X, -1, 1).sum(axis=0))


def _by_clip(args: Mapping[str, Any]) -> cg.Sensitivity:
    return cg.Sensitivity(l2=2 * args["clip"])


@step(sensitivity=_by_clip)
def clipped_sum(site: ActiveSite, clip: float) -> Numbers:
    """Numbers whose sensitivity follows from an argument."""
    return Numbers(np.clip(site.data.X[:, 0], -clip, clip).sum(keepdims=True))


@step
def bare_sum(site: ActiveSite) -> Numbers:
    """Numbers of which nobody says how much one record changes them."""
    return Numbers(np.asarray(site.data.X.sum(axis=0)))


@step(sensitivity=cg.Sensitivity(changed_votes=2, unit="party"))
def two_votes(site: ActiveSite) -> VoteCounts:
    """Votes, two of which a party may change."""
    site.data.opened()
    return VoteCounts(np.tile([5, 3], (4, 1)))


@step
def only_fit(site: ActiveSite) -> Nothing:
    """Lets the site's learner have its rows."""
    site.fit(site.data)
    return Nothing()


@step
def read_rows(site: ActiveSite) -> Nothing:
    """Reads rows as they are."""
    site.data.opened()
    return Nothing()


def site(**settings: Any) -> Agent:
    return open_really(cg.Site("ukb", *rows(), **{"policy": STRICT, **settings}))


PRIVATE = cg.PrivateVoting(teachers=10, epsilon=0.9)
RESPONSE = {"name": "randomized_response", "epsilon": 0.5}


@pytest.mark.parametrize("noise", [{"name": "gaussian", "sigma": 1e-9}, {"name": "laplace", "scale": 1e-9}])
def test_a_promised_sensitivity_of_next_to_nothing_is_not_believed(noise: dict[str, Any]) -> None:
    header, payload = ask(site(), 1, bounded_sum(), mechanism={**noise, "sensitivity": 1e-12})
    assert (header["refused"], payload) == ("mechanism-denied", b"")


@pytest.mark.parametrize("promise", [{"unit": "party"}, {"relation": "any"}, {"sensitivity": 1.9}])
def test_another_unit_or_relation_is_not_believed_either(promise: dict[str, Any]) -> None:
    header, _ = ask(site(), 1, bounded_sum(), mechanism={"name": "gaussian", "sigma": 4.0, **promise})
    assert header["refused"] == "mechanism-denied"


def test_noise_is_charged_by_its_spread_over_what_the_step_declares() -> None:
    gaussian, _ = ask(site(), 1, bounded_sum(), mechanism={"name": "gaussian", "sigma": 4.0})
    (charge,) = charges(gaussian)
    assert (charge["relation"], charge["unit"]) == ("add_remove", "record")
    assert charge["events"][0]["noise_multiplier"] == 2.0
    laplace, _ = ask(site(), 1, bounded_sum(), mechanism={"name": "laplace", "epsilon": 0.5})
    assert charges(laplace)[0]["events"][0]["noise_multiplier"] == pytest.approx(2.0)  # scale 3 / .5, over 3
    votes, _ = ask(site(), 1, two_votes(), mechanism={"name": "laplace_noisy_max", "gamma": 0.1})
    assert charges(votes)[0]["unit"] == "party"
    assert charges(votes)[0]["events"][0] == {"event": "Pure", "count": 4, "epsilon": 0.4}


def test_a_sensitivity_may_follow_from_the_arguments() -> None:
    header, _ = ask(site(), 1, clipped_sum(3.0), mechanism={"name": "gaussian", "sigma": 12.0})
    assert charges(header)[0]["events"][0]["noise_multiplier"] == 2.0
    with pytest.raises(ConfigError, match="depends on 'clip'"):
        clipped_sum.sensitivity({})


@pytest.mark.parametrize("order", [bare_sum(), fedaux.score({}, np.arange(9), 5.0, 0.1, 0.9, 1e-5)])
def test_a_step_that_declares_nothing_has_no_noise_on_its_numbers(order: Any) -> None:
    header, _ = ask(site(), 1, order, mechanism={"name": "gaussian", "sigma": 1e9, "sensitivity": 1e-12})
    assert "refused" in header


def test_a_mechanism_does_not_replace_the_bill_of_a_private_fit() -> None:
    agent = site(learner=PRIVATE)
    first, _ = ask(agent, 1, only_fit(), fedct.label(), mechanism=RESPONSE)
    (charge,) = charges(first)
    assert charge["events"][0]["event"] == "Gaussian"  # the fit's; noise on what is paid for costs nothing more
    second, _ = ask(agent, 2, fedct.label(), mechanism=RESPONSE)
    assert charges(second)[0]["events"] == []


def test_sixty_releases_through_a_mechanism_do_not_outspend_a_budget(tmp_path) -> None:
    private = cg.Site("ukb", *rows(), learner=PRIVATE, policy=STRICT, budget=cg.Budget(1.0))
    codes = []
    for run in (f"{number:032x}" for number in range(3)):
        agent = open_really(private, tmp_path, run=run)
        codes.append(ask(agent, 1, only_fit(), fedct.label(), mechanism=RESPONSE, run=run)[0].get("refused"))
    assert codes == [None, "budget-exhausted", "budget-exhausted"]
    assert cg.privacy.spent(tmp_path / "ledger.db")["ukb"] == pytest.approx(0.9)


def test_where_rows_were_read_too_both_are_billed() -> None:
    agent = site(learner=PRIVATE)
    header, _ = ask(agent, 1, only_fit(), read_rows(), fedct.label(), mechanism=RESPONSE)
    assert [each["events"][0]["event"] for each in charges(header)] == ["RandomizedResponse", "Gaussian"]
    again, _ = ask(agent, 2, fedct.label(), mechanism=RESPONSE)
    assert [each["events"][0]["event"] for each in charges(again)] == ["RandomizedResponse"]


def test_what_a_fit_owes_is_not_forgotten_where_something_leaves_unprotected() -> None:
    agent = site(learner=PRIVATE, policy=cg.Policy(requires="dp", unprotected=("HardLabels",)))
    bare, _ = ask(agent, 1, only_fit(), read_rows(), fedct.label())
    assert bare["privacy"] is None
    noisy, _ = ask(agent, 2, fedct.label(), mechanism=RESPONSE)
    assert [each["events"][0]["event"] for each in charges(noisy)] == ["RandomizedResponse", "Gaussian"]


def test_a_sensitivity_of_nothing_is_an_error() -> None:
    with pytest.raises(ConfigError, match="at least one of l1, l2"):
        cg.Sensitivity()
    with pytest.raises(ConfigError, match="l2"):
        cg.Sensitivity(l2=-1)
