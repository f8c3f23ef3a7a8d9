"""What every backend must do, whatever hides the sketches."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from benchmarks.two_sites import Transcript, pairwise

from collegium.errors import ConfigError, MissingExtra
from collegium.protocols import hamming
from collegium.protocols.hamming import BACKENDS, LONGEST, check_length

rng = np.random.default_rng(0)
OPTIONS: dict[str, dict[str, Any]] = {"paillier": {"key_bits": 512, "insecure": True}}


def run(name: str, a: Any, b: Any, transcript: Transcript | None = None) -> Any:
    if name == "bfv":
        pytest.importorskip("tenseal")
    return pairwise(a, b, name, transcript, **OPTIONS.get(name, {}))


def sketches(rows: int, length: int) -> Any:
    return rng.integers(0, 2, (rows, length), dtype=np.uint8)


@pytest.mark.parametrize("name", BACKENDS)
class TestEveryBackend:
    @pytest.mark.parametrize("length", [1, 7, 1024, 4096])
    def test_equal_opposite_and_neighbouring_sketches(self, name: str, length: int) -> None:
        a = sketches(3, length)
        flipped = a[1].copy()
        flipped[length // 2] ^= 1
        b = np.stack([a[0], 1 - a[0], flipped, a[2]])
        found = run(name, a, b)
        assert found[0, 0] == 0
        assert found[0, 1] == length
        assert found[1, 2] == 1
        assert np.array_equal(found, (a[:, None] != b[None]).sum(axis=2))
        assert found.dtype == np.int64

    @pytest.mark.parametrize(
        ("rows", "points", "length"),
        [(1, 1, 40), (1, 6, 9), (6, 1, 9), (4, 3, 255), (3, 4, 256), (100, 2, 65), (2, 70, 8)],
    )
    def test_unequal_sizes_and_remainders(self, name: str, rows: int, points: int, length: int) -> None:
        a, b = sketches(rows, length), sketches(points, length)
        assert np.array_equal(run(name, a, b), (a[:, None] != b[None]).sum(axis=2))

    def test_messages_are_plain_data_and_counted(self, name: str, recorder: Any) -> None:
        a, b = sketches(5, 33), sketches(4, 33)
        record = recorder()
        assert np.array_equal(run(name, a, b, record), run("plain", a, b))
        assert record.bytes == sum(sent.bytes for sent in record.sent) > 0
        assert {"a", "b", "server"} >= {sent.sender for sent in record.sent} | {sent.receiver for sent in record.sent}
        assert set(record.seconds) <= {"a", "b", "server"}

    def test_sizes_do_not_depend_on_the_sketches(self, name: str) -> None:
        a, b = sketches(5, 64), sketches(4, 64)
        order = rng.permutation(64)
        records = [Transcript(), Transcript(), Transcript()]
        results = [
            run(name, *pair, record)
            for pair, record in zip([(a, b), (1 - a[:, order], 1 - b[:, order]), (0 * a, 0 * b)], records, strict=True)
        ]
        assert np.array_equal(results[0], results[1])
        views = [[(sent.sender, sent.receiver) for sent in record.sent] for record in records]
        assert views[0] == views[1] == views[2]
        sizes = np.array([[sent.bytes for sent in record.sent] for record in records])
        # SEAL compresses ciphertexts, which are random: their sizes differ a little whatever is in them.
        assert (np.ptp(sizes, axis=0) <= (0.05 if name == "bfv" else 0) * sizes.max(axis=0)).all()

    def test_sketches_must_be_bits(self, name: str) -> None:
        for bad in (sketches(2, 8) + 1, np.full((2, 8), 0.5), np.full((2, 8), np.nan)):
            with pytest.raises(ConfigError, match="0 and 1"):
                run(name, bad, sketches(2, 8))
        for shape in ((8,), (0, 8), (2, 0)):
            with pytest.raises(ConfigError, match="table of bits"):
                run(name, sketches(2, 8), np.zeros(shape, np.uint8))

    def test_it_says_what_each_party_learns(self, name: str) -> None:
        if name == "bfv":
            pytest.importorskip("tenseal")
        module = hamming.named(name)
        assert module.LEARNS["server"]


@pytest.mark.parametrize("name", [name for name in BACKENDS if name != "plain"])
class TestEverySecretBackend:
    def test_the_same_sketches_twice_look_different(self, name: str, recorder: Any) -> None:
        a, b = sketches(3, 40), sketches(4, 40)
        first, second = recorder(), recorder()
        run(name, a, b, first)
        run(name, a, b, second)
        for (_, _, one), (_, _, two) in zip(first.messages, second.messages, strict=True):
            for x, y in zip(arrays(one), arrays(two), strict=True):
                assert not np.array_equal(x, y)

    def test_the_servers_shares_are_uniform(self, name: str, recorder: Any, looks_uniform: Any) -> None:
        record = recorder()
        a, b = np.zeros((40, 250), np.uint8), np.ones((50, 250), np.uint8)
        assert (run(name, a, b, record) == 250).all()
        for message in record.seen_by("server"):
            for part in arrays(message):
                if name != "paillier":
                    assert looks_uniform(part)
                elif part.ndim == 2:  # numbers below N: the highest byte is not uniform, nor is the key itself
                    assert looks_uniform(part[:, 1:])


def arrays(message: Any) -> list[Any]:
    if isinstance(message, dict):
        return [part for value in message.values() for part in arrays(value)]
    if isinstance(message, list):
        return [part for value in message for part in arrays(value)]
    return [message]


@pytest.mark.parametrize(("name", "package", "extra"), [("bfv", "tenseal", "bfv"), ("paillier", "gmpy2", "crypto")])
def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch, name: str, package: str, extra: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"collegium\[{extra}\]"):
        pairwise(sketches(1, 9), sketches(1, 9), name, **OPTIONS.get(name, {}))


def test_sketches_that_are_too_long_are_refused_with_the_backends_that_take_them() -> None:
    assert set(LONGEST) == set(BACKENDS)
    for name, most in LONGEST.items():
        check_length("XCLP", name, most)
        with pytest.raises(ConfigError, match=f"XCLP: hamming={name!r} takes sketches of at most {most} bits"):
            check_length("XCLP", name, most + 1)
    with pytest.raises(ConfigError, match="hamming='ot' or 'paillier' or 'bfv'"):
        check_length("XCLP", "masked", 40000)
    with pytest.raises(ConfigError, match="take fewer bits"):
        check_length("XCLP", "ot", 1 << 32)
