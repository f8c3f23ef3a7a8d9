"""What an owner reads before signing a plan: found at the site, from the code that is installed there.

Whoever proposes a plan writes its texts and its numbers. Nothing of that is shown as a fact: who learns what follows
from the installed algorithm, how often and how much from a rehearsal here, limits are those that this site enforces.
What can only be the coordinator's words says so.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np

from collegium.core.algorithm import Algorithm
from collegium.core.building import build
from collegium.core.public_set import PublicSet
from collegium.core.releases import KINDS, Nothing
from collegium.core.scores import measure, score
from collegium.errors import CollegiumError
from collegium.flare.agreement.bounded import Overrun, bounded
from collegium.flare.agreement.disclosure import COORDINATOR, ENFORCED, FOUND, Consent, Leaving, Line
from collegium.flare.agreement.plan import ANY_PARTY, Plan, PlannedStep
from collegium.flare.agreement.planning import plan_of
from collegium.flare.site.file import SiteFile
from collegium.study.study import DataSection, SiteSection, Study
from collegium.wire import tables

MOST_ROUNDS: Final = 20
_MOST_PARTIES: Final = 5
_SHOWN: Final = 20
_Rehearsed: TypeAlias = tuple[tuple[PlannedStep, ...], str | None]


def consent(
    plan: Plan,
    file: SiteFile,
    public: PublicSet | None,
    terms: str = "",
    *,
    seconds: float | None = None,
    unrehearsed: str | None = None,
) -> Consent:
    """What the owner of this file would agree to by signing a plan; `public` is the set that the plan names.

    With `seconds` the plan is rehearsed in a process of its own, which has so much time: whoever proposes a plan
    chooses how long its rehearsal takes, and how much memory. `unrehearsed` says why it is not to be rehearsed.
    """
    algorithm: Algorithm = build("algorithm", plan.algorithm, "algorithm")
    found, problem = _rehearsed_within(seconds, plan, file, public) if unrehearsed is None else ((), unrehearsed)
    settings = ", ".join(f"{name} = {value!r}" for name, value in plan.algorithm.items() if name != "name")
    about = (algorithm.__doc__ or "").strip().split("\n", 1)[0]
    sites = "any site of the federation" if ANY_PARTY in plan.parties else _few(plan.parties)
    own = {(step.step, step.kind): step for step in found}
    steps = [step for step in plan.steps if step.kind != Nothing.kind]
    leaves = [_leaving(step, own.get((step.step, step.kind)), rehearsed=problem is None) for step in steps]
    learns = who_learns(algorithm, steps)
    lines = [
        Line("plan", plan.digest, FOUND),
        Line("study", repr(plan.study), COORDINATOR),
        Line("algorithm", plan.algorithm["name"] + (f": {about}" if about else ""), FOUND),
        *([Line("settings", settings, ENFORCED)] if settings else []),
        Line("sites", sites, COORDINATOR),
        Line("classes", _few(plan.classes), COORDINATOR),
        _public_line(plan, public),
        *([Line("metrics on held-out rows", _few(plan.metrics), ENFORCED)] if plan.metrics else []),
        *[line for each in leaves for line in _lines(each)],
        *([] if leaves else [Line("would leave this site", "nothing", ENFORCED)]),
        *([] if problem is None else [Line("not found out here", f"how often and how much: {problem}", FOUND)]),
        *[Line(f"learned by {who}", what, FOUND) for who, what in learns.items()],
        *([Line("you would approve", terms, ENFORCED)] if terms else []),
    ]
    failed = None if public is None else problem
    warnings = _warnings(plan, public, own if problem is None else None, failed)
    return Consent(tuple(lines), tuple(warnings), tuple(leaves), tuple(learns.items()))


def who_learns(algorithm: Algorithm, steps: Sequence[PlannedStep]) -> dict[str, str]:
    """What each party gets to know: what the method says, or what its releases show."""
    if said := algorithm.learns():
        return said
    if not steps:
        return {"coordinator": "only that each site answered"}
    told = [
        KINDS[each.kind].coordinator_learns
        or f"each site's {each.kind} ({each.step}{'' if each.mechanism is None else ', with noise'})"
        for each in steps
        if each.kind in KINDS
    ]
    return {
        "coordinator": "; ".join(dict.fromkeys(told)),
        "other sites": "what the coordinator computes from all of them",
    }


def _rehearsed_within(seconds: float | None, plan: Plan, file: SiteFile, public: PublicSet | None) -> _Rehearsed:
    """The steps as this site finds them with made-up rows, or why it cannot."""
    if public is None:
        why = "the public set is not here" if plan.public_sha256 else "without public rows nothing can be rehearsed"
        return (), why
    if seconds is None:
        return _rehearsed(plan, file, public.X)
    try:
        return bounded(_rehearsed, plan, file, public.X, seconds=seconds)
    except Overrun as error:
        return (), f"the rehearsal was ended: {error}"


def _rehearsed(plan: Plan, file: SiteFile, X: Any) -> _Rehearsed:
    try:
        return plan_of(*rehearsable(plan, file, X), most_rounds=MOST_ROUNDS).steps, None
    except CollegiumError as error:
        return (), str(error)
    except Exception as error:  # settings that somebody else chose meet code that did not expect them
        return (), f"the rehearsal failed ({type(error).__name__})"


def rehearsable(plan: Plan, file: SiteFile, X: Any) -> tuple[Study, Any, Sequence[Any], Sequence[str]]:
    """What a plan would run with this site's learner: a study, public rows, classes and names of sites."""
    algorithm: Algorithm = build("algorithm", plan.algorithm, "algorithm")
    learner = SiteSection(learner=file.learner, prepare=file.prepare)
    study = Study(
        seed=plan.seed, data=DataSection(source="-"), algorithm=plan.algorithm, sites=[learner],
        metrics=list(plan.metrics),
    )  # fmt: skip
    classes = np.asarray(plan.classes)
    made_up = classes[np.arange(tables.n_rows(X)) % len(classes)]  # sizes do not depend on them
    rows = (X, made_up) if algorithm.learns_public_labels else X
    parties = plan.parties if len(plan.parties) <= _MOST_PARTIES else plan.parties[:_MOST_PARTIES]
    return study, rows, plan.classes, parties


def _leaving(step: PlannedStep, found: PlannedStep | None, *, rehearsed: bool) -> Leaving:
    kind = KINDS.get(step.kind)
    what = " ".join(str(kind.__doc__ or "").split("\n\n")[0].split()) if kind is not None else "unknown here"
    noise = "" if step.mechanism is None else str(step.mechanism["name"])
    leaving = Leaving(step.kind, what, step.step, step.most, noise)
    if found is not None and found.rehearsed:
        return replace(leaving, bytes=found.bytes)
    if step.step in (score.name, measure.name):
        return replace(leaving, note="when a round ends, unless the study does without")
    if found is not None:
        return replace(leaving, note="not asked for in the rehearsal: perhaps never")
    if not rehearsed and step.rehearsed:
        return replace(leaving, bytes=step.bytes, source=COORDINATOR)
    return leaving


def _lines(each: Leaving) -> Iterator[Line]:
    noise = f", through {each.noise}" if each.noise else ""
    yield Line(
        "would leave this site", f"{each.kind} by {each.step}, at most {each.most} times in a run{noise}", ENFORCED
    )
    if each.bytes is not None:
        yield Line("", f"about {each.bytes} bytes each", each.source)
    elif each.note:
        yield Line("", each.note, FOUND)


def _public_line(plan: Plan, public: PublicSet | None) -> Line:
    if plan.public_sha256 is None:
        return Line("public set", "none", ENFORCED)
    if public is None:
        return Line("public set", f"{plan.public_rows} rows, hash {plan.public_sha256}; it is not here", COORDINATOR)
    return Line("public set", f"{len(public)} rows, hash {plan.public_sha256}", FOUND)


def _warnings(
    plan: Plan, public: PublicSet | None, own: Mapping[tuple[str, str], PlannedStep] | None, failed: str | None
) -> Iterator[str]:
    if failed is not None:
        yield f"The plan could not be rehearsed here, so nothing was compared: {failed.removesuffix('.')}."
    if public is not None and len(public) != plan.public_rows:
        yield f"The plan speaks of {plan.public_rows} public rows, the set has {len(public)}."
    if own is None:
        return
    for step in plan.steps:
        found = own.get((step.step, step.kind))
        if found is None:
            yield f"The plan has {step.step} release {step.kind}, which the method did not do here."
            continue
        if step.most > found.most:
            yield f"The plan allows {step.step} {step.most} times in a run; the method needs {found.most}."
        if step.rehearsed and found.bytes > 2 * step.bytes:
            yield f"The plan says {step.bytes} bytes for each answer to {step.step}; here it was {found.bytes}."


def _few(values: Sequence[object]) -> str:
    return ", ".join(map(str, values[:_SHOWN])) + (f", ... ({len(values)} in all)" if len(values) > _SHOWN else "")
