"""Small tables that a site signs with its identity key: approvals, denials, and the journal of both.

Whoever can write into the folder but does not have the key can take such words away, and cannot write any.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from collegium.flare.kits.identity import write_private
from collegium.protocols import primitives
from collegium.protocols.keys import SiteKeys
from collegium.protocols.primitives import bind

APPROVAL, DENIAL, DECISION = "collegium approval v1", "collegium denial v1", "collegium decision v1"
"""What words are about. A signature counts for one of them: nobody can pass a denial off as an approval."""
_MOST_BYTES: Final = 1 << 16
_BESIDE: Final = ("site", "time")


def signature_of(keys: SiteKeys, purpose: str, words: Mapping[str, Any]) -> str:
    """A signature of a table, in hexadecimal digits."""
    return primitives.sign(keys.secret, _message(purpose, words)).hex()


def is_signed(keys: SiteKeys, purpose: str, words: Mapping[str, Any], signature: object) -> bool:
    """Did this site sign exactly these words, for this purpose?"""
    try:
        raw = bytes.fromhex(signature) if isinstance(signature, str) else b""
    except ValueError:
        return False
    return primitives.is_signed(bytes.fromhex(keys.identity), raw, _message(purpose, words))


def write_signed(file: Path, keys: SiteKeys, purpose: str, words: Mapping[str, Any]) -> None:
    """Sign a table, with the site's name and the time, and keep it in a file."""
    said = {**words, "site": keys.party, "time": datetime.now(UTC).isoformat(timespec="seconds")}
    write_private(file, json.dumps({**said, "signature": signature_of(keys, purpose, said)}).encode())


def read_signed(file: Path, keys: SiteKeys, purpose: str) -> dict[str, Any]:
    """What this site signed in a file; nothing if it did not."""
    said = read_json(file)
    signature = said.pop("signature", None)
    if said.get("site") != keys.party or not is_signed(keys, purpose, said, signature):
        return {}
    return {key: value for key, value in said.items() if key not in _BESIDE}


def read_json(file: Path) -> dict[str, Any]:
    """A small table from a file; an empty one where the file is missing or damaged."""
    with suppress(OSError, ValueError, RecursionError):
        if file.stat().st_size <= _MOST_BYTES:
            read = json.loads(file.read_bytes())
            return read if isinstance(read, dict) else {}
    return {}


def _message(purpose: str, words: Mapping[str, Any]) -> bytes:
    canonical = json.dumps(words, sort_keys=True, separators=(",", ":"))
    return bind(purpose, hashlib.sha256(canonical.encode()).digest())
