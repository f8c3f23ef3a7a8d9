"""``collegium demo``: the main job on embedded data."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

import collegium as cg
from collegium.cli.options import Force
from collegium.data.public import Split
from collegium.errors import ConfigError
from collegium.reports.tables import bytes_text, ledger_table
from collegium.site.ledger import verify_ledger


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the run, the plot and the ledger.")] = Path("runs/demo"),
    force: Force = False,
) -> None:
    """Five hospitals, five kinds of model, breast cancer data: alone and together."""
    console = Console()
    clear_demo(out, "demo", force=force)
    start = time.perf_counter()
    split = split_patients(sites=5, test=114)
    sites = [
        cg.Site(name, X, y, learner=learner)
        for name, (X, y), learner in zip(
            ("North", "East", "South", "West", "Centre"), split.sites, _five_learners(), strict=True
        )
    ]
    console.print(
        f"[bold]Collegium demo[/bold]: five hospitals with {len(sites[0])} patients each and five kinds of model share "
        f"their opinion on {len(split.public)} public cases. No patient record leaves a hospital.\n"
    )
    alone = cg.run(cg.Local(), sites=sites, test=split.test)
    together = cg.run(
        cg.FedCT(rounds=5), sites=sites, public=split.public, test=split.test, public_truth=split.public_truth, out=out
    )
    pooled = cg.run(cg.Centralized(), sites=sites, test=split.test)
    (out / "demo").touch()
    together.plot(out / "demo.png")

    table = Table(
        *("hospital", "model"),
        *(Column(name, justify="right") for name in ("alone", "together", "pooled", "sent")),
        title="Accuracy on 114 patients nobody trained on",
        caption="together: FedCT; pooled: all data in one place, which nobody may have",
    )
    first, last, upper = alone.summary(), together.summary(), pooled.summary()
    for party in last.index:
        gained = last.loc[party, "accuracy"] >= first.loc[party, "accuracy"]
        table.add_row(
            party,
            last.loc[party, "learner"],
            f"{first.loc[party, 'accuracy']:.3f}",
            f"[{'green' if gained else 'red'}]{last.loc[party, 'accuracy']:.3f}[/]",
            f"{upper.loc[party, 'accuracy']:.3f}",
            bytes_text(int(last.loc[party, "bytes_up"])),
            end_section=party == last.index[-2],
        )
    console.print(table)
    console.print(ledger_table(out / "ledger.db", most=5))
    rows = verify_ledger(out / "ledger.db")
    console.print(f"{sum(rows.values())} releases in the ledger, hash chain intact.")
    console.print(f"\nPlot:    {out / 'demo.png'}\nReport:  {out / 'report.html'}\nLedger:  {out / 'ledger.db'}")
    console.print(f"Done in {time.perf_counter() - start:.1f} s.")


def clear_demo(out: Path, mark: str, *, force: bool) -> None:
    """Remove an earlier demo, known by the file `mark` in its folder; without `force`, nothing else."""
    if out.exists() and any(out.iterdir()):
        if not force and not (out / mark).is_file():
            raise ConfigError(f"{out} is not empty and not an earlier demo: choose another folder with --out.")
        shutil.rmtree(out)


def split_patients(sites: int, test: int) -> Split:
    """The breast cancer data, dealt to hospitals, with 370 public cases."""
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer(as_frame=True)
    labels = data.target.map(dict(enumerate(data.target_names)))
    return cg.split(data.data, labels, sites=sites, public=370, test=test, seed=0)


def _five_learners() -> list[object]:
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.tree import DecisionTreeClassifier

    return [
        DecisionTreeClassifier(),
        RandomForestClassifier(100),
        make_pipeline(StandardScaler(), LogisticRegression()),
        make_pipeline(StandardScaler(), KNeighborsClassifier(3)),
        GaussianNB(),
    ]
