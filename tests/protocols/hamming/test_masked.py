from __future__ import annotations

import itertools
import pickle
from typing import Any

import numpy as np
import pytest

from collegium.errors import ConfigError
from collegium.protocols import ProtocolError, Reused
from collegium.protocols.hamming import LONGEST, plain
from collegium.protocols.hamming.masked import Server, Site

rng = np.random.default_rng(0)
KEY = bytes(range(32))
SKETCHES = {name: rng.integers(0, 2, (rows, 64), dtype=np.uint8) for name, rows in (("a", 5), ("b", 1), ("c", 7))}
POINTS = {name: len(sketches) for name, sketches in SKETCHES.items()}


def site(party: str, circle: str = "s") -> Site:
    return Site(SKETCHES[party], party, KEY, circle, POINTS)


def test_all_pairs_of_three_restarted_sites() -> None:
    sites = {party: site(party) for party in SKETCHES}
    server = Server(64)
    for party, each in sites.items():
        server.add(party, POINTS[party], each.sketches())
    sites = pickle.loads(pickle.dumps(sites))
    for a, b in itertools.permutations(SKETCHES, 2):
        if a < b:
            shares = sites[a].share(b), sites[b].share(a)
            found = server.distances(a, shares[0], b, shares[1])
            assert np.array_equal(found, plain.distances(SKETCHES[a], SKETCHES[b]))
            assert np.array_equal(server.distances(b, shares[1], a, shares[0]), found.T)


def test_who_drops_out_after_its_sketches_takes_no_pair_of_the_others_along() -> None:
    sites = {party: site(party) for party in SKETCHES}
    server = Server(64)
    for party, each in sites.items():
        server.add(party, POINTS[party], each.sketches())
    found = server.distances("a", sites["a"].share("b"), "b", sites["b"].share("a"))
    assert np.array_equal(found, plain.distances(SKETCHES["a"], SKETCHES["b"]))


def test_all_that_the_server_sees_is_uniform(looks_uniform: Any) -> None:
    zeros, ones = np.zeros((100, 300), np.uint8), np.ones((120, 300), np.uint8)
    points = {"a": 100, "b": 120}
    a, b = Site(zeros, "a", KEY, "s", points), Site(ones, "b", KEY, "s", points)
    for message in (a.sketches(), b.sketches(), a.share("b"), b.share("a")):
        assert looks_uniform(message)


def test_messages_go_out_once_and_differ_by_circle() -> None:
    one, other = site("a", "s"), site("a", "t")
    assert not np.array_equal(one.sketches(), other.sketches())
    one.share("b")
    with pytest.raises(Reused):
        one.sketches()
    with pytest.raises(Reused):
        one.share("b")
    one.share("c")


def test_the_longest_sketches() -> None:
    longest = LONGEST["masked"]
    long = np.zeros((1, longest), np.uint8)
    points = {"a": 1, "b": 1}
    a, b = Site(long, "a", KEY, "s", points), Site(1 - long, "b", KEY, "s", points)
    server = Server(longest)
    server.add("a", 1, a.sketches())
    server.add("b", 1, b.sketches())
    assert server.distances("a", a.share("b"), "b", b.share("a")) == [[longest]]
    with pytest.raises(ConfigError, match="at most"):
        Site(np.zeros((1, longest + 1), np.uint8), "a", KEY, "s", points)


def test_sites_are_checked() -> None:
    with pytest.raises(ConfigError, match="key of 32 bytes"):
        Site(SKETCHES["a"], "a", b"short", "s", POINTS)
    with pytest.raises(ConfigError, match="its own points"):
        Site(SKETCHES["a"], "a", KEY, "s", {"a": 4})
    with pytest.raises(ConfigError, match="no partner"):
        site("a").share("x")


def test_the_server_names_who_sends_nonsense() -> None:
    a, b = site("a"), site("b")
    server = Server(64)
    with pytest.raises(ProtocolError, match="'a' sent"):
        server.add("a", 5, a.sketches()[:4])
    server.add("b", 1, b.sketches())
    with pytest.raises(ProtocolError, match="'b' sends its sketches twice"):
        server.add("b", 1, np.zeros((1, 64), np.uint16))
    a = site("a")
    server.add("a", 5, a.sketches())
    shares = a.share("b"), b.share("a")
    with pytest.raises(ProtocolError, match="'b' sent"):
        server.distances("a", shares[0], "b", shares[1].astype(float))
    with pytest.raises(ProtocolError, match="'a', 'b'"):
        server.distances("a", shares[0] + np.uint16(1), "b", shares[1])
