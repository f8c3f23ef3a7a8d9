from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from collegium.errors import MissingExtra
from collegium.protocols import primitives


def test_rfc_7748_key_agreement() -> None:
    a = bytes.fromhex("77076d0a7318a57d3c16c17251b26645df4c2f87ebc0992ab177fba51db92c2a")
    b = bytes.fromhex("5dab087e624a8a4b79e17f8b83800ee66f3bb1292618b6fd1c2f8b27ff88e0eb")
    public_a, public_b = primitives.x25519_public(a), primitives.x25519_public(b)
    assert public_a.hex() == "8520f0098930a754748b7ddcb43ef75a0dbf3a0d26381af4eba4a98eaa9b4e6a"
    assert public_b.hex() == "de9edb7d7b7dc1b4d35b61c2ece435373f8343c85b78674dadfc7e146f882b4f"
    shared = primitives.x25519(a, public_b)
    assert shared == primitives.x25519(b, public_a)
    assert shared.hex() == "4a5d9d5ba4ce2de1728e3bf480350f25e07e21c947d19e3376f09b3c1e161742"


def test_rfc_5869_key_derivation() -> None:
    salt, info = bytes(range(0x0D)), bytes(range(0xF0, 0xFA))
    expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865"
    assert primitives.hkdf(b"\x0b" * 22, info, 42, salt).hex() == expected
    expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"
    assert primitives.hkdf(b"\x0b" * 22, b"", 42).hex() == expected


def test_rfc_8439_encryption() -> None:
    key, nonce = bytes(range(0x80, 0xA0)), bytes.fromhex("070000004041424344454647")
    bound = bytes.fromhex("50515253c0c1c2c3c4c5c6c7")
    text = (
        b"Ladies and Gentlemen of the class of '99: If I could offer you only one tip for the future, "
        b"sunscreen would be it."
    )
    sealed = primitives.encrypt(key, nonce, text, bound)
    assert sealed.hex() == (
        "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca9671282fafb69da92728b1a71de0a9e06"
        "0b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58fab324e4fad675945585808b4831d7bc3ff4def08e4b7a9de576d265"
        "86cec64b61161ae10b594f09e26a7e902ecbd0600691"
    )
    assert primitives.decrypt(key, nonce, sealed, bound) == text
    assert primitives.decrypt(key, nonce, sealed, b"another context") is None


def test_rfc_8032_signatures() -> None:
    secret = bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    public = primitives.ed25519_public(secret)
    assert public.hex() == "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    signature = primitives.sign(secret, b"")
    assert signature.hex().startswith(
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bac"
    )
    assert primitives.is_signed(public, signature, b"")
    assert not primitives.is_signed(public, signature, b"other")
    assert not primitives.is_signed(bytes(5), signature, b"")


def test_counter_mode_of_nist_sp_800_38a() -> None:
    key = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
    start = bytes(range(0xF0, 0x100))
    plaintext = bytes.fromhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51")
    ciphertext = primitives.stream(key, 32, start) ^ np.frombuffer(plaintext, np.uint8)
    assert ciphertext.tobytes().hex() == "601ec313775789a5b7a7f504bbf3d228f443e3ca4d62b59aca84e990cacaf5c5"
    assert primitives.stream(key, 7, start).size == 7


def test_what_is_bound_has_one_reading() -> None:
    assert primitives.bind("ab", "c") != primitives.bind("a", "bc")
    assert primitives.bind("a", "") != primitives.bind("a")


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.kdf.hkdf", None)
    with pytest.raises(MissingExtra, match=r"collegium\[crypto\]"):
        primitives.hkdf(b"secret", b"")


def test_everything_can_be_imported_without_the_extras() -> None:
    program = (
        "import sys, pkgutil, importlib\n"
        "for name in ('cryptography', 'nacl', 'gmpy2', 'tenseal'): sys.modules[name] = None\n"
        "import collegium.protocols as protocols\n"
        "for module in pkgutil.walk_packages(protocols.__path__, 'collegium.protocols.'):\n"
        "    importlib.import_module(module.name)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
