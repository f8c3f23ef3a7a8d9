"""A new certificate: its key is made in the kit, the authority signs members only, the holder checks what came."""

from __future__ import annotations

import shutil
import stat
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.cli.commands import collegium
from tests.flare.kits.test_provision import FEDERATION

from collegium.errors import ConfigError
from collegium.flare.kits.federation_file import FederationFile
from collegium.flare.kits.kit import read_certificate, read_kit
from collegium.flare.kits.provision import provision
from collegium.flare.kits.renewal import install_renewal, request_renewal, sign_renewal
from collegium.flare.supervise.renewed import Expiry, Renewed

pytest.importorskip("nvflare")
pytestmark = pytest.mark.xdist_group("kits")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("renewal")
    (folder / "FEDERATION.toml").write_text(FEDERATION)
    provision(FederationFile.read(folder / "FEDERATION.toml"), folder / "kits")
    return folder


@pytest.fixture
def copy(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def sign(copy: Path, request: Path) -> Path:
    return sign_renewal(FederationFile.read(copy / "FEDERATION.toml"), request, copy / "kits")


@pytest.mark.parametrize("name", ["server", "site-1", "lead@university.org"])
def test_a_kit_gets_a_new_certificate_for_a_key_that_never_left_it(copy: Path, name: str) -> None:
    kit = copy / "kits" / name
    old, before = read_kit(kit), read_certificate(read_kit(kit).certificate)
    key = old.key.read_bytes()
    request = request_renewal(kit)
    next_key = (kit / "startup" / old.key.name).with_suffix(".key.next").read_bytes()
    request_renewal(kit)
    assert (kit / "startup" / old.key.name).with_suffix(".key.next").read_bytes() == next_key, "asked again: the same"
    assert read_kit(kit).key.read_bytes() == key, "the old one is in use until the new one is installed"
    assert b"PRIVATE" not in request.read_bytes()
    sent = copy / "by-mail.csr"
    shutil.copy(request, sent)
    new = install_renewal(kit, sign(copy, sent))
    after = read_certificate(new.certificate)
    assert (new.name, new.organisation, new.kind) == (old.name, old.organisation, old.kind)
    assert new.key.read_bytes() != key
    assert (after.subject, after.issuer) == (before.subject, before.issuer)
    assert {each.oid for each in after.extensions} == {each.oid for each in before.extensions}
    assert after.serial_number != before.serial_number
    assert 359 < new.days_left <= 360
    assert not [*kit.rglob("*.next"), *kit.glob("*.csr")]
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in (new.key, new.certificate))


def test_an_installation_that_was_interrupted_is_done_again(copy: Path) -> None:
    kit = copy / "kits" / "site-1"
    certificate = sign(copy, request_renewal(kit))
    shutil.copy(kit / "startup" / "client.key.next", kit / "startup" / "client.key")
    with pytest.raises(ConfigError, match="does not match"):
        read_kit(kit)
    assert install_renewal(kit, certificate).days_left > 359


def forged(copy: Path, name: str) -> Path:
    """A certificate of another member, of another federation, for another key, or none at all."""
    if name == "another member's":
        return sign(copy, request_renewal(copy / "kits" / "site-2"))
    if name == "another federation's":
        other = copy / "other"
        provision(FederationFile.read(copy / "FEDERATION.toml"), other)
        return sign_renewal(
            FederationFile.read(copy / "FEDERATION.toml"), copy / "kits" / "site-1" / "site-1.csr", other
        )
    if name == "another key's":
        again = copy / "again"
        shutil.copytree(copy / "kits" / "site-1", again / "site-1")
        (again / "site-1" / "startup" / "client.key.next").unlink()
        return sign(copy, request_renewal(again / "site-1"))
    if name == "the old one":
        return copy / "kits" / "site-1" / "startup" / "client.crt"
    file = copy / "nothing.crt"
    file.write_text("nothing")
    return file


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("another member's", "is for 'site-2'"),
        ("another federation's", "not signed by the authority"),
        ("another key's", "is for another key"),
        ("the old one", "is for another key"),
        ("none", "is not a certificate"),
    ],
)
def test_what_was_not_asked_for_is_not_installed(copy: Path, name: str, words: str) -> None:
    kit = copy / "kits" / "site-1"
    request_renewal(kit)
    before = {file: file.read_bytes() for file in (kit / "startup").iterdir()}
    with pytest.raises(ConfigError, match=words):
        install_renewal(kit, forged(copy, name))
    assert {file: file.read_bytes() for file in (kit / "startup").iterdir()} == before


@pytest.mark.parametrize("earlier", [0, 1])
def test_a_certificate_ends_no_earlier_than_the_one_before(
    copy: Path, monkeypatch: pytest.MonkeyPatch, earlier: int
) -> None:
    kit = copy / "kits" / "site-1"
    old = read_certificate(read_kit(kit).certificate)

    class Then(datetime):
        @classmethod
        def now(cls, zone: Any = None) -> Any:
            return old.not_valid_after_utc - timedelta(days=360, seconds=earlier)

    monkeypatch.setattr("collegium.flare.nvflare.issuing.datetime", Then)
    made = sign(copy, request_renewal(kit))
    if earlier:
        with pytest.raises(ConfigError, match="ends before the certificate that is there"):
            install_renewal(kit, made)
    else:
        assert read_certificate(install_renewal(kit, made).certificate).not_valid_after_utc == old.not_valid_after_utc


def test_the_authority_signs_members_only_and_gives_no_role_that_was_not_there(copy: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509 import CertificateSigningRequestBuilder, Name, NameAttribute
    from cryptography.x509.oid import NameOID

    def asks(bits: int, *words: tuple[Any, str]) -> Path:
        key = rsa.generate_private_key(public_exponent=65537, key_size=bits)
        subject = Name([NameAttribute(*each) for each in words])
        file = copy / "asked.csr"
        file.write_bytes(
            CertificateSigningRequestBuilder().subject_name(subject).sign(key, SHA256()).public_bytes(Encoding.PEM)
        )
        return file

    with pytest.raises(ConfigError, match="who is not in the federation"):
        sign(copy, asks(2048, (NameOID.COMMON_NAME, "stranger")))
    with pytest.raises(ConfigError, match="too short"):
        sign(copy, asks(1024, (NameOID.COMMON_NAME, "site-1")))
    with pytest.raises(ConfigError, match="who is not in the federation"):
        sign(copy, asks(2048, (NameOID.COMMON_NAME, "site-1"), (NameOID.COMMON_NAME, "site-2")))
    made = sign(copy, asks(2048, (NameOID.COMMON_NAME, "site-1"), (NameOID.UNSTRUCTURED_NAME, "lead")))
    assert read_certificate(made).subject == read_certificate(copy / "kits/site-1/startup/client.crt").subject
    (copy / "asked.csr").write_text("nothing")
    with pytest.raises(ConfigError, match="is not a request"):
        sign(copy, copy / "asked.csr")
    shutil.rmtree(copy / "kits" / "ca")
    with pytest.raises(ConfigError, match="authority's key"):
        sign(copy, request_renewal(copy / "kits" / "site-1"))


def test_the_commands(copy: Path) -> None:
    kit = copy / "kits" / "site-1"
    asked = collegium("site", "renew", str(kit))
    assert (asked.returncode, "collegium site renew" in asked.stdout) == (0, True)
    options = [str(copy / "FEDERATION.toml"), str(kit / "site-1.csr"), "--kits", str(copy / "kits")]
    signed = collegium("federation", "renew", *options)
    assert (signed.returncode, "send it back" in signed.stdout) == (0, True)
    done = collegium("site", "renew", str(kit), str(kit / "site-1.crt"))
    assert done.returncode == 0, done.stderr
    assert f"{read_certificate(kit / 'startup' / 'client.crt').serial_number:x}" in done.stdout
    wrong = collegium("server", "renew", str(kit))
    assert (wrong.returncode, len(wrong.stderr.strip().splitlines())) == (2, 1)
    twice = collegium("site", "renew", str(kit), str(kit / "site-1.crt"))
    assert (twice.returncode, "has asked for no certificate" in twice.stderr) == (2, True)


def test_a_supervisor_notices_a_whole_pair_and_says_what_is_wrong_with_half_of_one(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("collegium.flare.supervise.renewed._LOOK_SECONDS", 0.0)
    kit, said = copy / "kits" / "site-1", list[str]()
    watch = Renewed(read_kit(kit), said.append)
    assert watch.look() is None
    certificate = sign(copy, request_renewal(kit))
    assert watch.look() is None
    old = (kit / "startup" / "client.key").read_bytes()
    (kit / "startup" / "client.key").write_bytes((kit / "startup" / "client.key.next").read_bytes())
    assert watch.look() is None
    assert "does not match its certificate" in said[-1]
    (kit / "startup" / "client.key").write_bytes(old)
    install_renewal(kit, certificate)
    found = watch.look()
    assert found is not None
    assert found.days_left > 359
    assert watch.look() is None


def test_an_owner_is_told_now_and_then_and_no_more_once_it_is_renewed() -> None:
    said: list[str] = []
    expiry = Expiry(said.append)
    for days in (200, 31, 29.5, 29, 15, 13, 12, 0.5, 0.4, -1, 359):
        expiry.look("north", days)
    assert ["30 days" in said[0], "13 days" in said[1], "0 days" in said[2], "has expired" in said[3]] == [True] * 4
    assert len(said) == 4
