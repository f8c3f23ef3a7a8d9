from __future__ import annotations

import hashlib
import random

import pytest
from tests.wire.mutations import ODD, mutated_bytes, mutated_words

from collegium import wire
from collegium.errors import WireError
from collegium.wire.replies import (
    REFUSAL,
    UNREAD,
    Refusal,
    Reply,
    Row,
    read_reply,
    write_refusal,
    write_release,
    write_reply,
)

PAYLOAD = wire.pack({"samples": 3}).data
ROW = Row("Count", 0, hashlib.sha256(PAYLOAD).hexdigest(), "0" * 64, '{"charges":[],"budget":null}')
REPLY = Reply(7, ROW, PAYLOAD)
EMPTY = hashlib.sha256(b"").hexdigest()


@pytest.mark.parametrize("reply", [REPLY, Reply(0, Row("Nothing", 0, EMPTY, None, None), b"")])
def test_a_reply_is_read_as_it_was_written(reply: Reply) -> None:
    assert read_reply(write_reply(reply)) == reply


@pytest.mark.parametrize(
    "refusal",
    [Refusal(7, "step-failed", "fedct.train"), Refusal(UNREAD, "bad-message", ""),
     Refusal(7, "step-failed", "x", Row(REFUSAL, 0, EMPTY, "0" * 64, None))],
)  # fmt: skip
def test_a_refusal_is_read_as_it_was_written(refusal: Refusal) -> None:
    assert read_reply(write_refusal(refusal)) == refusal


@pytest.mark.parametrize("place", ["number", "row"])
@pytest.mark.parametrize("value", [value for value in ODD if value not in (0, 1) or value is True], ids=repr)
def test_a_reply_with_something_odd_is_none(place: str, value: object) -> None:
    header, payload = wire.cut(write_reply(REPLY))
    with pytest.raises(WireError):
        read_reply(wire.join(header | {place: value}, payload))


@pytest.mark.parametrize(
    ("word", "value"),
    [("bytes", -1), ("bytes", "many"), ("bytes", True), ("bytes", len(PAYLOAD) + 1), ("entry", ["x"]), ("entry", ""),
     ("entry", 5), ("sha256", "0" * 64), ("sha256", None), ("privacy", 5), ("privacy", []), ("kind", ""), ("kind", 3)],
)  # fmt: skip
def test_a_row_with_something_odd_is_none(word: str, value: object) -> None:
    header, payload = wire.cut(write_reply(REPLY))
    with pytest.raises(WireError):
        read_reply(wire.join(header | {"row": header["row"] | {word: value}}, payload))


@pytest.mark.parametrize("code", ["", "A", "rm -rf", "x" * 65, 5, None, ["x"], "[red]no[/]"])
def test_a_code_is_a_short_word(code: object) -> None:
    with pytest.raises(WireError):
        read_reply(wire.join({"number": 1, "refused": code, "step": ""}, b""))


@pytest.mark.parametrize(
    "row", [Row("Count", 0, EMPTY, "0" * 64, None), Row(REFUSAL, 1, EMPTY, "0" * 64, None)], ids=["kind", "bytes"]
)
def test_a_refusal_carries_nothing(row: Row) -> None:
    with pytest.raises(WireError):
        read_reply(write_refusal(Refusal(1, "x", "", row)))
    with pytest.raises(WireError):
        read_reply(write_refusal(Refusal(1, "x", "")) + b"more")


def test_whatever_is_sent_is_a_reply_a_refusal_or_a_wire_error() -> None:
    rng = random.Random(0)
    whole = [write_reply(REPLY), write_refusal(Refusal(7, "step-failed", "x"))]
    read = 0
    for number in range(3000):
        frame = rng.choice(whole)
        frame = mutated_words(frame, rng) if number % 2 else mutated_bytes(frame, rng)
        try:
            assert isinstance(read_reply(frame), Reply | Refusal)
            read += 1
        except WireError:
            continue
    assert 0 < read < 1500, "some are whole still, most are not"


@pytest.mark.parametrize("row", [ROW, Row('a "kind" of \\ \u00e4\n', 1, "0" * 64, None, None)])
def test_a_reply_is_written_as_any_message_is(row: Row) -> None:
    packed = wire.pack({"samples": 3})
    assert write_release(7, row, packed) == wire.join({"number": 7, "row": vars(row)}, packed)
