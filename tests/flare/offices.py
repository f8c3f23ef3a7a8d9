"""Real offices of real sites, reached in process: what the link says and hears, without NVFlare between."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer

from collegium.flare.agreement.approvals import Approvals
from collegium.flare.coordinator.link import PartyAway, PartyLost, SessionLost
from collegium.flare.kits.identity import instance, make_agent_folder, read_keys
from collegium.flare.site.office import Office
from collegium.flare.site.setup import load_public, load_site

SITE = """
name = "{name}"
learner = {{ name = "{learner}"{settings} }}
[data]
source = "train.csv"
target = "diagnosis"
held_out = 0.25
[policy]
approval = "{approval}"
{policy}
"""


def write_data(folder: Path, names: Iterable[str], *, rows: int = 40) -> pd.DataFrame:
    """A train.csv for each site; returns the public rows, without labels."""
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    frame = X.assign(diagnosis=np.where(y == 1, "benign", "malignant"))
    frame = frame.sample(frac=1, random_state=0).reset_index(drop=True)
    for number, name in enumerate(names):
        (folder / name).mkdir(parents=True, exist_ok=True)
        frame.iloc[number * rows : (number + 1) * rows].to_csv(folder / name / "train.csv", index=False)
    public = frame.iloc[-150:].drop(columns="diagnosis").reset_index(drop=True)
    public.to_csv(folder / "public.csv", index=False)
    return public


def write_site(
    kit: Path,
    name: str,
    *,
    learner: str = "decision_tree",
    settings: str = "",
    approval: str = "auto",
    policy: str = "",
) -> None:
    """A site's file and keys. `settings` are the learner's: ``, max_depth = 3``."""
    kit.mkdir(parents=True, exist_ok=True)
    make_agent_folder(kit)
    text = SITE.format(name=name, learner=learner, settings=settings, approval=approval, policy=policy)
    (kit / "site.toml").write_text(text, encoding="utf-8")


def open_office(kit: Path) -> Office:
    """What the agent's process does, in this one."""
    setup = load_site(kit)
    folder = kit / "agent"
    return Office(
        folder,
        setup,
        Approvals(folder, read_keys(folder, setup.file.name)),
        instance(kit),
        load_public(kit, setup.file),
    )


class OfficeSession:
    """A session that lasts until its host breaks it."""

    def __init__(self, host: OfficeHost, ready: frozenset[str]) -> None:
        self.ready, self._host, self.ended = ready, host, False

    def request(self, party: str, message: bytes, timeout: float) -> bytes:
        self._host.requests += 1
        self._host.before_request(party, message)
        if self.ended:
            raise SessionLost("the session was broken")
        if party in self._host.away:
            raise PartyLost(f"{party} is away")
        if party in self._host.starting:
            raise PartyAway(f"{party} is being started")
        reply = self._host.offices[party].answer(message)
        self._host.after_reply(party, message)
        if self.ended:  # the reply was lost on the way
            raise SessionLost("the session was broken")
        return reply

    def close(self) -> None:
        self.ended = True


class OfficeHost:
    """Sites in this process; tests take them away, bring them back and break sessions."""

    def __init__(self, kits: Mapping[str, Path]) -> None:
        self.offices = {name: open_office(kit) for name, kit in kits.items()}
        self.kits = dict(kits)
        self.away: set[str] = set()
        self.starting: set[str] = set()
        self.sessions: list[OfficeSession] = []
        self.heard = dict.fromkeys(kits, time.time())
        self.requests = 0

    def before_request(self, party: str, message: bytes) -> None:
        """For tests that do something at a certain moment."""

    def after_reply(self, party: str, message: bytes) -> None:
        """For tests that do something at a certain moment."""

    def seen(self) -> dict[str, float]:
        now = time.time()
        self.heard |= {party: now for party in self.offices if party not in self.away}
        return dict(self.heard)

    def begin(self, parties: frozenset[str]) -> OfficeSession:
        self.sessions.append(OfficeSession(self, parties - self.away))
        return self.sessions[-1]

    def restart(self, party: str) -> None:
        """A new agent process at that site."""
        self.offices[party] = open_office(self.kits[party])
