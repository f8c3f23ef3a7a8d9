"""What every registered consensus rule, and every way to choose voters, must do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import FrozenInstanceError, fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier
from tests.core.exchanges import last_comes_first

import collegium as cg
from collegium import registry
from collegium.algorithms.fedct import label, train
from collegium.consensus import Consensus, Voters
from collegium.core import ActiveSite, Algorithm, Federation, HardLabels, Labels, step
from collegium.core.labels import code_dtype
from collegium.core.link import Answer
from collegium.core.public_set import PublicSet
from collegium.errors import Refused
from collegium.links.hosting import Hosting
from collegium.links.local import LocalLink

Meeting = Callable[..., Federation]
# Settings that make a rule another one.
VARIANTS = {"weighted_majority by agreement": cg.WeightedMajority("agreement"), "sure": cg.DawidSkene(confidence=0.9)}
RULES = [*registry.names("consensus"), *VARIANTS]
every_rule = pytest.mark.parametrize("name", RULES)
every_voters = pytest.mark.parametrize("name", registry.names("voters"))

RNG = np.random.default_rng(0)
TRUTH = RNG.integers(3, size=300)
VOTES = np.where(RNG.random((5, 300)) < 0.8, TRUTH, RNG.integers(3, size=(5, 300)))
VOTES[:, :20] = np.where(RNG.random((5, 20)) < 0.5, -1, VOTES[:, :20])
VOTES[:, :5] = -1  # nobody has an opinion


@step
def say(site: ActiveSite, shy: str) -> HardLabels:
    """The votes that the test handed to this site as its data; one site refuses."""
    if site.name == shy:
        raise Refused("shy", "This site does not want to say.")
    return HardLabels(Labels(site.data.X[0].astype(int), site.n_classes))


class Lossy:
    """A link that loses what some sites say."""

    def __init__(self, inner: LocalLink, lose: str) -> None:
        self.inner, self.parties, self._lose = inner, inner.parties, lose

    def exchange(self, orders: Mapping[str, bytes], deadline: float | None) -> Iterator[Answer]:
        return (answer for answer in self.inner.exchange(orders, deadline) if answer.party != self._lose)


@pytest.fixture
def meeting() -> Iterator[Meeting]:
    """Makes a federation whose i-th site says what the i-th row of `votes` says."""
    with ExitStack() as links:

        def hold(votes: np.ndarray = VOTES, n_classes: int = 3, lose: str = "") -> Federation:
            sites = [cg.Site(f"s{i}", row[None], [0], learner=DecisionTreeClassifier()) for i, row in enumerate(votes)]
            public = PublicSet(np.arange(votes.shape[1])[:, None])
            link = LocalLink(Hosting(tuple(sites), np.arange(n_classes), public, None, 0))
            links.callback(link.close)
            return Federation(Lossy(link, lose), run="r", n_classes=n_classes, seed=0, public=public)

        yield hold


def rule(name: str) -> Consensus:
    return VARIANTS[name] if name in VARIANTS else registry.lookup("consensus", name)()


def is_picky(made: Consensus) -> bool:
    """May it leave a sample without a label though somebody voted?"""
    return bool(getattr(made, "quorum", 0) or getattr(made, "confidence", 0))


@every_rule
def test_it_is_a_frozen_dataclass_that_works_without_settings(name: str) -> None:
    made = rule(name)
    assert isinstance(made, Consensus)
    assert is_dataclass(made)
    for field in fields(made):
        with pytest.raises(FrozenInstanceError):
            setattr(made, field.name, None)
    assert made == rule(name)
    assert type(made).__name__ in repr(made)


@every_rule
@pytest.mark.parametrize("n_classes", [3, 200])
def test_it_gives_one_label_per_sample(meeting: Meeting, name: str, n_classes: int) -> None:
    labels = rule(name)(meeting(n_classes=n_classes), say(""))
    assert isinstance(labels, Labels)
    assert len(labels) == 300
    assert labels.n_classes == n_classes
    assert labels.codes.dtype == code_dtype(n_classes)
    assert set(labels.codes) <= {-1, 0, 1, 2}  # nobody voted for another class


@every_rule
def test_it_is_right_where_all_agree_and_silent_where_all_are(meeting: Meeting, name: str) -> None:
    agreed = np.tile(TRUTH, (5, 1))
    agreed[:, :5] = -1
    expected = np.where(np.arange(300) < 5, -1, TRUTH)
    np.testing.assert_array_equal(rule(name)(meeting(agreed), say("")).codes, expected)


@every_rule
def test_it_labels_every_voted_sample_unless_it_asks_for_more_than_most_votes(meeting: Meeting, name: str) -> None:
    made = rule(name)
    labels = made(meeting(), say(""))
    voted = (VOTES >= 0).any(axis=0)
    assert not labels.known[~voted].any()
    assert is_picky(made) or labels.known[voted].all()
    assert np.mean(labels.codes[labels.known] == TRUTH[labels.known]) > 0.85


@every_rule
def test_it_asks_only_whom_it_is_told_to_ask(meeting: Meeting, name: str) -> None:
    fed = meeting()
    rule(name)(fed, say(""), ["s1", "s3"])
    assert {row["party"] for row in fed.observed.releases} == {"s1", "s3"}


@every_rule
def test_it_survives_a_missing_and_a_refusing_site(meeting: Meeting, name: str) -> None:
    fed = meeting(lose="s1")
    labels = rule(name)(fed, say("s3"))
    assert len(labels) == 300
    assert {row["party"]: row["code"] for row in fed.observed.refusals} == {"s1": "missing", "s3": "shy"}
    assert labels == rule(name)(meeting(VOTES[[0, 2, 4]]), say(""))


@every_rule
def test_it_needs_but_one_site(meeting: Meeting, name: str) -> None:
    lone = VOTES[:1].copy()
    lone[0, 5:] = TRUTH[5:]
    labels = rule(name)(meeting(lone), say(""))
    np.testing.assert_array_equal(labels.codes[labels.known], lone[0][labels.known])
    assert labels.known[5:].mean() > 0.5 if is_picky(rule(name)) else labels.known[5:].all()


@every_rule
def test_it_is_deterministic(meeting: Meeting, name: str) -> None:
    fed = meeting()
    first = rule(name)(fed, say(""))
    assert first == rule(name)(fed, say("")) == rule(name)(meeting(), say(""))


class Compare(Algorithm):
    """Trains once, and then lets every rule speak."""

    asks_for = (train, label, *(each for name in RULES for each in rule(name).asks_for))

    def coordinate(self, fed: Federation) -> None:
        fed.tell(train(None, None, None))
        for name in RULES:
            codes = rule(name)(fed, label()).codes
            for position, code in enumerate(codes):
                fed.note(f"{name}.{position}", int(code))


@pytest.fixture(scope="module")
def compared(digits: Any) -> list[dict[str, float]]:
    """Every rule's labels, whoever answers first."""
    runs = [digits.run(Compare(), test=None)]
    with last_comes_first():
        runs.append(digits.run(Compare(), test=None))
    return [dict(zip(run.metrics["metric"], run.metrics["value"], strict=True)) for run in runs]


@every_rule
def test_it_does_not_matter_who_answers_first(compared: list[dict[str, float]], name: str) -> None:
    usual, other = ([each[f"{name}.{position}"] for position in range(700)] for each in compared)
    assert usual == other
    assert len(set(usual)) > 5


# Voters


@every_voters
def test_voters_are_a_frozen_dataclass_that_works_without_settings(name: str) -> None:
    made = registry.lookup("voters", name)()
    assert isinstance(made, Voters)
    assert made == registry.lookup("voters", name)()
    with pytest.raises(FrozenInstanceError):
        setattr(made, fields(made)[0].name, None)


@every_voters
@pytest.mark.parametrize("rule_name", RULES)
def test_voters_work_with_every_rule(cancer: Any, name: str, rule_name: str) -> None:
    algorithm = cg.FedCT(rounds=2, voters=registry.lookup("voters", name)(), consensus=rule(rule_name))
    run = cancer.run(algorithm)
    assert run.refusals.empty
    also = {"informed": {"AnswerCounts"}, "guarded": {"AnswerCounts"}}.get(
        rule_name, set()
    )  # what sites tell this rule of themselves
    assert set(run.releases["kind"]) <= {"HardLabels", "Count"} | also
    assert len(run.labels) == 370
    assert run.labels.known.any()
