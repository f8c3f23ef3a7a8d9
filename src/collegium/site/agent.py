"""A site's runtime: takes order frames, runs steps behind the gate, answers with reply frames.

An order is identified by (run, number). Asked again, the agent sends the stored reply again and runs nothing.
The sealed reply, the ledger row and the site's state are stored in one transaction, so that a killed site has
either done an order or not.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import cloudpickle
import numpy as np

from collegium import wire
from collegium.core.labels import Labels
from collegium.core.releases import Nothing, Release
from collegium.core.site import ActiveSite, Exam
from collegium.errors import Refused, StorageError, WireError
from collegium.privacy.budget import write_charges
from collegium.privacy.claims import Charge
from collegium.site.exposure import Exposure
from collegium.site.gate import Gate, Request, Sealed
from collegium.site.ledger import storage_errors

_OF_THE_DATA: Final = frozenset({"step-failed", "diverged"})
"""Refusals that a step itself comes to: they may depend on private rows."""


@dataclass(frozen=True)
class Batch:
    """The orders of one exchange for one site: any number of tells, then at most one ask."""

    run: str
    public_sha256: str | None
    orders: list[dict[str, Any]]

    @property
    def last(self) -> int:
        """The number that identifies the batch."""
        return int(self.orders[-1]["number"])


def _repeats(order: dict[str, Any]) -> bool:
    """Does it ask for votes that the gate has kept? Then the step does not run again."""
    return (order.get("mask") or {}).get("again") is not None


class SiteLog:
    """What happened at a site, for its owner only. Kept in memory, and in a file where there is a folder."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self.lines: list[str] = []

    def write(self, text: str) -> None:
        """Add an entry."""
        self.lines.append(text)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}\n")


class Agent:
    """Serves one site for one run."""

    def __init__(self, site: ActiveSite, gate: Gate, *, folder: Path | None = None, exam: Exam | None = None) -> None:
        self.site = site
        self.gate = gate
        self._folder = folder
        self._exam = exam
        self._simulation = gate.simulation
        self._known = wire.KnownLabels(keep=1)
        site.before_private_fit = lambda charge: gate.require_budget([*site.exposure.unpaid, charge])
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.log = SiteLog(folder / "site.log" if folder else None)
        site.log = self.log.write

    def serve(self, frame: bytes) -> bytes:
        """Answer one batch of orders. Never raises for what a step or a message does: it refuses."""
        start = time.perf_counter()
        request = hashlib.sha256(frame).hexdigest()
        try:
            header, payload = wire.cut(frame)
            run, last = str(header["run"]), int(header["last"])
            done = self.gate.ledger.sent(run, last)
            if done is not None:
                return done[1] if done[0] == request else self._refusal(run, last, "", "other-order", {})
            batch = Batch(run, header["public"], wire.unpack(payload, self._known)["orders"])
            if batch.last != last:
                raise WireError("A batch's number is not that of its last order.")
        except (WireError, KeyError, TypeError, ValueError):
            self.log.write(f"refused a message that cannot be read:\n{traceback.format_exc()}")
            return self._refusal("", -1, "", "bad-message", {})
        except StorageError as error:
            self.log.write(str(error))
            return self._refusal("", -1, "", "storage-failed", {})
        return self._answer(batch, request, start)

    def orders_in(self, frame: bytes) -> list[dict[str, Any]]:
        """What a frame asks for, without doing any of it (WireError if it cannot be read)."""
        try:
            return [dict(order) for order in wire.unpack(wire.cut(frame)[1], self._known)["orders"]]
        except (KeyError, TypeError, ValueError):
            raise WireError("A message holds no orders.") from None

    def _answer(self, batch: Batch, request: str, start: float) -> bytes:
        self.site.watch.seconds.clear()
        self.site.noted.clear()
        step = "an order"
        try:
            self._learn_labels(batch)
            release: object = Nothing()
            for order in batch.orders:
                step = str(order["step"])
                release = self._run(batch, order)
            notes = self._notes(start)
            mask = batch.orders[-1].get("mask")
            bare = batch.orders[-1].get("mechanism") is None and not isinstance(release, Nothing)
            pays = bare and isinstance(release, Release) and release.holds_data and not release.never_protected
            return self._commit(
                batch, request, lambda: self._reply(batch, release, notes), pays=pays, masks=mask is not None
            )
        except Refused as refusal:
            code = refusal.code
            self.log.write(f"refused {step} ({code}): {refusal}")
        except StorageError as error:
            code = "storage-failed"
            self.log.write(f"could not store the outcome of {step}: {error}")
        except Exception:
            code = "step-failed"
            self.log.write(f"{step} could not be completed:\n{traceback.format_exc()}")
        notes = {"seconds": dict(self.site.watch.seconds)}
        refusal_frame = self._refusal(batch.run, batch.last, step, code, notes)
        if code != "storage-failed":
            with contextlib.suppress(Exception):  # a refusal that cannot be stored is still a refusal
                if code in _OF_THE_DATA and self.site.exposure.owes:
                    return self._commit(batch, request, lambda: self._paid_refusal(batch, step, code, notes), pays=True)
                return self._commit(batch, request, lambda: refusal_frame)
        return refusal_frame

    def _paid_refusal(self, batch: Batch, step: str, code: str, notes: dict[str, Any]) -> bytes:
        """That a step failed after a private fit tells something of the data, as an answer does: it is paid for."""
        paid = self.gate.pay_refusal(self._request(batch, batch.orders[-1]), self.site.exposure)
        header = {"number": batch.last, "refused": code, "step": step} | self._passed(paid)
        return self._annotate(wire.join(header, b""), notes)

    def _commit(
        self,
        batch: Batch,
        request: str,
        write_reply: Callable[[], bytes],
        *,
        pays: bool = False,
        masks: bool = False,
    ) -> bytes:
        """Store reply, ledger row and state together; only then may the reply leave, and its bill is paid."""
        exposure = self.site.exposure.copy()
        if pays:
            exposure.paid()
        file = f"state-{batch.last}.pkl"
        state = None if masks else self._write_state(file, exposure)
        with self.gate.ledger.transaction():
            before = self.gate.ledger.state_file(batch.run)
            reply = write_reply()
            if masks:  # sealing used up the name of a round, which must stay used after a crash
                state = self._write_state(file, exposure)
            self.gate.ledger.keep_reply(batch.run, batch.last, request, reply)
            if state is not None:
                self.gate.ledger.keep_state(batch.run, *state)
        self.site.exposure = exposure
        if state is not None:
            self._drop_state(before, state)
        return reply

    def _run(self, batch: Batch, order: dict[str, Any]) -> object:
        step = self.gate.admit(self._request(batch, order))
        if _repeats(order):
            return None
        self.site.begin(int(order["number"]))
        try:
            return step.run(self.site, dict(order["args"]))
        except Refused:
            raise
        except Exception:
            # The text of an exception can quote data: it stays in this site's own log.
            self.log.write(f"step {order['step']} failed:\n{traceback.format_exc()}")
            raise Refused("step-failed", f"Step {order['step']!r} raised; see the log.") from None

    def _learn_labels(self, batch: Batch) -> None:
        for order in batch.orders:
            for value in order["args"].values():
                if isinstance(value, Labels):
                    self._known.remember(value)

    @staticmethod
    def _request(batch: Batch, order: dict[str, Any]) -> Request:
        return Request(
            batch.run,
            int(order["number"]),
            int(order["round"]),
            str(order["step"]),
            str(order["digest"]),
            batch.public_sha256,
            order.get("mechanism"),
            order.get("mask"),
        )

    def _reply(self, batch: Batch, release: object, notes: dict[str, Any]) -> bytes:
        sealed = self.gate.seal(self._request(batch, batch.orders[-1]), release, self._known.latest, self.site)
        return self._annotate(wire.join({"number": batch.last} | self._passed(sealed), sealed.packed.data), notes)

    def _passed(self, sealed: Sealed) -> dict[str, Any]:
        """What a reply's header says of what passed the gate."""
        return {
            "kind": sealed.kind,
            "bytes": sealed.packed.content_bytes,
            "sha256": sealed.sha256,
            "entry": sealed.entry,
            "privacy": None if sealed.charges is None else write_charges(self._published(sealed.charges)),
        }

    def _published(self, charges: tuple[Charge, ...]) -> list[Charge]:
        """What others may know of a charge: of one that depends on private data, that there is one."""
        return [each if each.publishable or self._simulation else replace(each, events=()) for each in charges]

    def _refusal(self, run: str, number: int, step: str, code: str, notes: dict[str, Any]) -> bytes:
        with contextlib.suppress(StorageError):  # a refusal that cannot be written down is still a refusal
            self.gate.ledger.note_refusal(run, number, step, code)
        return self._annotate(wire.join({"number": number, "refused": code, "step": step}, b""), notes)

    def _annotate(self, reply: bytes, notes: dict[str, Any]) -> bytes:
        """A simulation's notes are wrapped around the reply: they are no part of what a real site would send."""
        return wire.join({"notes": notes}, reply) if self._simulation else reply

    def _notes(self, start: float) -> dict[str, Any]:
        """What a simulation wants to know beyond the protocol."""
        notes: dict[str, Any] = {"seconds": dict(self.site.watch.seconds), "noted": dict(self.site.noted)}
        if (
            self._simulation
            and not {"fit", "load"}.isdisjoint(self.site.watch.seconds)
            and self._exam is not None
            and self.site.model is not None
        ):
            try:
                answers = self.site.model.predict_codes(self._exam.X)
                notes["accuracy"] = float(np.mean(answers == self._exam.codes))
            except Exception:
                self.log.write(f"could not take the test:\n{traceback.format_exc()}")
        notes["busy"] = time.perf_counter() - start
        return notes

    # State: what must survive a crash, in the site's own folder.

    def end(self, run: str) -> None:
        """A run is over: nothing that opens its letters or masks stays, in memory or on the disk."""
        had_secrets = bool(self.site.secret_state)
        self.site.secret_state.clear()
        if had_secrets and (before := self.gate.ledger.state_file(run)) is not None:
            state = self._write_state("state-over.pkl", self.site.exposure)
            if state is not None:
                with self.gate.ledger.transaction():
                    self.gate.ledger.keep_state(run, *state)
                self._drop_state(before, state)

    def _drop_state(self, before: tuple[str, str] | None, now: tuple[str, str]) -> None:
        if self._folder is not None and before is not None and before[0] != now[0]:
            (self._folder / before[0]).unlink(missing_ok=True)

    def _write_state(self, file_name: str, exposure: Exposure) -> tuple[str, str] | None:
        if self._folder is None:
            return None
        site, labels = self.site, self._known.latest
        data = cloudpickle.dumps((site.fingerprint, site.model, site.state, site.secret_state, labels, exposure))
        path = self._folder / file_name
        with storage_errors(path, StorageError), path.open("wb") as file:
            file.write(data)
            if self.gate.ledger.durable:  # before the transaction that names it
                file.flush()
                os.fsync(file.fileno())
        return path.name, hashlib.sha256(data).hexdigest()

    def restore(self, run: str) -> None:
        """Go on from the state in which this site left a run, if it has one."""
        if self._folder is None:
            return
        stored = self.gate.ledger.state_file(run)
        if stored is not None:
            path = self._folder / stored[0]
            data = path.read_bytes() if path.is_file() else b""
            if hashlib.sha256(data).hexdigest() != stored[1]:
                raise StorageError(f"The stored state {path} is damaged or missing: restore it, or start a new run.")
            try:
                fingerprint, model, state, secrets, labels, exposure = cloudpickle.loads(data)
            except ValueError:
                raise StorageError(
                    f"The stored state {path} is of another version of Collegium: resume with that version, or start "
                    "a new run."
                ) from None
            if fingerprint != self.site.fingerprint:
                raise StorageError(
                    f"Site {self.site.name!r} has other data or another learner than when this run was begun: resume "
                    "with what it had, or start a new run."
                )
            site = self.site
            site.model, site.state, site.secret_state, site.exposure = model, state, secrets, exposure
            if labels is not None:
                self._known.remember(labels)
