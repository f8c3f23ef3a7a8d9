"""Kits: real certificates, private files, and a local policy that lets nothing in but orders."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from collegium.cli.main import app
from collegium.errors import ConfigError
from collegium.flare.kits.federation_file import FederationFile, SiteSection
from collegium.flare.kits.kit import load_key, read_certificate, read_kit
from collegium.flare.kits.provision import add_site, provision, renew

pytestmark = pytest.mark.xdist_group("kits")  # its fixtures are made once

pytest.importorskip("nvflare")

FEDERATION = """
name = "sepsis"
[server]
host = "localhost"
port = 8002
organisation = "university"
[[sites]]
name = "site-1"
organisation = "hospital-1"
[[sites]]
name = "site-2"
organisation = "hospital-2"
[[leads]]
name = "lead@university.org"
organisation = "university"
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("provisioned")
    (folder / "FEDERATION.toml").write_text(FEDERATION)
    provision(FederationFile.read(folder / "FEDERATION.toml"), folder / "kits")
    return folder


@pytest.fixture
def copy(made, tmp_path):
    shutil.copytree(made, tmp_path / "copy")
    return tmp_path / "copy"


def load(kit: Path, name: str):
    return json.loads((kit / "local" / name).read_text())


def test_every_member_gets_one_folder(made):
    assert {path.name for path in (made / "kits").iterdir()} == {
        "ca",
        "server",
        "site-1",
        "site-2",
        "lead@university.org",
    }


def test_nobody_else_can_read_any_of_it(made):
    for path in (made / "kits").rglob("*"):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    assert stat.S_IMODE((made / "kits").stat().st_mode) == 0o700


def test_the_authoritys_key_is_in_no_kit_and_no_members_key_beside_it(made):
    secret = (made / "kits" / "ca" / "rootCA.key").read_text()
    assert [path for path in (made / "kits").rglob("*.key") if path.read_text() == secret] == [
        made / "kits" / "ca" / "rootCA.key"
    ]
    assert {path.name for path in (made / "kits" / "ca").iterdir()} == {"rootCA.key", "rootCA.pem"}


def test_a_site_runs_nothing_and_streams_no_logs(made):
    resources = load(made / "kits" / "site-1", "resources.json")
    assert resources["class_allow_list"] == []
    assert resources["class_list_enforcement_mode"] == "enforce"
    assert resources["allow_log_streaming"] is False
    assert resources["components"] == []


def test_the_server_lets_only_our_relay_run_and_keeps_jobs_in_its_kit(made):
    kit = made / "kits" / "server"
    resources = load(kit, "resources.json")
    assert resources["class_allow_list"] == ["collegium.flare.nvflare.relay.LinkRelay"]
    text = json.dumps(resources)
    assert "/tmp/nvflare" not in text
    assert str(kit / "jobs") in text
    assert str(kit / "snapshots") in text


@pytest.mark.parametrize("name", ["server", "site-1"])
def test_nobody_may_send_code_or_run_shell_commands(made, name):
    (role, rights), *others = load(made / "kits" / name, "authorization.json")["permissions"].items()
    assert (role, others) == ("lead", [])
    assert not {"byoc", "shell_commands"} & set(rights)
    assert rights.get("operate") == ("o:site" if name == "server" else None)


@pytest.mark.parametrize(("name", "file"), [("server", "fed_server.json"), ("site-1", "fed_client.json")])
def test_jobs_must_be_signed(made, name, file):
    assert json.loads((made / "kits" / name / "startup" / file).read_text())["require_signed_jobs"] is True


def test_a_kit_holds_no_script_that_starts_it_without_our_checks(made):
    assert not [*made.rglob("*.sh"), *made.rglob("*.default")]


def test_certificates_last_a_year_and_the_authority_ten(made):
    for name in ("server", "site-1", "lead@university.org"):
        assert 359 < read_kit(made / "kits" / name).days_left <= 360
    root = read_certificate(made / "kits" / "ca" / "rootCA.pem")
    assert root.not_valid_after_utc - root.not_valid_before_utc == timedelta(days=3600)


def test_a_kit_says_who_it_is_for(made):
    kit = read_kit(made / "kits" / "site-1")
    assert (kit.kind, kit.name, kit.organisation, kit.address) == ("site", "site-1", "hospital_1", "localhost:8002")
    assert kit.warnings() == []


def test_a_site_that_comes_later_has_the_same_authority_and_nothing_else_changes(copy):
    before = {path: path.read_bytes() for path in (copy / "kits").rglob("*") if path.is_file()}
    federation = FederationFile.read(copy / "FEDERATION.toml")
    made = add_site(federation, SiteSection(name="site-3", organisation="hospital-3"), copy / "kits")
    assert [kit.name for kit in made.kits] == ["site-3"]
    assert {path: path.read_bytes() for path in before} == before
    roots = {(copy / "kits" / name / "startup" / "rootCA.pem").read_bytes() for name in ("site-1", "site-3", "server")}
    assert len(roots) == 1
    with pytest.raises(ConfigError, match="already"):
        add_site(federation, SiteSection(name="site-3", organisation="hospital-3"), copy / "kits")


@pytest.mark.parametrize("name", ["server", "site-1", "lead@university.org"])
def test_a_renewed_certificate_has_a_new_key_and_the_same_authority(copy, name):
    old = read_kit(copy / "kits" / name)
    before = old.key.read_bytes()
    (old.folder / "mine.txt").write_text("the owner's")
    renew(FederationFile.read(copy / "FEDERATION.toml"), name, copy / "kits")
    new = read_kit(copy / "kits" / name)
    assert new.key.read_bytes() != before
    assert (new.folder / "mine.txt").read_text() == "the owner's"


def test_the_command_shows_who_gets_what_and_adds_a_site_to_the_file(made, tmp_path):
    file, out = tmp_path / "FEDERATION.toml", tmp_path / "kits"
    file.write_text(FEDERATION)
    runner = CliRunner()
    shown = runner.invoke(app, ["provision", str(file), "--out", str(out)])
    assert shown.exit_code == 0
    for words in ("site-1", "lead@university.org", "360", "3600", "off the server"):
        assert words in shown.output
    more = ["--add-site", "site-9", "--organisation", "clinic"]
    assert runner.invoke(app, ["provision", str(file), "--out", str(out), *more]).exit_code == 0
    assert FederationFile.read(file).sites[-1] == SiteSection(name="site-9", organisation="clinic")
    assert read_kit(out / "site-9").organisation == "clinic"


def test_kits_are_not_overwritten_by_accident(copy):
    federation = FederationFile.read(copy / "FEDERATION.toml")
    old = (copy / "kits" / "ca" / "rootCA.pem").read_bytes()
    with pytest.raises(ConfigError, match="--add-site adds one"):
        provision(federation, copy / "kits")
    assert (copy / "kits" / "ca" / "rootCA.pem").read_bytes() == old
    provision(federation, copy / "kits", force=True)
    assert (copy / "kits" / "ca" / "rootCA.pem").read_bytes() != old


def test_force_removes_no_folder_that_holds_something_else(made, tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match="something else"):
        provision(FederationFile.read(made / "FEDERATION.toml"), tmp_path, force=True)
    assert (tmp_path / "thesis.tex").exists()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('name = "site-2"', 'name = "site-1"', "'site-1' is used twice"),
        ('name = "site-2"', 'name = "SITE-1"', "'site-1' is used twice"),
        ('name = "site-2"', 'name = "../up"', r"sites\[1\].name: '../up' is not valid"),
        ('name = "site-2"', 'name = "server"', "is reserved"),
        ('name = "site-2"', 'name = "localhost"', "the server's host"),
        ('"hospital-2"', '"St. Mary"', r"sites\[1\].organisation: 'St. Mary' is not valid"),
        ("port = 8002", "port = 80020", "server.port: .*65535"),
        ("port = 8002", 'prot = "x"', "server.prot: unknown setting. Did you mean 'port'"),
        ('"localhost"', '"fl server"', "server.host: 'fl server' is not valid: use a DNS name"),
        ('"lead@university.org"', '"lead"', r"leads\[0\].name: 'lead' is not valid: use an e-mail address"),
        ('name = "sepsis"', 'name = "a/b"', "name: 'a/b' is not valid"),
        ('name = "sepsis"', "", "name: this setting is required"),
        ("[server]", "[server", "not valid TOML"),
    ],
)
def test_a_mistake_in_the_file_is_named_by_its_place(tmp_path, old, new, words):
    file = tmp_path / "FEDERATION.toml"
    file.write_text(FEDERATION.replace(old, new, 1))
    with pytest.raises(ConfigError, match=words):
        FederationFile.read(file)


def test_without_nvflare_the_extra_is_named(tmp_path):
    (tmp_path / "FEDERATION.toml").write_text(FEDERATION)
    program = (
        "import sys; sys.modules['nvflare'] = None; sys.argv = ['collegium', 'provision', 'FEDERATION.toml'];"
        "from collegium.cli import main; main()"
    )
    paths = os.environ | {"PYTHONPATH": os.pathsep.join(str(Path(path).resolve()) for path in sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=paths, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "pip install 'collegium[flare]'" in done.stderr
    assert not (tmp_path / "kits" / "sepsis").exists()


def damaged(kit: Path, what: str) -> None:
    start = kit / "startup"
    if what == "no certificate":
        (start / "client.crt").unlink()
    elif what == "no key":
        (start / "client.key").unlink()
    elif what == "another's key":
        shutil.copy(kit.parent / "site-2" / "startup" / "client.key", start / "client.key")
    elif what == "another's certificate":
        for name in ("client.key", "client.crt"):
            shutil.copy(kit.parent / "site-2" / "startup" / name, start / name)
    elif what == "not a certificate":
        (start / "client.crt").write_text("nonsense")
    elif what == "no settings":
        (start / "fed_client.json").unlink()
    else:
        (start / "fed_client.json").write_text("{}")


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("no certificate", "client.crt is missing"),
        ("no key", "client.key is missing"),
        ("another's key", "does not match its certificate"),
        ("another's certificate", "the kit is for 'site-1', but its certificate is for 'site-2'"),
        ("not a certificate", "is not a valid certificate"),
        ("no settings", "is not a kit"),
        ("empty settings", "was changed or is incomplete"),
    ],
)
def test_a_damaged_kit_is_found_before_anything_starts(copy, what, words):
    damaged(copy / "kits" / "site-1", what)
    with pytest.raises(ConfigError, match=words):
        read_kit(copy / "kits" / "site-1")


def test_an_unsound_key_is_refused_every_time_and_a_sound_one_is_looked_at_once(copy, monkeypatch):
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric import rsa

    def load(pem, password, *, unsafe_skip_rsa_key_validation):
        skipped.append(unsafe_skip_rsa_key_validation)
        return original(pem, password, unsafe_skip_rsa_key_validation=unsafe_skip_rsa_key_validation)

    skipped, original = [], serialization.load_pem_private_key
    monkeypatch.setattr(serialization, "load_pem_private_key", load)
    monkeypatch.setattr("collegium.flare.kits.kit._SOUND", set())
    kit = copy / "kits" / "site-1"
    read_kit(kit)
    known = load_key(read_kit(kit).key.read_bytes()).private_numbers()
    assert skipped == [False, True, True]
    parts = (known.p, known.q, known.d + 2, known.dmp1, known.dmq1, known.iqmp, known.public_numbers)
    wrong = rsa.RSAPrivateNumbers(*parts).private_key(unsafe_skip_rsa_key_validation=True)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption())
    (kit / "startup" / "client.key").write_bytes(wrong.private_bytes(*form))
    for _ in range(2):
        with pytest.raises(ConfigError, match=r"client\.key is not a valid key"):
            read_kit(kit)
    assert skipped[3:] == [False, False]


def test_a_certificate_of_another_federation_is_found(copy, tmp_path):
    provision(FederationFile.read(copy / "FEDERATION.toml"), tmp_path / "other")
    root = tmp_path / "other" / "site-1" / "startup" / "rootCA.pem"
    shutil.copy(root, copy / "kits" / "site-1" / "startup" / "rootCA.pem")
    with pytest.raises(ConfigError, match="two federations were mixed"):
        read_kit(copy / "kits" / "site-1")


def test_a_certificate_that_is_over_is_named_with_its_date(copy, monkeypatch):
    from collegium.flare.kits import kit as kits

    later = kits.datetime.now(kits.UTC) + timedelta(days=400)

    class Later(kits.datetime):
        @classmethod
        def now(cls, zone=None):
            return later

    monkeypatch.setattr(kits, "datetime", Later)
    with pytest.raises(ConfigError, match=r"the certificate expired on \d{4}-\d\d-\d\d: .*site renew"):
        read_kit(copy / "kits" / "site-1")


def test_a_kit_that_others_can_read_is_warned_about(copy):
    kit = read_kit(copy / "kits" / "site-1")
    kit.key.chmod(0o644)
    assert "chmod -R go-rwx" in kit.warnings()[0]


def test_the_wrong_kind_of_kit_is_refused(made):
    with pytest.raises(
        ConfigError, match="is a kit for a server, not for a site: use it with `collegium server start`"
    ):
        read_kit(made / "kits" / "server", "site")
