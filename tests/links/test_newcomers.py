"""Sites that join between rounds, and what a record knows of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from collegium.core.federation import Federation
from collegium.core.link import Answer, OpenLink
from collegium.links.replay import ReplayLink
from collegium.runs.record import Record


class Door:
    """A link at which one more site stands when it is asked for the second time."""

    def __init__(self) -> None:
        self.parties: tuple[str, ...] = ("a",)
        self.asked = 0

    def exchange(self, orders: Mapping[str, bytes], deadline: float | None) -> Iterator[Answer]:
        yield from (Answer(party, frame) for party, frame in orders.items())

    def newcomers(self) -> tuple[str, ...]:
        self.asked += 1
        return ("b",) if self.asked == 2 else ()


class Closed:
    """A link that nobody joins: it need not know of newcomers."""

    parties = ("a",)

    def exchange(self, orders: Mapping[str, bytes], deadline: float | None) -> Iterator[Answer]:
        yield from ()


def test_a_newcomer_is_a_party_from_the_next_round_on() -> None:
    fed = Federation(Door(), run="run", n_classes=2, seed=0)
    assert [fed.parties for _ in fed.rounds(3)] == [("a",), ("a", "b"), ("a", "b")]


def test_a_link_without_newcomers_is_a_link() -> None:
    assert not isinstance(Closed(), OpenLink)
    fed = Federation(Closed(), run="run", n_classes=2, seed=0)
    assert [fed.parties for _ in fed.rounds(2)] == [("a",), ("a",)]


def test_the_record_knows_who_joined_before_which_exchange(tmp_path: Path) -> None:
    about = {"run": "run"}
    record = Record(tmp_path / "record", about, resume=False)
    link = ReplayLink(Door(), record)
    seen = []
    for _ in range(3):
        seen.append(link.newcomers())
        list(link.exchange({"a": b"x"}, None))
    record.close()
    again = Record(tmp_path / "record", about, resume=True)
    nobody = Door()
    nobody.asked = 10
    replayed = ReplayLink(nobody, again)
    told = []
    for _ in range(3):
        told.append(replayed.newcomers())
        list(replayed.exchange({"a": b"x"}, None))
    assert told == seen == [(), ("b",), ()]
    assert nobody.asked == 10, "the sites are not asked again for what is recorded"
    again.close()
