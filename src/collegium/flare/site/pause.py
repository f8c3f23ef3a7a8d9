"""A site that its owner has paused: nothing is begun and nothing leaves until the owner resumes it.

A pause is a file in the agent's folder, so that it works while the agent is running and while it is not, and outlives
both. A file that cannot be read is a pause as well.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from collegium.errors import Refused, StorageError
from collegium.flare.agreement.journal import plain_name, plain_reason
from collegium.flare.agreement.orders import remove
from collegium.flare.agreement.signed_words import read_json
from collegium.flare.kits.identity import AGENT, write_private
from collegium.site.ledger import storage_errors

PAUSED: Final = "paused"
"""The code of a site that its owner has paused: it is asked again, as one that is away."""
_FILE: Final = "paused.json"


@dataclass(frozen=True)
class Pause:
    """Since when, and why."""

    since: str
    reason: str
    by: str


def pause(kit: str | Path, *, reason: str = "", by: str = "") -> Pause:
    """Pause a site. One that is paused already stays so since then, for the new reason."""
    before, now = paused(Path(kit) / AGENT), datetime.now(UTC).isoformat(timespec="seconds")
    made = Pause(now if before is None or not before.since else before.since, plain_reason(reason), plain_name(by))
    write_private(Path(kit) / AGENT / _FILE, json.dumps(asdict(made)).encode())
    return made


def resume(kit: str | Path) -> None:
    """Take part again."""
    remove(Path(kit) / AGENT / _FILE)


def paused(agent: Path) -> Pause | None:
    """The pause of the site whose agent's folder this is, if there is one."""
    file = agent / _FILE
    with storage_errors(file, StorageError):
        if not file.exists():
            return None
    said = read_json(file)
    with suppress(TypeError):
        return Pause(**{name: str(value) for name, value in said.items()})
    return Pause("", "", "")


def require_not_paused(agent: Path) -> None:
    """Refuse what a paused site does not do."""
    if paused(agent) is not None:
        raise Refused(PAUSED, "This site's owner has paused it.")
