"""Images and the compose file: whatever they name exists, and what they start has no rights that it does not need."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.commands import collegium
from tests.containers.files import ROOT, instructions, services, stages, words_of

MEMBERS = ("server", "north", "east", "south")


def commands() -> Iterator[list[str]]:
    """Everything that is started, without the entry point."""
    for parts in stages().values():
        for word, rest in parts:
            if word == "CMD":
                yield words_of(rest)
            if word == "HEALTHCHECK":
                yield words_of(rest.partition(" CMD ")[2])[1:]
    for service in services().values():
        yield [str(word) for word in service["command"]]
        if "test" in service["healthcheck"]:
            yield service["healthcheck"]["test"][2:]


@pytest.mark.parametrize("command", list(commands()), ids=" ".join)
def test_every_command_and_every_option_exists(command: list[str]) -> None:
    depth = 1 if command[0] == "coordinate" else 2
    shown = collegium(*command[:depth], "--help")
    assert shown.returncode == 0, shown.stderr
    for option in command[depth:]:
        if option.startswith("--"):
            assert re.search(rf"{option}\b", shown.stdout), option


def test_what_is_copied_into_the_image_exists_and_is_sent_to_the_builder() -> None:
    sent = (ROOT / ".dockerignore").read_text().splitlines()
    assert sent[0] == "*", "nothing else: neither data nor keys that lie beside it"
    copied = [
        word for name, rest in instructions() if name == "COPY" and "--from" not in rest for word in rest.split()[:-1]
    ]
    assert copied
    for path in copied:
        assert (ROOT / path).exists(), path
        assert f"!{path}" in sent, path


def test_the_extras_that_are_installed_exist() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (default,) = (rest for word, rest in instructions() if word == "ARG" and rest.startswith("EXTRAS="))
    assert set(default.removeprefix("EXTRAS=").split(",")) <= set(extras)


def test_images_run_as_an_account_without_rights_and_probe_what_they_start() -> None:
    found = stages()
    assert dict(found["member"])["USER"] == "10001:10001"
    assert words_of(dict(found["member"])["ENTRYPOINT"]) == ["collegium"]
    for kind in ("server", "site"):
        parts = dict(found[kind])
        assert parts["FROM"].startswith("member ")
        assert f'"{kind}", "health", "/kit"' in parts["HEALTHCHECK"]
        assert "USER" not in parts, "nothing goes back to root"


def test_every_service_has_a_root_that_cannot_be_written_and_no_capabilities() -> None:
    for name, service in services().items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert "ports" not in service, name
        assert service["image"] in ("collegium-site", "collegium-server")
    for name in MEMBERS:
        assert services()[name]["networks"] == ["federation"]


def test_whoever_is_waited_for_exists_and_says_when_it_is_there() -> None:
    known = services()
    for service in known.values():
        for name, how in service.get("depends_on", {}).items():
            healthy = how["condition"] == "service_healthy"
            assert ("test" in known[name]["healthcheck"]) == healthy


def test_what_is_prepared_is_what_the_others_start(tmp_path: Path) -> None:
    pytest.importorskip("nvflare")
    known = services()
    prepare = [str(word).replace("/demo", str(tmp_path)) for word in known["prepare"]["command"]]
    done = collegium(*prepare)
    assert done.returncode == 0, done.stderr
    started = [
        word for name in (*MEMBERS, "study") for word in map(str, known[name]["command"]) if word.startswith("/")
    ]
    there = [word for word in started if not word.endswith("/run")]
    assert len(there) == len(MEMBERS) + 2
    for path in there:
        assert Path(path.replace("/demo", str(tmp_path))).exists(), path
    host, port = (prepare[prepare.index(option) + 1] for option in ("--host", "--port"))
    assert host in known, "the server's name is that of its service"
    (exposed,) = (rest for word, rest in stages()["server"] if word == "EXPOSE")
    assert exposed == port
    wrong = collegium("federation", "demo", "--host", "elsewhere", "--out", str(tmp_path / "x"))
    assert (wrong.returncode, "--prepare" in wrong.stderr) == (2, True)
