"""A site's part in one run: its agent, and one thread in which orders are carried out one after the other."""

from __future__ import annotations

import hashlib
import threading
import traceback
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as StillBusy
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import cloudpickle
import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

from collegium.core.algorithm import Algorithm
from collegium.core.building import build
from collegium.core.labels import encode_labels
from collegium.core.public_set import PublicSet
from collegium.core.releases import Nothing
from collegium.core.samples import LabelledData
from collegium.core.scores import measure
from collegium.errors import Refused, StorageError, WireError
from collegium.flare.agreement.approvals import Approvals
from collegium.flare.agreement.orders import ORDER_DENIED
from collegium.flare.agreement.plan import answer_kind, same_setting
from collegium.flare.agreement.planning import Plan
from collegium.flare.agreement.usage import Usage
from collegium.flare.site.bulletin import Work
from collegium.flare.site.report import SCORES, write_site_report
from collegium.flare.site.setup import SiteSetup, site_keyring
from collegium.flare.site.turns import Turns
from collegium.site.factory import open_site
from collegium.site.ledger import storage_errors
from collegium.wire.orders import Request

_MOST_WAITING: Final = 8
Admit: TypeAlias = Callable[[list[Request]], None]


class _Given(NamedTuple):
    """An order that was given: the hash of its bytes, and its reply to come."""

    digest: str
    future: Future[bytes]


class Engagement:
    """One run at one site, from the first order to the last, over any number of sessions."""

    def __init__(
        self,
        folder: Path,
        run: str,
        plan: Plan,
        setup: SiteSetup,
        public: PublicSet | None,
        *,
        records: int,
        work: Work | None = None,
        turns: Turns | None = None,
    ) -> None:
        self.plan = plan
        algorithm: Algorithm = build("algorithm", plan.algorithm, "algorithm")
        self._declared = algorithm.all_steps()
        self._fixed = {**algorithm.fixed(plan.public_rows), measure.name: {"metrics": list(plan.metrics)}}
        self.folder = folder / "runs" / run
        self._run = run
        self._work, self._turns = work or Work(), turns or Turns()
        classes = np.asarray(plan.classes)
        site = setup.site if public is None else setup.with_public(public.X)
        held_out = None
        if setup.held_out is not None:
            X, y = setup.held_out
            held_out = LabelledData(X, encode_labels(y, classes, "the held-out rows"))
        self._agent = open_site(
            site,
            classes,
            public,
            plan.seed,
            run,
            simulation=False,
            keyring=lambda: site_keyring(folder, setup.file),
            ledger=folder / "ledger.db",
            folder=self.folder,
            held_out=held_out,
            records=records,
        )
        self._ledger = self._agent.gate.ledger
        # One thread; OpenMP counts its own per calling thread, and sums are then the same as in a simulation.
        self._thread = ThreadPoolExecutor(1, initializer=threadpool_limits, initargs=(1,))
        self._given: dict[str, _Given] = {}
        self._stopped = False
        self._lock = threading.Lock()

    def serve(self, name: str, frame: bytes, wait: float, admit: Admit) -> bytes:
        """Carry an order out, or find that it was; Refused "busy" if that is not done within `wait` seconds.

        `admit` is given what the frame asks for, and may refuse it.
        """
        with self._lock:
            if self._stopped:
                raise Refused("not-open", "The run was put to sleep in this moment.")
            given, digest = self._given.get(name), hashlib.sha256(frame).hexdigest()
            if given is not None and given.digest != digest and not given.future.done():
                raise Refused("busy", "A different order of the same name is running.")
            if given is None or given.digest != digest:
                if len(self._given) >= _MOST_WAITING:  # those that are done or given up are asked for again, or never
                    self._given = {key: each for key, each in self._given.items() if not each.future.done()}
                if len(self._given) >= _MOST_WAITING:
                    raise Refused("busy", "Too many orders are waiting.")
                self._given[name] = _Given(digest, self._thread.submit(self._carry_out, frame, admit))
        return self.result(name, wait)

    def result(self, name: str, wait: float) -> bytes:
        """The reply to an order that was given; Refused "not-open" if it is unknown, so that it is sent again."""
        with self._lock:
            given = self._given.get(name)
        if given is None:
            raise Refused("not-open", "Order not found.")
        future = given.future
        try:
            return future.result(timeout=wait)
        except StillBusy:
            raise Refused("busy", "The order is still running.") from None
        except CancelledError:
            raise Refused("cancelled", "The coordinator gave this order up.") from None
        finally:
            with self._lock:
                if future.done() and self._given.get(name) is given:
                    del self._given[name]  # the ledger knows the reply

    def _carry_out(self, frame: bytes, admit: Admit) -> bytes:
        try:
            requests = self._agent.requests_in(frame)
        except WireError:  # what cannot be read is refused by the agent
            requests = None
        if requests is not None:
            admit(requests)
        self._agent.site.watch.seconds.clear()
        with self._turns.taken(self._run), self._work.counted():
            reply = self._agent.serve(frame)
        if self._agent.unstored is not None:
            raise self._agent.unstored
        self._note_score()
        return reply

    def cancel(self, name: str) -> bool:
        """Give up an order that has not begun. One that has is finished, and its reply kept."""
        with self._lock:
            given = self._given.get(name)
        return given is not None and given.future.cancel()

    def require_planned(self, requests: list[Request]) -> None:
        """Refuse what is not in the plan that this site agreed to."""
        for request in requests:
            step = request.step
            if request.run != self._run:
                raise Refused("bad-message", "An order belongs to a different run.")
            masked = request.mask is not None
            covered = self.plan.covers(step, request.digest, request.mechanism, masked=masked)
            if step not in self._declared or not covered:
                raise Refused("not-planned", f"Step {step!r} is not in the plan of this run.")
            fixed = self._fixed.get(step, {})
            if not all(same_setting(request.args.get(name), fixed[name]) for name in fixed):
                raise Refused("not-planned", f"Step {step!r} was asked for with settings that differ from the plan's.")

    def has_answered(self, requests: list[Request]) -> bool:
        """Was this answered before? The same reply is then sent again."""
        return self._ledger.sent(self._run, requests[-1].number) is not None

    def require_left(self, requests: list[Request], usage: Usage) -> None:
        """Refuse what was asked for as often as the plan says. Votes that are masked again are not asked for again."""
        steps = [each.step for each in requests if each.mask is None or each.mask.again is None]
        usage.take(self._run, requests[-1].number, steps, {each.step: each.most for each in self.plan.steps})

    def require_approved(self, frame: bytes, requests: list[Request], approvals: Approvals) -> None:
        """Refuse, for now, to answer an order that releases something and that the owner has not approved."""
        steps = [request.step for request in requests]
        kinds = [str(answer_kind(each.step, each.mechanism, masked=each.mask is not None)) for each in requests]
        number = requests[-1].number
        if kinds[-1] == Nothing.kind:
            return
        digest = hashlib.sha256(frame).hexdigest()
        if approvals.orders.denied(self._run, number, digest):
            raise Refused(ORDER_DENIED, f"This site's owner has denied order {number} of run {self._run}.")
        if not approvals.orders.approved(self._run, number, digest):
            approvals.orders.propose(self._run, number, digest, steps=steps, kinds=kinds)
            raise Refused("waiting", f"Order {number} of run {self._run} is waiting for this site's approval.")

    def sleep(self) -> bool:
        """Let go of thread, ledger and memory, unless an order is being carried out: all that matters is on disk."""
        with self._lock:
            if not all(given.future.done() for given in self._given.values()):
                return False
            self._stopped = True
        self._thread.shutdown(wait=True)
        self._ledger.close()
        return True

    def abandon(self) -> None:
        """What it did could not be stored: let go of all that is only in memory."""
        with self._lock:
            self._stopped = True
        self._thread.shutdown(wait=True, cancel_futures=True)
        self._ledger.close()

    def end(self) -> None:
        """The run is over: finish what is running, and keep what came of it where its owner finds it."""
        with self._lock:
            self._stopped = True
        self._thread.shutdown(wait=True, cancel_futures=True)
        try:
            self._keep_results()
        finally:
            self._ledger.close()

    def _keep_results(self) -> None:
        site = self._agent.site
        with storage_errors(self.folder, StorageError):
            if site.model is not None:
                (self.folder / "model.pkl").write_bytes(cloudpickle.dumps(site.model))
            if site.found_labels is not None:
                found = {"label": site.classes[site.found_labels.codes], "confidence": site.found_labels.confidences}
                pd.DataFrame(found).to_csv(self.folder / "labels.csv", index=False)
        write_site_report(self.folder, self._run, self.plan, self._ledger)
        self._agent.end(self._run)

    def _note_score(self) -> None:
        """For the site's own report: how the model does on held-out rows after an order that trained it."""
        site = self._agent.site
        if not site.held_out or site.model is None or site.watch.seconds.get("fit") is None:
            return
        try:
            right = float(np.mean(site.model.predict_codes(site.held_out.X) == site.held_out.codes))
        except Exception:  # the coordinator must not hear of what is wrong with these rows
            site.log(f"cannot score the model on the held-out rows:\n{traceback.format_exc()}")
            return
        with suppress(OSError), (self.folder / SCORES).open("a", encoding="utf-8") as file:
            file.write(f"{right}\n")
