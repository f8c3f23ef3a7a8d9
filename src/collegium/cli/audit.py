"""``collegium audit`` and ``collegium site audit``: attack a site before somebody else does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from collegium.auditing.result import Audit
from collegium.cli.options import AsJson, Changes, KitFolder, StudyFile
from collegium.errors import ConfigError, StorageError
from collegium.reports.audits import plot_audits, write_page
from collegium.reports.tables import frame_table
from collegium.runs.making import making_of
from collegium.site.ledger import storage_errors
from collegium.study.site_files import TOGETHER
from collegium.study.study import Study

CONTRADICTED: Final = 3
"""The exit code where an attack contradicts a claim."""
_MOST_STAND_INS: Final = 4

View = Annotated[
    str, typer.Option(help="Who attacks: observer, member, coordinator, glance, secret, model or weights.")
]
ForgedSet = Annotated[
    str, typer.Option("--forged", help="Forge the public set: no, static or adaptive.", metavar="no|static|adaptive")
]
NumberOfCanaries = Annotated[int, typer.Option("--canaries", help="How many canaries, at most.")]
Kinds = Annotated[str, typer.Option(help="Kinds of canaries, with shares: ordinary=7,mislabelled=1")]
Shadows = Annotated[int, typer.Option(help="How many shadow runs the attack compares with.")]
AttackName = Annotated[
    str | None, typer.Option("--attack", help="one_run, lira, rmia, quantile or shokri (default: by the shadows).")
]
Alpha = Annotated[float, typer.Option(help="One minus the confidence.")]
Seed = Annotated[int, typer.Option(help="Same seed, same audit.")]
Workers = Annotated[int, typer.Option(help="Processes for the shadow runs.")]
ShowCanaries = Annotated[
    Path | None,
    typer.Option(help="For the site's owner: a CSV file for the canaries, which are records. Nothing else lists any."),
]
Out = Annotated[
    Path | None, typer.Option(help="Folder for page, picture and JSON (default: with the run, or audits/NAME).")
]


def audit(
    file: StudyFile,
    changes: Changes = None,
    site: Annotated[str | None, typer.Option(help="The site to attack (default: the first one).")] = None,
    view: View = "coordinator",
    forged: ForgedSet = "no",
    canaries: NumberOfCanaries = 1000,
    kinds: Kinds = "mislabelled",
    shadows: Shadows = 0,
    attack: AttackName = None,
    alpha: Alpha = 0.05,
    seed: Seed = 0,
    workers: Workers = 0,
    show_canaries: ShowCanaries = None,
    out: Out = None,
    as_json: AsJson = False,
) -> None:
    """Attack a site of a simulated study and compare what is found with what is claimed (exit code 3: contradicted)."""
    from collegium.auditing.audit import audit as attack_site

    study = Study.from_toml(file, changes or ())
    prepared = study.prepare(file.parent)
    made = study.data.public == TOGETHER
    found = attack_site(
        prepared.algorithm,
        prepared.sites,
        making_of(prepared.sites, **study.together.model_dump()) if made else prepared.told,
        site=site,
        view=view,  # type: ignore[arg-type]
        forged=forged_set(forged),
        canaries=canaries,
        kinds=canary_kinds(kinds),
        shadows=shadows,
        attack=attack,  # type: ignore[arg-type]
        alpha=alpha,
        seed=seed,
        workers=workers,
        cohort=study.engine.cohort,
        classes=prepared.classes,
        canaries_to=show_canaries,
    )
    show(found, out or _folder(study.name), as_json)


def site_audit(
    kit: KitFolder,
    digest: Annotated[str | None, typer.Argument(help="A plan's hash (default: the one that came last).")] = None,
    view: View = "coordinator",
    forged: Annotated[
        str | None, typer.Option("--forged", help="no, static or adaptive (default: static, unless you pin the set).")
    ] = None,
    canaries: NumberOfCanaries = 1000,
    kinds: Kinds = "mislabelled",
    shadows: Shadows = 0,
    attack: AttackName = None,
    alpha: Alpha = 0.05,
    seed: Seed = 0,
    workers: Workers = 0,
    show_canaries: ShowCanaries = None,
    out: Annotated[Path | None, typer.Option(help="Folder for page, picture and JSON (default: KIT/audits).")] = None,
    as_json: AsJson = False,
) -> None:
    """Attack your own site with a plan's steps before you sign it, on this machine alone (exit code 3: contradicted).

    The other sites are made up. Nothing is sent, nothing is signed, and no budget is spent.
    """
    from collegium.auditing.audit import audit as attack_site
    from collegium.auditing.stand_ins import with_stand_ins
    from collegium.auditing.views import VIEWS, find_view
    from collegium.flare.site.agreed import planned_run

    planned = planned_run(kit, digest)
    X = None if planned.public is None else planned.public.X
    # A coordinator may send any public set, unless the policy pins one.
    site = replace(planned.site, public=None)
    others = len(set(planned.plan.parties) - {site.name})
    sites, labels = with_stand_ins(site, X, min(max(others, 2), _MOST_STAND_INS), seed)
    if forged is None:
        forges = view in VIEWS and find_view(view).forges
        can_forge = forges and X is not None and site.policy.public_sha256 is None
        forged = "static" if can_forge else "no"
    found = attack_site(
        planned.algorithm,
        sites,
        (X, labels) if planned.algorithm.learns_public_labels else X,
        site=site.name,
        view=view,  # type: ignore[arg-type]
        forged=forged_set(forged),
        canaries=canaries,
        kinds=canary_kinds(kinds),
        shadows=shadows,
        attack=attack,  # type: ignore[arg-type]
        alpha=alpha,
        seed=seed,
        workers=workers,
        classes=planned.plan.classes,
        canaries_to=show_canaries,
    )
    show(found, out or kit / "audits", as_json)


def show(found: Audit, out: Path, as_json: bool) -> None:
    """Print an audit, write its files, and end with the code that says whether a claim was contradicted."""
    _write(found, out)
    if as_json:
        typer.echo(json.dumps(found.to_plain()))
    else:
        _print(found, out)
    if found.contradicts:
        raise typer.Exit(CONTRADICTED)


def _folder(study: str) -> Path:
    """In the folder of the study's run, whose report then shows it; beside it, if there is none."""
    run = Path("runs") / study
    return run / "audits" if (run / "run.json").is_file() else Path("audits") / study


def forged_set(text: str) -> Any:
    """What --forged says."""
    if text not in ("no", "static", "adaptive"):
        raise ConfigError(f"--forged must be no, static or adaptive, got {text!r}.")
    return False if text == "no" else text


def canary_kinds(text: str) -> dict[str, float]:
    """What --kinds says: names, each with a share (1 where none is given)."""
    shares = {}
    for part in text.split(","):
        name, _, share = part.strip().partition("=")
        try:
            shares[name] = float(share or 1)
        except ValueError:
            raise ConfigError(f"--kinds must look like ordinary=7,mislabelled=1, got {text!r}.") from None
    return shares


def _write(found: Audit, folder: Path) -> None:
    with storage_errors(folder, StorageError):
        folder.mkdir(parents=True, exist_ok=True)
        plot_audits([found]).savefig(folder / f"{found.name}.png", dpi=150)
    found.to_json(folder / f"{found.name}.json")
    write_page([found], folder / f"{found.name}.html")


def _print(found: Audit, out: Path) -> None:
    console = Console()
    low, high = found.auc_interval
    rows: list[dict[str, Any]] = [
        {"what": "AUC", "found": f"{found.auc:.3f}", "interval": f"{low:.3f} to {high:.3f}"},
        *(
            {
                "what": f"members found at {fpr:.1%} false alarms",
                "found": f"{rate:.3f}",
                "interval": "{:.3f} to {:.3f}".format(*found.tpr_interval[fpr]),
            }
            for fpr, rate in found.tpr.items()
        ),
        {
            "what": "epsilon, at least",
            "found": f"{found.epsilon_lower:.3f}",
            "interval": f"{found.right} of {found.guesses} guesses right",
        },
        {
            "what": "epsilon, as claimed",
            "found": "no claim" if found.claim is None else f"{found.claim.epsilon:.4g}",
            "interval": "" if found.claim is None else f"at delta {found.claim.delta:.2g}",
        },
    ]
    forged = "" if found.forged is None else f", forged public set ({found.forged})"
    title = f"{found.site}: {found.view}, {found.attack}, {found.canaries} canaries{forged}"
    console.print(frame_table(rows, title))
    console.print(found.in_words(), markup=False, highlight=False)
    if found.together:
        said = f"{found.together} of {found.shadows} shadow runs were trained together."
        console.print(said, markup=False, highlight=False)
    if found.unread:
        console.print(f"Not read by this attack: {', '.join(found.unread)}.", markup=False, highlight=False)
    console.print(f"Page: {out / f'{found.name}.html'}", markup=False, highlight=False)
