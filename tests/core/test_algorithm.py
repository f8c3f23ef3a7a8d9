"""What an algorithm and its rules declare."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

import collegium as cg
from collegium.core import ActiveSite, Algorithm, Count, Federation, Nothing, Steps, step
from collegium.errors import ConfigError


@step
def work(site: ActiveSite) -> Nothing:
    """Does nothing."""
    return Nothing()


@step
def count(site: ActiveSite) -> Count:
    """Tells something."""
    return Count(1)


class Undeclared(Algorithm):
    """Asks without having said so."""

    def coordinate(self, fed: Federation) -> None:
        fed.ask(count())


@dataclass(frozen=True)
class Declared(Undeclared):
    """Says that it tells sites to work; what it asks depends on its settings."""

    asks_for: ClassVar[Steps] = (work, count)
    asks: bool = False
    rule: cg.WeightedMajority = field(default_factory=cg.WeightedMajority)
    inner: cg.LocalLabelPropagation | None = None

    def unasked(self) -> Steps:
        return () if self.asks else (count,)


def test_an_algorithm_that_declares_no_steps_is_told_what_to_add(cancer: Any) -> None:
    with pytest.raises(ConfigError, match=r"Undeclared does not declare .*: add the class variable asks_for"):
        cancer.run(Undeclared())


def test_an_order_for_a_step_that_is_not_declared_is_an_error_at_the_coordinator(cancer: Any) -> None:
    with pytest.raises(ConfigError, match=r"asked for test_algorithm.count, which .* asks_for"):
        cancer.run(Declared())
    assert set(cancer.run(Declared(asks=True)).releases["step"]) == {"test_algorithm.count"}


def test_rules_and_methods_among_the_settings_declare_their_own() -> None:
    own = {"test_algorithm.work", "scores.score", "scores.measure"}
    assert Declared().all_steps().keys() == own | {"weighted.sample_count"}
    by_agreement = Declared(asks=True, rule=cg.WeightedMajority("agreement"), inner=cg.LocalLabelPropagation())
    assert by_agreement.all_steps().keys() == own | {"test_algorithm.count", "local_label_propagation.propagate"}


def test_a_way_to_choose_voters_declares_its_step() -> None:
    @dataclass(frozen=True)
    class Nobody(cg.Voters):
        def order(self, communication: int) -> None:
            return None

    with pytest.raises(ConfigError, match="Nobody does not declare"):
        cg.FedCT(voters=Nobody()).all_steps()
