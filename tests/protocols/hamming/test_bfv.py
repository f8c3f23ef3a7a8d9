from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tenseal")

from collegium.errors import ConfigError
from collegium.protocols import ProtocolError, Reused
from collegium.protocols.hamming import lattice as lattices
from collegium.protocols.hamming.bfv import KeyOwner, Partner, Server
from collegium.protocols.hamming.lattice import DEGREE, Lattice, lattice, polynomial, seal

pytestmark = pytest.mark.xdist_group("BFV")  # its fixtures are made once

rng = np.random.default_rng(0)
A, B = rng.integers(0, 2, (515, 20), dtype=np.uint8), rng.integers(0, 2, (4, 20), dtype=np.uint8)
TRUTH = (A[:, None] != B[None]).sum(axis=2)


@pytest.fixture(scope="module")
def owner() -> KeyOwner:
    return KeyOwner(A)


def again(thing: Any) -> Any:
    return pickle.loads(pickle.dumps(thing))


def test_one_encryption_serves_all_partners_and_restarted_sites(owner: KeyOwner) -> None:
    owner = again(owner)
    for name in ("b", "c"):
        partner = Partner(B, len(A), "a")
        results = partner.results(owner.sketches())
        owner, partner = again(owner), again(partner)
        share = owner.share(name, len(B), results)
        found = Server(len(A), len(B), 20).distances("a", share, name, partner.share())
        assert np.array_equal(found, TRUTH)


@pytest.mark.parametrize("length", [1, 4096, 65535])
def test_noise_hides_and_still_decrypts(length: int) -> None:
    params, api = lattice(length), seal()
    assert params.hiding_bits >= 40
    keys, public = api.KeyGenerator(params.context), api.PublicKey()
    keys.create_public_key(public)
    encrypted, plain = api.Ciphertext(), api.Plaintext()
    message = np.arange(DEGREE) % params.plain_modulus
    api.Encryptor(params.context, public).encrypt(polynomial(message), encrypted)
    mask = rng.integers(0, params.plain_modulus, DEGREE, dtype=np.uint64)
    evaluator = api.Evaluator(params.context)
    evaluator.add_inplace(encrypted, params.hiding(mask))
    decryptor = api.Decryptor(params.context, keys.secret_key())
    assert 0 < decryptor.invariant_noise_budget(encrypted) <= 3
    evaluator.mod_switch_to_next_inplace(encrypted)
    decryptor.decrypt(encrypted, plain)
    found = np.zeros(DEGREE, np.uint64)
    found[: plain.coeff_count()] = [plain[i] for i in range(plain.coeff_count())]
    assert np.array_equal(found, (message + mask.astype(np.int64)) % params.plain_modulus)


def test_results_have_drowned_noise_and_fresh_randomness(owner: KeyOwner, monkeypatch: pytest.MonkeyPatch) -> None:
    params, api = lattice(20), seal()
    twice = np.stack([B[0], B[0]])
    result = params.loaded("b", "Ciphertext", Partner(twice, len(A), "a").results(owner.sketches())[0])
    secret = params.load(api.SecretKey(), owner._secret.tobytes())
    assert 0 < api.Decryptor(params.context, secret).invariant_noise_budget(result) <= 3
    same = params.hiding(np.zeros(DEGREE, np.uint64))
    monkeypatch.setattr(Lattice, "hiding", lambda self, mask: same)
    one, two = Partner(twice, len(A), "a").results(owner.sketches())[:2]
    assert not np.array_equal(one, two)


def test_keys_are_not_written_to_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    if not lattices._in_memory():
        pytest.skip("this system has no files in memory")
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    assert KeyOwner(B)._secret.size > 1000


def test_where_they_must_be_the_file_is_private_and_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lattices, "_in_memory", lambda: False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    unlink, left = Path.unlink, []

    def watched(path: Path, **options: Any) -> None:
        left.append((path.stat().st_mode & 0o777, path.read_bytes()))
        unlink(path, **options)

    monkeypatch.setattr(Path, "unlink", watched)
    owner = KeyOwner(B)
    partner = Partner(A[:2], len(B), "a")
    share = owner.share("b", 2, partner.results(owner.sketches()))
    assert np.array_equal(Server(len(B), 2, 20).distances("a", share, "b", partner.share()), TRUTH[:2].T)
    assert {mode for mode, _ in left} == {0o600}
    assert all(content and not any(content) for _, content in left)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ProtocolError):
        lattice(20).loaded("b", "Ciphertext", np.zeros(9, np.uint8))
    assert not list(tmp_path.iterdir())


def test_messages_come_once(owner: KeyOwner) -> None:
    partner = Partner(B, len(A), "a")
    with pytest.raises(ProtocolError, match="'a' has not sent"):
        partner.share()
    results = partner.results(owner.sketches())
    with pytest.raises(Reused):
        partner.results(owner.sketches())
    copy = again(owner)
    copy.share("b", len(B), results)
    with pytest.raises(Reused, match="'b'"):
        copy.share("b", len(B), results)


def test_hostile_parties_are_named(owner: KeyOwner) -> None:
    good = owner.sketches()
    noise = np.frombuffer(rng.bytes(5000), np.uint8)
    cut = good["sketches"][0][:-50]
    for bad in (
        {"key": noise},
        {"key": good["sketches"][0]},
        {"key": None},
        {"sketches": good["sketches"][1:]},
        {"sketches": None},
        {"sketches": [noise, *good["sketches"][1:]]},
        {"sketches": [cut, *good["sketches"][1:]]},
        {"sketches": ["text", *good["sketches"][1:]]},
        {"sketches": [np.zeros(1 << 21, np.uint8), *good["sketches"][1:]]},
    ):
        with pytest.raises(ProtocolError, match="'a' sent"):
            Partner(B, len(A), "a").results(good | bad)
    results = Partner(B, len(A), "a").results(good)
    for wrong in (results[1:], [noise, *results[1:]], 5):
        with pytest.raises(ProtocolError, match="'b' sent"):
            again(owner).share("b", len(B), wrong)


def test_the_server_names_who_sends_nonsense() -> None:
    server, good = Server(2, 3, 20), np.zeros((2, 3), np.uint8)
    with pytest.raises(ProtocolError, match="'a' sent"):
        server.distances("a", good.T, "b", good)
    with pytest.raises(ProtocolError, match="above 20"):
        server.distances("a", good + 21, "b", good)


def test_sketches_that_are_too_long_are_refused() -> None:
    with pytest.raises(ConfigError, match="at most 65535"):
        KeyOwner(np.zeros((1, 65536), np.uint8))
