from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import Any

import pytest
from tests.cli.commands import collegium, program
from typer.main import get_command
from typer.testing import CliRunner

import collegium as cg
from collegium.cli.main import app


@pytest.fixture(scope="module")
def ledger(cancer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "run"
    cancer.run(cg.FedCT(rounds=2), out=folder)
    return folder / "ledger.db"


def test_help_names_the_commands():
    result = program("--help")
    assert result.returncode == 0
    named = dict(line.split(maxsplit=1) for line in result.stdout.partition("Commands:")[2].strip().splitlines())
    assert list(named)[:3] == ["demo", "init", "run"]
    assert "plan" not in named
    assert named["ledger"] == "Look at a ledger: what has left a site."
    assert named["report"] == "Write the report of a run as one HTML file."


def _commands(group: Any, *path: str) -> Iterator[tuple[str, ...]]:
    for name, command in group.commands.items():
        yield from _commands(command, *path, name) if hasattr(command, "commands") else [(*path, name)]


@pytest.mark.parametrize("path", list(_commands(get_command(app))), ids=" ".join)
def test_every_command_has_the_help_of_its_function(path):
    shown = CliRunner().invoke(app, [*path, "--help"])
    assert shown.exit_code == 0, shown.output
    command = get_command(app)
    for name in path:
        command = command.commands[name]
    assert " ".join(command.help.split()) in " ".join(shown.output.split())
    assert "--help" in shown.output


def test_a_misspelt_command_is_answered_with_the_nearest():
    result = collegium("site", "chek")
    assert result.returncode == 2
    assert "Did you mean 'check'?" in result.stderr


def test_the_ledger_is_shown_and_verified_with_one_command(ledger):
    shown = collegium("ledger", "show", str(ledger))
    assert shown.returncode == 0
    assert shown.stdout.count("fedct.label") == 10
    assert "unprotected" in shown.stdout
    verified = collegium("ledger", "verify", str(ledger))
    assert verified.returncode == 0
    assert "site0: 2 releases, chain intact" in verified.stdout


def test_a_changed_ledger_fails_in_one_line(ledger, tmp_path):
    copy = tmp_path / "ledger.db"
    copy.write_bytes(ledger.read_bytes())
    db = sqlite3.connect(copy)
    db.execute("UPDATE ledger SET bytes = 1 WHERE seq = 1")
    db.commit()
    db.close()
    result = collegium("ledger", "verify", str(copy))
    assert result.returncode == 1
    assert "was changed" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_ledger_that_is_not_there_fails_in_one_line(tmp_path):
    result = collegium("ledger", "verify", str(tmp_path / "none.db"))
    assert (result.returncode, result.stdout) == (1, "")
    assert len(result.stderr.strip().splitlines()) == 1


def test_the_demo_ends_with_a_table_a_picture_and_where_things_are(tmp_path):
    result = program("demo", "--out", str(tmp_path / "demo"))
    assert result.returncode == 0, result.stderr
    assert "together" in result.stdout
    assert "hash chain intact" in result.stdout
    assert "report.html" in result.stdout
    assert (tmp_path / "demo" / "demo.png").stat().st_size > 10_000
    run = cg.load(tmp_path / "demo")
    assert len(set(run.about["learners"].values())) == 5
    assert run.summary().loc["mean", "accuracy"] > run.summary().loc["mean", "first_accuracy"]
    again = collegium("demo", "--out", str(tmp_path / "demo"))
    assert again.returncode == 0, again.stderr


def test_the_demo_does_not_touch_a_folder_of_something_else(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    result = collegium("demo", "--out", str(tmp_path))
    assert result.returncode == 2
    assert "not empty" in result.stderr
    assert (tmp_path / "thesis.txt").read_text() == "precious"
