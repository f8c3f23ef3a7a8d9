"""Studies whose sites make their public set together: one run that makes it, and then the study's own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from collegium.core.site import Site
from collegium.errors import ConfigError
from collegium.runs.making import PublicSet, public_together
from collegium.study.site_files import TOGETHER

if TYPE_CHECKING:
    from collegium.study.preparing import Prepared
    from collegium.study.study import Study


def make_public(
    study: Study,
    out: str | Path | None = None,
    *,
    base: Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    prepared: Prepared | None = None,
) -> PublicSet:
    """Have a study's sites make their public set; `prepared` if the study is."""
    if study.data.public != TOGETHER:
        raise ConfigError('data.public: this study has a public set. To have its sites make one, set it to "together".')
    known = study.prepare(base) if prepared is None else prepared
    engine = study.engine.model_dump(include={"workers", "link", "address", "deadline"})
    settings = study.together.model_dump()
    return public_together(
        known.sites, **settings, classes=known.classes, seed=study.seed, **engine, out=out, resume=resume,
        overwrite=overwrite, progress=False,
    )  # fmt: skip


def folder_of_making(out: Path) -> Path:
    """Where the run that makes a public set is, beside the one that uses it."""
    return out.with_name(f"{out.name}-public")


@contextmanager
def sites_with_public(
    study: Study, out: str | Path | None, *, base: Path | None, resume: bool, overwrite: bool
) -> Iterator[Prepared]:
    """The study, prepared; where its sites make the public set, that is done first, beside the folder of the run.

    A budget that is for one run only is for both: it is kept in a file for as long as they take.
    """
    if study.data.public != TOGETHER:
        yield study.prepare(base)
        return
    folder = None if out is None else folder_of_making(Path(out))
    with tempfile.TemporaryDirectory() as ledgers:
        kept = Path(ledgers) if folder is None else folder.with_name(f"{folder.name}-budgets")
        if not resume:  # budgets of one run begin anew
            shutil.rmtree(kept, ignore_errors=True)
        bare = study.prepare(base)
        bare = replace(bare, sites=[_with_ledger(site, kept) for site in bare.sites])
        made = make_public(study, folder, resume=resume, overwrite=overwrite, prepared=bare)
        prepared = study.prepare(base, made=made)
        yield replace(prepared, sites=[_with_ledger(site, kept) for site in prepared.sites])


def _with_ledger(site: Site, folder: Path) -> Site:
    """The same site, whose budget outlives a run."""
    if site.budget is None or site.budget.ledger is not None:
        return site
    folder.mkdir(parents=True, exist_ok=True)
    return replace(site, budget=replace(site.budget, ledger=folder / f"{site.name}.db"))
