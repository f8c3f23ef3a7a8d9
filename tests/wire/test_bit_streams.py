"""Streams of bits: what is written is read again, in as few bits as it should take."""

from __future__ import annotations

import numpy as np
import pytest

from collegium.errors import WireError
from collegium.wire.bit_streams import Bits, Reader, grouping, radix_bits, radix_size, write_places


def reader_of(*streams: Bits) -> Reader:
    return Reader(np.packbits(np.concatenate([np.empty(0, np.uint8), *streams]), bitorder="little"))


@pytest.mark.parametrize("s", [1, 2, 3, 10, 255, 256, 1000, (1 << 30) - 1])
@pytest.mark.parametrize("n", [0, 1, 7, 1000])
def test_numbers_in_any_base(s: int, n: int) -> None:
    symbols = np.random.default_rng(s + n).integers(s, size=n).astype(np.int32)
    bits = radix_bits(symbols, s)
    assert bits.size == radix_size(n, s) <= 1.05 * n * np.log2(s) + 32
    reader = reader_of(bits)
    np.testing.assert_array_equal(reader.radix(n, s), symbols)
    reader.close()


def test_a_group_fits_the_number_it_is_written_as() -> None:
    for s in range(2, 2000, 7):
        k, width = grouping(s)
        assert s**k <= 1 << width <= 1 << 63


@pytest.mark.parametrize("share", [0, 0.001, 0.1, 0.5, 1])
def test_places_cost_little_more_than_their_entropy(share: float) -> None:
    n = 20_000
    places = np.flatnonzero(np.random.default_rng(0).random(n) < share).astype(np.int32)
    rice, in_bytes, bits = write_places(places)
    p = np.clip(places.size / n, 1e-9, 1 - 1e-9)
    entropy = -n * (p * np.log2(p) + (1 - p) * np.log2(1 - p))
    assert 8 * in_bytes.size + sum(stream.size for stream in bits) <= max(1.05 * entropy, n * share) + 64
    reader = reader_of(np.unpackbits(in_bytes, bitorder="little"), *bits)
    np.testing.assert_array_equal(reader.places(n, places.size, rice), places)
    reader.close()


def test_a_stream_that_ends_early_or_late_is_refused() -> None:
    bits = radix_bits(np.arange(10, dtype=np.int32), 10)
    with pytest.raises(WireError, match="too short"):
        reader_of(bits[:-16]).radix(10, 10)
    reader = reader_of(bits, np.ones(9, np.uint8))
    reader.radix(10, 10)
    with pytest.raises(WireError, match="bytes after their end"):
        reader.close()
    for count, rice in ((5, 0), (-1, 0), (1, 31), (1, -1)):
        with pytest.raises(WireError, match="invalid places"):
            reader_of(np.ones(8, np.uint8)).places(4, count, rice)


@pytest.mark.parametrize("gaps", [[0] * 9, [5] * 9, [0] * 50 + [1 << 20], [1 << 20] * 3, [0] * 999 + [1 << 12], [7]])
def test_places_have_the_parameter_that_takes_fewest_bits_wherever_it_lies(gaps: list[int]) -> None:
    places = np.cumsum(np.array(gaps) + 1) - 1
    rice, in_bytes, bits = write_places(places)
    sizes = [sum(1 + r + (gap >> r) for gap in gaps) for r in range(31)]
    assert (rice, 8 * in_bytes.size + sum(stream.size for stream in bits)) == (sizes.index(min(sizes)), min(sizes))
