"""What the pages of a site stand on: its desk, and what is costly to find out, kept until it changes."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

from collegium.console.site_explaining import Explanation, Explanations
from collegium.errors import ConfigError
from collegium.flare.kits.kit import kind_of, read_kit
from collegium.flare.operations.certificates import Certificate, certificate_of
from collegium.flare.site.desk import Desk, open_desk
from collegium.flare.site.file import SITE_FILE
from collegium.flare.site.overview import ledger_of, ledger_problem
from collegium.flare.site.spending import Spending, SpendingReader
from collegium.flare.supervise.standing import is_running, read_standing


class SiteView:
    """A kit that pages look at, from several threads."""

    def __init__(self, kit: Path) -> None:
        self._kit, self._lock = kit, threading.RLock()
        self._desk, self._read_at = open_desk(kit, learner=False), self._file_stamp()
        self._spending, self._explanations = SpendingReader(self._desk), Explanations()
        self._problem, self._verified = "", (-1, -1)

    @property
    def desk(self) -> Desk:
        """The owner's desk, opened again when site.toml has changed."""
        with self._lock:
            now = self._file_stamp()
            if now != self._read_at:
                self._desk, self._read_at = open_desk(self._kit, learner=False), now
                self._spending = SpendingReader(self._desk)
            return self._desk

    def spending(self) -> Spending:
        """What was spent until now."""
        with self._lock:
            return self._spending.read()

    def explained(self, digest: str) -> Explanation | None:
        """What an officer reads of a plan; None while that is being found out."""
        return self._explanations.of(self.desk, digest)

    def ledger_problem(self) -> str:
        """Why the ledger cannot be relied on. All rows are verified again when there are more of them."""
        desk = self.desk
        with self._lock:
            end = ledger_of(desk).end()
            if end != self._verified:
                self._problem, self._verified = ledger_problem(desk), end
            return self._problem

    def certificate(self) -> Certificate | str | None:
        """The site's certificate, or what is wrong with it; None where the kit has none yet."""
        if kind_of(self._kit) is None:
            return None
        try:
            return certificate_of(read_kit(self._kit, "site", valid=False))
        except ConfigError as error:
            return str(error)

    def stamp(self) -> str:
        """What tells whether anything at the site has changed, without reading any of it."""
        agent, told = self._kit / "agent", read_standing(self._kit)
        here = is_running(self._kit), told and (told.connected, told.trouble)
        names = ("ledger.db", "ledger.db-wal", "plans", "approvals", "approvals/decisions.db", "denials", "orders")
        paths = [agent / name for name in (*names, "paused.json", "runs")]
        paths += [*agent.glob("runs/*/open.json"), *agent.glob("runs/*/ended"), self._kit / SITE_FILE]
        paths += [*self._kit.glob("startup/*.crt")]
        seen = []
        for path in paths:
            if path.exists():
                state = path.stat()
                seen.append((str(path), state.st_mtime_ns, state.st_size))
        return hashlib.sha256(repr((seen, here)).encode()).hexdigest()

    def close(self) -> None:
        """Begin no more explanations."""
        self._explanations.close()

    def _file_stamp(self) -> int:
        return (self._kit / SITE_FILE).stat().st_mtime_ns
