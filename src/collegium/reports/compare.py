"""What sums a run up, in numbers and in words; and runs side by side, as a table, a picture and a page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd

from collegium.core.releases import KINDS
from collegium.errors import ConfigError
from collegium.reports import svg
from collegium.reports.style import (
    Markup,
    Number,
    element,
    facts,
    figure,
    join,
    number,
    page,
    paragraph,
    section,
    table,
)
from collegium.reports.tables import BYTE_UNITS, bytes_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from collegium.runs.results import Run

_MOST_BANDS: Final = 6
"""More areas on top of one another cannot be told apart."""
ROUNDS: Final = svg.Axis("Round", whole=True)
ACCURACY: Final = svg.Axis("Accuracy on the test set", suffix="%", lowest=0, highest=100)


def sum_up(run: Run) -> dict[str, Any]:
    """What sums a run up. Accuracies are shares between 0 and 1, as in `run.summary()`; NaN was not measured."""
    sites = run.summary().iloc[:-1]  # the last row is the mean
    accuracies = {
        f"{when}_{how}": float(sites[column].agg(how))
        for when, column in (("first", "first_accuracy"), ("last", "accuracy"))
        for how in ("mean", "min", "max")
    }
    quality = run.consensus.get("consensus_quality", pd.Series(dtype=float)).dropna()
    overall = run.metrics.loc[run.metrics["metric"] == "global_accuracy", "value"]
    return {
        "algorithm": str(run.about["algorithm"]).partition("(")[0],
        "sites": len(sites),
        "rounds": max((int(frame["round"].max()) + 1 for frame in (run.costs, run.metrics) if len(frame)), default=0),
        **accuracies,
        "base_rate": float(np.nan if (rate := run.about.get("base_rate")) is None else rate),
        "worse_than_alone": np.nan if run.known_verdict is None else int((run.known_verdict["high"] < 0).sum()),
        "global_accuracy": float(overall.iloc[-1]) if len(overall) else np.nan,
        **_metric_means(run),
        "consensus_quality": float(quality.iloc[-1]) if len(quality) else np.nan,
        "bytes_up_per_site": float(sites["bytes_up"].mean()),
        "releases": len(run.releases),
        "seconds": float(run.about.get("seconds", np.nan)),
    }


def _metric_means(run: Run) -> dict[str, float]:
    """The sites' mean of each metric that the run was asked for, in the last round; none of those in parts."""
    asked = run.about.get("metrics", [])
    if not asked:
        return {}
    scores, sites = run.scores, [str(party) for party in run.about["parties"]]
    return {name: float(scores[name].reindex(sites).mean()) for name in asked if name in scores}


def compare_runs(runs: Mapping[str, Run]) -> pd.DataFrame:
    """One row per run: accuracy at the first and last round, metrics, consensus, bytes, releases, seconds.

    `base_rate` is the accuracy of always saying the largest class, `worse_than_alone` the number of sites that clearly
    lost, where that was measured.
    """
    _check_any(runs)
    return pd.DataFrame([sum_up(run) for run in runs.values()], index=pd.Index(list(runs), name="run"))


def plot_comparison(runs: Mapping[str, Run]) -> Figure:
    """The runs' mean accuracies over rounds, with bands from the worst to the best site."""
    from matplotlib.figure import Figure

    from collegium.reports.plots import over_rounds

    _check_any(runs)
    picture = Figure(figsize=(8, 4.5), layout="constrained")
    axes = picture.subplots()
    for name, curve in _curves(runs).items():
        (line,) = axes.plot(curve.index, curve["mean"], marker="o", markersize=3, label=name)
        if len(runs) <= _MOST_BANDS:
            axes.fill_between(curve.index, curve["low"], curve["high"], color=line.get_color(), alpha=0.15, linewidth=0)
    empty = None if axes.lines else "no run has a test set"
    over_rounds(axes, empty=empty, title="Mean accuracy of the sites", ylabel="accuracy on the test set")
    if axes.lines:
        axes.legend(fontsize=8)
    return picture


def render_comparison(runs: Mapping[str, Run]) -> str:
    """One self-contained HTML page: the runs' numbers, their curves, and a few sentences on each."""
    numbers = compare_runs(runs)
    title = f"Comparison of {count(len(runs), 'run')}"
    remarks = [paragraph(remark, class_="warning") for remark in _remarks(runs)]
    words = facts((name, " ".join([*sentences(run), *protection(run)])) for name, run in runs.items())
    parts = [
        ("numbers", "The numbers", [*remarks, _table(numbers)]),
        ("figures", "Figures", [element("div", _figures(runs, numbers), class_="figures")]),
        ("short", "Each run in short", [words]),
    ]
    body = join(section(key, name, *content) for key, name, content in parts)
    contents = [(key, name) for key, name, _ in parts]
    return page(title, element("h1", title), body, contents, paragraph("Made with Collegium."))


def accuracy_curves(run: Run) -> pd.DataFrame:
    """Test accuracy by round and site; a site that did not train in a round keeps its last value."""
    return run.accuracy.ffill()


def bytes_sent(run: Run) -> int:
    """All that the sites sent: releases, and the messages around them."""
    return int(run.summary()["bytes_up"].iloc[:-1].sum())


def sentences(run: Run, n: dict[str, Any] | None = None) -> list[str]:
    """A run in a few sentences: its course, accuracy, consensus, and what left. `n`: what `sum_up` found."""
    n = sum_up(run) if n is None else n
    return [_course(run, n), _accuracy_words(run, n), _consensus_words(run, n), _left_words(run)]


def protection(run: Run) -> list[str]:
    """How far a run's releases are protected; nothing where there are none."""
    kinds, releases = set(run.releases["kind"]), len(run.releases)
    protected = int(run.releases["protected"].sum())
    if not releases:
        return []
    if protected:
        words = [f"{protected:,} of {count(releases, 'release')} are protected by differential privacy."]
        words += [privacy_words(run)] if protected == releases else []
    elif "HardLabels" in kinds:
        words = ["None of the releases is protected by differential privacy; hard labels alone are no guarantee."]
    else:
        words = ["None of the releases is protected by differential privacy."]
    raw = sorted(kind for kind in kinds if kind in KINDS and KINDS[kind].simulation_only)
    if raw:
        words.append(f"Private records themselves left the sites ({', '.join(raw)}): only a simulation can do that.")
    return words


def privacy_words(run: Run) -> str:
    """What the largest epsilon among the sites means for one record, for people who do not think in epsilons."""
    from collegium.privacy import theory

    worst = run.privacy.sort_values("epsilon").iloc[-1]
    cap = theory.auc_cap(float(worst["epsilon"]), float(worst["delta"]))
    text = f"The largest epsilon of a site is {worst['epsilon']:.4g} (delta {worst['delta']:.1g}): whoever sees all "
    if cap > 0.99:
        text += "that it sent may still be able to tell whether a certain record is in its data. That is no "
        return text + "protection to rely on."
    text += "that it sent can tell whether a certain record is in its data with an area under the curve of at most "
    return text + f"{cap:.3f} (0.5 is guessing)."


def _course(run: Run, n: dict[str, Any]) -> str:
    sites = count(n["sites"], "site")
    if not n["rounds"]:
        return f"No round of {n['algorithm']} over {sites} has been recorded yet."
    course = f"{n['algorithm']} ran over {sites} for {count(n['rounds'], 'round')}"
    if run.finished:
        return course + "."
    return course + " and was interrupted: this report shows what was recorded until then."


def _accuracy_words(run: Run, n: dict[str, Any]) -> str:
    if np.isnan(n["last_mean"]):
        return "No accuracy on a common test set was recorded."
    first, last = (
        f"{percent(n[f'{when}_mean'])} (sites: {percent(n[f'{when}_min'])} to {percent(n[f'{when}_max'])})"
        for when in ("first", "last")
    )
    start = "On the common test set, the mean accuracy of the sites was "
    if len(run.accuracy) == 1:
        return f"{start}{last}."
    return f"{start}{first} in the first round and {last} in the last."


def _consensus_words(run: Run, n: dict[str, Any]) -> str:
    sizes = run.consensus.get("consensus_size")
    if sizes is None:
        return "No consensus on public cases was formed."
    cases = count(run.about["public_size"], "public case")
    words = f"The last consensus labels {percent(float(sizes.iloc[-1]))} of the {cases}"
    if not np.isnan(n["consensus_quality"]):
        words += f", and {percent(n['consensus_quality'])} of these labels are right"
    if not np.isnan(n["global_accuracy"]):
        words += f"; a model that learned from them alone is right on {percent(n['global_accuracy'])} of the test set"
    return words + "."


def _left_words(run: Run) -> str:
    sent = bytes_text(bytes_sent(run))
    if run.releases.empty:
        return f"No release left any site; the sites' replies ({sent}) say only that work was done or refused."
    kinds = ", ".join(f"{n:,} {kind}" for kind, n in run.releases["kind"].value_counts(sort=False).items())
    content = bytes_text(int(run.releases["bytes"].sum()))
    releases = count(len(run.releases), "release")
    return f"{releases} left the sites ({kinds}), with {content} of content; all messages together had {sent}."


def count(n: int, thing: str) -> str:
    """So many things."""
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def percent(share: float) -> str:
    """A share for people."""
    return "-" if np.isnan(share) else f"{share:.1%}"


def seconds_text(seconds: float) -> str:
    """A time for people."""
    if np.isnan(seconds):
        return "-"
    if 0 < seconds < 0.9995:
        return f"{1000 * seconds:.3g} ms"
    if seconds < 60:
        return f"{seconds:.2g} s" if seconds < 10 else f"{seconds:.0f} s"
    whole = round(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {whole % 60} s"


def byte_unit(most: float) -> tuple[float, str]:
    """What to divide bytes by, and the unit's name."""
    return next(((by, name) for by, name in BYTE_UNITS if most >= by), (1.0, "bytes"))


def _check_any(runs: Mapping[str, Run]) -> None:
    if not runs or not isinstance(runs, Mapping):
        raise ConfigError("There is no run to compare: pass a mapping such as {'alone': run1, 'together': run2}.")


def _remarks(runs: Mapping[str, Run]) -> list[str]:
    """What makes a comparison doubtful."""
    remarks = []
    if len({tuple(run.about["parties"]) for run in runs.values()}) > 1:
        remarks.append("The runs have different sites: their accuracies may not be comparable.")
    if len({run.about["public_sha256"] for run in runs.values()} - {None}) > 1:
        remarks.append("The runs have different public sets.")
    unfinished = [name for name, run in runs.items() if not run.finished]
    if unfinished:
        remarks.append(f"Interrupted before the end: {', '.join(unfinished)}.")
    return remarks


def _table(numbers: pd.DataFrame) -> Markup:
    head = ["Run", "Algorithm", "Sites", "Rounds", "First accuracy", "Last accuracy", "Global model"]
    known = {"algorithm", "sites", "rounds", "global_accuracy", "consensus_quality", "bytes_up_per_site", "releases"}
    known |= {
        "seconds",
        "base_rate",
        "worse_than_alone",
        *(f"{when}_{how}" for when in ("first", "last") for how in ("mean", "min", "max")),
    }
    metrics = [str(name) for name in numbers.columns if name not in known]
    head += [*metrics, "Worse than alone", "Labels right", "Sent per site", "Releases", "Time"]
    rows = [
        [
            str(name),
            row["algorithm"],
            *(number(f"{row[count]:,}") for count in ("sites", "rounds")),
            *(_range(row[f"{when}_mean"], row[f"{when}_min"], row[f"{when}_max"]) for when in ("first", "last")),
            number(percent(row["global_accuracy"])),
            *(number("-" if np.isnan(row[name]) else f"{row[name]:.3f}") for name in metrics),
            number("-" if np.isnan(row["worse_than_alone"]) else f"{row['worse_than_alone']:.0f}"),
            number(percent(row["consensus_quality"])),
            number(bytes_text(round(row["bytes_up_per_site"]))),
            number(f"{row['releases']:,}"),
            number(seconds_text(row["seconds"])),
        ]
        for name, row in numbers.iterrows()
    ]
    note = "Accuracies are the mean over the sites, with the range from the worst to the best site."
    rates = sorted({percent(rate) for rate in numbers["base_rate"].dropna()})
    note += f" Always saying the largest class: {', '.join(rates)}." if rates else ""
    return join([table(head, rows, title="Numbers of all runs"), paragraph(note, class_="meta")])


def _range(mean: float, low: float, high: float) -> Number:
    if np.isnan(mean):
        return number("-")
    return Number(join([percent(mean), element("br"), element("small", f"{percent(low)} to {percent(high)}")]))


def _figures(runs: Mapping[str, Run], numbers: pd.DataFrame) -> Markup:
    sent = numbers["bytes_up_per_site"]
    by, unit = byte_unit(float(sent.max()))
    bars = [svg.Bar(str(name), [value / by], bytes_text(round(value))) for name, value in sent.items()]
    x = svg.Axis("Sent per site", f" {unit}")
    chart = svg.bar_chart(bars, label="Bar chart of what a site sent in each run", x=x)
    caption = "All that the sites sent in a run, messages included: the mean over its sites."
    return join([_accuracy(runs), figure("fig-bytes", "Sent per site", caption, chart)])


def _curves(runs: Mapping[str, Run]) -> dict[str, pd.DataFrame]:
    """Mean, lowest and highest accuracy over rounds, of the runs that have them.

    A run of one round, such as sites that train alone, is what others are held against: it becomes a level line, and
    has no band.
    """
    tables = {name: table for name, run in runs.items() if not (table := accuracy_curves(run)).empty}
    return levelled(
        {
            name: pd.DataFrame({"mean": table.mean(axis=1), "low": table.min(axis=1), "high": table.max(axis=1)})
            for name, table in tables.items()
        }
    )


def levelled(curves: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The same curves, with a level line for what has one round only."""
    rounds = sorted({number for curve in curves.values() for number in curve.index})
    for name, curve in curves.items():
        if len(curve) == 1 < len(rounds):
            level = float(curve["mean"].iloc[0])
            curves[name] = pd.DataFrame({"mean": level, "low": np.nan, "high": np.nan}, index=[rounds[0], rounds[-1]])
    return curves


def _accuracy(runs: Mapping[str, Run]) -> Markup:
    caption = "Each line is the mean over a run's sites on the common test set. A run of one round is a level line."
    curves = _curves(runs)
    left_out = [name for name in runs if name not in curves]
    note = f" Without a test set: {', '.join(left_out)}." if left_out else ""
    return accuracy_figure(curves, caption, " Each area reaches from the worst to the best site.", note)


def accuracy_figure(curves: Mapping[str, pd.DataFrame], caption: str, areas: str, note: str = "") -> Markup:
    """Curves with mean, low and high by round, each with its area where they are few; `areas` says what these are."""
    key, title = "fig-accuracy", "Mean accuracy over rounds"
    if not curves:
        return figure(key, title, "No run measured accuracy on a test set.", None)
    styles = {name: svg.series_style(i) for i, name in enumerate(curves)}
    shares = {name: 100 * curve for name, curve in curves.items()}
    lines = [svg.Line(name, list(c.index), c["mean"], styles[name]) for name, c in shares.items()]
    few = len(curves) <= _MOST_BANDS
    bands = [svg.Band(list(c.index), c["low"], c["high"], styles[name]) for name, c in shares.items() if few]
    last = ", ".join(f"{name} {percent(curve['mean'].iloc[-1])}" for name, curve in curves.items())
    label = f"Line chart of mean accuracy over rounds; in the last round: {last}"
    chart = svg.line_chart(lines, bands=bands, label=label, x=ROUNDS, y=ACCURACY)
    entries = svg.legend([(name, styles[name]) for name in curves])
    return figure(key, title, caption + (areas if few else "") + note, join([chart, entries]))


def verdict_markup(judged: pd.DataFrame, title: str) -> Markup:
    """Each site alone and together; what became worse stands out."""
    lost = element("strong", "lost", class_="interrupted")
    head = ["Site", "Alone", "Together", "Difference", "95% interval", "Verdict"]
    rows = [
        [
            str(row["site"]),
            *(number(percent(row[name])) for name in ("alone", "together")),
            number(f"{row['difference']:+.1%}"),
            number(f"{row['low']:+.1%} to {row['high']:+.1%}"),
            "helped" if row["helped"] else "no clear difference" if row["high"] >= 0 else lost,
        ]
        for row in judged.to_dict("records")
    ]
    return table(head, rows, title=title)
