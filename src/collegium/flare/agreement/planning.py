"""Make a plan (`plan_of`), and see what a site would answer to one (`review`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from collegium import registry
from collegium.core.algorithm import Algorithm
from collegium.core.releases import KINDS, ApprovalBits, HardLabels, Nothing
from collegium.core.scores import measure, score
from collegium.core.steps import INSTALLED
from collegium.errors import ConfigError
from collegium.flare.agreement.plan import ANY_PARTY, Plan, PlannedStep, answer_kind
from collegium.flare.agreement.review import noise_on, review
from collegium.flare.agreement.verdicts import Review, Verdict
from collegium.runs.callbacks import Callback, RoundReport
from collegium.runs.results import Run
from collegium.secure.messages import Letters, MaskedVotes
from collegium.study.rehearsal import rehearse_federation
from collegium.study.study import Study
from collegium.wire import tables

_REHEARSED: Final = 3
_RETRIES: Final = 16
"""How often sites may be asked again for keys and letters, when others drop out or join."""

__all__ = ["ANY_PARTY", "Plan", "PlannedStep", "Review", "Verdict", "plan_of", "review"]


def plan_of(study: Study, public: Any, classes: Any, parties: Sequence[str], *, most_rounds: int | None = None) -> Plan:
    """What a study would ask of these sites, found by rehearsing it on made-up ones.

    Listed are the steps that the rehearsal asked for, and as not rehearsed all others that the algorithm declares:
    those that it falls back to when sites fail, and the score and metrics on held-out rows, as the study asks for them.
    Where nets are needed, only one round is rehearsed.

    Parameters
    ----------
    study:
        Its algorithm, seed and learners count; its data and its sites' policies do not.
    public:
        The public rows, ``(X, y)`` where the method learns from their labels, or None: nothing is rehearsed then.
    classes:
        The classes of all sites' labels.
    parties:
        The names of all sites; ``*`` where any site of the federation may come.
    most_rounds:
        How many rounds to rehearse at most; what later rounds would ask for is counted by these.
    """
    registry.install_steps()
    algorithm: Algorithm = study.build_algorithm()
    if own := sorted({name for _, name in registry.OWN if name in _texts(study.algorithm)}):
        raise ConfigError(
            f"algorithm: {', '.join(own)} is in a file of yours, but sites run only what is installed there. Ship it "
            'as a plug-in, install it here and at the sites, and use its name: see "Shipping it" in docs/extending.md.'
        )
    if algorithm.simulation_only:
        raise ConfigError(
            f"{type(algorithm).__name__} with these settings reveals private data: it is for simulations only."
        )
    X = public[0] if isinstance(public, tuple) else public
    if X is None and algorithm.needs_public:
        raise ConfigError(f"{type(algorithm).__name__} needs a public set, but the study has none.")
    if not parties:
        raise ConfigError("A plan needs at least one site: no sites were given.")
    seen: list[PlannedStep] = []
    rounds = 1 if algorithm.needs else most_rounds
    limits: dict[str, int] = {}
    counted = _Rounds()
    if X is not None:
        made_up = [f"site {number}" for number in range(_REHEARSED)] if ANY_PARTY in parties else parties
        rehearsed = rehearse_federation(study, public, classes, made_up, rounds=rounds, callbacks=[counted])
        seen = _seen(rehearsed, algorithm)
        limits = _limits(rehearsed, counted)
    settings = {"name": study.algorithm} if isinstance(study.algorithm, str) else dict(study.algorithm)
    asked = [score.name, *([measure.name] if study.metrics else [])] if study.federation.metrics else []
    never = {score.name, measure.name}.difference(asked)
    plan = Plan(
        study=study.name,
        algorithm=settings,
        seed=study.seed,
        classes=tuple(np.unique(np.asarray(classes)).tolist()),
        public_sha256=None if X is None else tables.digest(X),
        public_rows=0 if X is None else tables.n_rows(X),
        parties=tuple(parties),
        steps=tuple(
            _limited(each, limits, counted.all or algorithm.most_rounds)
            for each in (*seen, *_unseen(algorithm, seen))
            if each.step not in never
        ),
        complete=bool(seen) and (rounds is None or counted.rehearsed >= counted.all),
        metrics=tuple(study.metrics) if asked and algorithm.trains_sites else (),
    )
    return Plan.from_plain(plan.to_plain())  # what no site would take is an error here


class _Rounds(Callback):
    """How many rounds were rehearsed, and how many the algorithm would take."""

    def __init__(self) -> None:
        self.rehearsed = self.all = 0

    def on_round(self, report: RoundReport) -> None:
        self.rehearsed += 1
        self.all += report.rounds if report.round == 0 else 0


def _limits(rehearsed: Run, rounds: _Rounds) -> dict[str, int]:
    """How often each step may be asked of one site, by how often it was in each round of the rehearsal.

    Who takes part in a round may be drawn at random: a site may be asked as often as any was.
    """
    asked: dict[str, Counter[Any]] = {}
    for (number, _), orders in rehearsed.orders.groupby(["round", "party"]):
        for step, times in Counter(" ".join(orders["steps"]).split()).items():
            by_round = asked.setdefault(step, Counter())
            by_round[number] = max(by_round[number], times)
    whole = rounds.rehearsed >= rounds.all
    return {step: each.total() if whole else max(each.values()) * rounds.all for step, each in asked.items()}


def _limited(planned: PlannedStep, limits: Mapping[str, int], rounds: int) -> PlannedStep:
    """With a limit; a step that was not rehearsed may be asked for once a round."""
    kind = KINDS[planned.kind]
    is_protocol = kind is Letters or not (kind.holds_data or kind is Nothing)
    return replace(planned, most=limits.get(planned.step, rounds) * (_RETRIES if is_protocol else 1))


def _texts(value: Any) -> set[str]:
    """All words in a table of settings."""
    if isinstance(value, dict | list):
        return set().union(*map(_texts, value.values() if isinstance(value, dict) else value))
    return {value} if isinstance(value, str) else set()


def _seen(rehearsed: Run, algorithm: Algorithm) -> list[PlannedStep]:
    """What was asked in a rehearsal: once per step and kind of release, in the order of its first appearance."""
    planned: list[PlannedStep] = []
    asked = dict.fromkeys(name for steps in rehearsed.orders["steps"] for name in str(steps).split())
    for name in asked:
        step = INSTALLED[name]
        mechanism = noise_on(step, algorithm)
        released = rehearsed.releases[rehearsed.releases["step"] == name]
        for kind, rows in released.groupby("kind", sort=False):
            times, size = int(rows["party"].value_counts().max()), int(rows["wire_bytes"].max())
            planned.append(PlannedStep(name, step.digest, str(kind), mechanism, True, times, size))
        if released.empty:
            planned.append(PlannedStep(name, step.digest, step.releases.kind, mechanism, True))
    return planned


def _unseen(algorithm: Algorithm, seen: Sequence[PlannedStep]) -> list[PlannedStep]:
    """The other steps that the algorithm declares."""
    declared = algorithm.all_steps()
    # Noise and masks are those of the method, also on steps that a rehearsal did not reach.
    is_secret = any(each.kind == MaskedVotes.kind for each in seen)
    planned = []
    for name in sorted(declared.keys() - {each.step for each in seen}):
        step = declared[name]
        mechanism = noise_on(step, algorithm)
        noisy = algorithm.noise_on(step)
        masked = (is_secret and step.releases in (HardLabels, ApprovalBits)) or (
            noisy is not None and noisy.gives.masked_only
        )
        kind = answer_kind(name, mechanism, masked=masked)
        planned.append(PlannedStep(name, step.digest, str(kind), mechanism, False))
    return planned
