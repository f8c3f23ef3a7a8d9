"""Carry a study out between organisations: the same algorithm, over sites that only their owners know."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from collegium.core.building import build
from collegium.core.federation import Federation
from collegium.core.labels import Labels, as_labels
from collegium.core.public_set import PublicSet, with_opinion
from collegium.core.scores import ask_measures, ask_scores
from collegium.core.site import Exam, Site
from collegium.core.workbench import Workbench
from collegium.errors import QuorumLost, StorageError
from collegium.flare.agreement.plan import ANY_PARTY
from collegium.flare.agreement.planning import plan_of
from collegium.flare.coordinator.link import Host, RemoteLink, SessionLost
from collegium.flare.coordinator.presence import Attentive
from collegium.flare.coordinator.progress import Progress
from collegium.flare.coordinator.reporting import reporting
from collegium.flare.coordinator.run_key import FILE as KEY_FILE
from collegium.flare.coordinator.run_key import run_key, wipe_key
from collegium.flare.kits.identity import write_private
from collegium.flare.site.public_store import pack_public
from collegium.learners.metrics import part_names, read_metrics
from collegium.learners.prepare import with_preparation
from collegium.links.hosting import Hosting
from collegium.links.replay import ReplayLink
from collegium.runs.callbacks import Callback
from collegium.runs.checks import check_public, check_truth, opinion_about
from collegium.runs.folder import RunFolder
from collegium.runs.loading import load
from collegium.runs.record import Record
from collegium.runs.results import Run
from collegium.runs.runner import Course, about_run, public_part, warn_of_failures
from collegium.site.ledger import storage_errors
from collegium.study.preparing import Prepared, coordinators_part
from collegium.study.study import Study
from collegium.wire import tables

_INSTANCES: Final = "instances.json"
_MOST_ROWS: Final = 20_000
"""A global model that nobody asked for learns from so many rows of a large public set: it is to take seconds."""


def coordinate(
    study: Study,
    host: Host,
    *,
    base: Path | None = None,
    out: str | Path,
    resume: bool = False,
    progress: bool | None = None,
    callbacks: Sequence[Callback] = (),
    say: Callable[[str], None] = lambda text: None,
    tell: Callable[[Progress], None] = lambda progress: None,
) -> Run:
    """Run a study over the sites that a host reaches; `out` keeps the record, from which the run can be resumed.

    `say` is called with lines for people, `tell` now and then with how far the run has come.
    """
    part = coordinators_part(study, base)
    part = replace(part, classes=as_labels(part.classes, "classes"))  # a table's texts are objects
    with closing(RunFolder(Path(out), resume=resume, private=True)) as folder, folder.trail as trail:
        attentive, aloud = Attentive(host, trail.heard, trail.certificates), trail.speaking(say)
        with attentive.listening():
            return _carry_out(study, part, attentive, folder, resume, progress, callbacks, aloud, tell)


def _carry_out(
    study: Study,
    part: Prepared,
    host: Attentive,
    folder: RunFolder,
    resume: bool,
    progress: bool | None,
    callbacks: Sequence[Callback],
    say: Callable[[str], None],
    tell: Callable[[Progress], None],
) -> Run:
    settings = study.federation
    if not resume and (advice := part.algorithm.advice(())) is not None:  # of the sites' rows nothing is known here
        say(advice)
    parties = _parties(folder.path, study, host, say)
    shared = check_public(part.algorithm, with_opinion(part.public, part.opinion), ())
    truth = check_truth(part.public_truth, shared, part.classes)
    measures = read_metrics(study.metrics)
    exam = None if part.test is None else Exam(part.test[0], np.searchsorted(part.classes, part.test[1]), measures)
    sites = tuple(Site(party, _no_rows(shared), np.zeros(0, dtype=np.int64)) for party in parties)
    hosting = Hosting(sites, part.classes, shared, exam, study.seed, uuid.uuid4().hex, folder.path)
    about = about_run(part.algorithm, hosting, study.engine.quorum)
    plan = replace(plan_of(study, part.shared, part.classes, parties), parties=tuple(settings.parties or [ANY_PARTY]))
    begun_by = [folder.path / name for name in (KEY_FILE, _INSTANCES)]
    with ExitStack() as stack:
        record = Record(folder.path / "record", about, resume=resume, durable=True, begun_by=begun_by)
        stack.callback(record.close)
        if (finished := _finished(folder.path)) is not None:
            wipe_key(folder.path)
            return finished
        secret = run_key(folder.path, begun=record.length > 0)
        hosting = replace(hosting, run=record.run)
        instances = _Instances(folder.path / _INSTANCES)
        live = RemoteLink(
            host,
            record.run,
            plan,
            None if shared is None else pack_public(shared.X),
            parties,
            welcome=settings.parties is None,
            patience=settings.patience,
            outage=settings.outage,
            instances=instances,
            say=say,
            note=host.noting(folder.trail.site),
        )
        stack.callback(live.close)
        learners = _learners(study, parties, shared)
        fed = Federation(
            ReplayLink(live, record),
            run=record.run,
            n_classes=len(part.classes),
            seed=study.seed,
            public=shared,
            public_truth=truth,
            public_labels=None
            if truth is None or not part.algorithm.learns_public_labels
            else Labels(truth, len(part.classes)),
            workbench=Workbench(learners, part.classes, shared, exam, study.seed),
            quorum=study.engine.quorum,
            deadline=study.engine.deadline,
            secret=secret,
            opinion=opinion_about(shared, part.classes),
        )
        scored = settings.metrics and part.algorithm.trains_sites
        watchers = [*([_Scores(fed, study.metrics, part_names(measures, part.classes))] if scored else []), *callbacks]
        about |= {"run": record.run, "plan": plan.digest, "metrics": study.metrics}
        course = Course(fed, hosting, about, folder, watchers, study)
        choice = (part.global_learner, part.algorithm.final_learner(), public_part(learners[0].learner))
        stack.enter_context(reporting(fed.observed, record.run, tell))
        global_models = course.complete(part.algorithm, choice, progress=progress, most_rows=_MOST_ROWS, say=say)
        live.farewell()
        outcome = course.outcome({}, global_models, {})
    say(f"writing results and report to {folder.path}")
    warn_of_failures(outcome, lambda party: f"`collegium site log KIT` at {party}")
    folder.finish(outcome)
    wipe_key(folder.path)
    for callback in callbacks:
        callback.on_end(outcome)
    return outcome


class _Scores(Callback):
    """Asks sites how good their models are when a round ends; one that does not tell is not asked again."""

    def __init__(self, fed: Federation, metrics: Sequence[str], names: Sequence[str]) -> None:
        self._fed, self._metrics, self._names = fed, metrics, names
        self._silent: set[str] = set()
        self._mute: set[str] = set()

    def on_round(self, report: Any) -> None:
        asked = [party for party in self._fed.parties if party not in self._silent]
        if asked:
            self._silent |= set(asked) - set(ask_scores(self._fed, asked))
        asked = [party for party in asked if party not in self._silent | self._mute]
        if asked and self._metrics:
            self._mute |= set(asked) - set(ask_measures(self._fed, asked, self._metrics, self._names))


class _Instances(dict[str, str]):
    """Which installation of each site took part first. Kept beside the record, so that a resumed run knows."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()  # sites are greeted at the same time
        with storage_errors(file, StorageError):
            super().__init__(json.loads(file.read_text()) if file.is_file() else {})

    def setdefault(self, key: str, default: str = "") -> str:
        with self._lock:
            if key not in self:
                self[key] = default
                write_private(self._file, json.dumps(self).encode())
            return self[key]


def _finished(folder: Path) -> Run | None:
    """The run in this folder, if it has been carried out to the end: there is nothing to resume."""
    with suppress(StorageError):  # nothing there yet, or not readable after a crash: it goes on from the record
        stored = load(folder)
        return stored if stored.finished else None
    return None


def _parties(folder: Path, study: Study, host: Host, say: Callable[[str], None]) -> tuple[str, ...]:
    """The sites that take part from the start: as recorded, as named, or all that are there."""
    file, settings = folder / "parties.json", study.federation
    with storage_errors(file, StorageError):
        if file.is_file():
            return tuple(json.loads(file.read_text()))
    needed, end = max(settings.at_least, 1), time.monotonic() + settings.wait
    while True:
        is_late = time.monotonic() > end
        try:
            here = sorted(party for party in host.seen() if settings.parties is None or party in settings.parties)
        except SessionLost as error:
            if is_late:
                raise SessionLost(f"Cannot reach the server: {error}. Start it: collegium server start KIT") from None
            here = []
        if len(here) >= needed:
            break
        if is_late:
            raise QuorumLost(
                f"Only {len(here)} of the {needed} required sites have joined ({', '.join(here) or 'none'}). "
                "A site joins with: collegium site join KIT"
            )
        time.sleep(0.2)
    parties = tuple(settings.parties or here)
    say(f"sites: {', '.join(here)}")
    write_private(file, json.dumps(parties).encode())
    return parties


def _learners(study: Study, parties: Sequence[str], public: PublicSet | None) -> list[Site]:
    """Sites as the study describes them, for nets that the coordinator works with: names and learners, no rows."""
    sites = []
    for number, party in enumerate(parties):
        where, section = study.section_for(number, party)
        learner = build("learner", section.learner, f"{where}.learner")
        if section.prepare == "auto" and public is not None:
            learner = with_preparation(learner, public.X)
        sites.append(Site(party, _no_rows(public), np.zeros(0, dtype=np.int64), learner=learner))
    return sites


def _no_rows(public: PublicSet | None) -> Any:
    return np.zeros((0, 1)) if public is None else tables.take(public.X, np.zeros(0, dtype=np.intp))
