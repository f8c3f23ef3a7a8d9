from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from collegium.errors import CollegiumWarning, ConfigError
from collegium.protocols import ProtocolError, Reused
from collegium.protocols.masks import MODES
from collegium.protocols.row_sums import RowSums, RowSumServer

SIZES = {"a": 3, "b": 1, "c": 5, "d": 2}
rng = np.random.default_rng(0)
BLOCKS = {party: {owner: 50 * rng.standard_normal((rows, 4)) for owner, rows in SIZES.items()} for party in SIZES}


def truth(owner: str, parties: Any) -> Any:
    return np.sum([BLOCKS[party][owner] for party in parties], axis=0)


def among(blocks: dict[str, Any], parties: Any) -> dict[str, Any]:
    return {owner: block for owner, block in blocks.items() if owner in parties}


def server_for(parties: Any, mode: str) -> RowSumServer:
    return RowSumServer(among(SIZES, parties), 4, mode)


@pytest.mark.parametrize("mode", MODES)
def test_every_site_gets_the_sum_of_its_own_rows(meet: Any, mode: str, looks_uniform: Any) -> None:
    sums = {party: RowSums(member, mode) for party, member in meet(*SIZES).items()}
    server = server_for(SIZES, mode)
    for party, site in sums.items():
        submission = site.submit("1", BLOCKS[party])
        assert party not in submission
        server.add(party, submission)
    sums = pickle.loads(pickle.dumps(sums))
    for party, answer in server.answers().items():
        assert np.abs(sums[party].finish("1", answer) - truth(party, SIZES)).max() < 3e-9


@pytest.mark.parametrize("mode", MODES)
def test_the_server_sees_noise(meet: Any, mode: str, looks_uniform: Any) -> None:
    sites = {party: RowSums(member, mode) for party, member in meet("a", "b", "c").items()}
    blocks = {party: np.zeros((500, 4)) for party in "abc"}
    server = RowSumServer(dict.fromkeys("abc", 500), 4, mode)
    for party, site in sites.items():
        submission = site.submit("1", blocks)
        for block in submission.values():
            assert looks_uniform(block)
        server.add(party, submission)
    for answer in server.answers().values():
        assert looks_uniform(answer["sum"])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("lost", SIZES)
def test_who_drops_out_before_the_round_is_left_out_with_its_rows(meet: Any, mode: str, lost: str) -> None:
    sums = {party: RowSums(member, mode) for party, member in meet(*SIZES).items() if party != lost}
    server = server_for(sums, mode)
    for party, site in sums.items():
        submission = site.submit("1", among(BLOCKS[party], sums))
        assert lost not in submission
        server.add(party, submission)
    for party, answer in server.answers().items():
        assert np.allclose(sums[party].finish("1", answer), truth(party, sums), atol=1e-8)


def test_pairwise_starts_again_without_the_lost_rows(meet: Any, looks_uniform: Any) -> None:
    sums = {party: RowSums(member) for party, member in meet(*SIZES).items()}
    server = server_for(SIZES, "pairwise")
    first = {party: site.submit("1", BLOCKS[party]) for party, site in sums.items()}
    for party in "abd":
        server.add(party, first[party])
    assert server.missing == ("c",)
    with pytest.raises(ProtocolError, match="fresh name"):
        server.answers()
    again = server_for("abd", "pairwise")
    for party in "abd":
        with pytest.raises(Reused):
            sums[party].submit("1", among(BLOCKS[party], "abd"))
        submission = sums[party].submit("2", among(BLOCKS[party], "abd"))
        with pytest.raises(ProtocolError, match="rows of other sites"):
            again.add(party, first[party])
        again.add(party, submission)
    answers = again.answers()
    assert set(answers) == set("abd")
    for party, answer in answers.items():
        assert np.allclose(sums[party].finish("2", answer), truth(party, "abd"), atol=1e-8)
    # The lost site's message comes late: even with it, the first round's sums lack the owners' shares.
    server.add("c", first["c"])
    for party, answer in server.answers().items():
        assert np.abs(answer["sum"].view(np.int64) / 2.0**32 - truth(party, SIZES)).min() > 1e-3


@pytest.mark.parametrize("lost", [("c",), ("a", "c")])
def test_recipient_goes_on_without_starting_again(meet: Any, lost: tuple[str, ...]) -> None:
    sums = {party: RowSums(member, "recipient") for party, member in meet(*SIZES).items()}
    server = server_for(SIZES, "recipient")
    there = [party for party in SIZES if party not in lost]
    for party, site in sums.items():
        submission = site.submit("1", BLOCKS[party])
        if party in there:
            server.add(party, submission)
    answers = server.answers()
    assert set(answers) == set(there)
    for party, answer in answers.items():
        if len(there) < 3:
            with pytest.warns(CollegiumWarning, match="Only 2"):
                result = sums[party].finish("1", answer)
        else:
            result = sums[party].finish("1", answer)
        assert np.allclose(result, truth(party, there), atol=1e-8)


@pytest.mark.parametrize("mode", MODES)
def test_who_drops_out_at_the_end_leaves_the_others_their_sums(meet: Any, mode: str) -> None:
    sums = {party: RowSums(member, mode) for party, member in meet(*SIZES).items()}
    server = server_for(SIZES, mode)
    for party, site in sums.items():
        server.add(party, site.submit("1", BLOCKS[party]))
    answers = server.answers()
    del answers["b"]
    for party, answer in answers.items():
        assert np.allclose(sums[party].finish("1", answer), truth(party, SIZES), atol=1e-8)


def test_a_round_is_finished_once(meet: Any) -> None:
    sums = {party: RowSums(member) for party, member in meet("a", "b", "c").items()}
    server = server_for("abc", "pairwise")
    for party, site in sums.items():
        server.add(party, site.submit("1", among(BLOCKS[party], "abc")))
    answer = server.answers()["a"]
    sums["a"].finish("1", answer)
    with pytest.raises(Reused, match="not open"):
        sums["a"].finish("1", answer)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ({"sum": np.zeros((2, 4), np.uint64), "from": ["b", "c"]}, "expected uint64"),
        ({"sum": np.zeros((3, 4)), "from": ["b", "c"]}, "expected uint64"),
        ({"sum": np.zeros((3, 4), np.uint64), "from": ["b", "x"]}, "names senders"),
        ({"sum": np.zeros((3, 4), np.uint64), "from": ["b", "b"]}, "names senders"),
        ({"sum": np.zeros((3, 4), np.uint64), "from": "bc"}, "names senders"),
        ({"sum": np.zeros((3, 4), np.uint64), "from": ["b"]}, r"without \['c'\]"),
        ({}, "expected uint64"),
    ],
)
def test_a_server_that_answers_nonsense_is_named(meet: Any, answer: dict[str, Any], why: str) -> None:
    site = RowSums(meet("a", "b", "c")["a"])
    site.submit("1", among(BLOCKS["a"], "abc"))
    with pytest.raises(ProtocolError, match=f"'server' .*{why}"):
        site.finish("1", answer)


def test_sites_that_submit_nonsense_are_named(meet: Any) -> None:
    good = RowSums(meet("a", "b", "c")["a"]).submit("1", among(BLOCKS["a"], "abc"))
    server = server_for("abc", "pairwise")
    for bad in (good | {"b": good["b"][:, :3]}, good | {"b": good["b"].astype(float)}, good | {"b": 5}):
        with pytest.raises(ProtocolError, match="'a' sent"):
            server.add("a", bad)
    for bad in ({"b": good["b"]}, good | {"a": good["b"]}):
        with pytest.raises(ProtocolError, match="'a' submits rows of other sites"):
            server.add("a", bad)
    server.add("a", good)
    with pytest.raises(Reused, match="twice"):
        server.add("a", good)
    with pytest.raises(ProtocolError, match="does not take part"):
        server.add("x", good)


@pytest.mark.parametrize(("bad", "why"), [(np.nan, "finite"), (np.inf, "finite"), (2.0**30, "scale them")])
def test_values_that_cannot_be_summed_are_refused(meet: Any, bad: float, why: str) -> None:
    blocks = {party: np.full((2, 2), bad) for party in "abc"}
    with pytest.raises(ConfigError, match=why):
        RowSums(meet("a", "b", "c")["a"]).submit("1", blocks)


def test_rows_are_tables(meet: Any) -> None:
    with pytest.raises(ConfigError, match="table"):
        RowSums(meet("a", "b", "c")["a"]).submit("1", dict.fromkeys("abc", np.zeros(3)))
    with pytest.raises(ConfigError, match="as many columns"):
        RowSums(meet("a", "b", "c")["a"]).submit(
            "1", {"a": np.zeros((1, 2)), "b": np.zeros((1, 2)), "c": np.zeros((1, 3))}
        )


def test_two_sites_are_warned(meet: Any) -> None:
    with pytest.warns(CollegiumWarning, match="Only 2 sites"):
        RowSums(meet("a", "b")["a"]).submit("1", dict.fromkeys("ab", np.zeros((1, 1))))
