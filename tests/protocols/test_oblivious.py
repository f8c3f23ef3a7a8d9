from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from collegium.protocols import ProtocolError, Reused
from collegium.protocols.oblivious import base, extension, hashing
from collegium.protocols.oblivious.extension import ExtensionReceiver, ExtensionSender, transposed
from collegium.protocols.oblivious.punctured import grown, leaf_tweaks, punctured

rng = np.random.default_rng(0)


def prepared() -> tuple[ExtensionReceiver, ExtensionSender]:
    receiver, sender = ExtensionReceiver("s", "b"), ExtensionSender("s", "a")
    receiver.prepare(sender.answer(receiver.offer()))
    return receiver, sender


def test_base_transfers_give_one_of_two_secrets() -> None:
    sender, receiver = base.BaseSender("s", "b"), base.BaseReceiver("s", "a")
    answer, chosen = receiver.answer(sender.offer())
    pairs = sender.secrets(answer)
    for choice, secret, pair in zip(receiver.choices, chosen, pairs, strict=True):
        assert secret == pair[choice]
        assert secret != pair[1 - choice]
    assert 30 < receiver.choices.sum() < 98
    assert len({secret for pair in pairs for secret in pair}) == 256


def test_base_transfers_depend_on_the_pair() -> None:
    sender, receiver = base.BaseSender("s", "b"), base.BaseReceiver("t", "a")
    answer, chosen = receiver.answer(sender.offer())
    assert not {secret for pair in sender.secrets(answer) for secret in pair} & set(chosen)


@pytest.mark.parametrize(
    "point",
    [
        bytes(32),
        b"\x01" + bytes(31),
        b"\xff" * 32,
        bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    ],
)
def test_points_outside_the_group_are_named(point: bytes) -> None:
    raw = np.frombuffer(point, np.uint8)
    with pytest.raises(ProtocolError, match="'a' sent a point"):
        base.BaseReceiver("s", "a").answer(raw)
    sender = base.BaseSender("s", "b")
    answer, _ = base.BaseReceiver("s", "a").answer(sender.offer())
    wrong = np.concatenate([answer[:-32], raw])
    with pytest.raises(ProtocolError, match="'b' sent a point"):
        sender.secrets(wrong)
    with pytest.raises(ProtocolError, match="'b' sent 4064 bytes"):
        sender.secrets(answer[:-32])


@pytest.mark.parametrize("count", [1, 7, 8, 1001])
def test_an_extension_gives_exactly_the_chosen_block(count: int) -> None:
    receiver, sender = prepared()
    choices = rng.integers(0, 2, count, dtype=np.uint8)
    request, chosen = receiver.request(0, 0, choices)
    zeros, ones = sender.transfers(0, 0, count, request)
    assert np.array_equal(chosen, np.where(choices[:, None], ones, zeros))
    assert not (chosen == np.where(choices[:, None], zeros, ones)).all(axis=1).any()


def test_choices_do_not_show_in_the_request(looks_uniform: Any) -> None:
    receiver, _ = prepared()
    request, chosen = receiver.request(0, 0, np.ones(4096, np.uint8))
    assert looks_uniform(request)
    assert looks_uniform(chosen)


def test_batches_differ_and_come_once() -> None:
    receiver, sender = prepared()
    choices = np.zeros(64, np.uint8)
    first, second = receiver.request(0, 0, choices)[0], receiver.request(1, 64, choices)[0]
    assert not np.array_equal(first, second)
    with pytest.raises(Reused):
        receiver.request(0, 0, choices)
    sender.transfers(0, 0, 64, first)
    with pytest.raises(Reused, match="'a'"):
        sender.transfers(0, 0, 64, first)
    with pytest.raises(ProtocolError, match="'a' sent"):
        sender.transfers(1, 64, 64, second[:-1])


def test_bits_are_transposed() -> None:
    bits = rng.integers(0, 2, (128, 40), dtype=np.uint8)
    blocks = transposed(np.packbits(bits, axis=1, bitorder="little"))
    assert np.array_equal(np.unpackbits(blocks.view(np.uint8), axis=1, bitorder="little"), bits.T)


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_a_receiver_learns_all_leaves_but_the_one_it_chose(depth: int) -> None:
    trees = np.arange(5, 14, dtype=np.uint64)
    zeros, ones = (rng.integers(0, 2**63, (len(trees), depth, 2), dtype=np.uint64) for _ in range(2))
    paths = rng.integers(0, 2, (len(trees), depth), dtype=np.uint8)
    leaves, message = grown(zeros, ones, trees)
    received = np.where(paths[:, :, None], zeros, ones)
    known = punctured(received, paths, trees, message, "sender")
    ends = (paths << np.arange(depth - 1, -1, -1)).sum(axis=1)
    for tree, end in enumerate(ends):
        for differs in range(1, 1 << depth):
            assert np.array_equal(known[differs - 1, tree], leaves[end ^ differs, tree])
        assert not (known == leaves[end, tree]).all(axis=-1).any()
    with pytest.raises(ProtocolError, match="'sender'"):
        punctured(received, paths, trees, message[..., :1], "sender")


def test_the_hash_is_the_one_of_guo_and_others() -> None:
    x, i = rng.integers(0, 2**63, (1, 2), dtype=np.uint64), np.array([77], np.uint64)
    inner = hashing.permuted(x)
    expected = hashing.permuted(inner ^ np.array([77, 0], np.uint64)) ^ inner
    assert np.array_equal(hashing.hashed(x, i), expected)
    expanded = hashing.Expander(3, 4)(x, i)[0]
    assert np.array_equal(expanded[0], expected[0])
    third = hashing.permuted(inner ^ np.array([77, 3], np.uint64)) ^ inner
    assert np.array_equal(expanded[3], third[0])


def test_tweaks_never_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    from collegium.protocols.hamming import ot

    used: list[tuple[int, int]] = []
    expand, once = hashing.Expander.__call__, hashing.hashed

    def noting_expand(self: hashing.Expander, seeds: Any, tweak: Any) -> Any:
        out = expand(self, seeds, tweak)
        used.extend((int(number), block) for number in tweak for block in range(out.shape[1]))
        return out

    def noting_hashed(blocks: Any, tweak: Any) -> Any:
        used.extend((int(number), 0) for number in tweak)
        return once(blocks, tweak)

    a, b = rng.integers(0, 2, (8, 20), dtype=np.uint8), rng.integers(0, 2, (40, 20), dtype=np.uint8)
    monkeypatch.setattr(ot, "_MESSAGE_BYTES", 20 * 40 * 2)
    receiver, sender = ot.Receiver(a, 40, "s", "b"), ot.Sender(b, 8, "s", "a")
    receiver.prepare(sender.answer(receiver.offer()))
    assert receiver.blocks > 1
    for block in range(receiver.blocks):
        with monkeypatch.context() as noting:  # the sender uses the same tweaks, on the same inputs
            noting.setattr(extension, "hashed", noting_hashed)
            request = receiver.request(block)
        answer = sender.serve(block, request)
        with monkeypatch.context() as noting:
            noting.setattr(hashing.Expander, "__call__", noting_expand)
            receiver.receive(block, answer)
    assert len(used) > 1000
    assert len(set(used)) == len(used)
    kinds = {number >> 56 for number, _ in used}
    assert kinds == {hashing.TRANSFER, hashing.CHILDREN, hashing.LEAF}
    assert leaf_tweaks(np.array([3], np.uint64), 3, np.array([5], np.uint64))[0] & 0xFFFF == 29


def cheating_request(receiver: ExtensionReceiver, choices: np.ndarray, columns: list[int]) -> np.ndarray:
    """A request with other choices in some columns, and the hashes that fit the rest of them."""
    size = extension._columns(choices.size)
    start = (0).to_bytes(8, "big") + bytes(8)
    chosen = np.zeros(size, np.uint8)
    chosen[: choices.size // 8] = np.packbits(choices, bitorder="little")
    zeros, ones = (
        np.stack([extension.primitives.stream(pair[side], size, start) for pair in receiver._secrets])
        for side in (0, 1)
    )
    message = zeros ^ ones ^ chosen
    message[columns] ^= rng.integers(1, 256, size, dtype=np.uint8)
    hashes = extension._linear_hashes(message, np.vstack([chosen, zeros]))
    return np.concatenate([message.reshape(-1), hashes.reshape(-1)])


def test_a_receiver_that_probes_the_senders_secret_is_found_unless_it_guesses_it() -> None:
    """Without the check, each column with other choices would tell one bit of the secret, and all tell both blocks."""
    choices = rng.integers(0, 2, 256, dtype=np.uint8)
    receiver, sender = prepared()
    assert len(sender.transfers(0, 0, 256, cheating_request(receiver, choices, []))[0]) == 256
    for column in range(6):
        receiver, sender = prepared()
        request = cheating_request(receiver, choices, [column])
        if sender._base.choices[column]:
            with pytest.raises(ProtocolError, match="'a' asks for other transfers in some columns"):
                sender.transfers(0, 0, 256, request)
        else:
            sender.transfers(0, 0, 256, request)
    receiver, sender = prepared()
    with pytest.raises(ProtocolError, match="in some columns"):
        sender.transfers(0, 0, 256, cheating_request(receiver, choices, list(range(128))))


def test_the_check_tells_nothing_of_the_choices() -> None:
    """The hash of the choices is that of random ones: different each time, for the same choices and secrets."""
    receiver, _ = prepared()
    choices, seen = np.zeros(40, np.uint8), set()
    for _ in range(20):
        receiver._batches = extension.Once("batch")
        request, _ = receiver.request(0, 0, choices)
        seen.add(request[128 * extension._columns(40) :][:16].tobytes())
    assert len(seen) == 20
