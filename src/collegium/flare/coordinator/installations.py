"""Which installation of each site takes part: pinned when it first answers, for all runs of a federation.

A kit can be copied. A copy elsewhere has another place, one without the agent's folder another key; and one that is
the same in everything has, sooner or later, an old turn: whoever answers is given a new one. When an installation is
not the known one, or two are connected at the same time, nobody is asked anything under that name until a lead
confirms which of them it is.
"""

from __future__ import annotations

import fcntl
import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from collegium.errors import CollegiumError, ConfigError, StorageError
from collegium.flare.kits.identity import Installation, write_private
from collegium.site.ledger import storage_errors

FILE: Final = "installations.json"
AUDIT: Final = "installations.log"
_MOST_TURNS, _MOST_SEEN = 16, 16


class OtherInstallation(CollegiumError):
    """A site answers from an installation that is not the known one, or that shares its name with another."""


class Installations:
    """The book in the server's kit, in the coordinator's folder."""

    def __init__(self, folder: Path) -> None:
        self._file, self._audit = folder / FILE, folder / AUDIT

    def meet(self, site: str, found: Installation) -> str:
        """The turn to give to the site's known installation; OtherInstallation if this is not the one."""
        with self._changing() as book:
            known = book.get(site)
            if known is None:
                known = book[site] = _pinned(found)
                self._note(f"{site} first answered, from installation {found.name}")
            is_known = (known["identity"], known["place"]) == (found.identity, found.place)
            if not _is_shut_out(known) and is_known and found.turn in known["turns"]:
                turn = secrets.token_hex(16)
                # what was given since may still be on its way, or was never kept
                later = known["turns"][known["turns"].index(found.turn) + 1 :]
                known["turns"] = [found.turn, *later[-_MOST_TURNS:], turn]
                return turn
            if found.name not in known["seen"] and len(known["seen"]) < _MOST_SEEN:
                known["seen"][found.name] = {**asdict(found), "at": _now()}
                self._note(f"{site} answered from installation {found.name}; shut out")
            twice = "twice" in known
        what = "while another is connected too" if twice else "which is not the one that took part before"
        raise OtherInstallation(
            f"{site} answers from installation {found.name}, {what}: its kit is in use twice, or was moved or "
            f"restored. It is asked nothing. Ask its owner which installation it has (collegium site status KIT), "
            f"then: collegium server confirm SERVER-KIT {site} INSTALLATION --lead KIT"
        )

    def shut_out(self, site: str) -> bool:
        """Two installations are connected at the same time; whether that is news."""
        with self._changing() as book:
            known = book.setdefault(site, _pinned(Installation("", "", "")))
            if "twice" in known:
                return False
            known["twice"] = _now()
            self._note(f"{site} was connected twice at the same time; shut out")
            return True

    def is_shut_out(self, site: str) -> bool:
        """Whether nobody is asked under this name."""
        with self._changing() as book:
            return site in book and _is_shut_out(book[site])

    def kept(self, site: str, turn: str) -> None:
        """The site has kept this turn: whoever comes with an earlier one is a copy."""
        with self._changing() as book:
            turns = book[site]["turns"]
            if turn in turns:
                book[site]["turns"] = turns[turns.index(turn) :]

    def sites(self) -> list[str]:
        """All that have ever answered."""
        with self._changing() as book:
            return sorted(book)

    def waiting(self) -> dict[str, dict[str, str]]:
        """The installations that have answered of each site that is shut out, and since when."""
        with self._changing() as book:
            return {
                site: {name: at for name, (_, at) in _candidates(known).items()}
                for site, known in book.items()
                if _is_shut_out(known)
            }

    def confirm(self, site: str, name: str, lead: str) -> None:
        """From now on this installation is the site's, and no other."""
        with self._changing() as book:
            found = _candidates(book[site]) if site in book and _is_shut_out(book[site]) else {}
            if name not in found:
                waiting = ", ".join(f"{each} ({at})" for each, (_, at) in found.items())
                raise ConfigError(f"{site} has not answered from installation {name!r} (waiting: {waiting or 'none'}).")
            book[site] = _pinned(found[name][0])
            self._note(f"{lead} confirmed installation {name} of {site}")

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Any]]:
        """The book, for one coordinator at a time; what was changed is kept, also before an error."""
        with storage_errors(self._file, StorageError), self._file.with_suffix(".lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                before = self._file.read_bytes() if self._file.is_file() else b"{}"
                book: dict[str, Any] = dict(json.loads(before))
            except ValueError:
                raise StorageError(f"{self._file} is damaged: restore it from a backup.") from None
            yield book
            after = json.dumps(book, indent=1).encode()
            if after != before:
                write_private(self._file, after)

    def _note(self, text: str) -> None:
        with storage_errors(self._audit, StorageError), self._audit.open("a", encoding="utf-8") as file:
            self._audit.chmod(0o600)
            file.write(f"{_now()} {text}\n")


def _pinned(found: Installation) -> dict[str, Any]:
    return {"identity": found.identity, "place": found.place, "turns": [found.turn], "since": _now(), "seen": {}}


def _is_shut_out(known: dict[str, Any]) -> bool:
    return bool(known["seen"]) or "twice" in known


def _candidates(known: dict[str, Any]) -> dict[str, tuple[Installation, str]]:
    """Whom a lead can confirm: the one that took part before, and those that answered since."""
    before = [Installation(known["identity"], known["place"], turn) for turn in known["turns"] if known["identity"]]
    found = {each.name: (each, str(known["since"])) for each in before}
    for name, about in known["seen"].items():
        found[name] = Installation(about["identity"], about["place"], about["turn"]), str(about["at"])
    return found


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
