from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from collegium.core.tally import Tally
from collegium.errors import CollegiumWarning, ConfigError
from collegium.protocols import ProtocolError, Reused
from collegium.protocols.masked_sum import MaskedSum, SumServer, votes, width

PARTIES = ("a", "b", "c", "d")
LABELS = {party: np.random.default_rng(i).integers(-1, 3, 200) for i, party in enumerate(PARTIES)}


def counted(parties: Any) -> Any:
    tally = Tally(200, 3, len(PARTIES))
    for party in parties:
        tally.add(LABELS[party])
    return tally.counts


def test_votes_are_counted_without_anybody_seeing_them(meet: Any, looks_uniform: Any) -> None:
    sites = meet(*PARTIES)
    server = SumServer(PARTIES, (3, 200))
    for party, session in sites.items():
        masked = MaskedSum(session).submit("round 1", votes(LABELS[party], 3), PARTIES)
        assert masked is not None
        assert masked.dtype == np.uint8
        assert looks_uniform(masked)
        server.add(party, masked)
    assert np.array_equal(server.total(), counted(PARTIES))


def test_the_words_are_as_narrow_as_the_sum_allows() -> None:
    assert [width(1, sites).itemsize for sites in (255, 256, 65_535, 65_536)] == [1, 2, 2, 4]
    assert width(2**32, 3).itemsize == 8
    with pytest.raises(ConfigError, match="64 bits"):
        width(2**62, 4)
    with pytest.raises(ConfigError, match="at least"):
        width(0, 3)


def test_a_sum_that_fills_its_words_is_right(meet: Any) -> None:
    sites = meet("a", "b", "c")
    server = SumServer("abc", (2,), most=85)
    for party, session in sites.items():
        server.add(party, MaskedSum(session).submit("r", np.array([85, 0]), "abc", most=85))
    assert server.total().tolist() == [255, 0]
    assert server.total().dtype == np.uint8


@pytest.mark.parametrize("bad", [np.array([2]), np.array([-1]), np.array([0.5])])
def test_values_out_of_range_are_refused_at_the_site(meet: Any, bad: Any) -> None:
    with pytest.raises(ConfigError, match=r"0 \.\. 1"):
        MaskedSum(meet("a", "b", "c")["a"]).submit("r", bad, "abc")


def test_a_drop_out_is_overcome_in_a_fresh_round(meet: Any) -> None:
    sessions = meet(*PARTIES)
    sums = {party: MaskedSum(session) for party, session in sessions.items()}
    server = SumServer(PARTIES, (3, 200))
    for party in "abd":
        server.add(party, sums[party].submit("1", votes(LABELS[party], 3), PARTIES))
    assert server.missing == ("c",)
    with pytest.raises(ProtocolError, match="'c' did not submit"):
        server.total()
    again = SumServer("abd", (3, 200))
    for party in "abd":
        with pytest.raises(Reused, match="second time"):
            MaskedSum(sessions[party]).submit("1", votes(LABELS[party], 3), "abd")
        again.add(party, sums[party].submit("2", votes(LABELS[party], 3), "abd"))
    assert np.array_equal(again.total(), counted("abd"))


def test_masks_of_two_rounds_have_nothing_in_common(meet: Any, looks_uniform: Any) -> None:
    site = MaskedSum(meet(*PARTIES)["a"])
    values = votes(np.zeros(5000, np.int8), 3)
    one, two = site.submit("1", values, PARTIES), site.submit("2", values, PARTIES)
    other_company = site.submit("3", values, "abc")
    assert one is not None
    assert two is not None
    assert other_company is not None
    assert looks_uniform(one - two)
    assert looks_uniform(two - other_company)


@pytest.mark.parametrize("late", [(), ("b",), ("b", "d")])
def test_a_keeper_lets_late_sites_be_left_out(meet: Any, late: tuple[str, ...]) -> None:
    sums = {party: MaskedSum(session, "recipient") for party, session in meet(*PARTIES).items()}
    server = SumServer(PARTIES, (3, 200), keeper="c")
    for party, site in sums.items():
        masked = site.submit("1", votes(LABELS[party], 3), PARTIES, keeper="c")
        if party == "c":
            assert masked is None
        elif party not in late:
            server.add(party, masked)
    assert server.missing == late
    keeper = pickle.loads(pickle.dumps(sums["c"]))
    if len(late) == 2:
        with pytest.warns(CollegiumWarning, match="Only 2"):
            answer = keeper.unmask("1", server.senders)
    else:
        answer = keeper.unmask("1", server.senders)
    assert np.array_equal(server.total(answer), counted(set(PARTIES) - set(late)))
    with pytest.raises(Reused, match="asks again"):
        keeper.unmask("1", ["a"])


@pytest.mark.parametrize("senders", [[], ["a", "a"], ["x"], ["c"]])
def test_the_keeper_names_a_server_that_asks_for_others_masks(meet: Any, senders: list[str]) -> None:
    keeper = MaskedSum(meet("a", "b", "c")["c"], "recipient")
    keeper.submit("1", np.array([1]), "abc", keeper="c")
    with pytest.raises(ProtocolError, match="'server'"):
        keeper.unmask("1", senders)


def test_the_server_names_sites_that_send_nonsense(meet: Any) -> None:
    server = SumServer("abc", (4,))
    for bad in (np.zeros(4), np.zeros(5, np.uint8), [0, 0, 0, 0]):
        with pytest.raises(ProtocolError, match="'a' sent"):
            server.add("a", bad)
    server.add("a", np.zeros(4, np.uint8))
    with pytest.raises(Reused, match="'a' submits twice"):
        server.add("a", np.zeros(4, np.uint8))
    with pytest.raises(ProtocolError, match="'x'"):
        server.add("x", np.zeros(4, np.uint8))
    server.add("b", np.zeros(4, np.uint8))
    server.add("c", np.full(4, 77, np.uint8))
    with pytest.raises(ProtocolError, match="impossible"):
        server.total()


def test_two_sites_are_warned(meet: Any) -> None:
    with pytest.warns(CollegiumWarning, match="Only 2 sites"):
        MaskedSum(meet("a", "b")["a"]).submit("1", np.array([1]), "ab")


def test_company_and_mode_are_checked(meet: Any) -> None:
    session = meet("a", "b", "c")["a"]
    with pytest.raises(ConfigError, match="pairwise or recipient"):
        MaskedSum(session, "plain")
    for participants in ("bcd", "abx"):
        with pytest.raises(ConfigError, match="needs this site"):
            MaskedSum(session).submit("1", np.array([1]), participants)
    with pytest.raises(ConfigError, match="keeper"):
        MaskedSum(session).submit("1", np.array([1]), "abc", keeper="b")
    with pytest.raises(ConfigError, match="keeper"):
        MaskedSum(session, "recipient").submit("1", np.array([1]), "abc")
