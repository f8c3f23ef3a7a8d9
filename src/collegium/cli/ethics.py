"""``collegium report --ethics``: a template for an ethics board, filled in from a study or from a run."""

from __future__ import annotations

import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Final

import numpy as np

from collegium.core.site import Site
from collegium.errors import ConfigError, StorageError
from collegium.reports.ethics import MAKING, Assessment, Method, Party, render_ethics
from collegium.runs.loading import load
from collegium.runs.making import making_of
from collegium.runs.results import Run
from collegium.runs.run_files import write_file
from collegium.runs.runner import run as run_algorithm
from collegium.site.ledger import storage_errors
from collegium.study import rehearsal
from collegium.study.preparing import coordinators_part
from collegium.study.site_files import TOGETHER
from collegium.study.study import BudgetSection, PolicySection, SiteSection, Study
from collegium.wire import tables

_ROWS: Final = 100
_OWN: Final = "each site's own: ask it"
_GROWS: Final = "The rehearsal's sites have 100 rows at most: what sites send grows with their rows."
_SCORES: Final = (
    "After every round also Scores: the site's accuracy on the rows that it holds out, unprotected. Its policy may "
    "refuse that, and federation.metrics = false asks for none."
)


def write_ethics(source: Path, out: Path | None, *, force: bool) -> Path:
    """Write the template for a study file, or for a run's folder; by the file's ending as Markdown or HTML."""
    of_run = source.is_dir()
    file = out or (source / "ethics.md" if of_run else source.with_name(f"{source.stem}-ethics.md"))
    if file.suffix.lower() not in (".md", ".html"):
        raise ConfigError(f"--out: {file} must end in .md or .html.")
    if file.exists() and not force:
        raise ConfigError(
            f"{file} already exists, and may have been filled in: choose another file with --out, or use --force."
        )
    facts = _of_run(load(source)) if of_run else _of_study(Study.from_toml(source), source.parent)
    text = render_ethics(facts, html=file.suffix.lower() == ".html").encode()
    with storage_errors(file, StorageError):
        write_file(file, lambda stream: stream.write(text))
    return file


def _of_run(run: Run) -> Assessment:
    study = None if run.study is None else Study.model_validate(tomllib.loads(run.study))
    parties = [str(party) for party in run.about["parties"]]
    federated = not run.about["samples"]  # which only sites know
    learns: dict[str, str] = {}
    with suppress(ConfigError):  # a method in a file that is not here
        learns = {} if study is None else study.build_algorithm().learns()
    name = str(run.about["algorithm"]).partition("(")[0]
    method = Method(name, str(run.about["algorithm"]), run, run.releases["wire_bytes"], learns)
    known = [_party(study, number, party, run, federated=federated) for number, party in enumerate(parties)]
    return Assessment(str(run.about.get("study") or name), False, federated, known, [method])


def _of_study(study: Study, base: Path) -> Assessment:
    federated = study.federation.classes is not None
    methods = []
    for label, single in study.by_algorithm().items():
        run = _rehearsed(single, base) if federated else rehearsal.explain(single, base=base)
        algorithm = single.build_algorithm()
        notes = [_GROWS] if algorithm.labels_own_points else []
        if federated and study.federation.metrics and algorithm.trains_sites:
            notes.append(_SCORES)
            notes += [f"And Measures of the same rows: {', '.join(study.metrics)}."] if study.metrics else []
        sizes = rehearsal.sent_at_most(run)
        methods.append(Method(label, repr(algorithm), run, sizes, algorithm.learns(), notes))
    first = methods[0].run
    if study.data.public == TOGETHER:
        methods.insert(0, _making(study, base))
    parties = [
        _party(study, number, str(party), None, federated=federated)
        for number, party in enumerate(first.about["parties"])
    ]
    return Assessment(study.name, True, federated, parties, methods)


def _making(study: Study, base: Path) -> Method:
    """How sites make a public set, rehearsed with made-up rows."""
    prepared = next(iter(study.cells().values())).prepare(base)
    there = tables.n_rows(prepared.public)
    made_up = [
        Site(real.name, tables.take(prepared.public, np.arange(size) % there), prepared.classes[np.zeros(size, int)])
        for real in prepared.sites
        for size in [min(len(real), _ROWS)]
    ]
    algorithm = making_of(made_up, **study.together.model_dump())
    run = run_algorithm(algorithm, sites=made_up, seed=study.seed, alone=False, progress=False)
    sizes = rehearsal.sent_at_most(run)
    return Method(MAKING, repr(algorithm), run, sizes, algorithm.learns())


def _rehearsed(study: Study, base: Path) -> Run:
    part = coordinators_part(study, base)
    parties = study.federation.parties or ["each site"]
    return rehearsal.rehearse_federation(study, part.shared, part.classes, parties, opinion=part.opinion)


def _party(study: Study | None, number: int, name: str, run: Run | None, *, federated: bool) -> Party:
    if federated or study is None:
        learner = _OWN if run is None else run.about["learners"].get(name) or _OWN
        return Party(name, learner, _OWN, _OWN)
    _, section = study.section_for(number, name)
    return Party(name, _learner(section), _policy(section.policy), _budget(section.budget))


def _learner(section: SiteSection) -> str:
    steps = section.learner if isinstance(section.learner, list) else [section.learner]
    return ", ".join(step if isinstance(step, str) else str(step["name"]) for step in steps)


def _policy(policy: PolicySection) -> str:
    if policy.requires == "dp":
        return "only releases with differential privacy"
    kinds = "any kind" if policy.unprotected == ["*"] else ", ".join(policy.unprotected) or "none"
    return f"unprotected releases: {kinds}"


def _budget(budget: BudgetSection | None) -> str:
    if budget is None:
        return "none"
    kept = "kept between runs" if budget.ledger else "for one run only"
    return f"epsilon {budget.epsilon:g}, delta {budget.delta:g}, {kept}"
