"""Sites with a real gate in this process, and a coordinator that may ask them anything."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from collegium import wire
from collegium.core.public_set import PublicSet
from collegium.core.site import Site
from collegium.core.steps import Order
from collegium.protocols.keyring import Keyring
from collegium.site.agent import Agent
from collegium.site.factory import open_site

RUN = "0123456789abcdef" * 2
U = np.random.default_rng(1).normal(size=(60, 3))


def rows(n: int = 200, seed: int = 0) -> tuple[Any, Any]:
    """Private rows of two classes."""
    X = np.random.default_rng(seed).normal(size=(n, 3))
    return X, np.where(X[:, 0] > 0, "ill", "well")


def open_really(
    site: Site, folder: Path | None = None, *, run: str = RUN, classes: Any = ("ill", "well"), public: Any = U
) -> Agent:
    """A site as in a federation: noise from the operating system, a gate that believes nobody."""
    return open_site(
        site,
        np.array(classes),
        PublicSet(public),
        0,
        run,
        simulation=False,
        keyring=lambda: Keyring.simulated(run, site.name, [site.name]),
        ledger=None if folder is None else folder / "ledger.db",
        folder=None if folder is None else folder / "runs" / run,
    )


def ask(
    agent: Agent, number: int, *orders: Order[Any], mechanism: Any = None, run: str = RUN
) -> tuple[dict[str, Any], bytes]:
    """What the coordinator gets: the header of the reply with its row, and the payload."""
    batch: list[dict[str, Any]] = [
        {"number": number, "round": 0, "step": each.step, "digest": each.digest, "args": each.args} for each in orders
    ]
    if mechanism is not None:
        batch[-1]["mechanism"] = mechanism
    frame = wire.join({"run": run, "last": number, "public": None}, wire.pack({"orders": batch}).data)
    header, payload = wire.cut(agent.serve(frame))
    return header | (header.pop("row", None) or {}), payload


def charges(header: dict[str, Any]) -> list[dict[str, Any]]:
    """The charges that a reply publishes."""
    found: list[dict[str, Any]] = json.loads(header["privacy"])["charges"]
    return found
