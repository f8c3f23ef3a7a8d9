from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.wire.mutations import ODD

from collegium import wire
from collegium.core.labels import Labels
from collegium.errors import WireError
from collegium.wire.orders import (
    Header,
    Mask,
    OrderReader,
    Request,
    read_header,
    read_orders,
    with_header,
    write_orders,
)

LABELS = Labels(np.array([0, 1, 1, 0]), 2)
FIRST = Request("r", "p", 1, 0, "fedct.train", "d", {"L": LABELS, "epochs": None, "steps": 3})
MASK = Mask("secret_votes", "circle", "sum 2", ["a", "b"], "sum 1")
LAST = Request("r", "p", 2, 0, "fedct.label", "d", {}, {"name": "unary_encoding", "epsilon": 1.0}, MASK)


def frame(*requests: Request) -> bytes:
    return with_header(requests[-1], write_orders(requests))


def read(data: bytes) -> list[Request]:
    return read_orders(*read_header(data))


def test_orders_are_read_as_they_were_written() -> None:
    assert read(frame(FIRST, LAST)) == [FIRST, LAST]
    assert read_header(frame(FIRST, LAST))[0] == Header("r", 2, "p")


def test_orders_without_a_header_are_the_same_for_all() -> None:
    assert write_orders([FIRST, LAST]) == write_orders([replace(FIRST), replace(LAST)])


def test_labels_can_be_written_against_known_ones() -> None:
    known = wire.KnownLabels()
    known.remember(LABELS)
    header, orders = read_header(with_header(FIRST, write_orders([FIRST], LABELS)))
    assert read_orders(header, orders, known) == [FIRST]
    with pytest.raises(WireError):
        read_orders(header, orders)


@pytest.mark.parametrize("word", ["number", "round", "step", "digest", "args", "mechanism", "mask", "more"])
@pytest.mark.parametrize("value", ODD, ids=repr)
def test_an_order_with_something_odd_is_none(word: str, value: Any) -> None:
    plain = wire.unpack(write_orders([FIRST]))["orders"][0]
    fits = {
        "number": value == 1 and value is not True,
        "round": value in (0, 1) and value is not True,
        "step": isinstance(value, str) and value != "",
        "digest": isinstance(value, str),
        "args": isinstance(value, dict),
        "mechanism": value is None or isinstance(value, dict),
        "mask": value is None,
        "more": False,
    }[word]
    data = wire.join({"run": "r", "last": 1, "public": "p"}, wire.pack({"orders": [plain | {word: value}]}).data)
    if fits:
        assert len(read(data)) == 1
    else:
        with pytest.raises(WireError):
            read(data)


@pytest.mark.parametrize("word", ["run", "last", "public", "more"])
@pytest.mark.parametrize(
    "value", [value for value in ODD if value is not None and not isinstance(value, str)], ids=repr
)
def test_a_header_with_something_odd_is_none(word: str, value: Any) -> None:
    if word == "last" and value in (0, 1) and value is not True:
        return
    with pytest.raises(WireError):
        read_header(wire.join({"run": "r", "last": 1, "public": None} | {word: value}, b""))


@pytest.mark.parametrize("orders", [[], {}, None, 5, [5], [None], [[]], "text"])
def test_no_orders_are_an_error(orders: Any) -> None:
    with pytest.raises(WireError):
        read(wire.join({"run": "r", "last": 1, "public": None}, wire.pack({"orders": orders}).data))


@pytest.mark.parametrize("word", ["protocol", "circle", "round", "participants", "again", "more"])
def test_a_mask_is_read_strictly(word: str) -> None:
    plain = wire.unpack(write_orders([LAST]))["orders"][0]
    plain["mask"] |= {word: 5}
    with pytest.raises(WireError):
        read(wire.join({"run": "r", "last": 2, "public": None}, wire.pack({"orders": [plain]}).data))


def test_the_last_number_is_the_one_in_the_header() -> None:
    with pytest.raises(WireError, match="last order"):
        read(with_header(FIRST, write_orders([FIRST, LAST])))


def _frame(args, mask=None) -> bytes:
    request = Request("r", None, 1, 0, "a.step", "0", args, None, mask)
    return with_header(request, write_orders([request]))


def test_what_many_sites_are_sent_is_read_once_where_nobody_can_change_it():
    reader, known = OrderReader(shares=True), wire.KnownLabels(keep=1)
    frame = _frame({"L": Labels(np.zeros(10, dtype=int), 2), "epochs": 3, "steps": None})
    first, again = (reader.orders(*reader.begin(frame)[1:], known) for _ in range(2))
    assert first is again
    assert reader.begin(frame)[0] == hashlib.sha256(frame).hexdigest()
    known.remember(first[0].labels[0])
    assert reader.orders(*reader.begin(frame)[1:], known) is not first  # it could be a difference from these


@pytest.mark.parametrize("value", [[1, [2]], {"a": {"b": 1}}])
def test_each_site_has_tables_and_lists_of_its_own(value):
    reader, known = OrderReader(shares=True), wire.KnownLabels(keep=1)
    frame = _frame({"w": value})
    for _ in range(3):
        (order,) = reader.orders(*reader.begin(frame)[1:], known)
        assert order.args == {"w": value}
        order.args["w"].clear()


@pytest.mark.parametrize("shares", [True, False])
def test_arrays_in_orders_cannot_be_changed_and_are_read_once_for_all_sites_of_a_process(shares):
    reader, known = OrderReader(shares=shares), wire.KnownLabels(keep=1)
    frame = _frame({"x": np.arange(3), "w": {"a": np.zeros(3)}})
    first, again = (reader.orders(*reader.begin(frame)[1:], known)[0].args for _ in range(2))
    assert (first["x"] is again["x"]) is (first["w"]["a"] is again["w"]["a"]) is shares
    for array in (first["x"], first["w"]["a"]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7


def test_a_real_site_keeps_no_frame():
    reader, known = OrderReader(shares=False), wire.KnownLabels(keep=1)
    frame = _frame({"epochs": 3})
    first, again = (reader.orders(*reader.begin(frame)[1:], known) for _ in range(2))
    assert first == again
    assert first is not again


def test_orders_are_read_where_they_lie():
    message = with_header(FIRST, write_orders([FIRST]))
    _, orders = read_header(message)
    assert orders.obj is message
    large = _frame({"x": np.arange(2**16, dtype=np.float32)})
    (order,) = read_orders(*read_header(large))
    array = order.args["x"]
    while isinstance(array.base, np.ndarray):
        array = array.base
    assert isinstance(array.base, memoryview)
    assert array.base.obj is large


def test_orders_of_a_language_model_are_read_once_and_larger_ones_are_not_kept(monkeypatch):
    known = wire.KnownLabels(keep=1)
    small, large = (_frame({"x": np.zeros(size)}) for size in (100, 1000))
    monkeypatch.setattr("collegium.wire.orders._MOST_KEPT", 4000)
    for message, kept in ((small, True), (large, False)):
        reader = OrderReader(shares=True)
        first, again = (reader.begin(message) for _ in range(2))
        assert (first[2] is again[2]) is kept
        assert (reader.orders(*first[1:], known) is reader.orders(*again[1:], known)) is kept


def test_nothing_of_an_order_stays_when_a_run_is_over():
    reader, known, message = OrderReader(shares=True), wire.KnownLabels(keep=1), _frame({"x": np.zeros(3)})
    begun = reader.begin(message)
    read = reader.orders(*begun[1:], known)
    reader.forget()
    again = reader.begin(message)
    assert again[2] is not begun[2]
    assert reader.orders(*again[1:], known) is not read
