"""Pictures of runs."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

if TYPE_CHECKING:
    from collegium.runs.results import Run


class Picture(Figure):
    """A figure that a notebook shows, whether or not it uses pyplot."""

    def _repr_png_(self) -> bytes:
        file = BytesIO()
        self.savefig(file, format="png", dpi=100)
        return file.getvalue()


def plot_run(run: Run) -> Figure:
    """Accuracy per site over rounds; size, quality and change of the consensus; bytes that left each site."""
    figure = Picture(figsize=(13, 4), layout="constrained")
    accuracy, consensus, traffic = figure.subplots(1, 3)
    _accuracy(accuracy, run)
    _consensus(consensus, run)
    _traffic(traffic, run)
    figure.suptitle(str(run.about["algorithm"]).partition("(")[0])
    return figure


def over_rounds(axes: Any, *, empty: str | None, **settings: Any) -> None:
    """Axes over rounds, with a remark in the middle where they stay empty."""
    axes.set(xlabel="round", **settings)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(alpha=0.3)
    if empty is not None:
        axes.text(0.5, 0.5, empty, ha="center", va="center", transform=axes.transAxes)


def _accuracy(axes: Any, run: Run) -> None:
    table = run.accuracy
    over_rounds(axes, empty="no test set" if table.empty else None, title="Test accuracy")
    if table.empty:
        return
    few = len(table.columns) <= 8
    for party in table.columns:
        label = f"{party} ({run.about['learners'][party]})" if few else None
        look = {"marker": "o", "markersize": 3, "linewidth": 1, "alpha": 0.8 if few else 0.3}
        axes.plot(table.index, table[party], label=label, **look)
    axes.plot(table.index, table.mean(axis=1), color="black", linewidth=2.5, label="mean")
    axes.legend(fontsize=7)


def _consensus(axes: Any, run: Run) -> None:
    public = run.metrics[(run.metrics["split"] == "public") & (run.metrics["party"] == "coordinator")]
    title, empty = "Consensus on the public set", "none was formed" if public.empty else None
    over_rounds(axes, empty=empty, title=title, ylim=(-0.03, 1.03))
    if public.empty:
        return
    size = 1 if run.labels is None else max(1, len(run.labels))
    names = {"consensus_size": "labeled", "consensus_quality": "correct", "consensus_changed": "changed"}
    for metric, name in names.items():
        rows = public[public["metric"] == metric]
        if not rows.empty:
            values = rows["value"] / size if metric == "consensus_changed" else rows["value"]
            axes.plot(rows["round"], values, marker="o", markersize=3, label=name)
    axes.legend(fontsize=7)


def _traffic(axes: Any, run: Run) -> None:
    parties = run.about["parties"]
    sent = run.releases.groupby("party")["bytes"].sum().reindex(parties, fill_value=0)
    axes.set(title="Bytes of releases that left each site")
    axes.bar(np.arange(len(parties)), sent.to_numpy())
    if len(parties) <= 12:
        axes.set_xticks(np.arange(len(parties)), parties, rotation=45, ha="right", fontsize=8)
    axes.grid(alpha=0.3, axis="y")
