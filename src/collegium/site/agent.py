"""A site's runtime: takes order frames, runs steps behind the gate, answers with reply frames.

An order is identified by (run, number). Asked again, the agent sends the stored reply again and runs nothing.
The sealed reply, the ledger row and the site's state are stored in one transaction, so that a killed site has
either done an order or not. A simulated site may store its state more seldom, and does orders again after a kill
(see `states`).
"""

from __future__ import annotations

import contextlib
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from collegium import wire
from collegium.core.labels import Labels
from collegium.core.meeting import beside_others
from collegium.core.observations import Notes
from collegium.core.releases import Nothing, Release
from collegium.core.site import ActiveSite, Exam
from collegium.errors import Refused, StorageError, WireError
from collegium.privacy.claims import Charge
from collegium.site.exposure import Exposure
from collegium.site.gate import Gate
from collegium.site.ledger import Sent
from collegium.site.states import Pace, StateFiles
from collegium.wire.orders import OrderReader, Request, read_header, read_orders
from collegium.wire.replies import UNREAD, Refusal, Reply, read_reply, write_refusal, write_release

_TOLD: Final = frozenset(
    {"unknown-step", "other-version", "step-denied", "other-public-set", "mask-denied", "mechanism-denied"}
    | {"release-denied", "unprotected", "budget-exhausted", "budget-relation", "ledger-damaged", "storage-failed"}
)
"""Refusals that do not depend on private rows. A step may cause the others: where that must not show, they are one."""
_MOST_UNWRITTEN: Final = 100
_LONGEST, _KEPT_LINES, _LARGEST_LOG = 10_000, 1000, 8 << 20
_STATE_FIELDS: Final = 7
_READER: Final = OrderReader(shares=True)
"""That of all simulated sites: most of them are sent the same."""


class SiteLog:
    """What happened at a site, for its owner only. Kept in memory, and in a file where there is a folder.

    What a full disk does not take is written once there is room: it must not keep the site from answering.
    Nobody can fill a disk with it: entries are short, and of the file and one before it 16 MiB are kept.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.lines: list[str] = []
        self._unwritten: list[str] = []
        self._repeated: OrderedDict[str, int] = OrderedDict()

    def write(self, text: str) -> None:
        """Add an entry; characters that could make a terminal show something else are escaped."""
        text = "".join(each if each.isprintable() or each in "\n\t" else ascii(each)[1:-1] for each in text[:_LONGEST])
        self.lines.append(text)
        del self.lines[:-_KEPT_LINES]
        if self._path is None:
            return
        self._unwritten = [*self._unwritten[-_MOST_UNWRITTEN:], f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}\n"]
        with contextlib.suppress(OSError):
            if self._path.exists() and self._path.stat().st_size > _LARGEST_LOG:
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
        with contextlib.suppress(OSError), self._path.open("a", encoding="utf-8") as file:
            file.write("".join(self._unwritten))
            file.flush()
            self._unwritten = []

    def write_again(self, text: str) -> None:
        """Add an entry that may come very often: the 1st, 2nd, 4th, 8th ... time, with how often that was."""
        count = self._repeated.pop(text, 0) + 1
        self._repeated[text] = count
        while len(self._repeated) > _KEPT_LINES:
            self._repeated.popitem(last=False)
        if count & (count - 1) == 0:
            self.write(text if count == 1 else f"{text} ({count} times so far)")


class Agent:
    """Serves one site for one run."""

    def __init__(
        self,
        site: ActiveSite,
        gate: Gate,
        *,
        folder: Path | None = None,
        exam: Exam | None = None,
        pace: Pace | None = None,
    ) -> None:
        self.site = site
        self.gate = gate
        self._states = None if folder is None else StateFiles(folder, durable=gate.ledger.durable)
        self._pace = pace
        self._unwritten: tuple[str, int] | None = None
        """The run and number of the last order, if its effects are in memory and in no stored state."""
        self._lacking: deque[int] = deque()
        self._exam, self._changes = exam, 0
        self._simulation = gate.simulation
        self._reader = _READER if self._simulation else OrderReader(shares=False)
        self._known = wire.KnownLabels(keep=1)
        self._sent_labels: tuple[Labels, ...] = ()
        """Those of the last reply, kept until the next: a coordinator in this process reads them meanwhile."""
        self.notes: Notes | None = None
        """What was recorded beside the last reply; a real site records nothing."""
        self.made: tuple[bytes, Reply, Release | None] | None = None
        """A reply that was made for the last frame: its bytes, what they say, and the release if it may be shared."""
        self.unstored: StorageError | None = None
        """Why the outcome of the last frame could not be stored: it did not happen, and the state in memory is void."""
        site.before_private_fit = lambda charge: gate.require_budget([*site.exposure.unpaid, charge])
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.log = SiteLog(folder / "site.log" if folder else None)
        site.log = self.log.write

    def serve(self, frame: bytes) -> bytes:
        """Answer one frame of orders. Whatever a step or a message does, it refuses rather than raises."""
        start = time.perf_counter()
        self.notes = self.unstored = self.made = None
        try:
            digest, header, orders = self._reader.begin(frame)
            done = self.gate.ledger.sent(header.run, header.last)
            if done is not None and done.request != digest:
                return self._refusal(header.run, header.last, "", "other-order")
            if done is not None and header.last not in self._lacking:
                self.notes = Notes.from_json(done.notes)
                return done.reply
            if self._lacking and header.last != self._lacking[0]:
                raise StorageError(f"{self.site.name} must first do order {self._lacking[0]} again: resume the run.")
            requests = self._reader.orders(header, orders, self._known)
        except WireError:
            self.log.write(f"refused a message that it cannot read:\n{traceback.format_exc()}")
            return self._refusal("", UNREAD, "", "bad-message")
        except StorageError as error:
            self.unstored = error
            self.log.write(str(error))
            return self._refusal("", UNREAD, "", "storage-failed")
        return self._answer(requests, digest, start) if done is None else self._do_again(requests, done)

    def requests_in(self, frame: bytes) -> list[Request]:
        """What a frame asks for, without doing any of it (WireError if it cannot be read)."""
        return read_orders(*read_header(frame), self._known)

    def _answer(self, requests: list[Request], digest: str, start: float) -> bytes:
        last, step = requests[-1], ""
        try:
            self._take_in(requests)
            release: object = Nothing()
            for request in requests:
                step = request.step
                try:
                    release = self._run(request)
                except Refused as refusal:
                    release = self._hidden(refusal, last)
                    break
            self.notes = self._noted(start)
            pays = self.gate.pays(last, release, self.site.exposure)
            return self._commit(last, digest, lambda: self._reply(last, release), pays=pays)
        except Refused as refusal:
            code = refusal.code
            self.log.write(f"refused {step} ({code}): {refusal}")
            if self.gate.hides_failures and self.site.exposure.touched:  # nor does it show which of them failed
                code, step = code if code in _TOLD else "step-failed", last.step
        except StorageError as error:
            code, self.unstored = "storage-failed", error
            self.log.write(f"cannot store the outcome of {step}: {error}")
        except Exception:
            code = "step-failed"
            self.log.write(f"cannot complete {step}:\n{traceback.format_exc()}")
        self.notes = Notes(dict(self.site.watch.seconds)) if self._simulation else None
        refusal_frame = self._refusal(last.run, last.number, step, code)
        if code != "storage-failed":
            with contextlib.suppress(Exception):  # a refusal that cannot be stored is still a refusal
                if code not in _TOLD and self.site.exposure.owes:
                    return self._commit(last, digest, lambda: self._paid_refusal(last, step, code), pays=True)
                return self._commit(last, digest, lambda: refusal_frame)
        return refusal_frame

    def _take_in(self, requests: list[Request]) -> None:
        self.site.watch.seconds.clear()
        self.site.noted.clear()
        for labels in (labels for request in requests for labels in request.labels):
            self._known.remember(labels)

    def _hidden(self, refusal: Refused, last: Request) -> object:
        """What leaves although a step failed; the refusal itself is raised where that tells of no private row."""
        if refusal.code in _TOLD or not self.gate.hides_failures or not self.site.exposure.touched:
            raise refusal
        release = self.gate.stand_in(last, self.site)
        if release is None:
            raise refusal
        self.log.write(f"answered {last.step} as if nothing had happened, although a step failed: {refusal}")
        return release

    def _paid_refusal(self, last: Request, step: str, code: str) -> bytes:
        """A step that fails after a private fit reveals something about the data, as an answer does: it is paid for."""
        paid = self.gate.pay_refusal(last, self.site.exposure)
        return write_refusal(Refusal(last.number, code, step, paid.row(self._published(paid.charges))))

    def _commit(self, last: Request, digest: str, write_frame: Callable[[], bytes], *, pays: bool = False) -> bytes:
        """Store reply, ledger row and, where it is due, state together; only then may the reply leave."""
        exposure, masks = self.site.exposure.copy(), last.mask is not None
        if pays:
            exposure.paid()
        due = self._states is not None and self._state_is_due(last)
        try:
            state = self._write_state(last.number, exposure) if due and not masks else None
            with self.gate.ledger.transaction():
                before = self.gate.ledger.state_file(last.run) if due else None
                reply = write_frame()
                if due and masks:  # sealing used up the name of a round, which must stay used after a crash
                    state = self._write_state(last.number, exposure)
                notes = None if self.notes is None else self.notes.to_json()
                self.gate.ledger.keep_reply(last.run, last.number, Sent(digest, reply, notes))
                if state is not None:
                    self.gate.ledger.keep_state(last.run, *state)
        except Refused:
            raise
        except Exception:
            # Memory has the effects of an order that was not done. With the next one they are stored, or else lost.
            self._pace = self._unwritten = None
            raise
        self.site.exposure = exposure
        self._unwritten = None if due else (last.run, last.number)
        self._drop_state(before, state)
        return reply

    def _run(self, request: Request) -> object:
        step = self.gate.admit(request)
        if request.mask is not None and request.mask.again is not None:
            return None  # the gate has kept what is to be masked again
        self.site.begin(request.number)
        try:
            return step.run(self.site, request.args)
        except Refused:
            raise
        except Exception:
            # The text of an exception can quote data: it stays in this site's own log.
            self.log.write(f"step {request.step} failed:\n{traceback.format_exc()}")
            raise Refused("step-failed", f"Step {request.step!r} raised; see the log.") from None

    def _reply(self, last: Request, release: object) -> bytes:
        sealed = self.gate.seal(last, release, self._known.latest, self.site)
        self._sent_labels = sealed.packed.labels
        row = sealed.row(self._published(sealed.charges))
        with beside_others(len(sealed.packed)):
            reply = write_release(last.number, row, sealed.packed)
        payload = memoryview(reply)[len(reply) - len(sealed.packed) :]
        self.made = reply, Reply(last.number, row, payload), sealed.shared
        return reply

    def _published(self, charges: tuple[Charge, ...] | None) -> list[Charge] | None:
        """Charges as others may see them: if one depends on private data, only that it exists."""
        if charges is None:
            return None
        if self._simulation:
            return list(charges)
        known = [each.as_known_beforehand() for each in charges]
        return [each if each.publishable else replace(each, events=()) for each in known]

    def _refusal(self, run: str, number: int, step: str, code: str) -> bytes:
        with contextlib.suppress(StorageError):  # a refusal that cannot be written down is still a refusal
            self.gate.ledger.note_refusal(run, number, step, code)
        return write_refusal(Refusal(number, code, step))

    def _noted(self, start: float) -> Notes | None:
        """What a simulation records beyond the protocol."""
        if not self._simulation:
            return None
        accuracy, scores = None, dict[str, float]()
        spent = dict(self.site.watch.seconds)
        model = None if {"fit", "load"}.isdisjoint(spent) else self.site.model
        self._changes += model is not None
        if model is not None and self._exam is not None and self._changes % self._exam.every == 0:
            try:
                accuracy = float(np.mean(model.predict_codes(self._exam.X) == self._exam.codes))
                scores, problems = self._exam.measure(model)
                for problem in problems:
                    self.log.write_again(f"cannot measure {problem}")
            except Exception:
                self.log.write(f"cannot score the model on the test set:\n{traceback.format_exc()}")
        return Notes(spent, dict(self.site.noted), time.perf_counter() - start, accuracy, scores)

    # State: what must survive a crash, in the site's own folder.

    def _state_is_due(self, last: Request) -> bool:
        """Whether this order must be, or is to be, followed by a stored state."""
        site = self.site
        if last.mask is not None or site.secret_state or site.exposure.fits:
            self._pace = None  # from now on, always
        return self._pace is None or self._pace.due(last.number)

    @property
    def behind(self) -> tuple[int, ...]:
        """The orders that were answered after the stored state was written, and have not been done again yet."""
        return tuple(self._lacking)

    def _do_again(self, requests: list[Request], done: Sent) -> bytes:
        """Run the steps of an order for their effects alone: what it was answered with is stored already."""
        last, was, release = requests[-1], read_reply(done.reply), None
        self._take_in(requests)
        try:
            for request in requests:
                release = self._run(request)
        except Refused:
            if isinstance(was, Reply):
                self._unwritten = None
                raise StorageError(
                    f"Site {self.site.name!r} cannot do order {last.number} again, which its stored state lacks: its "
                    "log says why. Resume again, or start a new run."
                ) from None
        if isinstance(was, Reply) and was.row.sha256 != self.gate.hash_again(
            last, release, self._known.latest, self.site
        ):
            self.log.write(
                f"order {last.number}, done again since the stored state lacks it, gives another release than the one "
                "that was sent: the learner, or its device, does not repeat itself exactly"
            )
        self._lacking.popleft()
        self._unwritten, self.notes = (last.run, last.number), Notes.from_json(done.notes)
        return done.reply

    def close(self) -> None:
        """Store what no stored state has yet, and release the files."""
        if self._unwritten is not None:
            try:
                self._replace_state(*self._unwritten)
            except Exception:  # then those orders are done again
                self.log.write(f"cannot store its state:\n{traceback.format_exc()}")
        self._reader.forget()
        self.gate.ledger.close()

    def end(self, run: str) -> None:
        """A run is over: wipe its keys and masks from memory and disk."""
        had_secrets = bool(self.site.secret_state)
        self.site.secret_state.clear()
        if had_secrets and self.gate.ledger.state_file(run) is not None:
            self._replace_state(run, None)

    def _replace_state(self, run: str, number: int | None) -> None:
        before, state = self.gate.ledger.state_file(run), self._write_state(number, self.site.exposure)
        if state is not None:
            with self.gate.ledger.transaction():
                self.gate.ledger.keep_state(run, *state)
            self._drop_state(before, state)

    def _drop_state(self, before: tuple[str, str] | None, now: tuple[str, str] | None) -> None:
        if self._states is not None and before is not None and now is not None and before[0] != now[0]:
            self._states.drop(before[0])

    def _write_state(self, number: int | None, exposure: Exposure) -> tuple[str, str] | None:
        """Store the state after an order (None: after the whole run)."""
        if self._states is None:
            return None
        start, site, labels = time.perf_counter(), self.site, self._known.latest
        content = (site.fingerprint, site.model, site.state, site.secret_state, labels, exposure, number)
        written = self._states.write(f"state-{'over' if number is None else number}.pkl", content)
        if self._pace is not None:
            self._pace.spent(time.perf_counter() - start)
        return written

    def restore(self, run: str) -> None:
        """Continue from the state in which this site left a run, if it has one."""
        stored, site = self.gate.ledger.state_file(run), self.site
        if self._states is None or stored is None:
            return
        fingerprint, model, state, secrets, labels, exposure, number = self._states.read(*stored, _STATE_FIELDS)
        if fingerprint != site.fingerprint:
            raise StorageError(
                f"Site {site.name!r} has other data or another learner than when this run began: resume with what it "
                "had, or start a new run."
            )
        site.model, site.state, site.secret_state, site.exposure = model, state, secrets, exposure
        if labels is not None:
            self._known.remember(labels)
        if number is not None:
            self._lacking.extend(self.gate.ledger.answered_after(run, number))
        if self._lacking:
            self.log.write(f"does {len(self._lacking)} orders again that its stored state lacks")
