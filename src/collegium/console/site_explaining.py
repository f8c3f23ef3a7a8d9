"""What an officer reads of a waiting plan. A rehearsal takes a while: it is made once, beside the pages."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import Empty, Queue
from typing import Final

from collegium.errors import ConfigError
from collegium.flare.agreement.bounded import Overrun, bounded
from collegium.flare.agreement.disclosure import Consent
from collegium.flare.agreement.forecast import Cost
from collegium.flare.agreement.plan import Plan
from collegium.flare.agreement.verdicts import Review, Verdict
from collegium.flare.site.desk import Desk
from collegium.flare.site.file import SITE_FILE, SiteFile

SECONDS: Final = 120.0
"""As long as a rehearsal may take: whoever proposes a plan chooses how long it would."""


@dataclass(frozen=True)
class Explanation:
    """A plan, as it looks from this site."""

    plan: Plan
    review: Review
    consent: Consent | None
    """None where the plan's algorithm cannot be built here: it could not run either."""
    cost: Cost

    @property
    def seen(self) -> str:
        """A hash of all that is shown. An approval names it: it is for what was read, and for nothing else."""
        return hashlib.sha256(repr((self.plan.digest, self.review, self.consent, self.cost)).encode()).hexdigest()

    @property
    def doubts(self) -> list[str]:
        """What must be read before signing."""
        found = [] if self.consent is None else list(self.consent.warnings)
        found += [f"This site would refuse {each.step or 'the plan'}: {each.why}." for each in self.review.refusals]
        return found


@dataclass
class Explanations:
    """Explanations of plans, each made once for the files that it stands on."""

    _made: dict[tuple[str, str, bool], Future[Explanation]] = field(default_factory=dict)
    _wanted: Queue[tuple[Future[Explanation], Path, Plan] | None] = field(default_factory=Queue)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _worker: threading.Thread | None = None

    def of(self, desk: Desk, digest: str) -> Explanation | None:
        """The explanation of a plan; None while it is being made. A plan that is not there is a ConfigError."""
        plan = desk.approvals.plan(digest)
        # with another site.toml, or once the public set has come, a plan looks different
        there = plan.public_sha256 is not None and (desk.agent / "public" / f"{plan.public_sha256}.table").is_file()
        key = digest, hashlib.sha256(desk.file.model_dump_json().encode()).hexdigest(), there
        with self._lock:
            if key not in self._made:
                self._made[key] = Future()
                self._wanted.put((self._made[key], desk.kit, plan))
                self._start()
            future = self._made[key]
        return future.result() if future.done() else None

    def close(self) -> None:
        """Begin no more of them. What is under way ends with this process, which does not wait for it."""
        with suppress(Empty):
            while True:
                self._wanted.get_nowait()
        self._wanted.put(None)

    def _start(self) -> None:
        if self._worker is None:
            # not an executor's: Python waits for their threads when it ends, and a rehearsal may take minutes
            self._worker = threading.Thread(target=self._work, name="explaining", daemon=True)
            self._worker.start()

    def _work(self) -> None:
        while (wanted := self._wanted.get()) is not None:
            future, kit, plan = wanted
            try:
                future.set_result(_explained(kit, plan))
            except Exception as error:
                future.set_exception(error)


def _explained(kit: Path, plan: Plan) -> Explanation:
    """What is found out about a plan, in a process of its own: it may take too long, and it counts the site's rows."""
    try:
        return bounded(_found_out, kit, plan, None, seconds=SECONDS)
    except Overrun as error:
        why = f"the rehearsal was ended: {error}"
    try:
        return bounded(_found_out, kit, plan, why, seconds=SECONDS)
    except Overrun as error:
        refused = Verdict("", "", "failed", f"this site cannot even read it: {error}")
        return Explanation(plan, Review((refused,), known=False), None, Cost(problem=str(error)))


def _found_out(kit: Path, plan: Plan, unrehearsed: str | None) -> Explanation:
    """All of it. What trains is loaded here, by a process that ends, and not by the one that serves the pages."""
    from collegium import registry
    from collegium.flare.agreement.consent import consent
    from collegium.flare.agreement.costing import cost_of
    from collegium.flare.agreement.review import review
    from collegium.flare.site.agreed import public_set

    registry.install_steps()
    try:
        file = SiteFile.from_toml(kit / SITE_FILE)
    except ConfigError as error:
        refused = Verdict("", "", "failed", str(error))
        return Explanation(plan, Review((refused,), known=False), None, Cost(problem=str(error)))
    found, told = review(plan, file), None
    if found.known:
        told = consent(plan, file, public_set(kit, file, plan), unrehearsed=unrehearsed)
    return Explanation(plan, found, told, cost_of(kit, plan))
