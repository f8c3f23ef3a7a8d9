"""Where a run and its sites stand, in plain words."""

from __future__ import annotations

import math
import time
from typing import Final

from collegium.console.following import Follower, State
from collegium.console.history import History
from collegium.reports.refusals import CODES, UNKNOWN

STATES: Final[dict[State, str]] = {
    "waiting": "waiting",
    "running": "running",
    "finished": "finished",
    "interrupted": "stopped",
    "failed": "failed",
    "killed": "not running",
}
_AT_SITES: Final = {
    "away": "away",
    "waiting": "waits for its owner to approve the plan",
    "not-open": "opening the run",
    "busy": "at work",
    "done": "has answered",
}
"""States of a site of a federation; others are codes of refusals."""
SOON_DAYS: Final = 30
"""With fewer days left, a certificate is to be renewed."""
_DAY: Final = 86400
PERCENT: Final = ("accuracy", "balanced_accuracy", "global_accuracy")


def metric_name(name: str) -> str:
    """A metric as people call it: test.roc_auc is roc auc."""
    split, _, metric = name.partition(".")
    words = metric.replace("_", " ")
    return words if split in ("test", "public") else f"{words} ({split})"


def is_share(name: str) -> bool:
    """Is it shown in percent?"""
    return name.rpartition(".")[2] in PERCENT


def step_words(steps: str) -> str:
    """Steps as people call them: fedct.train fedct.label is train, label."""
    return ", ".join(step.rpartition(".")[2].replace("_", " ") for step in steps.split())


def explained(follower: Follower) -> str:
    """Why a run is not going on, and what next; nothing of one that runs or is finished."""
    history, state = follower.history, follower.state
    if follower.problem:
        return follower.problem
    if state in ("interrupted", "failed", "killed"):
        if follower.is_starting:
            return "The run is being continued: it is starting."
        if history.opened < follower.continued_at and (said := follower.last_words()) is not None:
            return f"The run could not be continued. What it said last: {said}"
    if state == "failed":
        return f"The run failed: {history.why}"
    if state == "interrupted":
        return "The run was stopped. What it has done is kept, and it goes on from there when it is resumed."
    if state == "killed":
        who = f"Process {history.process} ended without saying so" if history.process else "The run was not finished"
        why = ": it was killed, or the machine went down" if history.process else ""
        return f"{who}{why}. What it has done is kept: resume it, and this page goes on by itself."
    if state == "waiting":
        return f"No run has begun in {follower.folder} yet. This page begins by itself when one does."
    return ""


def days_left(until: float | None) -> int | None:
    """Whole days until a certificate expires."""
    return None if until is None else math.floor((until - time.time()) / _DAY)


def certificates(history: History) -> tuple[str, bool]:
    """How long the certificates of those last who are no sites, and whether it is time to renew one."""
    others = {name: days_left(until) for name, until in history.certificates.items() if name not in history.parties}
    if not others:
        return "", False
    soon = [name for name, days in others.items() if days is not None and days < SOON_DAYS]
    text = ", ".join(f"{name} {days} day{'s' if days != 1 else ''}" for name, days in sorted(others.items()))
    advice = f" Have it renewed: {', '.join(soon)}." if soon else ""
    return f"Certificates last: {text}.{advice}", bool(soon)


def stands(history: History, state: State, at_work: dict[int, str]) -> list[tuple[str, str]]:
    """Where each site stands, and what kind of news that is: good, warn, bad or none."""
    found = []
    for index, party in enumerate(history.parties):
        at_site = str(history.sites.get(party, {}).get("state", ""))
        if state != "running":
            found.append(("", ""))
        elif at_site in ("away", "waiting"):
            found.append((_AT_SITES[at_site], "warn"))
        elif at_site and at_site not in _AT_SITES:
            found.append((f"{at_site}: {CODES.get(at_site, UNKNOWN)}", "bad"))
        elif index in at_work:
            found.append((f"at work: {step_words(at_work[index])}", "good"))
        elif at_site:
            found.append((_AT_SITES[at_site], "good"))
        else:
            found.append(("has answered" if index < len(history.totals.answers) else "", "good"))
    return found
