"""``collegium privacy``, and how a run's privacy is shown."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Final, Literal

import typer
from rich.console import Console

from collegium.cli.options import AsJson, Changes, StudyFile
from collegium.errors import ConfigError
from collegium.privacy.budget import read_charges
from collegium.privacy.claims import UNPROTECTED, Account
from collegium.reports.tables import frame_table
from collegium.runs.results import Run
from collegium.site.exposure import POST_PROCESSING
from collegium.study.study import Study

_BY_THEORY: Final[dict[str, Literal["randomized_response", "unary"]]] = {
    "randomized_response": "randomized_response",
    "unary_encoding": "unary",
}


_WIDE: Final = 100


def explain(file: StudyFile, changes: Changes = None, as_json: AsJson = False) -> None:
    """What each site would release, at what cost and under which claim. Nothing private is touched, nothing spent."""
    from collegium.study import rehearsal

    studies = Study.from_toml(file, changes or ()).by_algorithm()
    runs = {label: rehearsal.explain(study, base=file.parent) for label, study in studies.items()}
    if as_json:
        said = {label: {"privacy": privacy_records(rehearsed)} for label, rehearsed in runs.items()}
        typer.echo(json.dumps(said if len(said) > 1 else next(iter(said.values()))))
        return
    for label, rehearsed in runs.items():
        if len(runs) > 1:
            typer.echo(f"\n{label}")
        _explain(studies[label], rehearsed)


def _explain(study: Study, rehearsed: Run) -> None:
    console = Console()
    if study.data.public == "together":
        cost = f"epsilon {study.together.epsilon:g} at delta {study.together.delta:g}"
        console.print(f"First the sites make the public set together: {cost} for every record, beside what follows.")
    left = rehearsed.releases.assign(claim=rehearsed.releases["privacy"].map(claim_text))
    what = left.groupby(["step", "kind", "claim"], sort=False).agg(
        sites=("party", "nunique"), releases=("party", "size"), first=("round", "min"), last=("round", "max")
    )
    names = {"first": "first round", "last": "last round", "claim": "each one costs"}
    console.print(frame_table(what.reset_index().rename(columns=names), f"What would leave ({study.name})"))
    print_privacy(rehearsed, console)
    words = "Sites were made up and the learners did not run: no private data was touched and no budget was spent."
    if rehearsed.privacy["kind"].eq("nominal").any():
        words += " A nominal epsilon is known when the real learners are fitted: the one above is a stand-in."
    console.print(words)
    for row in rehearsed.refusals.drop_duplicates(["step", "code"]).itertuples():
        console.print(f"A site would refuse: {row.step} ({row.code}), first in round {row.round}.", markup=False)


def print_privacy(run: Run, console: Console) -> None:
    """A run's privacy in a table and in plain words."""
    table = run.privacy.assign(epsilon=run.privacy["epsilon"].round(6))  # sites that differ by rounding stand together
    columns = ["kind", "unit", "relation", "epsilon", "delta", "accountant", "covers"]
    same = table.groupby(columns, sort=False, dropna=False)["party"].agg(list).reset_index()
    same["sites"] = same.pop("party").map(lambda parties: parties[0] if len(parties) == 1 else f"{len(parties)} sites")
    # Where nothing is claimed, there is nothing to account for.
    shown = ["kind", "covers"] if same["kind"].eq(UNPROTECTED).all() else columns
    if console.width < _WIDE:  # the report, and --json, have the rest
        shown = [name for name in shown if name not in ("unit", "accountant")]
    console.print(frame_table(same[["sites", *shown]], "Privacy"))
    for text, parties in table[table["assumptions"] != ""].groupby("assumptions", sort=False)["party"]:
        who = "every site" if set(parties) == set(run.about["parties"]) else ", ".join(parties)
        console.print(f"{who}: {text}.", markup=False)


def privacy_records(run: Run) -> list[dict[str, Any]]:
    """A run's privacy for programs; infinity and missing numbers become null."""
    return [
        {str(name): None if isinstance(v, float) and not math.isfinite(v) else v for name, v in row.items()}
        for row in run.privacy.to_dict("records")
    ]


def claim_text(privacy: object) -> str:
    """What is said about one release by itself."""
    if not isinstance(privacy, str):
        return UNPROTECTED
    charges = read_charges(privacy)[0]
    if not any(charge.events for charge in charges):
        used = any(POST_PROCESSING in charge.assumptions for charge in charges)
        return "nothing more: post-processing of a private fit" if used else "nothing: no private data was used"
    return "; ".join(str(claim) for claim in Account(tuple(charges)).claims())


def calibrate(
    epsilon: Annotated[float, typer.Option(help="The total epsilon, over all rounds.")],
    delta: Annotated[float, typer.Option(help="The total delta.")] = 1e-5,
    rounds: Annotated[int, typer.Option(help="How many rounds release labels.")] = 1,
    public_size: Annotated[int, typer.Option(help="Samples in the public set.")] = 1,
    classes: Annotated[int, typer.Option(help="Number of classes.")] = 2,
    name: Annotated[str, typer.Option("--mechanism", help="A mechanism's name: collegium list mechanisms.")] = (
        "randomized_response"
    ),
    sites: Annotated[int, typer.Option(help="Sites that vote: to say how often their consensus is right.")] = 5,
    as_json: AsJson = False,
) -> None:
    """How much noise a total (epsilon, delta) needs, and how many labels it leaves intact."""
    from collegium.privacy import theory
    from collegium.privacy.calibration import calibrated, label_kept

    for option, value, least in (("--rounds", rounds, 1), ("--public-size", public_size, 1), ("--classes", classes, 2)):
        if value < least:
            raise ConfigError(f"{option} must be at least {least}, got {value}.")
    asked: dict[str, Any] = {"delta": delta, "rounds": rounds, "public_size": public_size}
    mechanism = calibrated(name, epsilon=epsilon, n_classes=classes, **asked)
    per_label = mechanism.epsilon(n_classes=classes)
    found: dict[str, Any] = {
        "mechanism": repr(mechanism),
        "epsilon": epsilon,
        **asked,
        "classes": classes,
        "epsilon_per_label": per_label,
        "total_epsilon": mechanism.epsilon(n_classes=classes, **asked),
        "truth_kept": label_kept(mechanism, classes),
    }
    if name in _BY_THEORY:
        right = theory.consensus_success(per_label, sites, classes, sites, _BY_THEORY[name])
        found[f"consensus_of_{sites}_right"] = right
    if as_json:
        typer.echo(json.dumps(found))
        return
    words = {
        "mechanism": "mechanism", "epsilon_per_label": "epsilon per label", "total_epsilon": "total epsilon",
        "truth_kept": "a site's label kept",
        f"consensus_of_{sites}_right": f"consensus right, if {sites} sites agree on the truth",
    }  # fmt: skip
    rows = [{"what": words[key], "value": value} for key, value in found.items() if key in words]
    Console().print(frame_table(rows, f"Noise for epsilon {epsilon:g}, delta {delta:g} in all"))
    Console().print(f"A guess keeps a label with probability {1 / classes:.4g}.")
