from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest

from collegium.errors import ConfigError
from collegium.protocols import ProtocolError, Reused
from collegium.protocols.hamming import plain
from collegium.protocols.hamming.masked import LONGEST, Server, Site

rng = np.random.default_rng(0)
KEY = bytes(range(32))
CODES = {name: rng.integers(0, 2, (rows, 64), dtype=np.uint8) for name, rows in (("a", 5), ("b", 1), ("c", 7))}
POINTS = {name: len(codes) for name, codes in CODES.items()}


def site(party: str, session: str = "s") -> Site:
    return Site(CODES[party], party, KEY, session, POINTS)


def test_all_pairs_of_three_restarted_sites() -> None:
    sites = {party: site(party) for party in CODES}
    server = Server(64)
    for party, each in sites.items():
        server.add(party, POINTS[party], each.codes())
    sites = pickle.loads(pickle.dumps(sites))
    for a, b in itertools.permutations(CODES, 2):
        if a < b:
            shares = sites[a].share(b), sites[b].share(a)
            found = server.distances(a, shares[0], b, shares[1])
            assert np.array_equal(found, plain.distances(CODES[a], CODES[b]))
            assert np.array_equal(server.distances(b, shares[1], a, shares[0]), found.T)


def test_who_drops_out_after_its_codes_takes_no_pair_of_the_others_along() -> None:
    sites = {party: site(party) for party in CODES}
    server = Server(64)
    for party, each in sites.items():
        server.add(party, POINTS[party], each.codes())
    found = server.distances("a", sites["a"].share("b"), "b", sites["b"].share("a"))
    assert np.array_equal(found, plain.distances(CODES["a"], CODES["b"]))


def test_all_that_the_server_sees_is_uniform(looks_uniform: Any) -> None:
    zeros, ones = np.zeros((100, 300), np.uint8), np.ones((120, 300), np.uint8)
    points = {"a": 100, "b": 120}
    a, b = Site(zeros, "a", KEY, "s", points), Site(ones, "b", KEY, "s", points)
    for message in (a.codes(), b.codes(), a.share("b"), b.share("a")):
        assert looks_uniform(message)


def test_messages_go_out_once_and_differ_by_session() -> None:
    one, other = site("a", "s"), site("a", "t")
    assert not np.array_equal(one.codes(), other.codes())
    one.share("b")
    with pytest.raises(Reused):
        one.codes()
    with pytest.raises(Reused):
        one.share("b")
    one.share("c")


def test_the_longest_codes() -> None:
    long = np.zeros((1, LONGEST), np.uint8)
    points = {"a": 1, "b": 1}
    a, b = Site(long, "a", KEY, "s", points), Site(1 - long, "b", KEY, "s", points)
    server = Server(LONGEST)
    server.add("a", 1, a.codes())
    server.add("b", 1, b.codes())
    assert server.distances("a", a.share("b"), "b", b.share("a")) == [[LONGEST]]
    with pytest.raises(ConfigError, match="at most"):
        Site(np.zeros((1, LONGEST + 1), np.uint8), "a", KEY, "s", points)


def test_sites_are_checked() -> None:
    with pytest.raises(ConfigError, match="key of 32 bytes"):
        Site(CODES["a"], "a", b"short", "s", POINTS)
    with pytest.raises(ConfigError, match="its own points"):
        Site(CODES["a"], "a", KEY, "s", {"a": 4})
    with pytest.raises(ConfigError, match="no partner"):
        site("a").share("x")


def test_the_server_names_who_sends_nonsense() -> None:
    a, b = site("a"), site("b")
    server = Server(64)
    with pytest.raises(ProtocolError, match="'a' sent"):
        server.add("a", 5, a.codes()[:4])
    server.add("b", 1, b.codes())
    with pytest.raises(ProtocolError, match="'b' sends its codes twice"):
        server.add("b", 1, np.zeros((1, 64), np.uint16))
    a = site("a")
    server.add("a", 5, a.codes())
    shares = a.share("b"), b.share("a")
    with pytest.raises(ProtocolError, match="'b' sent"):
        server.distances("a", shares[0], "b", shares[1].astype(float))
    with pytest.raises(ProtocolError, match="'a', 'b'"):
        server.distances("a", shares[0] + np.uint16(1), "b", shares[1])
