"""Noise under a key: repeated with it, unrelated without it."""

from __future__ import annotations

import numpy as np

from collegium.privacy.keyed_noise import KeyedNoise

KEY = bytes(range(32))


def test_the_same_key_gives_the_same_words_in_the_same_order():
    first, again = KeyedNoise(KEY), KeyedNoise(KEY)
    assert not first.seeded
    for n in (5, 1, 0, 1000):
        np.testing.assert_array_equal(first.words(n), again.words(n))


def test_beside_other_data_the_words_are_others():
    first, again, other = KeyedNoise(KEY), KeyedNoise(KEY), KeyedNoise(KEY)
    for noise, data in ((first, b"a"), (again, b"a"), (other, b"b")):
        noise.depend_on(data)
    words = first.words(5)
    np.testing.assert_array_equal(words, again.words(5))
    assert not np.isin(words, other.words(5)).any()


def test_no_word_comes_twice():
    noise = KeyedNoise(KEY)
    words = np.concatenate([noise.words(7) for _ in range(100)] + [KeyedNoise(KEY[::-1]).words(700)])
    assert len(np.unique(words)) == 1400


def test_words_are_uniform():
    bits = np.unpackbits(KeyedNoise(KEY).words(1 << 14).view(np.uint8).reshape(-1, 8), axis=1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 6 * 0.5 / np.sqrt(1 << 14)
