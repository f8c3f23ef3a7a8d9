from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier
from tests.waiting import seconds

import collegium as cg
from collegium import wire
from collegium.core import ActiveSite, Count, Federation, HardLabels, Labels, Nothing, step
from collegium.core.link import Answer
from collegium.core.public_set import PublicSet
from collegium.errors import ConfigError, QuorumLost, WireError
from collegium.links.hosting import Hosting
from collegium.links.local import LocalLink

U = np.arange(12.0).reshape(6, 2)


@step
def remember(site: ActiveSite, value: int) -> Nothing:
    """Adds to the site's memory."""
    site.state.setdefault("seen", []).append(value)
    return Nothing()


@step
def recall(site: ActiveSite) -> Count:
    """The digits remembered, as a number."""
    return Count(int("".join(map(str, site.state.get("seen", []))) or 0))


@step
def fail_at(site: ActiveSite, name: str) -> Count:
    """Fails at one site."""
    if site.name == name:
        raise RuntimeError("SECRET")
    return Count(1)


@step
def vote(site: ActiveSite, code: int) -> HardLabels:
    """The same label for all."""
    return HardLabels(Labels(np.full(len(site.public), code), site.n_classes))


@step
def wait(site: ActiveSite, name: str) -> Count:
    """One site hangs until released."""
    if site.name == name:
        RELEASE.wait(600)
    return Count(1)


RELEASE = threading.Event()


class Spy:
    """Counts exchanges, and loses what it is told to lose."""

    def __init__(self, inner: LocalLink) -> None:
        self.inner, self.parties, self.count, self.lose = inner, inner.parties, 0, set()
        self.down: list[int] = []

    def exchange(self, orders: Mapping[str, bytes], deadline: float | None) -> Iterator[Answer]:
        self.count += 1
        self.down.append(sum(map(len, orders.values())))
        for answer in self.inner.exchange(orders, deadline):
            if answer.party not in self.lose:
                yield answer


@pytest.fixture
def link():
    sites = [cg.Site(name, U, [0, 1, 2] * 2, learner=DecisionTreeClassifier()) for name in "abc"]
    local = LocalLink(Hosting(tuple(sites), np.arange(3), PublicSet(U), None, 0))
    yield Spy(local)
    local.close()


@pytest.fixture
def fed(link):
    return Federation(link, run="r", n_classes=3, seed=0, public=PublicSet(U))


def test_tell_rides_with_the_next_question(fed, link):
    fed.tell(remember(1))
    fed.tell(remember(2))
    assert link.count == 0
    assert fed.ask(recall()) == {party: Count(12) for party in "abc"}
    assert link.count == 1


def test_flush_delivers_what_was_told(fed, link):
    fed.tell(remember(1))
    fed.flush()
    fed.flush()
    assert link.count == 1
    assert fed.ask(recall())["a"] == Count(1)


def test_orders_may_differ_by_party_and_go_to_some(fed):
    fed.tell({"a": remember(1), "c": remember(3)})
    fed.tell(remember(9), parties=["c"])
    assert fed.ask(recall(), parties=["c", "a"]) == {"a": Count(1), "c": Count(39)}
    assert fed.ask({"b": recall()}) == {"b": Count(0)}


def test_an_order_to_nobody_or_to_a_stranger_is_an_error(fed):
    with pytest.raises(ConfigError):
        fed.ask(recall(), parties=["z"])
    with pytest.raises(ConfigError):
        fed.tell({})


def test_total_sees_the_sum_only(fed):
    votes = fed.total({"a": vote(1), "b": vote(1), "c": vote(2)})
    assert votes.voters == 3
    np.testing.assert_array_equal(votes.tally.counts[:, 0], [0, 2, 1])


def test_what_cannot_be_summed_says_so(fed):
    with pytest.raises(WireError, match="cannot be summed"):
        fed.total(recall())


def test_a_site_that_fails_is_reported_and_the_others_go_on(fed):
    replies = fed.ask(fail_at("b"))
    assert set(replies) == {"a", "c"}
    assert replies.refused == {"b": "step-failed"}
    assert fed.observed.refusals == [
        {"round": 0, "party": "b", "step": "test_federation.fail_at", "code": "step-failed"}
    ]


def test_below_the_quorum_the_run_ends(fed, link):
    with pytest.raises(QuorumLost, match="2 of 3") as caught:
        fed.ask(fail_at("b"), quorum=1.0)
    assert "SECRET" not in str(caught.value)
    assert fed.ask(fail_at("b"), quorum=2 / 3)
    with pytest.raises(QuorumLost):
        fed.ask(fail_at("b"), parties=["b"])
    with pytest.raises(ConfigError):
        Federation(link, run="r", n_classes=3, seed=0, quorum=1.5)


def test_a_silent_site_is_missing_and_hears_the_whole_consensus_next_time(fed, link):
    from collegium.algorithms.fedct import label, train

    L = Labels(np.array([0, 1, 2, 0, 1, 2]), 3)
    link.lose = {"b"}
    fed.tell(train(L, None, None))
    replies = fed.ask(label())
    assert replies.missing == ("b",)
    link.lose = set()
    fed.tell(train(L, None, None))
    assert set(fed.ask(label())) == {"a", "b", "c"}


def test_a_deadline_leaves_a_hanging_site_out(fed):
    RELEASE.clear()
    try:
        replies = fed.ask(wait("b"), deadline=seconds(2))
        assert set(replies) == {"a", "c"}
        assert replies.missing == ("b",)
        again = fed.ask(recall(), deadline=seconds(2))  # b is still busy: the others do not wait for it
        assert set(again) == {"a", "c"}
    finally:
        RELEASE.set()
    assert set(fed.ask(recall())) == {"a", "b", "c"}


def test_the_consensus_goes_down_as_a_difference(link):
    big = np.arange(20_000.0).reshape(-1, 2)
    fed = Federation(link, run="r", n_classes=3, seed=0, public=PublicSet(big))
    rng = np.random.default_rng(0)
    L = Labels(rng.integers(3, size=len(big)), 3)
    changed = L.codes.copy()
    changed[:5] = (changed[:5] + 1) % 3
    for labels in (L, Labels(changed, 3)):
        fed.tell(forget(labels))
        fed.flush()
    assert link.down[0] > 3 * 10_000 * np.log2(3) / 8
    assert link.down[1] < link.down[0] / 4


@step
def forget(site: ActiveSite, L: Labels) -> Nothing:
    """Takes labels and does nothing."""
    return Nothing()


def test_sampling_is_seeded_and_never_empty(link):
    drawn = [Federation(link, run="r", n_classes=3, seed=seed).sample(0.4) for seed in (0, 0, 1, 2, 3, 4, 5)]
    assert drawn[0] == drawn[1]
    assert len(set(drawn)) > 1
    assert Federation(link, run="r", n_classes=3, seed=0).sample(1e-9)
    assert Federation(link, run="r", n_classes=3, seed=0).sample(1.0) == ("a", "b", "c")


def test_rounds_mark_what_happens_in_them(fed):
    for _ in fed.rounds(2):
        fed.ask(recall())
    assert [row["round"] for row in fed.observed.releases] == [0, 0, 0, 1, 1, 1]


def test_a_reply_that_does_not_fit_its_hash_is_refused(fed, link, monkeypatch):
    def forged(orders, deadline):
        for answer in LocalLink.exchange(link.inner, orders, deadline):
            forgery = wire.join(wire.cut(answer.frame)[0], wire.pack({"samples": 99}).data)
            yield answer._replace(frame=forgery) if answer.party == "a" else answer

    monkeypatch.setattr(link, "exchange", forged)
    replies = fed.ask(recall())
    assert replies.refused == {"a": "bad-reply"}
    assert set(replies) == {"b", "c"}


@pytest.mark.parametrize(
    "said",
    [
        {"privacy": "["},
        {"privacy": '{"charges":[{}],"budget":null}'},
        {"kind": "HardLabels"},
        {"bytes": 5},
        {"bytes": "many"},
        {"sha256": "0" * 64},
        {"entry": ["x"]},
        {"more": 1},
    ],
)
def test_a_refusal_that_says_odd_things_of_its_cost_is_a_bad_reply(fed, link, monkeypatch, said):
    nothing = hashlib.sha256(b"").hexdigest()
    row = {"kind": "Refusal", "bytes": 0, "sha256": nothing, "entry": "0" * 64, "privacy": None} | said
    header = {"number": 1, "refused": "step-failed", "step": "x", "row": row}

    def forged(orders, deadline):
        for answer in LocalLink.exchange(link.inner, orders, deadline):
            yield answer._replace(frame=wire.join(header, b"")) if answer.party == "a" else answer

    monkeypatch.setattr(link, "exchange", forged)
    assert fed.ask(recall()).refused == {"a": "bad-reply"}
    assert "a" not in {row["party"] for row in fed.observed.releases}


def test_announce_notes_size_change_and_quality(link):
    truth = np.array([0, 1, 2, 0, 1, 2], dtype=np.int8)
    fed = Federation(link, run="r", n_classes=3, seed=0, public=PublicSet(U), public_truth=truth)
    assert fed.announce(Labels(np.array([0, 1, 0, -1, -1, -1]), 3)) == 3
    assert fed.announce(Labels(np.array([0, 1, 2, -1, -1, -1]), 3)) == 1
    values = {(row["metric"], i // 3): row["value"] for i, row in enumerate(fed.observed.metrics)}
    assert values["consensus_size", 0] == 0.5
    assert values["consensus_quality", 0] == pytest.approx(2 / 3)
    assert values["consensus_quality", 1] == 1.0


def replace_release(link, party: str, plain, kind: str | None = None):
    """A link on which one site sends something else than it was asked for, with the right hash."""
    exchange = link.exchange

    def forged(orders, deadline):
        for answer in exchange(orders, deadline):
            if answer.party == party:
                header = wire.cut(answer.frame)[0]
                payload = wire.pack(plain).data
                row = header["row"]
                row |= {"sha256": hashlib.sha256(payload).hexdigest(), "kind": kind or row["kind"], "bytes": 0}
                answer = answer._replace(frame=wire.join(header, payload))
            yield answer

    link.exchange = forged


@pytest.mark.parametrize(
    ("plain", "kind"),
    [
        ({"labels": 5}, None),
        ({"labels": None}, None),
        ({"labels": Labels(np.array([0, 1]), 3)}, None),
        ({"labels": Labels(np.zeros(6, dtype=int), 4)}, None),
        ({"samples": 3}, "Count"),
        ({}, "Nothing"),
        ({"wrong": 1}, None),
        ([1, 2], None),
    ],
)
def test_a_site_that_sends_something_else_is_left_out(fed, link, plain, kind):
    replace_release(link, "b", plain, kind)
    replies = fed.ask(vote(1))
    assert replies.refused == {"b": "bad-reply"}
    assert set(replies) == {"a", "c"}
    assert fed.total(vote(1)).voters == 2


@pytest.mark.parametrize("samples", [-1, True, 1.5, "many", None])
def test_a_count_is_a_whole_number(fed, link, samples):
    replace_release(link, "b", {"samples": samples})
    assert fed.ask(recall()).refused == {"b": "bad-reply"}
