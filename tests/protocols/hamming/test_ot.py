from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from collegium.protocols import ProtocolError, Reused
from collegium.protocols.hamming import ot

rng = np.random.default_rng(0)
A, B = rng.integers(0, 2, (10, 30), dtype=np.uint8), rng.integers(0, 2, (6, 30), dtype=np.uint8)
TRUTH = (A[:, None] != B[None]).sum(axis=2)


@pytest.fixture
def small_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ot, "_MESSAGE_BYTES", 30 * 6)
    monkeypatch.setattr(ot, "_CACHE_BYTES", 16 * 8 * 7)


def parties() -> tuple[ot.Receiver, ot.Sender]:
    receiver, sender = ot.Receiver(A, len(B), "s", "b"), ot.Sender(B, len(A), "s", "a")
    receiver.prepare(sender.answer(receiver.offer()))
    return receiver, sender


def again(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


@pytest.mark.usefixtures("small_messages")
def test_many_messages_out_of_order_and_sites_that_are_restarted() -> None:
    receiver, sender = parties()
    assert receiver.blocks == 4
    requests = [receiver.request(block) for block in range(receiver.blocks)]
    receiver, sender = again(receiver), again(sender)
    answers = [sender.serve(block, request) for block, request in enumerate(requests)]
    receiver, sender = again(receiver), again(sender)
    for block in reversed(range(receiver.blocks)):
        receiver.receive(block, answers[block])
    server = ot.Server(len(A), len(B), 30)
    assert np.array_equal(server.distances("a", receiver.share(), "b", sender.share()), TRUTH)


@pytest.mark.usefixtures("small_messages")
def test_a_drop_out_at_any_stage_leaves_no_share() -> None:
    receiver, sender = parties()
    for block in range(receiver.blocks):
        with pytest.raises(ProtocolError, match=f"'b' has done {block} of 4"):
            receiver.share()
        with pytest.raises(ProtocolError, match=f"'a' has done {block} of 4"):
            sender.share()
        receiver.receive(block, sender.serve(block, receiver.request(block)))
    assert receiver.share().shape == sender.share().shape == TRUTH.shape


def test_what_each_site_sees_is_uniform(looks_uniform: Any) -> None:
    a, b = np.zeros((12, 200), np.uint8), np.zeros((30, 200), np.uint8)
    receiver, sender = ot.Receiver(a, 30, "s", "b"), ot.Sender(b, 12, "s", "a")
    receiver.prepare(sender.answer(receiver.offer()))
    request = receiver.request(0)
    answer = sender.serve(0, request)
    assert looks_uniform(request)
    assert looks_uniform(answer["levels"])
    assert looks_uniform(answer["corrections"])


def test_messages_come_once() -> None:
    receiver, sender = parties()
    request = receiver.request(0)
    answer = sender.serve(0, request)
    with pytest.raises(Reused, match="'a'"):
        sender.serve(0, request)
    receiver.receive(0, answer)
    with pytest.raises(Reused, match="'b'"):
        receiver.receive(0, answer)


def test_a_hostile_receiver_is_named() -> None:
    receiver, sender = parties()
    request = receiver.request(0)
    for bad in (request[:-1], request.astype(np.uint16), request.tobytes(), None):
        with pytest.raises(ProtocolError, match="'a' sent"):
            sender.serve(0, bad)
    for block in (-1, 1):
        with pytest.raises(ProtocolError, match="'a' requests"):
            sender.serve(block, request)


@pytest.mark.parametrize("part", ["levels", "corrections"])
@pytest.mark.parametrize("bad", [None, np.zeros(3, np.uint8), np.zeros((4, 30, 6)), "text"])
def test_a_hostile_sender_is_named(part: str, bad: Any) -> None:
    receiver, sender = parties()
    answer = sender.serve(0, receiver.request(0))
    with pytest.raises(ProtocolError, match="'b' sent"):
        receiver.receive(0, answer | {part: bad})
    receiver.receive(0, answer)


def test_the_server_names_who_sends_nonsense() -> None:
    server = ot.Server(2, 3, 30)
    good = np.zeros((2, 3), np.uint8)
    with pytest.raises(ProtocolError, match="'a' sent"):
        server.distances("a", good.T, "b", good)
    with pytest.raises(ProtocolError, match="'b' sent"):
        server.distances("a", good, "b", good.astype(np.int64))
    with pytest.raises(ProtocolError, match=r"'a', 'b' .* above 30"):
        server.distances("a", good + 31, "b", good)
