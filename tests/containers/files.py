"""The files for containers, taken apart: what they copy, start, probe and mount."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
CONTAINERFILE = ROOT / "containers" / "Containerfile"
COMPOSE = ROOT / "containers" / "compose.yaml"


def instructions() -> list[tuple[str, str]]:
    """The instructions of the Containerfile, continued lines joined."""
    text = "\n".join(line for line in CONTAINERFILE.read_text().splitlines() if not line.startswith("#"))
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split(None, 1)[0], line.split(None, 1)[1].strip()) for line in lines if line.strip()]


def stages() -> dict[str, list[tuple[str, str]]]:
    """By their names."""
    found: dict[str, list[tuple[str, str]]] = {}
    name = ""
    for word, rest in instructions():
        if word == "FROM":
            name = rest.rpartition(" AS ")[2]
        found.setdefault(name, []).append((word, rest))
    return found


def words_of(text: str) -> list[str]:
    """A command in either form."""
    return list(json.loads(text)) if text.startswith("[") else shlex.split(text)


def services() -> dict[str, dict[str, Any]]:
    """Of the compose file, with what they share filled in."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
    return found
