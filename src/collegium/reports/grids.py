"""Methods side by side over several seeds: means with intervals, what it did for each site, and one page of it all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pandas as pd
from scipy import stats

from collegium.reports.compare import (
    accuracy_curves,
    accuracy_figure,
    compare_runs,
    count,
    levelled,
    percent,
    seconds_text,
    verdict_markup,
)
from collegium.reports.style import Markup, Number, element, join, number, page, paragraph, section, table
from collegium.reports.tables import bytes_text
from collegium.runs.verdict import COLUMNS, LEVEL, verdict_over

if TYPE_CHECKING:
    from collegium.runs.results import Run

Runs = Mapping[str, Mapping[int, "Run"]]
"""By what results call an algorithm, and by seed."""


SAME: Final = "Every site has the model that it would have had alone."


def differs(judged: pd.DataFrame) -> bool:
    """Whether any site's accuracy is another than alone."""
    return bool((judged[["difference", "low", "high"]] != 0).any(axis=None))


def mean_with_interval(values: Sequence[float]) -> tuple[float, float, float]:
    """The mean of repeats, and Student's 95% interval of it; NaN for the interval of a single one."""
    known = np.asarray([value for value in values if not np.isnan(value)], dtype=float)
    if len(known) < 2:
        return (float(known.mean()) if len(known) else np.nan), np.nan, np.nan
    width = float(stats.t.ppf((1 + LEVEL) / 2, len(known) - 1) * known.std(ddof=1) / np.sqrt(len(known)))
    return float(known.mean()), float(known.mean()) - width, float(known.mean()) + width


def judge_grid(runs: Runs) -> dict[str, pd.DataFrame]:
    """For each method, its sites alone and together: over the seeds, or over the test rows where there is one seed.

    A method is left out where nobody was trained alone.
    """
    judged = {}
    for label, by_seed in runs.items():
        known = [run for run in by_seed.values() if run.known_verdict is not None]
        if known and len(known) == len(by_seed):
            judged[label] = verdict_over(known) if len(known) > 1 else known[0].verdict
    return judged


def sum_up_grid(runs: Runs) -> pd.DataFrame:
    """One row per method: means over the seeds with 95% intervals; NaN was not measured.

    `lost` counts the sites that would have been better off alone, beyond the interval of their difference.
    """
    judged = judge_grid(runs)
    return pd.DataFrame(
        [_summed_up(by_seed, judged.get(label)) for label, by_seed in runs.items()],
        index=pd.Index(list(runs), name="algorithm"),
    )


def _summed_up(by_seed: Mapping[int, Run], judged: pd.DataFrame | None) -> dict[str, Any]:
    numbers = compare_runs({str(seed): run for seed, run in by_seed.items()})
    asked = [name for name in next(iter(by_seed.values())).about.get("metrics", []) if name in numbers]
    found: dict[str, Any] = {"runs": len(by_seed), "sites": int(numbers["sites"].max())}
    for name in ("accuracy", "global_accuracy", *asked):
        values = numbers["last_mean" if name == "accuracy" else name]
        found |= zip((name, f"{name}_low", f"{name}_high"), mean_with_interval(values.tolist()), strict=True)
    gained = [
        float(run.known_verdict["difference"].mean()) for run in by_seed.values() if run.known_verdict is not None
    ]
    found |= zip(("difference", "difference_low", "difference_high"), mean_with_interval(gained), strict=True)
    found["lost"] = np.nan if judged is None else int((judged["high"] < 0).sum())
    return found | {name: float(numbers[name].mean()) for name in ("bytes_up_per_site", "seconds")}


def render_grid(title: str, runs: Runs, folder: Path | None = None) -> str:
    """One self-contained HTML page. `folder` is where it will lie, beside the folders of the runs that it links to."""
    numbers, judged = sum_up_grid(runs), judge_grid(runs)
    seeds = max(len(by_seed) for by_seed in runs.values())
    head = f"{count(len(runs), 'method')}, {count(seeds, 'seed')} each"
    parts = [
        ("numbers", "The numbers", [*_remarks(runs, numbers), _table(numbers)]),
        ("figures", "Figures", [element("div", _figure(runs), class_="figures")]),
        ("verdict", "Did it help?", _verdict(judged, runs)),
        ("runs", "Every run", [_every(runs, folder)]),
    ]
    body = join(section(key, name, *content) for key, name, content in parts)
    top = join([element("h1", title), element("p", head, class_="meta")])
    foot = paragraph("Made with Collegium. This page loads nothing and runs no script.")
    return page(f"{title}: comparison", top, body, [(key, name) for key, name, _ in parts], foot)


def _remarks(runs: Runs, numbers: pd.DataFrame) -> list[Markup]:
    """What to know first."""
    said = [
        f"{label}: {count(int(lost), 'site')} of {sites} would have been better off alone."
        for label, lost, sites in zip(numbers.index, numbers["lost"], numbers["sites"], strict=True)
        if lost > 0
    ]
    every = {f"{label}, seed {seed}": run for label, by_seed in runs.items() for seed, run in by_seed.items()}
    if absent := [name for name, run in every.items() if run.incomplete]:
        said.append(f"Some sites did not answer all they were asked: {'; '.join(absent)}.")
    if unfinished := [name for name, run in every.items() if not run.finished]:
        said.append(f"Interrupted before the end: {'; '.join(unfinished)}.")
    return [paragraph(text, class_="warning") for text in said]


def _table(numbers: pd.DataFrame) -> Markup:
    named = {name.removesuffix("_low") for name in numbers.columns if str(name).endswith("_low")}
    metrics = [name for name in numbers.columns if name in named - {"accuracy", "global_accuracy", "difference"}]
    head = ["Method", "Runs", "Accuracy", "Difference to alone", "Sites that lost", "Global model", *map(str, metrics)]
    rows = [
        [
            str(label),
            number(f"{row['runs']:.0f}"),
            _interval(row, "accuracy", percent),
            _interval(row, "difference", lambda value: f"{value:+.1%}"),
            number("-" if np.isnan(row["lost"]) else f"{row['lost']:.0f} of {row['sites']:.0f}"),
            _interval(row, "global_accuracy", percent),
            *(_interval(row, name, lambda value: f"{value:.3f}") for name in metrics),
            number(bytes_text(round(row["bytes_up_per_site"]))),
        ]
        for label, row in numbers.iterrows()
    ]
    note = "Accuracies are means over the sites, on the test set; what is below them is the 95% interval over the "
    note += "seeds (Student's t): it says how far a mean depends on them. In a study that deals rows to sites, a seed "
    note += "also says who gets which. What was sent is the mean of a run."
    return join([table([*head, "Sent per site"], rows, title="Means over the seeds"), paragraph(note, class_="meta")])


def _interval(row: pd.Series[Any], name: str, write: Any) -> Number:
    mean, low, high = (float(row[f"{name}{end}"]) for end in ("", "_low", "_high"))
    if np.isnan(mean):
        return number("-")
    if np.isnan(low):
        return number(write(mean))
    return Number(join([write(mean), element("br"), element("small", f"{write(low)} to {write(high)}")]))


def _figure(runs: Runs) -> Markup:
    curves = {}
    for label, by_seed in runs.items():
        means = [frame.mean(axis=1) for run in by_seed.values() if not (frame := accuracy_curves(run)).empty]
        if means:
            by_round = pd.concat(means, axis=1).sort_index().ffill()
            rows = [mean_with_interval(values) for values in by_round.to_numpy().tolist()]
            curves[label] = pd.DataFrame(rows, index=by_round.index, columns=["mean", "low", "high"])
    caption = "Each line is the mean over sites and seeds on the test set. A method of one round is a level line."
    return accuracy_figure(levelled(curves), caption, " Each area is the 95% interval over the seeds.")


def _verdict(judged: Mapping[str, pd.DataFrame], runs: Runs) -> list[Markup]:
    if not judged:
        return [paragraph("No site was trained alone. With `alone = true` in the study every one is.")]
    note = (
        "Each site's learner, trained on its own rows only and together with the others, on the same test rows. With "
    )
    note += "several seeds the interval is Student's over them; with one it is a paired bootstrap over the test rows."
    tables = [
        part
        for label, own in judged.items()
        for part in (element("h3", label), verdict_markup(own, label) if differs(own) else paragraph(SAME))
    ]
    absent = [label for label in runs if label not in judged]
    more = (
        [paragraph(f"Nobody was trained alone beside {', '.join(absent)}: alone = true does that.")] if absent else []
    )
    return [paragraph(note), *tables, *more]


def _every(runs: Runs, folder: Path | None) -> Markup:
    rows = []
    for label, by_seed in runs.items():
        for seed, run in by_seed.items():
            summary = run.summary()
            place = Path(label) / f"seed-{seed}" / "report.html"
            there = folder is not None and (folder / place).is_file()
            name = element("a", f"seed {seed}", href=place.as_posix()) if there else f"seed {seed}"
            accuracy = number(percent(float(summary["accuracy"].iloc[-1])))
            sent = number(bytes_text(int(summary["bytes_up"].iloc[-1])))
            rows.append([label, name, accuracy, sent, number(seconds_text(float(run.about.get("seconds", np.nan))))])
    return table(["Method", "Run", "Accuracy", "Sent per site", "Time"], rows, title="All runs")


def verdict_rows(judged: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """All verdicts in one table, with the algorithm as the first column."""
    frames = [own.assign(algorithm=label) for label, own in judged.items()]
    return (pd.concat(frames) if frames else pd.DataFrame(columns=list(COLUMNS)))[["algorithm", *COLUMNS]]
