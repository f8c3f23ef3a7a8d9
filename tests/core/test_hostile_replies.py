"""One site sends nonsense, in every way that comes to mind: it is named, and the others' result is as without it."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB
from tests.wire.mutations import mutated_bytes, mutated_words

import collegium as cg
from collegium import wire
from collegium.algorithms.fedct import label
from collegium.core.federation import Federation
from collegium.core.labels import Labels
from collegium.core.link import Answer
from collegium.core.public_set import PublicSet
from collegium.core.releases import HardLabels
from collegium.links.local import LocalLink
from collegium.wire.orders import read_header
from collegium.wire.replies import Reply, Row, read_reply, write_reply

U = np.arange(60.0).reshape(30, 2)
OPINIONS = {"s0": [0, 1, 2] * 10, "s1": [1] * 30, "s2": [0, 1, 1] * 10}


class Chorus:
    """A link to sites that always say the same; what s1 says is changed before it arrives."""

    parties = tuple(OPINIONS)

    def __init__(self, change: Callable[[bytes], bytes]) -> None:
        self._change = change
        packed = {party: wire.pack({"labels": Labels(np.array(codes), 3)}) for party, codes in OPINIONS.items()}
        self._said = {party: (each, wire_row(each)) for party, each in packed.items()}

    def exchange(self, orders: Mapping[str, bytes], deadline: float | None) -> Iterator[Answer]:
        for party, frame in orders.items():
            packed, row = self._said[party]
            reply = write_reply(Reply(read_header(frame)[0].last, row, packed.data))
            yield Answer(party, self._change(reply) if party == "s1" else reply)


def wire_row(packed: wire.Packed) -> Row:
    return Row("HardLabels", packed.content_bytes, hashlib.sha256(packed.data).hexdigest(), "0" * 64, None)


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_changed_replies_reach_a_running_coordinator(count: int) -> None:
    rng = random.Random(0)

    def change(reply: bytes) -> bytes:
        return mutated_words(reply, rng) if rng.random() < 0.5 else mutated_bytes(reply, rng)

    fed = Federation(Chorus(change), run="r", n_classes=3, seed=0, public=PublicSet(U))
    honest = {party: OPINIONS[party] for party in ("s0", "s2")}
    named = 0
    for _ in range(count // 2):
        replies = fed.ask(label())
        assert {party: replies[party].labels.codes.tolist() for party in honest} == honest
        assert set(replies) | set(replies.refused) == set(OPINIONS)
        if "s1" in replies:  # as valid as an honest opinion
            assert isinstance(replies["s1"], HardLabels)
            assert len(replies["s1"].labels) == len(U)
        votes = fed.total(label())
        if votes.voters == 2:
            named += 1
            assert votes.tally.counts[:, 0].tolist() == [2, 0, 0]
            assert votes.tally.counts[:, 2].tolist() == [0, 1, 1]
    assert named > 0.4 * count
    rows = fed.observed.refusals
    assert {row["party"] for row in rows} == {"s1"}
    assert {type(row["code"]) for row in rows} == {str}
    assert not fed.observed.metrics, "no site writes into the run's metrics"


def sites() -> list[cg.Site]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 4))
    y = (X[:, 0] > 0).astype(int)
    return [cg.Site(f"s{i}", X[20 * i : 20 * i + 20], y[20 * i : 20 * i + 20], learner=GaussianNB()) for i in range(3)]


PUBLIC = np.random.default_rng(1).normal(size=(30, 4))


def run(monkeypatch: pytest.MonkeyPatch, change: Callable[[bytes], bytes] | None, **options: Any) -> cg.Run:
    """FedCT, with what s1 sends changed on the way (None: it says nothing at all)."""
    exchange = LocalLink.exchange

    def changed(self: LocalLink, orders: Mapping[str, bytes], deadline: float | None) -> Iterator[Answer]:
        for answer in exchange(self, orders, deadline):
            if answer.party != "s1":
                yield answer
            elif change is not None:
                yield answer._replace(frame=change(answer.frame))

    with monkeypatch.context() as patched:
        patched.setattr(LocalLink, "exchange", changed)
        with pytest.warns(cg.CollegiumWarning, match="s1"):
            return cg.run(cg.FedCT(rounds=2), sites=sites(), public=PUBLIC, **options)


def with_header(words: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[[bytes], bytes]:
    def change(reply: bytes) -> bytes:
        header, payload = wire.cut(reply)
        return wire.join(words(header), payload)

    return change


def wrapped(reply: bytes) -> bytes:
    return wire.join({"notes": 5}, reply)


def without_bytes(header: dict[str, Any]) -> dict[str, Any]:
    del header["row"]["bytes"]
    return header


BAD = {
    "wrapped in notes": wrapped,
    "without bytes": with_header(without_bytes),
    "bytes that are a word": with_header(lambda header: header | {"row": header["row"] | {"bytes": "many"}}),
    "an entry that is a list": with_header(lambda header: header | {"row": header["row"] | {"entry": ["x"]}}),
    "a step that is a table": lambda reply: wire.join({"number": 1, "refused": "x", "step": {"a": 1}}, b""),
    "another order's reply": with_header(lambda header: header | {"number": 999}),
    "nothing": lambda reply: b"",
}


@pytest.mark.parametrize("how", BAD)
def test_a_bad_reply_is_the_sites_own_affair(how: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    bad = run(monkeypatch, BAD[how], out=tmp_path / "run")
    silent = run(monkeypatch, None)
    assert set(bad.refusals["code"]) == {"bad-reply"}
    assert set(bad.refusals["party"]) == {"s1"}
    assert bad.labels.codes.tolist() == silent.labels.codes.tolist()
    # The record holds what was sent: read again, it is as bad as before and ends nothing.
    with pytest.warns(cg.CollegiumWarning, match="s1"):
        again = cg.run(cg.FedCT(rounds=2), sites=sites(), public=PUBLIC, out=tmp_path / "run", resume=True)
    assert again.labels.codes.tolist() == bad.labels.codes.tolist()
    assert set(again.refusals["code"]) == {"bad-reply"}


def test_a_sites_notes_are_not_in_its_frame() -> None:
    link = LocalLink(_hosting())
    try:
        fed = Federation(link, run="r", n_classes=2, seed=0, public=PublicSet(PUBLIC))
        frames: list[bytes] = []
        exchange = link.exchange

        def kept(orders: Mapping[str, bytes], deadline: float | None) -> Iterator[Answer]:
            for answer in exchange(orders, deadline):
                frames.append(answer.frame)
                yield answer

        link.exchange = kept  # type: ignore[method-assign]
        cg.FedCT(rounds=1).coordinate(fed)
    finally:
        link.close()
    assert all(isinstance(read_reply(frame), Reply) for frame in frames)
    assert all(set(wire.cut(frame)[0]) == {"number", "row"} for frame in frames)
    assert any(row["seconds_fit"] > 0 for row in fed.observed.costs.values()), "and yet they arrived"


def _hosting() -> Any:
    from collegium.links.hosting import Hosting

    return Hosting(tuple(sites()), np.arange(2), PublicSet(PUBLIC), None, 0)
