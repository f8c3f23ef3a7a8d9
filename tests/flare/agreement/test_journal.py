"""What an owner decided stays written down, and nobody else can add to it or change it."""

from __future__ import annotations

import sqlite3
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from collegium.errors import ConfigError, LedgerError
from collegium.flare.agreement.journal import Journal
from collegium.protocols.keys import SiteKeys, new_secret

KEYS = SiteKeys("north", new_secret())


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "decisions.db"
    journal = Journal(path, KEYS)
    journal.add("approved", "1" * 64, reason="board of 3 May", by="A. Officer", runs=2)
    journal.add("paused", reason="audit")
    journal.add("resumed")
    return path


def test_entries_say_what_who_when_and_why(file: Path) -> None:
    first, second, third = Journal(file, KEYS).entries()
    assert (first.act, first.about, first.reason, first.by) == ("approved", "1" * 64, "board of 3 May", "A. Officer")
    assert first.terms == {"runs": 2}
    assert first.time.endswith("+00:00")
    assert [each.number for each in (first, second, third)] == [1, 2, 3]
    assert len({each.hash for each in (first, second, third)}) == 3
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_without_decisions_there_is_no_file(tmp_path: Path) -> None:
    assert Journal(tmp_path / "none.db", KEYS).entries() == []
    assert not (tmp_path / "none.db").exists()


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE decision SET reason = 'none' WHERE number = 1",
        "UPDATE decision SET act = 'denied' WHERE number = 1",
        "UPDATE decision SET by = 'B' WHERE number = 1",
        "UPDATE decision SET time = '2000-01-01T00:00:00+00:00' WHERE number = 2",
        "UPDATE decision SET terms = '{}' WHERE number = 1",
        "UPDATE decision SET signature = 'zz' WHERE number = 3",
        "DELETE FROM decision WHERE number = 1",
        "DELETE FROM decision WHERE number = 2",
        "UPDATE decision SET number = 9 WHERE number = 3",
    ],
)
def test_what_was_changed_or_removed_is_found(file: Path, change: str) -> None:
    db = sqlite3.connect(file)
    db.execute(change)
    db.commit()
    db.close()
    with pytest.raises(LedgerError, match="was changed"):
        Journal(file, KEYS).entries()


def test_nobody_else_can_add_an_entry(file: Path) -> None:
    Journal(file, SiteKeys("north", new_secret())).add("approved", "2" * 64)
    with pytest.raises(LedgerError, match="decision 4"):
        Journal(file, KEYS).entries()


def test_two_people_can_decide_at_the_same_time(file: Path) -> None:
    journal = Journal(file, KEYS)
    add: Callable[[int], None] = lambda number: journal.add("paused", reason=str(number))  # noqa: E731
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add, range(12)))
    assert sorted(int(each.reason) for each in journal.entries()[3:]) == list(range(12))


@pytest.mark.parametrize("name", ["\x00", "\u202eevil", "x" * 101])
def test_names_must_be_readable(file: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="A name"):
        Journal(file, KEYS).add("resumed", by=name)
    assert len(Journal(file, KEYS).entries()) == 3
