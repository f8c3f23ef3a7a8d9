from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from collegium.errors import ConfigError
from collegium.protocols import ProtocolError, Reused
from collegium.protocols.hamming import paillier
from collegium.protocols.hamming.paillier import KeyOwner, Packing, Partner, Server
from collegium.protocols.hamming.paillier_keys import PrivateKey, PublicKey, to_bytes

pytestmark = pytest.mark.xdist_group("Paillier")  # its fixtures are made once

rng = np.random.default_rng(0)
A, B = rng.integers(0, 2, (90, 30), dtype=np.uint8), rng.integers(0, 2, (6, 30), dtype=np.uint8)
TRUTH = (A[:, None] != B[None]).sum(axis=2)


@pytest.fixture(scope="module")
def key() -> PrivateKey:
    return PrivateKey(512, insecure=True)


@pytest.fixture
def owner() -> KeyOwner:
    return KeyOwner(A, 256, insecure=True)


def again(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


def test_what_is_encrypted_can_be_decrypted_and_added(key: PrivateKey) -> None:
    N = int(key.N)
    for m in (0, 1, 12345, N - 1):
        assert key.decrypt(key.encrypt(m)) == m
        assert key.decrypt(key.encrypt(m) * key.encrypt(7) % key.N2) == (m + 7) % N
        assert key.decrypt(key.encrypt(m) * key.public.zero() % key.N2) == m


def test_fresh_encryptions_differ(key: PrivateKey) -> None:
    assert len({int(key.encrypt(1)) for _ in range(20)}) == 20
    public = key.public
    assert len({int(public.zero()) for _ in range(20)}) == 20


def test_encryptions_of_zero_are_powers_of_n(key: PrivateKey) -> None:
    order = (key._p - 1) * (key._q - 1)
    for zero in (key.zero(), key.public.zero()):
        assert pow(int(zero), int(order), int(key.N2)) == 1


def test_keys_have_full_length_and_large_factors(key: PrivateKey) -> None:
    assert key.bits == 512
    for prime in (int(key._p), int(key._q)):
        assert prime.bit_length() == 256
        assert all((prime - 1) // 2 % small for small in range(2, 2000))


def test_short_keys_are_refused_unless_it_is_a_test() -> None:
    with pytest.raises(ConfigError, match="too short"):
        KeyOwner(A, 2048)
    short = to_bytes([PrivateKey(256, insecure=True).N], 32)[0]
    with pytest.raises(ProtocolError, match="'a' sent a public key"):
        Partner(B, len(A), "a").results({"key": short, "sketches": None})


def test_rows_are_packed_without_remainder_lost() -> None:
    for rows in (1, 2, 58, 59, 60, 117, 118, 119):
        packing = Packing(rows, 15, 240)
        covered = [u for part in packing.slices for u in range(rows)[part]]
        assert covered == list(range(rows))
        assert all(16 ** (part.stop - part.start) < 1 << 239 for part in packing.slices)
    assert Packing(500, 4096, 3072).numbers == 2
    with pytest.raises(ProtocolError, match="too short"):
        Packing(5, 2**20, 16)


def test_one_encryption_serves_all_partners_and_restarted_sites(owner: KeyOwner) -> None:
    sketches = owner.sketches()
    for name in ("b", "c"):
        partner = Partner(B, len(A), "a", insecure=True)
        results = partner.results(sketches)
        owner, partner = again(owner), again(partner)
        share = owner.share(name, len(B), results)
        server = Server(len(A), len(B), 30, insecure=True)
        assert np.array_equal(server.distances("a", share, name, partner.share()), TRUTH)


def test_one_answer_to_each_partner(owner: KeyOwner) -> None:
    partner = Partner(B, len(A), "a", insecure=True)
    with pytest.raises(ProtocolError, match="'a' has not sent"):
        partner.share()
    results = partner.results(owner.sketches())
    with pytest.raises(Reused, match="second time"):
        partner.results(owner.sketches())
    owner.share("b", len(B), results)
    with pytest.raises(Reused, match="'b'"):
        owner.share("b", len(B), results)


def test_what_the_owner_decrypts_is_uniform(looks_uniform: Any) -> None:
    owner = KeyOwner(np.zeros((40, 4), np.uint8), 256, insecure=True)
    points = np.zeros((400, 4), np.uint8)
    results = Partner(points, 40, "a", insecure=True).results(owner.sketches())
    assert looks_uniform(owner.share("b", 400, results)["numbers"][:, 2:])


def test_results_hide_which_ciphertexts_were_multiplied(owner: KeyOwner, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without mask and fresh zero, equal sketches would give equal ciphertexts.
    twice = np.stack([B[0], B[0]])
    one, two = Partner(twice, len(A), "a", insecure=True).results(owner.sketches())[:2]
    assert not np.array_equal(one, two)
    monkeypatch.setattr(paillier.secrets, "randbelow", lambda limit: 5)
    one, two = Partner(twice, len(A), "a", insecure=True).results(owner.sketches())[:2]
    assert not np.array_equal(one, two)


def test_a_hostile_owner_is_named(owner: KeyOwner) -> None:
    good = owner.sketches()
    even = good["key"].copy()
    even[-1] &= 0xFE
    zero, large = good["sketches"].copy(), good["sketches"].copy()
    zero[3] = 0
    large[3] = 255
    for bad in (
        {"key": even},
        {"key": None},
        {"sketches": good["sketches"][1:]},
        {"sketches": zero},
        {"sketches": large},
    ):
        with pytest.raises(ProtocolError, match="'a' sent"):
            Partner(B, len(A), "a", insecure=True).results(good | bad)


def test_a_hostile_partner_is_named(owner: KeyOwner) -> None:
    results = Partner(B, len(A), "a", insecure=True).results(owner.sketches())
    zero = results.copy()
    zero[0] = 0
    for bad in (results[1:], results.astype(np.int64), zero, None):
        with pytest.raises(ProtocolError, match="'b' sent"):
            owner.share("b", len(B), bad)


def test_the_server_names_who_sends_nonsense(owner: KeyOwner) -> None:
    partner = Partner(B, len(A), "a", insecure=True)
    share = owner.share("b", len(B), partner.results(owner.sketches()))
    server = Server(len(A), len(B), 30, insecure=True)
    masks = partner.share()
    with pytest.raises(ProtocolError, match="'a' sent"):
        server.distances("a", share | {"numbers": share["numbers"][1:]}, "b", masks)
    with pytest.raises(ProtocolError, match="'b' sent a number out of range"):
        server.distances("a", share, "b", np.full_like(masks, 255))
    with pytest.raises(ProtocolError, match="'a', 'b'"):
        server.distances("a", share, "b", np.zeros_like(masks))


def test_a_public_key_alone_encrypts_nothing_readable(key: PrivateKey) -> None:
    assert not hasattr(PublicKey(int(key.N)), "decrypt")
