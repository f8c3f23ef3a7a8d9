"""``collegium site init`` and ``collegium site check``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.console import Console

from collegium import __version__
from collegium.cli.options import AsJson, KitFolder
from collegium.core.scores import measure, score
from collegium.errors import ConfigError, StorageError, WireError
from collegium.flare.agreement.planning import ANY_PARTY, Plan, Review, plan_of, review
from collegium.flare.agreement.review import unmatched
from collegium.flare.kits.identity import make_agent_folder, read_keys
from collegium.flare.kits.kit import Kit, read_kit
from collegium.flare.site.file import SITE_FILE, SiteFile
from collegium.flare.site.setup import SiteSetup, load_public, load_site
from collegium.flare.site.template import TEMPLATE
from collegium.learners.base import check_rows, learner_name
from collegium.reports.tables import frame_table
from collegium.runs.checks import check_features
from collegium.runs.findings import Finding
from collegium.runs.findings import check as check_data
from collegium.site.ledger import storage_errors
from collegium.study.study import SiteSection, Study
from collegium.wire import tables
from collegium.wire.tables import Table


def init(
    kit: KitFolder,
    name: Annotated[str | None, typer.Option(help="The site's name (default: as in the kit's certificate).")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace site.toml by a new template.")] = False,
) -> None:
    """Write a site.toml to fill in, and make the site's identity key; shows the identity for the other sites."""
    if not kit.is_dir():
        raise ConfigError(f"There is no kit {kit}: give the folder that you got from the coordinator.")
    certified = _certified(kit)
    if certified is not None and name not in (None, certified.name):
        raise ConfigError(f"--name {name}: the certificate of this kit is for {certified.name!r}.")
    own = name or (certified.name if certified is not None else kit.resolve().name)
    file = kit / SITE_FILE
    written = force or not file.exists()
    if written:
        SiteFile.model_validate({"name": own, "data": {"source": "patients.csv"}})
        with storage_errors(file, StorageError):
            file.write_text(TEMPLATE.format(name=own), encoding="utf-8")
            file.chmod(0o600)
    folder = make_agent_folder(kit)
    typer.echo(f"{file}: {'fill it in, then run `collegium site check`' if written else 'kept as it is'}.")
    typer.echo(f"{folder}: keep a backup of identity.key where only you can read it.")
    typer.echo(
        f"Identity of {own}, to give to the other sites by telephone or letter:\n{read_keys(folder, own).identity}"
    )


def check(
    kit: KitFolder,
    study: Annotated[
        Path | None, typer.Argument(help="A study or a proposed plan to look at.", metavar="[STUDY.toml|PLAN.json]")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Load the data and show what the site brings, and what to look at; with a study, what would be refused.

    Exit code 1 if the site could not take part in the study.
    """
    setup = load_site(kit)
    certified = _certified(kit)
    if certified is not None and certified.name != setup.file.name:
        raise ConfigError(
            f"{kit / SITE_FILE}: name is {setup.file.name!r}, but this kit's certificate is for {certified.name!r}."
        )
    check_rows(setup.site.learner, setup.site.X, "the site's data")
    public = load_public(kit, setup.file)
    if public is not None:
        check_features([setup.with_public(public)], {"public": public})
    bare = ["no start-up kit in this folder: the site needs it to join"]
    notes = [*unmatched(setup.file), *(bare if certified is None else certified.warnings())]
    facts = _facts(setup, certified, public)
    plan, shared = (None, None) if study is None else _read_plan(study, setup, public)
    # Without a copy of its own, the public rows are those that come with the study.
    own, rows = (setup.site, shared) if public is None else (setup.with_public(public), public)
    looked_at = check_data(own, rows, setup.held_out)
    if plan is not None and plan.version != __version__:
        notes.append(
            f"the coordinator has Collegium {plan.version}, this site {__version__}: a step whose code differs is "
            "refused as other-version. Agree on one version"
        )
    found = None if plan is None else review(plan, setup.file, setup)
    if as_json:
        findings = [vars(each) for each in looked_at]
        typer.echo(json.dumps(facts | {"notes": notes, "findings": findings} | _said(plan, found)))
    else:
        _show(facts, notes, looked_at)
        if plan is not None and found is not None:
            show_review(plan, found)
    if found is not None and not found.allowed:
        raise typer.Exit(1)


def show_review(plan: Plan, found: Review) -> None:
    """What a site would allow and refuse, as a table."""
    console = Console()
    rows = [
        {
            "step": each.step or "(the plan)",
            "releases": each.kind,
            "answer": "allowed" if each.allowed else f"refused: {each.code}",
            "why": each.why,
            # A plan has the score only where the study asks for it.
            "asked": ""
            if not each.step
            else "yes"
            if each.rehearsed or each.step in (score.name, measure.name)
            else "maybe",
        }
        for each in found.verdicts
    ]
    console.print(frame_table(rows, f"What this site would answer to {plan.study!r}"))
    console.print(
        "This site could take part." if found.allowed else "This site could not take part: see what is refused."
    )


def _certified(kit: Path) -> Kit | None:
    """The kit with its certificate, where NVFlare's part is there."""
    return read_kit(kit, "site") if (kit / "startup").is_dir() else None


def _read_plan(path: Path, setup: SiteSetup, public: Table | None) -> tuple[Plan, Any]:
    """A proposed plan, or the one that a coordinator would make of a study; and the study's public rows, if known."""
    if path.suffix.lower() == ".json":
        with storage_errors(path, StorageError):
            if not path.is_file():
                raise ConfigError(f"There is no plan {path}.")
            try:
                return Plan.from_json(path.read_bytes()), None
            except WireError as error:
                raise ConfigError(f"{path}: {error}") from None
    from collegium.study.preparing import coordinators_part

    study = Study.from_toml(path, own=False)  # the coordinator wrote it
    study = study.model_copy(update={"data": study.data.model_copy(update={"opinion": None})})  # and alone reads that
    own = SiteSection(learner=setup.file.learner, prepare=setup.file.prepare)
    as_here = study.model_copy(update={"sites": [own]})  # what this site's learner would release
    parties = study.federation.parties or [ANY_PARTY]
    try:
        part = coordinators_part(study, path.parent)
        return plan_of(as_here, part.shared, part.classes, parties), part.shared
    except ConfigError:
        if public is None:  # without the coordinator's rows, the site's own copy does
            raise
    classes = study.federation.classes or np.unique(setup.site.y).tolist()
    return plan_of(as_here, public, classes, parties), None


def _facts(setup: SiteSetup, certified: Kit | None, public: Table | None) -> dict[str, Any]:
    site = setup.site
    values, counts = np.unique(site.y, return_counts=True)
    columns = getattr(site.X, "columns", None)
    return {
        "name": site.name,
        "rows": len(site),
        "columns": tables.n_columns(site.X) if columns is None else [str(name) for name in columns],
        "classes": {str(value): int(count) for value, count in zip(values, counts, strict=True)},
        "held out": 0 if setup.held_out is None else len(setup.held_out[1]),
        "unlabeled": 0 if site.unlabeled is None else tables.n_rows(site.unlabeled),
        "learner": learner_name(site.learner),
        "public set": None if public is None else tables.digest(public),
        "approval": setup.file.policy.approval,
        "budget": None if site.budget is None else [site.budget.epsilon, site.budget.delta],
        "certificate days": None if certified is None else round(certified.days_left),
    }


def _said(plan: Plan | None, found: Review | None) -> dict[str, Any]:
    if plan is None or found is None:
        return {}
    verdicts = [vars(each) | {"allowed": each.allowed} for each in found.verdicts]
    return {"plan": plan.digest, "review": verdicts, "allowed": found.allowed}


def _show(facts: dict[str, Any], notes: list[str], looked_at: list[Finding]) -> None:
    words = {**facts, "classes": ", ".join(f"{name}: {count}" for name, count in facts["classes"].items())}
    if isinstance(facts["columns"], list):
        words["columns"] = f"{len(facts['columns'])}: {', '.join(facts['columns'][:12])}" + (
            ", ..." if len(facts["columns"]) > 12 else ""
        )
    words["public set"] = facts["public set"] or "the coordinator sends it"
    words["budget"] = "none" if facts["budget"] is None else "epsilon {:g} at delta {:g}".format(*facts["budget"])
    words["certificate days"] = "-" if facts["certificate days"] is None else facts["certificate days"]
    rows = pd.DataFrame([{"what": key, "here": str(value)} for key, value in words.items()])
    console = Console()
    console.print(frame_table(rows, "What this site brings"))
    if looked_at:
        console.print(frame_table([vars(each) for each in looked_at], "What to look at; nobody else is told"))
    for note in notes:
        console.print(f"Note: {note}", markup=False)
