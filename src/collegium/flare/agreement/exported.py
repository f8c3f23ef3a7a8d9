"""A plan as a site has it, for an ethics board: what it is, what would leave, at what cost, and whether it is signed.

The template of `collegium report --ethics`, filled in at the site from the code that is installed there. A rehearsal of
a plan that somebody else wrote runs in a process of its own, with little time and memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from collegium.core.algorithm import Algorithm
from collegium.core.public_set import PublicSet
from collegium.errors import CollegiumError
from collegium.flare.agreement.approvals import Approval, Approvals
from collegium.flare.agreement.bounded import Overrun, bounded
from collegium.flare.agreement.consent import MOST_ROUNDS, consent, rehearsable
from collegium.flare.agreement.disclosure import Consent
from collegium.flare.agreement.plan import ANY_PARTY, Plan
from collegium.flare.agreement.review import review
from collegium.flare.agreement.verdicts import Review
from collegium.flare.kits.identity import AGENT, read_keys
from collegium.flare.site.agreed import public_set
from collegium.flare.site.file import SITE_FILE, SiteFile
from collegium.reports.ethics import (
    Assessment,
    Method,
    Party,
    Section,
    Table,
    ethics_sections,
    render_sections,
)
from collegium.study import rehearsal

FORMAT: Final = 1
SECONDS: Final = 120.0
_Worked: TypeAlias = tuple[Consent | None, list[Section], str]
_FIRST_ROUNDS: Final = "The rehearsal was of the first rounds: how often each step may be asked for, see above."
_OWN: Final = "each site's own: ask it"


@dataclass(frozen=True)
class ExportedPlan:
    """All that a site can say of a plan."""

    site: str
    identity: str
    """The public half of the key that signs approvals."""
    plan: Plan
    state: str
    """In words: waiting, denied, signed, used up or over."""
    approval: Approval | None
    consent: Consent | None
    """None where the plan's algorithm cannot be built here, or its rehearsal takes too long."""
    review: Review
    sections: tuple[Section, ...]
    """The template; empty where the plan could not be rehearsed."""
    problem: str
    """Why it could not."""

    def to_plain(self) -> dict[str, Any]:
        """As plain data."""
        signed = self.approval
        return {
            "format": FORMAT,
            "site": self.site,
            "identity": self.identity,
            "digest": self.plan.digest,
            "plan": self.plan.to_plain(),
            "state": self.state,
            "approval": None if signed is None else asdict(signed) | {"until": signed.until.isoformat()},
            "consent": [] if self.consent is None else [asdict(line) for line in self.consent.lines],
            "warnings": [] if self.consent is None else list(self.consent.warnings),
            "review": [asdict(each) | {"allowed": each.allowed} for each in self.review.verdicts],
            "not_rehearsed": self.problem or None,
        }

    def render(self, *, html: bool) -> str:
        """As Markdown or one HTML page."""
        about = (
            f"Filled in by Collegium at {self.site}, from plan {self.plan.digest} and the code that is installed "
            "there. It is a template: whoever signs it checks every statement, and completes what stands in square "
            "brackets."
        )
        sections = [self._agreement(), *self._words(), self._answers(), *self.sections]
        return render_sections(f"{self.plan.study}: the plan at {self.site}", about, sections, html=html)

    def _agreement(self) -> Section:
        rows = [["Site", self.site], ["Plan", self.plan.digest], ["State", self.state], ["Identity", self.identity]]
        if self.approval is not None:
            rows.append(["Approved", f"{self.approval.runs} runs, until {self.approval.until.isoformat()} (UTC)"])
            rows.append(["Signature", f"approval {self.approval.name}, checked with that identity"])
        return "The agreement", [Table(["What", "Here"], rows)]

    def _words(self) -> Iterator[Section]:
        if self.consent is not None:
            rows = [[line.what, line.words, line.source] for line in self.consent.lines]
            warned = [f"Warning: {text}" for text in self.consent.warnings]
            yield "What is proposed", [Table(["What", "Proposed", "Who says so"], rows), *([warned] if warned else [])]

    def _answers(self) -> Section:
        rows = [
            [each.step or "(the plan)", each.kind, "allowed" if each.allowed else f"refused: {each.code}", each.why]
            for each in self.review.verdicts
        ]
        blocks: list[Any] = [Table(["Step", "Releases", "Answer", "Why"], rows)]
        if self.problem:
            blocks.append(f"The plan was not rehearsed here, so what leaves is not counted: {self.problem}")
        return "What this site would answer", blocks


def export_plan(kit: str | Path, digest: str, *, seconds: float | None = SECONDS) -> ExportedPlan:
    """A plan that was proposed to the site of this kit. Its rehearsal has so many `seconds`; None: no limit."""
    folder = Path(kit)
    file = SiteFile.from_toml(folder / SITE_FILE)
    keys = read_keys(folder / AGENT, file.name)
    approvals = Approvals(folder / AGENT, keys)
    plan, found = approvals.plan(digest), approvals.approval(digest)
    verdicts, public = review(plan, file), public_set(folder, file, plan)
    terms = "nothing yet" if found is None else f"{found.runs} runs, until {found.until.isoformat()} (UTC)"
    words, sections, problem = None, list[Section](), "its algorithm cannot be built here."
    if verdicts.known and public is None:
        words = consent(plan, file, None, terms)
        problem = "the public set is not here." if plan.public_sha256 else "it has no public rows."
    elif verdicts.known and public is not None:
        words, sections, problem = _worked_out(seconds, plan, file, public.X, terms)
    state = _state(approvals, digest, found)
    return ExportedPlan(file.name, keys.identity, plan, state, found, words, verdicts, tuple(sections), problem)


def _worked_out(seconds: float | None, *about: Any) -> _Worked:
    """What follows from rehearsals, in a process of its own where there is a limit."""
    if seconds is None:
        return _work_out(*about)
    try:
        return bounded(_work_out, *about, seconds=seconds)
    except Overrun as error:
        return None, [], f"{error}."


def _work_out(plan: Plan, file: SiteFile, X: Any, terms: str) -> _Worked:
    return consent(plan, file, PublicSet(X), terms), *_assessed(plan, file, X)


def _state(approvals: Approvals, digest: str, approval: Approval | None) -> str:
    if (denial := approvals.denial(digest)) is not None:
        return f"denied by its owner: {denial.reason}"
    if approval is None:
        return "waiting: nobody has signed it"
    if approval.expired:
        return f"signed, and over since {approval.until.isoformat()}"
    left = approvals.runs_left(approval)
    return f"signed, {left} of {approval.runs} runs left" if left else "signed, and all its runs have begun"


def _assessed(plan: Plan, file: SiteFile, X: Any) -> tuple[list[Section], str]:
    """The template's sections by a rehearsal with made-up rows, or why there are none."""
    try:
        study, rows, classes, named = rehearsable(plan, file, X)
        parties = [file.name, "another site", "a third site"] if ANY_PARTY in named else list(named)
        algorithm: Algorithm = study.build_algorithm()
        rounds = 1 if algorithm.needs else MOST_ROUNDS
        run = rehearsal.rehearse_federation(study, rows, classes, parties, rounds=rounds)
        notes = [] if plan.complete else [_FIRST_ROUNDS]
        method = Method(
            str(plan.algorithm["name"]), repr(algorithm), run, rehearsal.sent_at_most(run), algorithm.learns(), notes
        )
        known = [_party(file, name) for name in parties]
        return ethics_sections(Assessment(plan.study, True, True, known, [method])), ""
    except CollegiumError as error:
        return [], str(error)
    except Exception as error:  # settings that somebody else chose meet code that did not expect them
        return [], f"the rehearsal failed ({type(error).__name__})."


def _party(file: SiteFile, name: str) -> Party:
    if name != file.name:
        return Party(name, _OWN, _OWN, _OWN)
    steps = file.learner if isinstance(file.learner, list) else [file.learner]
    learner = ", ".join(step if isinstance(step, str) else str(step.get("name")) for step in steps)
    policy, budget = file.policy, file.budget
    allowed = f"unprotected releases: {', '.join(policy.unprotected) or 'none'}"
    if policy.requires == "dp":
        allowed = f"only releases with differential privacy; {allowed}"
    spent = "none" if budget is None else f"epsilon {budget.epsilon:g}, delta {budget.delta:g}, kept between runs"
    return Party(name, learner, f"{allowed}; approval: {policy.approval}", spent)
