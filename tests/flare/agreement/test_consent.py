"""What an owner reads before signing: what is found and enforced at the site, whatever a coordinator writes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from collegium import registry
from collegium.core.public_set import PublicSet
from collegium.flare.agreement.consent import consent
from collegium.flare.agreement.disclosure import COORDINATOR, ENFORCED, FOUND, Consent
from collegium.flare.agreement.plan import Plan
from collegium.flare.agreement.planning import plan_of
from collegium.flare.site.file import SiteFile
from collegium.study.study import Study

PUBLIC = np.random.default_rng(0).normal(size=(120, 3))
FILE = SiteFile.model_validate({"name": "north", "data": {"source": "rows.csv"}, "learner": "decision_tree"})


def plan_for(algorithm: dict[str, object], rounds: int = 4) -> Plan:
    table = {"data": {"source": "x.csv"}, "algorithm": {"rounds": rounds} | algorithm}
    return plan_of(Study.from_dict(table), PUBLIC, ["no", "yes"], ["north", "south", "east"])


def read(plan: Plan, public: PublicSet | None = PublicSet(PUBLIC)) -> Consent:  # noqa: B008 - it is never changed
    return consent(Plan.from_plain(plan.to_plain()), FILE, public, "1 run")


def words(found: Consent, source: str) -> str:
    return "\n".join(f"{line.what}: {line.words}" for line in found.lines if line.source == source)


@pytest.fixture(scope="module")
def honest() -> Plan:
    return plan_for({"name": "fedct"})


def test_an_honest_plan_raises_no_warning(honest: Plan) -> None:
    found = read(honest)
    assert not found.warnings
    assert "HardLabels by fedct.label, at most 4 times" in words(found, ENFORCED)
    assert "each site's HardLabels" in words(found, FOUND)
    label = next(step for step in honest.steps if step.step == "fedct.label")
    assert f"about {label.bytes} bytes each" in words(found, FOUND)
    assert "when a round ends, unless the study does without" in words(found, FOUND), "scores"
    assert words(found, COORDINATOR).startswith("study: 'study'")


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "fedct", "votes": "secret"},
        {"name": "fedct", "period": 3},
        {"name": "fedct", "mechanism": {"name": "randomized_response", "epsilon": 2.0}},
        {"name": "fedct", "rounds": 40},
        {"name": "fedct", "rounds": 40, "patience": 2},
        *[{"name": name} for name in ("aimhi", "fedkt", "local", "fedavg", "scaffold", "xclp", "fedprox", "dd")],
    ],
    ids=str,
)
@pytest.mark.slow
def test_no_honest_plan_raises_a_warning(algorithm: dict[str, object]) -> None:
    cls = registry.lookup("algorithm", algorithm["name"])
    learner = {"name": "torch", "net": "linear"} if cls.needs else "decision_tree"
    table = {"data": {"source": "x.csv"}, "algorithm": algorithm, "sites": [{"learner": learner, "prepare": "none"}]}
    plan = plan_of(Study.from_dict(table), PUBLIC, ["no", "yes"], ["north", "south", "east"])
    file = FILE.model_copy(update={"learner": learner, "prepare": "none"})
    found = consent(plan, file, PublicSet(PUBLIC), "1 run")
    assert not found.warnings
    assert "not found out here" not in words(found, FOUND)


def test_counts_and_bytes_that_a_coordinator_makes_up_are_not_shown_as_facts(honest: Plan) -> None:
    lie = replace(honest, steps=tuple(replace(step, releases=1, bytes=8) for step in honest.steps))
    found = read(lie)
    assert "8 bytes each" not in words(found, FOUND)
    assert any("says 8 bytes" in warning for warning in found.warnings)


def test_more_than_the_method_needs_is_a_warning(honest: Plan) -> None:
    greedy = replace(honest, steps=tuple(replace(step, most=step.most * 15) for step in honest.steps))
    found = read(greedy)
    assert "fedct.label, at most 60 times" in words(found, ENFORCED)
    assert any("allows fedct.label 60 times in a run; the method needs 4" in warning for warning in found.warnings)


def test_a_lie_about_the_public_set_is_a_warning(honest: Plan) -> None:
    assert any("120" in warning for warning in read(replace(honest, public_rows=7)).warnings)


def test_without_the_public_set_numbers_are_the_coordinators_words(honest: Plan) -> None:
    found = read(honest, public=None)
    assert "bytes each" in words(found, COORDINATOR)
    assert "bytes each" not in words(found, FOUND)
    assert "the public set is not here" in words(found, FOUND)


def test_settings_that_break_a_rehearsal_do_not_break_the_screen(honest: Plan) -> None:
    broken = replace(honest, classes=tuple(range(500)))  # more classes than any learner has rows for
    assert read(broken).lines[0].words == broken.digest


def test_a_plan_that_cannot_be_rehearsed_is_a_warning(honest: Plan) -> None:
    """Else settings that break the rehearsal would hide what it finds, also from --yes."""
    found = read(replace(honest, algorithm={"name": "fedavg"}))  # for which this site has no net
    assert any("could not be rehearsed here" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    "settings",
    [{"name": "xclp", "bits": 10**9}, pytest.param({"name": "fedkt", "partitions": 10**9}, marks=pytest.mark.slow)],
    ids=str,
)
def test_settings_that_keep_a_rehearsal_busy_for_ever_do_not_keep_the_owner_waiting(
    honest: Plan, settings: dict[str, object]
) -> None:
    endless = Plan.from_plain(replace(honest, algorithm=settings).to_plain())
    found = consent(endless, FILE, PublicSet(PUBLIC), "1 run", seconds=6.0)
    assert any("the rehearsal was ended" in warning for warning in found.warnings)


def test_a_rehearsal_in_a_process_of_its_own_finds_the_same(honest: Plan) -> None:
    assert consent(honest, FILE, PublicSet(PUBLIC), "1 run", seconds=300.0) == read(honest)


def test_text_among_the_settings_does_not_pass_for_another_setting() -> None:
    plan = plan_for({"name": "fedct", "votes": "secret"})
    assert "votes = 'secret'" in words(read(plan), ENFORCED)


def test_secret_votes_say_who_sees_the_sum() -> None:
    assert "sum" in words(read(plan_for({"name": "fedct", "votes": "secret"})), FOUND)
