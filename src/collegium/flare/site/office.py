"""A site's office: answers whatever comes from the coordinator, for every run that the site takes part in.

It trusts nothing that it receives. A plan is checked against the site's own file, then, where the site wants that,
against its owner's signature, and only then against its data; orders go through the gate; a refusal is a code, and the
reason stays in the site's log.
"""

from __future__ import annotations

import re
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from collegium import __version__, wire
from collegium.core.public_set import PublicSet
from collegium.errors import CollegiumError, ConfigError, Refused, StorageError, WireError
from collegium.flare import PROTOCOL
from collegium.flare.agreement.approvals import Approvals, PlanDenied
from collegium.flare.agreement.planning import Plan, Review, review
from collegium.flare.agreement.usage import BY_POLICY
from collegium.flare.site.bulletin import Work
from collegium.flare.site.engagement import Engagement
from collegium.flare.site.open_runs import OpenRuns
from collegium.flare.site.pause import PAUSED, require_not_paused
from collegium.flare.site.public_store import PIECE, PublicStore
from collegium.flare.site.setup import SiteSetup
from collegium.flare.site.turns import Turns
from collegium.site.agent import SiteLog
from collegium.site.ledger import Ledger
from collegium.wire.limits import HEADER, PLAN
from collegium.wire.orders import Request

_LONGEST_WAIT: Final = 60.0
_PAUSED_TOO: Final = ("hello", "cancel", "close")
"""What a paused site still answers: nothing runs for it, and nothing leaves."""
_ROUND: Final = 1 << 14
"""For the bytes that frame a header, a plan or a piece."""


class Office:
    """Answers messages. `instance` tells this installation from another one that has a copy of its kit.

    `tell` is called with what the owner should know at once.
    """

    def __init__(
        self,
        folder: Path,
        setup: SiteSetup,
        approvals: Approvals,
        instance: str,
        own_public: Any,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._folder = folder
        self._setup = setup
        self._approvals = approvals
        self._instance = instance
        self._tell, self.problem = tell, ""
        self.work = Work()
        """What was done for all runs together, since this office was opened."""
        self._turns = Turns(setup.file.runs.at_once, self._wait_begins)
        self._public = PublicStore(folder / "public", setup.file.public.max_bytes, own_public)
        self._public.remove_parts()
        self._runs = OpenRuns(folder, 60 * setup.file.runs.idle_minutes, self._public.leave)
        self._opening = threading.Lock()
        self._log = SiteLog(folder / "site.log")
        self._ledger = Ledger(setup.site.name, folder / "ledger.db", durable=True)
        self._answers: dict[str, Callable[[dict[str, Any], bytes], bytes]] = {
            "hello": self._hello,
            "open": self._open,
            "public": self._take_public,
            "order": self._order,
            "await": self._await,
            "cancel": self._cancel,
            "close": self._close,
        }

    @property
    def longest_message(self) -> int:
        """How many bytes a message may have at present: before a run is open, a piece of a public set is the most."""
        framed = PIECE + HEADER.head + _ROUND
        return max(framed, self._setup.file.policy.max_message_bytes) if len(self._runs) else framed

    def tidy(self) -> None:
        """Put idle runs to sleep, and end those that the owner has ended. Called now and then; never raises."""
        try:
            self._runs.tidy()
        except Exception:  # a full disk: next time
            with suppress(OSError):
                self._log.write_again(f"cannot tidy up:\n{traceback.format_exc()}")

    def answer(self, message: bytes) -> bytes:
        """One answer to one message, whatever it holds. Never raises."""
        what, run, words = "", "", dict[str, str]()
        try:
            if len(message) > self.longest_message:
                raise Refused("too-large", f"A message of {len(message)} bytes exceeds what is accepted at present.")
            header, payload = wire.cut(message)
            what, run = str(header.get("do")), str(header.get("run", ""))
            if what not in self._answers:
                raise Refused("bad-message", "A message asks for something unknown.")
            if len(payload) > self._longest_payload(what):
                raise Refused("too-large", f"A message of {len(payload)} bytes asks for {what}.")
            if what in _PAUSED_TOO:
                return self._answers[what](header, payload)
            require_not_paused(self._folder)
            reply = self._answers[what](header, payload)
            require_not_paused(self._folder)  # what a step made meanwhile is kept, and leaves when the site is resumed
            return reply
        except Refused as refusal:
            code, why = refusal.code, str(refusal)
            words |= {"reason": refusal.reason} if isinstance(refusal, PlanDenied) and refusal.reason else {}
        except WireError as error:
            code, why = "bad-message", str(error)
        except (KeyError, TypeError, ValueError, AttributeError):
            code, why = "bad-message", traceback.format_exc()
        except (StorageError, OSError) as error:
            code, why = "storage-failed", str(error)
            self._tell_of_storage(why)
        except Exception:
            code, why = "failed", traceback.format_exc()
        if code not in ("waiting", "busy", "not-open", PAUSED):  # not refusals: the coordinator asks again
            with suppress(CollegiumError):
                self._ledger.note_refusal(run, -1, what[:32], code)
        with suppress(OSError):  # a full disk must not keep the site from refusing
            self._log.write_again(f"{what[:32]!r}: {code}: {why}")
        return wire.join({"state": "refused", "code": code, **words}, b"")

    def _longest_payload(self, what: str) -> int:
        most = self._setup.file.policy.max_message_bytes
        return {"open": PLAN.head + _ROUND, "public": PIECE, "order": most}.get(what, 0)

    def _hello(self, header: dict[str, Any], payload: bytes) -> bytes:
        name = self._setup.site.name
        return _reply("hello", party=name, instance=self._instance, protocol=PROTOCOL, version=__version__)

    def _open(self, header: dict[str, Any], payload: bytes) -> bytes:
        run = _run_name(header)
        plan = Plan.from_plain(wire.unpack(payload, limits=PLAN))
        with self._opening:
            known = self._runs.get(run)
            if known is not None:
                if known.plan.digest != plan.digest:
                    raise Refused("other-plan", f"Run {run} is open with a different plan.")
                self._require_approved(plan, run)
                return _reply("open")
            # Nothing that depends on private rows is looked at before the owner has agreed to the plan.
            _require(review(plan, self._setup.file))
            self._runs.ask(run)
            public: PublicSet | None = None
            if plan.public_sha256 is not None:
                public = self._public.want(run, plan.public_sha256)
                if public is None:
                    return _reply("needs-public", have=self._public.have(plan.public_sha256))
                if len(public) != plan.public_rows:  # what the plan's noise is calibrated by
                    raise Refused("other-public-set", f"The plan speaks of {plan.public_rows} public rows.")
            approval = self._require_approved(plan, run)
            _require(review(plan, self._setup.file, self._setup))
            setup = self._setup.within(plan.classes)
            if left_out := len(self._setup.site) - len(setup.site):
                self._log.write(f"run {run} leaves out {left_out} rows, whose labels are not classes of the plan")
            self._approvals.usage.begin(run, plan.digest, approval)
            try:
                records = len(self._setup.site)
                opened = Engagement(
                    self._folder, run, plan, setup, public, records=records, work=self.work, turns=self._turns
                )
            except ConfigError as error:
                raise Refused("wrong-data", str(error)) from None
            self._runs.open(run, opened)
        self._log.write(f"opened run {run}: {plan.study}, plan {plan.digest}")
        return _reply("open")

    def _require_approved(self, plan: Plan, run: str) -> str:
        """The approval under which a run may begin or go on; a refusal where the owner's is asked for and missing."""
        if self._approvals.usage.plan_of(run) not in (None, plan.digest):
            raise Refused("other-plan", f"Run {run} was begun with a different plan.")
        self._approvals.require_not_denied(plan)
        return BY_POLICY if self._setup.file.policy.approval == "auto" else self._approvals.require(plan, run)

    def _take_public(self, header: dict[str, Any], payload: bytes) -> bytes:
        sha256 = str(header["sha256"])
        pinned = self._setup.file.policy.public_sha256
        if pinned is not None and sha256 != pinned:
            raise Refused("other-public-set", "This site pins a different public set.")
        run = _run_name(header)
        self._runs.get(run)  # it was heard of
        offset, total = _count(header["offset"]), _count(header["total"])
        return _reply("public", have=self._public.add(run, sha256, offset, total, payload))

    def _order(self, header: dict[str, Any], payload: bytes) -> bytes:
        run = _run_name(header)
        engagement = self._engaged(run)

        def admit(requests: list[Request]) -> None:
            require_not_paused(self._folder)  # perhaps since it was given
            engagement.require_planned(requests)
            if engagement.has_answered(requests):
                return
            try:
                self._require_approved(engagement.plan, run)
            except Refused as refusal:
                if refusal.code != "waiting":
                    raise
                # withdrawn: the coordinator opens the run again, and learns that it waits
                raise Refused("not-open", str(refusal)) from None
            engagement.require_left(requests, self._approvals.usage)
            if self._setup.file.policy.approval == "each":
                engagement.require_approved(payload, requests, self._approvals)

        with self._stored(run, engagement):
            return wire.join({"state": "done"}, engagement.serve(str(header["order"]), payload, _wait(header), admit))

    def _await(self, header: dict[str, Any], payload: bytes) -> bytes:
        """The reply to an order that was given before, without sending it again."""
        run = _run_name(header)
        engagement = self._engaged(run)
        with self._stored(run, engagement):
            return wire.join({"state": "done"}, engagement.result(str(header["order"]), _wait(header)))

    @contextmanager
    def _stored(self, run: str, engagement: Engagement) -> Iterator[None]:
        """What cannot be stored did not happen: as after a crash, the run is opened again from its stored state."""
        try:
            yield
        except StorageError:
            self._runs.abandon(run, engagement)
            raise
        self._tell_of_storage("")

    def _tell_of_storage(self, problem: str) -> None:
        """Say when storing fails and when it works again, not once per message."""
        before, self.problem = self.problem, problem
        if problem and not before:
            self._tell(f"cannot store what it does: {problem} It refuses until it can.")
        if before and not problem:
            self._tell("can store what it does again.")

    def _wait_begins(self, run: str, at_work: int) -> None:
        """Say once for each wait why a run does not go on."""
        with suppress(OSError):
            self._log.write(f"run {run} waits for its turn: {at_work} at work, as many as runs.at_once lets")

    def _cancel(self, header: dict[str, Any], payload: bytes) -> bytes:
        return _reply("cancelled", done=self._engaged(_run_name(header)).cancel(str(header["order"])))

    def _close(self, header: dict[str, Any], payload: bytes) -> bytes:
        run = _run_name(header)
        self._engaged(run)
        self._runs.close(run)  # it can be opened again, from its stored state
        self._log.write(f"run {run} is over")
        return _reply("closed")

    def _engaged(self, run: str) -> Engagement:
        engagement = self._runs.get(run)
        if engagement is None:
            raise Refused("not-open", f"Run {run} is not open here.")
        return engagement


def _require(found: Review) -> None:
    """Refuse a plan with which this site could not take part."""
    if problems := found.refusals:
        raise Refused(problems[0].code or "refused", "; ".join(problem.why for problem in problems))


def _reply(state: str, **words: Any) -> bytes:
    return wire.join({"state": state, **words}, b"")


def _count(number: Any) -> int:
    if type(number) is not int or number < 0:
        raise Refused("bad-message", "A size must be a whole number of at least 0.")
    return number


def _wait(header: dict[str, Any]) -> float:
    return min(max(float(header["wait"]), 0.0), _LONGEST_WAIT)


def _run_name(header: dict[str, Any]) -> str:
    run = str(header["run"])
    if not re.fullmatch(r"[0-9a-f]{32}", run):
        raise Refused("bad-message", "A run's id must be 32 hexadecimal digits.")
    return run
