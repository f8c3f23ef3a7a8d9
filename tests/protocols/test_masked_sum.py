"""Masked sums: how many, never whose; and of one set of values one sum only, whoever drops out, and when."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from collegium.core.tally import Tally
from collegium.errors import CollegiumWarning, ConfigError
from collegium.protocols import ProtocolError, Reused
from collegium.protocols.masked_sum import MaskedSum, Submission, SumServer, majority, own_mask, votes, width
from collegium.protocols.sharing import joined

PARTIES = ("a", "b", "c", "d")
LABELS = {party: np.random.default_rng(i).integers(-1, 3, 200) for i, party in enumerate(PARTIES)}
SHAPE = (3, 200)


def counted(parties: Any) -> Any:
    tally = Tally(200, 3, len(PARTIES))
    for party in parties:
        tally.add(LABELS[party])
    return tally.counts


class Sum:
    """Four sites and what they send, in one round after the other."""

    def __init__(self, meet: Any) -> None:
        self.sites = {party: MaskedSum(member) for party, member in meet(*PARTIES).items()}

    def submit(self, name: str, here: Iterable[str] = PARTIES) -> tuple[SumServer, dict[str, Submission]]:
        sent = {party: self.sites[party].submit(name, votes(LABELS[party], 3), tuple(here)) for party in here}
        return SumServer(tuple(here), SHAPE), sent

    def open(self, server: SumServer, name: str, openers: Iterable[str]) -> None:
        for party in openers:
            shares, faults = self.sites[party].open(name, server.letters_for(party))
            assert not faults
            server.opened(party, shares)


@pytest.fixture
def four(meet: Any) -> Sum:
    return Sum(meet)


def add(server: SumServer, sent: dict[str, Submission], parties: Iterable[str]) -> None:
    for party in parties:
        server.add(party, sent[party])


def test_votes_are_counted_without_anybody_seeing_them(four: Sum, looks_uniform: Any) -> None:
    server, sent = four.submit("1")
    for each in sent.values():
        assert each.words.dtype == np.uint8
        assert looks_uniform(each.words)
    add(server, sent, PARTIES)
    assert looks_uniform(sum(each.words for each in sent.values()))  # before the own masks are opened, so is the sum
    with pytest.raises(ProtocolError, match="before enough"):
        server.total()
    four.open(server, "1", PARTIES)
    assert np.array_equal(server.total(), counted(PARTIES))
    assert np.array_equal(server.total(), counted(PARTIES))


def test_with_its_own_mask_opened_a_sites_votes_are_still_masked(four: Sum, looks_uniform: Any) -> None:
    server, sent = four.submit("1")
    add(server, sent, PARTIES)
    four.open(server, "1", PARTIES)
    for party in PARTIES:
        key = joined(server._shares[party])
        assert key is not None
        assert looks_uniform(sent[party].words - own_mask(key, SHAPE, np.dtype("u1")))


@pytest.mark.parametrize("openers", ["abc", "bcd", "dab"])
def test_who_drops_out_while_masks_are_opened_is_not_needed(four: Sum, openers: str) -> None:
    server, sent = four.submit("1")
    add(server, sent, PARTIES)
    four.open(server, "1", openers[:2])
    assert not server.readable
    four.open(server, "1", openers[2:])
    assert server.readable
    assert np.array_equal(server.total(), counted(PARTIES))


def test_nothing_is_opened_while_a_site_is_missing_and_its_late_message_says_nothing(
    four: Sum, looks_uniform: Any
) -> None:
    first, late = four.submit("1")
    add(first, late, "abd")
    assert first.missing == ("c",)
    with pytest.raises(ProtocolError, match="'c' did not submit"):
        first.letters_for("a")
    second, sent = four.submit("2", "abd")
    add(second, sent, "abd")
    four.open(second, "2", "abd")
    assert np.array_equal(second.total(), counted("abd"))
    # Now the server has c's message as well. The sum of the first round less that of the second would be c's votes.
    first.add("c", late["c"])
    for party in "abd":
        with pytest.raises(Reused, match="no longer"):
            four.sites[party].open("1", first.letters_for(party))
    four.open(first, "1", "c")  # its own share is one of three that are needed
    assert not first.readable
    everybody = sum(each.words.astype(np.uint8) for each in late.values())
    assert looks_uniform(everybody - second.total())


def test_who_has_opened_a_round_does_not_open_it_again(four: Sum) -> None:
    server, sent = four.submit("1")
    add(server, sent, PARTIES)
    site = pickle.loads(pickle.dumps(four.sites["a"]))
    site.open("1", server.letters_for("a"))
    with pytest.raises(Reused, match="no longer"):
        site.open("1", server.letters_for("a"))
    with pytest.raises(Reused, match="'server' asks to open round 'other'"):
        four.sites["b"].open("other", server.letters_for("b"))


def test_two_groups_that_could_open_two_rounds_have_a_member_in_common() -> None:
    for sites in range(2, 40):
        assert 2 * majority(sites) > sites
        assert majority(sites) <= sites


def test_a_server_that_passes_on_other_letters_is_named(four: Sum) -> None:
    server, sent = four.submit("1")
    add(server, sent, PARTIES)
    letters = server.letters_for("a")
    with pytest.raises(ProtocolError, match="leaves out"):
        four.sites["a"].open("1", {party: letters[party] for party in "bc"})
    assert four.sites["a"].open("1", letters | {"b": letters["c"], "c": letters["b"]}) == ({}, ["b", "c"])
    assert four.sites["b"].open("1", server.letters_for("b") | {"d": np.zeros(9, np.uint8)}) == ({}, ["d"])


def test_letters_belong_to_their_round_and_company(four: Sum) -> None:
    first, sent = four.submit("1", "abc")
    add(first, sent, "abc")
    other = {party: site.submit("2", votes(LABELS[party], 3), "abcd") for party, site in four.sites.items()}
    letters = {party: sent[party].letters["a"] for party in "bc"} | {"d": other["d"].letters["a"]}
    assert four.sites["a"].open("2", letters) == ({}, ["b", "c"])


def test_a_round_is_bound_to_its_participants(meet: Any) -> None:
    """The same name with other company: what was sealed for one is nothing in the other."""
    members = meet("a", "b", "c", "d")
    mine, theirs = MaskedSum(members["a"]), MaskedSum(members["b"])
    mine.submit("1", np.array([1]), "abc")
    sent = theirs.submit("1", np.array([1]), "abd")
    own = MaskedSum(members["c"]).submit("1", np.array([1]), "abc")
    assert mine.open("1", {"b": sent.letters["a"], "c": own.letters["a"]}) == ({}, ["b"])


def test_who_forgets_opens_nothing(four: Sum) -> None:
    server, sent = four.submit("1")
    add(server, sent, PARTIES)
    four.sites["a"].forget()
    with pytest.raises(Reused, match="no longer"):
        four.sites["a"].open("1", server.letters_for("a"))


def test_a_share_that_was_changed_is_seen(four: Sum) -> None:
    server, sent = four.submit("1")
    add(server, sent, PARTIES)
    shares, _ = four.sites["a"].open("1", server.letters_for("a"))
    wrong = shares | {"b": shares["b"] ^ np.uint8(1)}
    with pytest.raises(ProtocolError, match="do not agree") as seen:
        server.opened("a", wrong)
    assert seen.value.parties == ("b", "a")
    with pytest.raises(ProtocolError, match="does not open"):
        server.opened("a", {"b": shares["b"]})
    with pytest.raises(ProtocolError, match="'a' sent"):
        server.opened("a", shares | {"b": shares["b"][:5]})
    four.open(server, "1", "bcd")  # enough without it
    assert np.array_equal(server.total(), counted(PARTIES))


def test_a_site_that_deals_out_shares_of_nothing_is_named(four: Sum) -> None:
    server, sent = four.submit("1")
    sent["b"] = replace(sent["b"], key_digest="0" * 64)
    add(server, sent, PARTIES)
    four.open(server, "1", PARTIES)
    with pytest.raises(ProtocolError, match="'b' dealt out"):
        server.total()


def test_a_site_deals_out_its_mask_to_all(four: Sum) -> None:
    server, sent = four.submit("1")
    short = {party: letter for party, letter in sent["a"].letters.items() if party != "b"}
    with pytest.raises(ProtocolError, match="'a' does not deal"):
        server.add("a", replace(sent["a"], letters=short))
    with pytest.raises(ProtocolError, match="'a' does not deal"):
        server.add("a", replace(sent["a"], digests={"a": "0" * 64}))


def test_the_words_are_as_narrow_as_the_sum_allows() -> None:
    assert [width(1, sites).itemsize for sites in (255, 256, 65_535, 65_536)] == [1, 2, 2, 4]
    assert width(2**32, 3).itemsize == 8
    with pytest.raises(ConfigError, match="64 bits"):
        width(2**62, 4)
    with pytest.raises(ConfigError, match="at least"):
        width(0, 3)


@pytest.mark.parametrize(("most", "values"), [(85, [85, 0]), (2**20, [2**20, 7])])
def test_a_sum_that_fills_its_words_is_right(meet: Any, most: int, values: list[int]) -> None:
    sites = {party: MaskedSum(member) for party, member in meet("a", "b", "c").items()}
    server = SumServer("abc", (2,), most=most)
    for party, site in sites.items():
        server.add(party, site.submit("r", np.array(values), "abc", most=most))
    for party in "ab":
        server.opened(party, sites[party].open("r", server.letters_for(party))[0])
    assert server.total().tolist() == [3 * value for value in values]
    assert server.total().dtype == width(most, 3)


@pytest.mark.parametrize("bad", [np.array([2]), np.array([-1]), np.array([0.5])])
def test_values_out_of_range_are_refused_at_the_site(meet: Any, bad: Any) -> None:
    with pytest.raises(ConfigError, match=r"0 \.\. 1"):
        MaskedSum(meet("a", "b", "c")["a"]).submit("r", bad, "abc")


def test_a_rounds_name_is_used_once(meet: Any) -> None:
    member = meet(*PARTIES)["a"]
    MaskedSum(member).submit("1", votes(LABELS["a"], 3), PARTIES)
    with pytest.raises(Reused, match="second time"):
        MaskedSum(member).submit("1", votes(LABELS["a"], 3), "abd")


def test_masks_of_two_rounds_have_nothing_in_common(meet: Any, looks_uniform: Any) -> None:
    site = MaskedSum(meet(*PARTIES)["a"])
    values = votes(np.zeros(5000, np.int8), 3)
    one, two = site.submit("1", values, PARTIES), site.submit("2", values, PARTIES)
    other_company = site.submit("3", values, "abc")
    assert looks_uniform(one.words - two.words)
    assert looks_uniform(two.words - other_company.words)
    assert not set(one.digests.values()) & set(two.digests.values())


def test_an_own_mask_belongs_to_its_key(looks_uniform: Any) -> None:
    one, two = (own_mask(key, (3, 4000), np.dtype("u1")) for key in (b"1" * 32, b"2" * 32))
    assert looks_uniform(one)
    assert looks_uniform(one - two)


def test_the_server_names_sites_that_send_nonsense(four: Sum) -> None:
    server, sent = four.submit("1")
    for bad in (np.zeros(SHAPE), np.zeros(5, np.uint8), [[0]]):
        with pytest.raises(ProtocolError, match="'a' sent"):
            server.add("a", replace(sent["a"], words=bad))
    server.add("a", sent["a"])
    with pytest.raises(Reused, match="'a' submits twice"):
        server.add("a", sent["a"])
    with pytest.raises(ProtocolError, match="'x'"):
        server.add("x", sent["a"])
    add(server, sent, "bc")
    server.add("d", replace(sent["d"], words=sent["d"].words + np.uint8(77)))
    four.open(server, "1", PARTIES)
    with pytest.raises(ProtocolError, match="impossible"):
        server.total()


def test_two_sites_are_warned(meet: Any) -> None:
    with pytest.warns(CollegiumWarning, match="Only 2 sites"):
        MaskedSum(meet("a", "b")["a"]).submit("1", np.array([1]), "ab")


def test_company_is_checked(meet: Any) -> None:
    member = meet("a", "b", "c")["a"]
    for participants in ("bcd", "abx", "abbcc"):
        with pytest.raises(ConfigError, match="needs this site"):
            MaskedSum(member).submit("1", np.array([1]), participants)
