"""What a site would answer to a plan: what its file allows and what it refuses, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import numpy as np

from collegium import registry
from collegium.core.algorithm import Algorithm
from collegium.core.building import build
from collegium.core.releases import KINDS, Nothing
from collegium.core.steps import INSTALLED, Step
from collegium.errors import ConfigError, Refused
from collegium.flare import PROTOCOL
from collegium.flare.agreement.plan import ANY_PARTY, Plan, PlannedStep, answer_kind, same_setting
from collegium.flare.agreement.verdicts import Review, Verdict
from collegium.flare.site.file import SiteFile
from collegium.flare.site.setup import SiteSetup, site_policy
from collegium.privacy.budget import Budget
from collegium.privacy.claims import Charge
from collegium.privacy.learners.base import PrivateLearner
from collegium.runs.checks import check_capabilities
from collegium.site.gate import Gate, mechanism_for
from collegium.site.ledger import Ledger
from collegium.wire import tables
from collegium.wire.orders import Request

_MOST_RELEASES: Final = 100_000
_BY_POLICY: Final = ("unprotected", "step-denied")
"""Refusals that are the owner's choice. Others say that something is wrong with a plan."""


def review(plan: Plan, file: SiteFile, setup: SiteSetup | None = None) -> Review:
    """What the site of this file would answer to a plan. With its data (`setup`), labels and budget are checked too."""
    registry.install_steps()
    try:
        algorithm: Algorithm = build("algorithm", plan.algorithm, "algorithm")
        algorithm.all_steps()  # an error where it declares none
    except Exception as error:  # settings that somebody else chose: a constructor may raise anything
        text = str(error) if isinstance(error, ConfigError) else type(error).__name__
        refused = Verdict("", "", "algorithm-denied", f"cannot build this algorithm here: {text}")
        return Review((refused,), known=False)
    verdicts = [*_of_whole(plan, file, algorithm)]
    with closing(Ledger(file.name)) as nothing_yet:
        gate = Gate(file.name, site_policy(file), nothing_yet, simulation=False)
        spare = {step.name for step in algorithm.dispensable()} & set(algorithm.all_steps())
        answers = (_of_step(plan, step, file, algorithm, setup, gate) for step in plan.steps)
        verdicts += [_spared(each) if each.step in spare and each.code in _BY_POLICY else each for each in answers]
    if setup is not None:
        verdicts += [*_of_data(plan, algorithm, setup)]
    return Review(tuple(verdicts))


def _spared(verdict: Verdict) -> Verdict:
    return replace(verdict, needed=False, why=f"{verdict.why} The method can do without it.")


def noise_on(step: Step[Any, Any], algorithm: Algorithm) -> dict[str, Any] | None:
    """The noise that an algorithm puts on the answers to a step: no other is agreed to."""
    mechanism = algorithm.noise_on(step)
    return None if mechanism is None else mechanism.to_plain()


def unmatched(file: SiteFile) -> list[str]:
    """Names in the policy that match nothing installed here, such as typos."""
    registry.install_steps()
    known = {"steps": list(INSTALLED), "unprotected": list(KINDS)}
    return [
        f"policy.{setting}: {pattern!r} matches nothing that is installed here.{registry.nearest(pattern, names)}"
        for setting, names in known.items()
        for pattern in getattr(file.policy, setting)
        if not any(fnmatchcase(name, pattern) for name in names)
    ]


def _of_whole(plan: Plan, file: SiteFile, algorithm: Algorithm) -> Iterator[Verdict]:
    name = plan.algorithm["name"]
    if not any(fnmatchcase(name, pattern) for pattern in file.policy.algorithms):
        yield Verdict("", "", "algorithm-denied", f"the policy does not allow {name}")
    if plan.protocol != PROTOCOL:
        yield Verdict("", "", "other-version", f"the coordinator's version of Collegium, {plan.version}, does not fit")
    if algorithm.simulation_only:
        yield Verdict("", "", "release-denied", f"{name} is for simulations only")
    if not {file.name, ANY_PARTY} & set(plan.parties):
        yield Verdict("", "", "not-a-party", f"{file.name} is not among the plan's sites")
    pinned = file.policy.public_sha256
    if pinned is not None and plan.public_sha256 != pinned:
        yield Verdict("", "", "other-public-set", "the policy pins a different public set")
    most = max((step.bytes for step in plan.steps), default=0)
    if most > file.policy.max_release_bytes:
        yield Verdict("", "", "too-large", f"a release of {most} bytes exceeds max_release_bytes")
    total = sum(step.bytes * step.releases for step in plan.steps)
    if total > file.policy.max_run_bytes:
        yield Verdict("", "", "bytes-exhausted", f"{total} bytes in total exceed max_run_bytes")


def _of_step(
    plan: Plan, planned: PlannedStep, file: SiteFile, algorithm: Algorithm, setup: SiteSetup | None, gate: Gate
) -> Verdict:
    request = Request("", gate.policy.public_sha256, 0, 0, planned.step, planned.digest, {}, planned.mechanism)
    try:
        step = gate.admit(request)
    except Refused as refusal:
        return _verdict(planned, refusal.code, str(refusal))
    if step.name not in algorithm.all_steps():
        return _verdict(planned, "step-denied", f"{plan.algorithm['name']} does not use this step")
    kind = KINDS.get(planned.kind)
    possible = {answer_kind(step.name, planned.mechanism, masked=masked) for masked in (False, True)}
    if kind is None or planned.kind not in possible:
        return _verdict(planned, "not-declared", f"this step does not release {planned.kind}")
    if not same_setting(planned.mechanism, noise_on(step, algorithm)):
        return _verdict(planned, "mechanism-denied", f"{plan.algorithm['name']} puts other noise on this step, or none")
    if kind is Nothing:
        return _verdict(planned, None, "nothing leaves")
    if kind.simulation_only:
        return _verdict(planned, "release-denied", f"{planned.kind} may leave in simulations only")
    if not kind.holds_data:
        return _verdict(planned, None, "made of fresh keys, not of data")
    try:
        protected = _is_protected(planned, plan, file, algorithm, setup)
    except ConfigError as error:
        return _verdict(planned, "mechanism-denied", str(error))
    if protected:
        return _verdict(planned, None, "with differential privacy")
    if gate.policy.allows_unprotected(planned.kind, strict=file.budget is not None):
        return _verdict(planned, None, "unprotected; the policy allows this kind")
    return _verdict(planned, "unprotected", f"the policy requires differential privacy for {planned.kind}")


def _verdict(planned: PlannedStep, code: str | None, why: str) -> Verdict:
    return Verdict(planned.step, planned.kind, code, why, planned.rehearsed)


def _is_protected(
    planned: PlannedStep, plan: Plan, file: SiteFile, algorithm: Algorithm, setup: SiteSetup | None
) -> bool:
    if KINDS[planned.kind].never_protected:
        return False
    charge = _charge(planned, plan, algorithm, setup)
    if charge is not None:
        return charge.kind == "dp"
    return isinstance(build("learner", file.learner, "learner"), PrivateLearner)


def _charge(planned: PlannedStep, plan: Plan, algorithm: Algorithm, setup: SiteSetup | None) -> Charge | None:
    """What one such release costs by the noise that the plan names."""
    if planned.mechanism is not None:
        fixed = algorithm.fixed(plan.public_rows).get(planned.step, {})
        mechanism, declared = mechanism_for(INSTALLED[planned.step], planned.mechanism, fixed)
        records = None if setup is None else len(setup.site)
        observed = None if mechanism.neighbours is None else 1
        charge = mechanism.charge(plan.public_rows, len(plan.classes), records=records, observed=observed)
        return charge if declared is None else replace(charge, unit=declared.unit, relation=declared.relation)
    return algorithm.site_charge(plan.public_rows)


def _of_data(plan: Plan, algorithm: Algorithm, setup: SiteSetup) -> Iterator[Verdict]:
    taken = setup.within(plan.classes)
    site = taken.site
    if left_out := len(setup.site) - len(site):
        yield Verdict("", "", None, f"{left_out} rows are left out: their labels are not classes of the plan")
    own = np.unique(site.y) if len(site) else np.array([])
    labels = {*own.tolist(), *(() if taken.held_out is None else taken.held_out[1].tolist())}
    missing = sorted(map(str, labels - set(plan.classes)))
    if missing:
        yield Verdict("", "", "other-classes", f"the plan lacks classes that this site has: {', '.join(missing[:8])}")
    # Where privacy is required, a refusal may depend on the learner alone; what rows are like is a note for the owner.
    bare = replace(site, X=tables.take(site.X, []), y=site.y[:0], unlabeled=None)
    for code, judged in (("wrong-data", bare if site.requires_dp else site), (None, site)):
        try:
            check_capabilities(algorithm, [judged])
            algorithm.check_site(judged)
        except ConfigError as error:
            yield Verdict("", "", code, str(error))
            break
    if site.budget is not None:
        yield from _of_budget(plan, algorithm, setup, site.budget)


def planned_charges(
    plan: Plan, algorithm: Algorithm, setup: SiteSetup, *, at_most: bool = False
) -> list[tuple[str, Charge, int]]:
    """What a run of the plan costs, by step, and how often; `at_most`: if each is asked for as often as it may be.

    Steps that the rehearsal did not ask for are not counted: a method falls back to them when sites fail.
    """
    charges = []
    for step in plan.steps:
        kind = KINDS.get(step.kind, Nothing)
        charged = kind.holds_data and kind is not Nothing and not kind.never_protected
        charge = _charge(step, plan, algorithm, setup) if charged else None
        times = step.most if at_most and step.rehearsed else step.releases
        if charge is not None and times:
            charges.append((step.step, charge, times))
    learner = setup.site.learner
    if not charges and isinstance(learner, PrivateLearner) and plan.public_rows:
        one = learner.charge(len(setup.site), plan.public_rows, len(plan.classes))
        charges.append(("", one, learner.fits if at_most else 1))
    return charges


def _of_budget(plan: Plan, algorithm: Algorithm, setup: SiteSetup, budget: Budget) -> Iterator[Verdict]:
    """Is there enough left for all that the plan is known to cost?"""
    # to add more up would keep this site busy, and the coordinator writes these numbers
    if sum(step.releases for step in plan.steps if step.kind != Nothing.kind) > _MOST_RELEASES:
        yield Verdict("", "", "budget-exhausted", f"the plan has more than {_MOST_RELEASES} releases of this site")
        return
    try:
        charges = [charge for _, charge, times in planned_charges(plan, algorithm, setup) for _ in range(times)]
        path = None if budget.ledger is None or not Path(budget.ledger).exists() else Path(budget.ledger)
        with closing(Ledger(setup.site.name, path)) as ledger:
            budget.require(ledger.charges(of_all=True), [charge for charge in charges if charge.kind == "dp"])
    except Refused as refusal:
        yield Verdict("", "", refusal.code, str(refusal))
    except ConfigError as error:
        yield Verdict("", "", "mechanism-denied", str(error))
