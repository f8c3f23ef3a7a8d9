"""``collegium list``."""

from __future__ import annotations

import inspect
import json
from typing import Any

import pandas as pd
from rich.console import Console

from collegium import registry
from collegium.core.building import settings_of
from collegium.errors import MissingExtra
from collegium.reports.tables import frame_table

_KINDS = {
    "algorithms": "algorithm",
    "learners": "learner",
    "consensus": "consensus",
    "mechanisms": "mechanism",
    "partitions": "partition",
}


def print_list(what: str, *, as_json: bool) -> None:
    """Print names, with what they are and their settings."""
    rows = _data_rows() if what == "data" else [_row(_KINDS[what], name) for name in registry.names(_KINDS[what])]
    if as_json:
        print(json.dumps(rows))  # noqa: T201
        return
    Console().print(frame_table(pd.DataFrame(rows), what.capitalize()))


def _row(kind: str, name: str) -> dict[str, Any]:
    try:
        cls = registry.lookup(kind, name)
    except MissingExtra as missing:
        return {"name": name, "what": f"not installed: pip install 'collegium[{missing.extra}]'", "settings": ""}
    summary = (inspect.getdoc(cls) or "").strip().splitlines()
    return {"name": name, "what": summary[0] if summary else cls.__name__, "settings": ", ".join(settings_of(cls))}


def _data_rows() -> list[dict[str, Any]]:
    from collegium.data.sources import list_sources

    return [row._asdict() for row in list_sources()]
