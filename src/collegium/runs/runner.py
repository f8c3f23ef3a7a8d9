"""`run`: one algorithm over sites that live on this machine."""

from __future__ import annotations

import time
import uuid
import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from collegium.core.algorithm import Algorithm
from collegium.core.attendance import Attendance, Cohort, resumed
from collegium.core.federation import Federation
from collegium.core.labels import Labels, look_like_counts, names_of, other_spellings
from collegium.core.observations import COORDINATOR, Disclosure
from collegium.core.samples import LabelledData
from collegium.core.settings import NonNegativeFloat, NonNegativeInt, PositiveInt, check
from collegium.core.site import Exam, Site
from collegium.core.terms import Precision
from collegium.core.workbench import Workbench, scores_of
from collegium.errors import Advice, BudgetSpent, CollegiumWarning, DoubtfulResult, QuorumLost, StorageError
from collegium.graphs import Labelled
from collegium.learners.base import LocalUpdate, SiteModel, Trainer, learner_name
from collegium.learners.metrics import base_rate, read_metrics
from collegium.links.hosting import Hosting, threads_per_site
from collegium.links.replay import ReplayLink
from collegium.links.simulated import AUTO, link_class
from collegium.privacy.budget import write_charges
from collegium.privacy.learners.base import PrivateLearner
from collegium.reports.progress import progress_bar
from collegium.runs import checks
from collegium.runs.callbacks import Callback, RoundReport
from collegium.runs.computing import Computing, used
from collegium.runs.folder import RunFolder
from collegium.runs.reasons import raised_at
from collegium.runs.record import Record
from collegium.runs.results import Run
from collegium.runs.tracing import Tracer
from collegium.runs.verdict import Alone, faults
from collegium.site.ledger import verify_ledger
from collegium.wire import tables

if TYPE_CHECKING:
    from collegium.study.study import Study

MANY_NUMBERS: Final = (
    "The labels are {} different whole numbers, each of which is a class. If they are amounts, such as ages or days, "
    "divide them into classes first, for example with pandas.cut. If they are codes of classes, all is well."
)


SPELLINGS: Final = (
    "Some labels differ only by case or blanks, and are different classes: {}. If they mean the same, strip blanks and "
    "use one case."
)


def run(
    algorithm: Algorithm,
    *,
    sites: Sequence[Site],
    public: Any = None,
    test: tuple[Any, Any] | None = None,
    test_sites: bool = True,
    test_every: int = 1,
    metrics: Sequence[str | Callable[..., float]] = (),
    alone: bool | None = None,
    public_truth: Any = None,
    seed: int = 0,
    workers: int = 0,
    link: str = AUTO,
    address: str | None = None,
    classes: Any = None,
    quorum: float = 0.0,
    deadline: float | None = None,
    cohort: Cohort = "auto",
    device: str | None = None,
    precision: Precision | None = None,
    gpus: float = 0.0,
    global_learner: Any = None,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    progress: bool | None = None,
    callbacks: Sequence[Callback] = (),
    study: Study | None = None,
) -> Run:
    """Run an algorithm over sites on this machine and return its results.

    Args:
        algorithm: For example ``cg.FedCT(rounds=5)``.
        sites: The sites, each with data and a learner.
        public: The unlabeled set that everybody may see, or what `cg.public_together` has made (X only; ``(X, y)`` for
            FedMD, which learns from its labels).
        test: ``(X, y)``; sites note their accuracy on it whenever they answer. It trains nothing.
        test_sites: Whether every site is tested (False saves time: only the common model of each round is).
        test_every: Test a site once in so many times that it answers, and the common model once in so many rounds and
            in the last: it saves time where rounds are short. It should divide the number of a site's answers.
        metrics: What to measure on the test set beside accuracy: names of scikit-learn's scorers, sensitivity,
            specificity, log_loss, brier, calibration_error, calibration_curve or confusion_matrix, or functions
            ``score(model, X, y)``. `run.metrics` has them by site and round, and for the global model.
        alone: Whether each site's learner is trained alone, too, for `run.verdict`: at the end of the run, or never
            (default: when `run.verdict` is looked at; of a study or with `out` at the end, where that takes one fit per
            site).
        public_truth: True labels of the public set, where known, to measure the consensus. They train nothing.
        seed: Same seed, same result, bit for bit, whatever `workers` and `link` are.
        workers: 0 keeps the sites in this process, in threads; N puts them into N worker processes.
        link: How sites are hosted: 'local', 'workers' or 'ray' (default: by `workers` alone). 'ray' and 'workers'
            take as many processes as there are cores, if `workers` does not say.
        address: An existing Ray cluster, as in `ray.init` (default: Ray is started for this run).
        classes: All classes, if no site has some of them (default: all that any site has).
        quorum: The share of the asked sites that must answer; with fewer the run ends with QuorumLost.
        deadline: Seconds that sites have to answer; one that takes longer is reported as missing for that request.
        cohort: Whether alike nets of sites in one process are trained in one computation: 'auto' on a GPU, 'on'
            everywhere, 'off' nowhere. Results agree up to rounding; `run.about["cohort"]` says who was.
        device: 'cpu', 'cuda' or 'cuda:1' for all learners that have a device (default: each learner's own).
        precision: 'float32', 'tf32' or 'bfloat16' for all nets (default: each net's own, which is float32).
        gpus: With link='ray': spread the sites over so many GPUs of the cluster, or use that share of one (0.5).
        global_learner: The learner of `run.global_model` (default: the algorithm's, or the first site's learner).
        out: A folder for record, ledger and results. A run with a folder can be resumed.
        resume: Continue the run in `out`, or start it if there is none.
        overwrite: Remove an earlier run in `out`, if there is one; nothing else is removed.
        progress: Show a progress bar (default: if standard error is a terminal).
        callbacks: Called at the start, after each round and at the end; they may add metrics or stop the run.
        study: The study that this run carries out; it is kept in the run's folder.
    """
    checks.check_algorithm(algorithm)
    checked = checks.check_sites(sites, algorithm)
    public, labels = checks.check_labelled(algorithm, public)
    checked, public, test = checks.in_one_order(checked, public, test)
    all_classes = checks.find_classes(checked, classes, labels)
    shared = checks.check_public(algorithm, public, checked)
    exam = checks.check_test(test, all_classes)
    others = ({"public": shared.X} if shared else {}) | ({"test": exam[0]} if exam else {})
    checks.check_features(checked, others, algorithm)
    truth = checks.check_truth(public_truth, shared, all_classes)
    codes = checks.check_truth(labels, shared, all_classes, "public=(X, y)")
    checks.check_capabilities(algorithm, checked)
    checks.check_privacy(algorithm, checked, shared, len(all_classes))
    if advice := algorithm.advice(checked):
        warnings.warn(advice, Advice, stacklevel=2)
    if study is None and (alike := other_spellings(all_classes)):  # a study's data is looked at as a whole
        warnings.warn(SPELLINGS.format(alike), Advice, stacklevel=2)
    if (classes is None or study is not None) and look_like_counts(all_classes):
        warnings.warn(MANY_NUMBERS.format(len(all_classes)), Advice, stacklevel=2)
    seed = check(NonNegativeInt, seed, "seed")
    workers = check(NonNegativeInt, workers, "workers")
    cohort = check(Cohort, cohort, "cohort")
    link, make_link = link_class(link, workers)
    checks.check_callbacks(callbacks)
    computing = Computing(device, precision)
    gpus = check(NonNegativeFloat, gpus, "gpus")
    if not gpus:  # those are where the actors are
        computing.on_this_machine()
    checked = computing.sites(checked)
    choice = (global_learner, algorithm.final_learner(), public_part(checked[0].learner))
    learners = [computing.learner(each) for each in choice]
    computing.warn_if_ignored()

    folder = None if out is None else RunFolder(Path(out), resume=resume, overwrite=overwrite)
    measures = read_metrics(metrics)
    if measures and exam is None:
        named = ", ".join(each.name for each in measures)
        warnings.warn(f"Nothing is measured of {named}: there is no test set. Pass one.", Advice, stacklevel=2)
    test_every = check(PositiveInt, test_every, "test_every")
    test_set = None if exam is None else Exam(tables.frozen(exam[0]), exam[1], measures, test_every)
    path = None if folder is None else folder.path
    hosting = Hosting(
        checked, all_classes, shared, test_set if test_sites else None, seed, uuid.uuid4().hex, path, cohort=cohort
    )
    about = about_run(algorithm, hosting, quorum) | {"device": None, "precision": None} | computing.about
    parties = hosting.parties
    earlier = None if folder is None else folder.earlier().get("cohort")
    trained = partial(resumed, earlier)
    with ExitStack() as stack:
        record = None
        if folder is not None:
            stack.callback(folder.close)
            stack.enter_context(folder.trail)
            ledger = folder.path / "ledger.db"
            if resume and ledger.exists():
                verify_ledger(ledger)
            record = Record(folder.path / "record", about, resume=resume, begun_by=[ledger])
            stack.callback(record.close)
            hosting = replace(hosting, run=record.run)
        live = make_link(hosting, workers, address, gpus)
        stack.callback(live.close)
        fed = Federation(
            live if record is None else ReplayLink(live, record),
            run=hosting.run,
            n_classes=len(all_classes),
            seed=seed,
            public=shared,
            public_truth=truth,
            public_labels=None if codes is None else Labels(codes, len(all_classes)),
            workbench=Workbench(checked, all_classes, shared, test_set, seed),
            quorum=quorum,
            deadline=deadline,
            test_every=test_every,
            opinion=checks.opinion_about(shared, all_classes),
        )
        engine = {
            "workers": workers,
            "link": link,
            "gpus": gpus,
            "cohort": trained(Attendance().to_plain(cohort, parties)),
        }
        rate = None if test_set is None else base_rate(test_set.codes)
        tested = {"metrics": [each.name for each in measures], "base_rate": rate}
        course = Course(fed, hosting, about | {"run": hosting.run} | engine | tested, folder, callbacks, study)
        try:
            global_models = course.complete(algorithm, learners, progress=progress)
        except QuorumLost as lost:
            with suppress(Exception):  # logs of processes that were killed cannot be had
                lost.logs = dict(live.logs)
            where = "this error's `logs`, by site" if path is None else path / "sites" / "*" / "site.log"
            lost.add_note(f"The sites' logs: {where}")
            # Beside the message, not in it: that is shown and kept where nobody expects rows.
            raise lost from raised_at(lost.logs)
        models = live.models
        course.add(cohort=trained(live.attendance.to_plain(cohort, parties)), **used(models.values()))
        outcome = course.outcome(models, global_models, live.logs, live.found_labels)

    def site_log(party: str) -> str:
        return f"run.logs[{party!r}]" if path is None else str(path / "sites" / party / "site.log")

    beside = None if alone is False else Alone.of(algorithm, hosting, test_set)
    outcome._alone, outcome._exam = beside, test_set
    if beside is not None and (alone or (not (study is None and folder is None) and beside.is_cheap)):
        _ = outcome.verdict
    warn_of_failures(outcome, site_log)
    for fault in faults(outcome):
        warnings.warn(fault, DoubtfulResult, stacklevel=2)
    if folder is not None:
        folder.finish(outcome)
    for callback in callbacks:
        callback.on_end(outcome)
    return outcome


class Course:
    """A run in progress: its results so far, its folder, and its callbacks."""

    def __init__(
        self,
        fed: Federation,
        hosting: Hosting,
        about: dict[str, Any],
        folder: RunFolder | None,
        callbacks: Sequence[Callback],
        study: Study | None,
    ) -> None:
        self._fed = fed
        self._hosting = hosting
        self._folder = folder
        self._callbacks = callbacks
        self._by_round: dict[int, list[dict[str, Any]]] = {}
        self._sorted = 0
        """How many of the metrics are in it."""
        self._study = None if study is None else study.to_toml()
        self._clock = time.perf_counter()
        # Of sites elsewhere the coordinator knows the names only.
        self._known = sites = [
            site for site in hosting.sites if len(site) or site.learner is not None or site.unlabeled is not None
        ]
        self._about = about | {
            "started": datetime.now(UTC).isoformat(timespec="seconds"),
            "learners": {site.name: "" if site.learner is None else learner_name(site.learner) for site in sites},
            "samples": {site.name: len(site) for site in sites},
            "study": None if study is None else study.name,
        }
        self._tracer = Tracer(fed.observed, lambda: fed.parties)

    def add(self, **about: Any) -> None:
        """Say more about the run."""
        self._about |= about

    def begin(self) -> None:
        """Tell the callbacks, and listen for the ends of rounds."""
        for callback in self._callbacks:
            callback.on_start(dict(self._about))
        self._fed.observed.on_round_end = self._round_ends
        if self._callbacks:
            self._fed.observed.on_disclosure = self._disclosed
        if self._folder is not None:
            self._folder.trail.start(self._about, self._tracer)
        self._snapshot()

    def _snapshot(self, *, now: bool = False) -> None:
        if self._folder is not None:
            self._folder.snapshot(lambda: self.outcome({}, {}, {}), now=now)

    def complete(
        self,
        algorithm: Algorithm,
        learners: Sequence[Any],
        *,
        progress: bool | None,
        most_rows: int | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> dict[str, SiteModel]:
        """The whole run, from its beginning to its global models; the first of `learners` that there is makes one.

        Where nobody chose that learner, and it is the last of them, it learns from `most_rows` public rows.
        """
        hosting, fed = self._hosting, self._fed
        with threads_per_site():  # what the coordinator does with nets is the same on every link, too
            with progress_bar(type(algorithm).__name__, progress) as fed.observed.on_round:
                self.begin()
                self.run(algorithm)
            learner = next((each for each in learners if each is not None), None)
            with fed.observed.watch("final"):
                # The nets whose weights the algorithm published, one per architecture.
                nets = {like: fed.workbench.net(like, weights) for like, weights in fed.final_weights.items()}
                most = most_rows if all(each is None for each in learners[:-1]) else None
                labels = None if fed.final_labels is None else thinned(fed.final_labels, most, fed.seed)
                if not nets and labels is not None and learner is not None:
                    rows = f"{np.count_nonzero(labels.known):,} public rows"
                    say(f"fitting the global model ({learner_name(learner)}) on {rows}")
                return nets or _global_model(fed, labels, learner, hosting)

    def run(self, algorithm: Algorithm) -> None:
        """Let the algorithm coordinate; whatever ends it, the folder holds what there is."""
        try:
            self._fed.may_ask = algorithm.all_steps()
            try:
                algorithm.coordinate(self._fed)
            except BudgetSpent as spent:
                if not self._fed.observed.any_answer:  # nothing came of it
                    raise
                warnings.warn(f"{spent} The run ends early.", CollegiumWarning, stacklevel=4)
            self._fed.flush()
            self._require_answers()
            self._fed.observed.end_round()
        except BaseException:
            with suppress(StorageError):
                self._snapshot(now=True)
            raise

    def _require_answers(self) -> None:
        """A method may go on when nobody answers for a while. If nobody ever did, there is no result."""
        observed = self._fed.observed
        if observed.orders and not observed.any_answer:
            lost = QuorumLost("No site answered anything that it was asked.")
            lost.refused = {row["party"]: row["code"] for row in observed.refusals}
            raise lost

    def _disclosed(self, disclosure: Disclosure) -> None:
        for callback in self._callbacks:
            callback.on_disclosure(disclosure)

    def _metrics_of(self, number: int) -> tuple[dict[str, Any], ...]:
        """A round's metrics; only those that were added since the last call are looked through."""
        rows = self._fed.observed.metrics
        for row in rows[self._sorted :]:
            self._by_round.setdefault(row["round"], []).append(row)
        self._sorted = len(rows)
        return tuple(self._by_round.get(number, ()))

    def _round_ends(self, number: int, of: int) -> bool:
        stop = False
        for callback in self._callbacks:
            answer = callback.on_round(RoundReport(number, of, self._metrics_of(number)))
            if isinstance(answer, dict):
                for metric, value in answer.items():
                    self._fed.note(metric, value, split="callback")
            elif answer is not None and bool(answer):
                stop = True
        self._tracer.ended(number, of)
        self._snapshot()
        if self._folder is not None and self._folder.trail.stop_asked:
            raise KeyboardInterrupt
        return stop

    def outcome(
        self,
        models: dict[str, SiteModel],
        global_models: dict[str, SiteModel],
        logs: dict[str, list[str]],
        found: dict[str, Labelled] | None = None,
    ) -> Run:
        """The results so far."""
        classes = self._hosting.classes
        counts = {site.name: [int(np.count_nonzero(site.y == value)) for value in classes] for site in self._known}
        now = {"seconds": time.perf_counter() - self._clock, "parties": list(self._fed.parties)}  # some may have joined
        claims = {what: write_charges(charges) for what, charges in self._fed.observed.claims.items()}
        return Run.from_observations(
            self._fed.observed,
            about=self._about | now | {"claims": claims},
            classes=classes,
            labels=self._fed.final_labels,
            models=models,
            global_models=global_models,
            logs=logs,
            class_counts=counts,
            found=found,
            consensus_confidences=self._fed.confidences,
            study=self._study,
            made=self._fed.made,
            opinion=self._fed.made_opinion,
        )


def about_run(algorithm: Algorithm, hosting: Hosting, quorum: float) -> dict[str, Any]:
    opinion = None if hosting.public is None else hosting.public.opinion
    return {
        "run": hosting.run,
        "algorithm": repr(algorithm),
        "seed": hosting.seed,
        "parties": [site.name for site in hosting.sites],
        "classes": names_of(hosting.classes),
        "public_sha256": None if hosting.public is None else hosting.public.digest,
        "public_size": 0 if hosting.public is None else len(hosting.public),
        "public_made": None if hosting.public is None else hosting.public.made,
        "opinion_sha256": None if opinion is None else tables.digest(opinion),
        "quorum": quorum,
    }


def public_part(learner: Any) -> Any:
    """The learner for public rows only: there a private one has no private rows to protect."""
    return learner.public_learner() if isinstance(learner, PrivateLearner) else learner


def thinned(labels: Labels, most: int | None, seed: int) -> Labels:
    """The same labels on so many rows at most, drawn at random; every class keeps its share."""
    rows = np.flatnonzero(labels.known)
    if most is None or len(rows) <= most:
        return labels
    order, codes = np.random.default_rng([seed, 2]).permutation(rows), np.full_like(labels.codes, -1)
    for code in np.unique(labels.codes[rows]):
        own = order[labels.codes[order] == code]
        codes[own[: max(1, len(own) * most // len(rows))]] = code
    return Labels(codes, labels.n_classes)


def _global_model(fed: Federation, labels: Labels | None, learner: Any, hosting: Hosting) -> dict[str, SiteModel]:
    """A model of (U, final L): everybody may have it, since everybody knows both."""
    public, classes, exam = hosting.public, hosting.classes, hosting.exam
    if labels is None or public is None or learner is None:
        return {}
    if not labels.known.any():
        warnings.warn(
            "No global model: no public sample has a label. No vote reached what the consensus asks for, or noise let "
            "no answer through.",
            CollegiumWarning,
            stacklevel=3,
        )
        return {}
    nothing = LabelledData(tables.take(public.X, np.zeros(0, dtype=np.intp)), labels.codes[:0])
    with threads_per_site():
        rng = np.random.default_rng([fed.seed, 1])
        try:
            model = Trainer(learner, classes).fit(public.labelled(labels) + nothing, None, rng, LocalUpdate())
            scores = {} if exam is None else scores_of(model, exam)
        except Exception as error:
            warnings.warn(
                f"No global model: {learner_name(learner)} raised {type(error).__name__} on the public set. Choose "
                "another one with global_learner=....",
                CollegiumWarning,
                stacklevel=3,
            )
            return {}
    for metric, value in scores.items():
        fed.note(f"global_{metric}", value, COORDINATOR, "test")
    return {"model": model}


def warn_of_failures(outcome: Run, where: Callable[[str], str]) -> None:
    """Say who did not answer, and where the reasons are."""
    for party, rows in outcome.refusals.groupby("party", sort=False):
        code, step = rows["code"].iloc[0], rows["step"].iloc[0]
        warnings.warn(
            f"Site {party!r} did not answer {len(rows)} time(s) (first: {step}, {code}). Its own log says why: "
            f"{where(str(party))}",
            CollegiumWarning,
            stacklevel=3,
        )
