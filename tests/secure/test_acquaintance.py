"""Letters between sites: who may write, how often, and who is named when one of them does otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

from collegium.secure.acquaintance import culprits, relay
from collegium.secure.messages import Letters

LETTER = np.zeros(3, np.uint8)
Says = Callable[[int, dict[str, Any]], Letters]


class Table:
    """Stands in for a federation: each party says something every turn, knowing what it has just got."""

    def __init__(self, **says: Says) -> None:
        self._says, self.turns = says, 0
        self.got: list[tuple[int, str, str]] = []

    def ask(self, orders: dict[str, dict[str, Any]]) -> dict[str, Letters]:
        self.got += [(self.turns, sender, party) for party, letters in orders.items() for sender in letters]
        said = {party: self._says[party](self.turns, letters) for party, letters in orders.items()}
        self.turns += 1
        return said

    def relay(self, most: int) -> tuple[list[str], list[tuple[str, ...]]]:
        fed: Any = self
        order: Any = lambda letters: letters  # noqa: E731 - an order is its letters here
        return relay(fed, order, sorted(self._says), most)


def write(*receivers: str, faults: Iterable[str] = ()) -> Letters:
    return Letters(dict.fromkeys(receivers, LETTER), list(faults))


def opener(*others: str) -> Says:
    """Opens, and answers once more."""
    return lambda turn, got: write(*others) if not turn else write(*(got if turn == 2 else ()))


def answerer(turn: int, got: dict[str, Any]) -> Letters:
    return write(*got)


def endless(*others: str) -> Says:
    return lambda turn, got: write(*others)


def test_letters_are_carried_until_nobody_writes() -> None:
    table = Table(a=opener("b", "c"), b=answerer, c=answerer)
    assert table.relay(4) == (["a", "b", "c"], [])
    assert table.turns == 5
    assert table.got[:2] == [(1, "a", "b"), (1, "a", "c")]
    assert len(table.got) == 8


def test_of_nobody_who_writes_one_turn_is_enough() -> None:
    table = Table(a=endless(), b=endless())
    assert table.relay(100) == (["a", "b"], [])
    assert table.turns == 1


def test_two_that_never_stop_are_named_when_everybody_must_be_through() -> None:
    table = Table(a=opener("b"), b=answerer, c=endless("d"), d=endless("c"))
    here, accusations = table.relay(4)
    assert table.turns == 5
    assert here == ["a", "b", "c", "d"]
    assert culprits(accusations) == ["c", "d"]


def test_who_has_been_accused_writes_to_the_wind() -> None:
    def accuses(turn: int, got: dict[str, Any]) -> Letters:
        return write(faults=got)

    table = Table(a=accuses, b=accuses, c=endless("a", "b"))
    assert culprits(table.relay(1000)[1]) == ["c"]
    assert table.turns == 2


def test_a_conversation_that_was_let_drop_is_not_taken_up_again() -> None:
    """Otherwise a could wait so long that b, which answers at once, would be the one to write when time is up."""
    late: Says = lambda turn, got: write("b") if turn in (0, 3, 5) else write()  # noqa: E731
    busy = Table(a=late, b=answerer, c=opener("d"), d=answerer)
    _, accusations = busy.relay(4)
    assert culprits(accusations) == ["a"]
    assert ("b",) not in accusations


def test_where_nobody_has_anything_to_write_the_first_letter_is_too_much() -> None:
    table = Table(a=endless("b"), b=endless())
    assert table.relay(0) == (["a", "b"], [("a",)])
    assert table.turns == 1


@pytest.mark.parametrize(
    ("accusations", "named"),
    [
        ([], []), ([("a",)], ["a"]), ([("a", "b")], ["a", "b"]), ([("a", "b"), ("a", "c")], ["a"]),
        ([("a", "b"), ("a",)], ["a"]), ([("a", "b"), ("c", "d"), ("c", "a")], ["a", "c"]),
    ],
)  # fmt: skip
def test_whom_to_leave_out(accusations: list[tuple[str, ...]], named: list[str]) -> None:
    assert culprits(accusations) == named
