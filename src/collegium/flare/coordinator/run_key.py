"""The secret that a coordinator's noise and draws come from, for one run.

Sites know the plan, and with it the study's seed: nothing that protects one of them from the others may follow from it.
The key is drawn from the operating system when a run begins. A coordinator that was killed needs it to give the same
orders again, so it stays in the run's folder until the run is finished.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Final

from collegium.errors import RecordError, StorageError
from collegium.flare.kits.identity import write_private
from collegium.site.ledger import storage_errors

FILE: Final = "run.key"
_BYTES: Final = 32


def run_key(folder: Path, *, begun: bool) -> bytes:
    """The key of the run in this folder; a new one where nothing has been asked of any site yet."""
    file = folder / FILE
    with storage_errors(file, StorageError):
        if not begun and not file.is_file():
            write_private(file, secrets.token_bytes(_BYTES))
        key = file.read_bytes() if file.is_file() else b""
    if len(key) != _BYTES:
        raise RecordError(
            f"{file} is missing or damaged: without it the coordinator cannot repeat its orders. Restore the file, or "
            "start a new run in another folder."
        )
    return key


def wipe_key(folder: Path) -> None:
    """The run is finished: nobody can repeat its noise from now on."""
    with storage_errors(folder / FILE, StorageError):
        (folder / FILE).unlink(missing_ok=True)
