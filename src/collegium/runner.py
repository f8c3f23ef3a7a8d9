"""`run`: one algorithm over sites that live on this machine."""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium import checks
from collegium.core import tables
from collegium.core.algorithm import Algorithm
from collegium.core.federation import COORDINATOR, Federation
from collegium.core.ledger import verify_ledger
from collegium.core.record import Record
from collegium.core.samples import LabelledData
from collegium.core.site import Exam, PublicSet, Site
from collegium.errors import CollegiumWarning, ConfigError, StorageError
from collegium.learners.base import LocalUpdate, SiteModel, Trainer, learner_name
from collegium.links.hosting import Hosting, threads_per_site
from collegium.links.local import LocalLink
from collegium.links.replay import ReplayLink
from collegium.links.workers import WorkersLink
from collegium.reports.progress import progress_bar
from collegium.results import Run


def run(
    algorithm: Algorithm,
    *,
    sites: Sequence[Site],
    public: Any = None,
    test: tuple[Any, Any] | None = None,
    public_truth: Any = None,
    seed: int = 0,
    workers: int = 0,
    classes: Any = None,
    quorum: float = 0.0,
    deadline: float | None = None,
    global_learner: Any = None,
    out: str | Path | None = None,
    resume: bool = False,
    progress: bool | None = None,
) -> Run:
    """Run an algorithm over sites on this machine and return its results.

    Args:
        algorithm: For example ``cg.FedCT(rounds=5)``.
        sites: The sites, each with data and a learner.
        public: The unlabelled set that everybody may see (X only).
        test: ``(X, y)``; sites note their accuracy on it after every local update. It trains nothing.
        public_truth: True labels of the public set, where known, to measure the consensus. They train nothing.
        seed: Same seed, same result, bit for bit, whatever `workers` is.
        workers: 0 keeps the sites in this process, in threads; N puts them into N worker processes.
        classes: All classes, if no site has some of them (default: all that any site has).
        quorum: The share of the asked sites that must answer; below it the run ends with QuorumLost.
        deadline: Seconds that sites have for an answer; one that takes longer is reported as missing that time.
        global_learner: What `run.global_model` is fitted with (default: the first site's learner).
        out: A folder for record, ledger and results. A run with a folder can be resumed.
        resume: Go on with the run in `out` (or start it, if there is none).
        progress: Show a progress bar (default: when the run takes long and somebody is watching).
    """
    checks.check_algorithm(algorithm)
    checked = checks.check_sites(sites)
    all_classes = checks.find_classes(checked, classes)
    shared = checks.check_public(algorithm, public, checked)
    exam = checks.check_test(test, all_classes)
    others = ({"public": shared.X} if shared else {}) | ({"test": exam[0]} if exam else {})
    checks.check_features(checked, others)
    truth = checks.check_truth(public_truth, shared, all_classes)
    seed = _whole_number("seed", seed)
    workers = _whole_number("workers", workers)

    folder = None if out is None else _prepare_folder(Path(out), resume=resume)
    hosting = Hosting(
        checked, all_classes, shared, None if exam is None else Exam(*exam), seed, uuid.uuid4().hex, folder
    )
    started, clock = datetime.now(UTC), time.perf_counter()
    about = _about(algorithm, hosting, quorum)
    if resume and folder is not None and (folder / "ledger.db").exists():
        verify_ledger(folder / "ledger.db")
    with ExitStack() as stack:
        record = None if folder is None else Record(folder / "record", about, resume=resume)
        if record is not None:
            stack.callback(record.close)
            hosting = replace(hosting, run=record.run)
        live: WorkersLink | LocalLink = WorkersLink(hosting, workers) if workers else LocalLink(hosting)
        stack.callback(live.close)
        fed = Federation(
            live if record is None else ReplayLink(live, record),
            run=hosting.run,
            n_classes=len(all_classes),
            seed=seed,
            public=shared,
            public_truth=truth,
            quorum=quorum,
            deadline=deadline,
        )
        with progress_bar(type(algorithm).__name__, progress) as fed.observed.on_round:
            algorithm.coordinate(fed)
            fed.flush()
        learner = global_learner if global_learner is not None else checked[0].learner
        global_model = _global_model(fed, learner, shared, all_classes, exam)
        outcome = Run.from_observations(
            fed.observed,
            about=about
            | {
                "run": hosting.run,
                "started": started.isoformat(timespec="seconds"),
                "seconds": time.perf_counter() - clock,
                "learners": {site.name: learner_name(site.learner) for site in checked},
                "samples": {site.name: len(site) for site in checked},
                "workers": workers,
            },
            classes=all_classes,
            labels=fed.final_labels,
            models=live.models,
            global_model=global_model,
            logs=live.logs,
            class_counts=_class_counts(checked, all_classes),
        )
    _warn_of_failures(outcome, folder)
    if folder is not None:
        outcome.save(folder, overwrite=True)
    return outcome


def _about(algorithm: Algorithm, hosting: Hosting, quorum: float) -> dict[str, Any]:
    return {
        "run": hosting.run,
        "algorithm": repr(algorithm),
        "seed": hosting.seed,
        "parties": [site.name for site in hosting.sites],
        "classes": [str(value) for value in hosting.classes.tolist()],
        "public_sha256": None if hosting.public is None else hosting.public.digest,
        "quorum": quorum,
    }


def _whole_number(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 0:
        raise ConfigError(f"{name} is a whole number of at least 0, not {value!r}.")
    return int(value)


def _prepare_folder(folder: Path, *, resume: bool) -> Path:
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file: choose a folder for out.")
    if folder.is_dir() and any(folder.iterdir()) and not resume:
        raise ConfigError(f"{folder} is not empty. Go on with the run in it by resume=True, or choose another folder.")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"{folder} cannot be made: {error.strerror}.") from None
    return folder


def _global_model(
    fed: Federation, learner: Any, public: PublicSet | None, classes: NDArray[Any], exam: tuple[Any, Any] | None
) -> SiteModel | None:
    """A model of (U, final L): everybody may have it, since everybody knows both."""
    labels = fed.final_labels
    if labels is None or public is None or not labels.known.any():
        return None
    nothing = LabelledData(tables.take(public.X, np.zeros(0, dtype=np.intp)), labels.codes[:0])
    with threads_per_site():
        rng = np.random.default_rng([fed.seed, 1])
        model = Trainer(learner, classes).fit(public.labelled(labels) + nothing, None, rng, LocalUpdate())
        if exam is not None:
            fed.note("global_accuracy", float(np.mean(model.predict_codes(exam[0]) == exam[1])), COORDINATOR, "test")
    return model


def _class_counts(sites: Sequence[Site], classes: NDArray[Any]) -> dict[str, list[int]]:
    return {site.name: [int(np.count_nonzero(site.y == value)) for value in classes] for site in sites}


def _warn_of_failures(outcome: Run, folder: Path | None) -> None:
    for party, rows in outcome.refusals.groupby("party", sort=False):
        code, step = rows["code"].iloc[0], rows["step"].iloc[0]
        where = f"run.logs[{party!r}]" if folder is None else str(folder / "sites" / str(party) / "site.log")
        warnings.warn(
            f"Site {party!r} did not answer {len(rows)} time(s) (first: {step}, {code}). Its own log says why: {where}",
            CollegiumWarning,
            stacklevel=3,
        )
