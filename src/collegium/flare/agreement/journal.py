"""The journal of a site's owner: every decision, who made it and why, signed and chained in the order it was made.

An approval that is used up, a denial that was reconsidered, a pause that is over: the files that say what holds now
forget them, and the journal does not. What it cannot show by itself is that its last entries are missing: an export
(`collegium site export`) has the hash of its end, to compare with.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, get_args

from collegium.errors import ConfigError, LedgerError, StorageError
from collegium.flare.agreement.signed_words import DECISION, is_signed, signature_of
from collegium.protocols.keys import SiteKeys
from collegium.site.ledger import storage_errors

Act = Literal["approved", "denied", "withdrawn", "order approved", "order denied", "paused", "resumed", "run ended"]
MOST_REASON: Final = 500
_MOST_NAME: Final = 100
_COLUMNS: Final = ("number", "time", "site", "act", "about", "reason", "by", "terms", "prev")
_SCHEMA: Final = f"""CREATE TABLE IF NOT EXISTS decision (
    number INTEGER PRIMARY KEY, {", ".join(f"{name} TEXT NOT NULL" for name in (*_COLUMNS[1:], "hash", "signature"))});
"""


@dataclass(frozen=True)
class Decision:
    """What an owner decided."""

    number: int
    time: str
    act: Act
    about: str
    """The hash of a plan, ``RUN:NUMBER`` of an order, a run; empty where it is about the whole site."""
    reason: str
    by: str
    """The person, as they gave their name."""
    terms: dict[str, Any]
    """What else was agreed on: how many runs, until when, whether the coordinator is told why."""
    hash: str


class Journal:
    """Decisions in one file, which is made with the first of them."""

    def __init__(self, file: Path, keys: SiteKeys) -> None:
        self._file, self._keys = file, keys

    def add(self, act: Act, about: str = "", *, reason: str = "", by: str = "", **terms: Any) -> None:
        """Write a decision down, signed. What cannot be written down is not to be done."""
        words: dict[str, Any] = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"), "site": self._keys.party, "act": act,
            "about": about, "reason": plain_reason(reason), "by": plain_name(by), "terms": json.dumps(terms),
        }  # fmt: skip
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")
            last = db.execute("SELECT number, hash FROM decision ORDER BY number DESC LIMIT 1").fetchone()
            words |= {"number": last[0] + 1 if last else 1, "prev": last[1] if last else ""}
            signature = signature_of(self._keys, DECISION, words)
            row = [*(words[name] for name in _COLUMNS), _hash(words, signature), signature]
            db.execute(f"INSERT INTO decision VALUES ({', '.join('?' * len(row))})", row)  # noqa: S608
            db.execute("COMMIT")

    def entries(self) -> list[Decision]:
        """All of them, oldest first; a LedgerError where one was changed or is missing."""
        if not self._file.exists():
            return []
        with self._open() as db:
            rows = [dict(row) for row in db.execute("SELECT * FROM decision ORDER BY number")]
        found, prev = [], ""
        for number, row in enumerate(rows, start=1):
            words = {name: row[name] for name in _COLUMNS}
            signed = is_signed(self._keys, DECISION, words, row["signature"])
            chained = (row["number"], row["prev"], row["hash"]) == (number, prev, _hash(words, row["signature"]))
            if not signed or not chained or row["act"] not in get_args(Act):
                raise LedgerError(
                    f"{self._file}: decision {number} was changed, or one before it removed. Restore the file from a "
                    "backup, and find out who did that."
                )
            prev = row["hash"]
            shown = {name: row[name] for name in ("number", "time", "act", "about", "reason", "by", "hash")}
            found.append(Decision(**shown, terms=json.loads(row["terms"])))
        return found

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with storage_errors(self._file, StorageError):
            with suppress(FileExistsError):  # it holds names and reasons: its owner's alone, from the first byte
                os.close(os.open(self._file, os.O_CREAT | os.O_EXCL, 0o600))
            with closing(sqlite3.connect(self._file, timeout=60, isolation_level=None)) as db:
                db.row_factory = sqlite3.Row
                db.executescript(_SCHEMA)
                yield db


def plain_reason(text: str) -> str:
    """A reason as it is kept: one line of printable text."""
    return _plain(text, "A reason", MOST_REASON)


def required_reason(text: str) -> str:
    """The reason of a denial, which must have one."""
    plain = plain_reason(text)
    if not plain:
        raise ConfigError("A denial needs a reason. It stays here, unless you want the coordinator to be told.")
    return plain


def plain_name(text: str) -> str:
    """A person's name as it is kept."""
    return _plain(text, "A name", _MOST_NAME)


def this_user() -> str:
    """Who uses this program, as the machine knows them."""
    try:
        return plain_name(getpass.getuser())
    except (OSError, KeyError, ConfigError):
        return ""


def _plain(text: str, what: str, most: int) -> str:
    plain = " ".join(text.split())
    if len(plain) > most or not plain.isprintable():
        raise ConfigError(f"{what} must be printable text of at most {most} characters.")
    return plain


def _hash(words: dict[str, Any], signature: str) -> str:
    return hashlib.sha256(json.dumps([words[name] for name in _COLUMNS] + [signature]).encode()).hexdigest()
