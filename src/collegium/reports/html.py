"""The report of a run: one self-contained HTML file, for doctors and data-protection officers alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import pandas as pd

from collegium.core.releases import KINDS
from collegium.privacy.claims import UNPROTECTED
from collegium.reports import compare, style, svg
from collegium.reports.audits import audit_section
from collegium.reports.compare import bytes_sent, count, percent, seconds_text
from collegium.reports.made import made_section
from collegium.reports.refusals import CODES, UNKNOWN
from collegium.reports.style import Markup, code, element, figure, join, number, paragraph
from collegium.reports.tables import bytes_text

if TYPE_CHECKING:
    from collegium.runs.results import Run

_NAMED_LINES: Final = 12
_HAIR_LINES: Final = 200
_BARS: Final = 40
_HEAT_ROWS: Final = 30
_TABLE_CELLS: Final = 400
_LISTED: Final = 60
"""Releases and refusals are listed one by one up to this number."""

_KINDS: Final = {
    "dp": "differential privacy",
    "conditional": "conditional, not verified",
    "nominal": "nominal, no guarantee",
    UNPROTECTED: "unprotected",
}
_RELATIONS: Final = {"replace": "replaced", "add_remove": "added or removed"}
_Drawn: TypeAlias = tuple[str, Markup | None, *tuple[Markup, ...]]


def render_report(run: Run) -> str:
    """The whole report as HTML: charts are drawn in place, nothing is loaded, no script runs."""
    title = str(run.about.get("study") or str(run.about["algorithm"]).partition("(")[0])
    figures = (figure(f"fig-{key}", name, *draw(run), half=half) for key, name, draw, half in _FIGURES)
    parts = [
        ("short", "In short", _in_short(run)),
        ("figures", "Figures", [element("div", join(figures), class_="figures")]),
        *([("verdict", "Did it help?", _verdict(run))] if run.known_verdict is not None else []),
        ("sites", "Sites", [_sites(run)]),
        *([("metrics", "Metrics", [_metrics(run)])] if run.about.get("metrics") else []),
        *([("made", "Public set", made_section(run.about["public_made"]))] if run.about.get("public_made") else []),
        ("privacy", "Privacy", privacy_section(run)),
        ("left", "What left each site", _left(run)),
        *([("audit", "Audit", _audit(run))] if run.audits else []),
        ("refusals", "Refusals and failures", [_refusals(run)]),
        ("study", "Study", [_study(run)]),
        ("about", "About this run", [_about(run)]),
    ]
    body = join(style.section(key, name, *content) for key, name, content in parts)
    contents = [(key, name) for key, name, _ in parts]
    version = run.environment.get("packages", {}).get("collegium", "")
    maker = f"Made with Collegium {version}".strip()
    foot = paragraph(f"{maker}. Rounds count from 0. This page loads nothing and runs no script.")
    return style.page(f"{title}: report", _head(run, title), body, contents, foot)


def _head(run: Run, title: str) -> Markup:
    started = str(run.about.get("started", "")).replace("T", " ").replace("+00:00", " UTC")
    kind, word = ("state", "finished") if run.finished else ("state interrupted", "interrupted")
    meta = join([code(run.about["algorithm"]), element("br"), f"{started} ", element("span", word, class_=kind)])
    return join([element("h1", title), element("p", meta, class_="meta")])


def _in_short(run: Run) -> list[Markup]:
    n = compare.sum_up(run)
    parts = [_tiles(run, n), *(paragraph(text, class_="warning") for text in run.concerns)]
    parts.append(paragraph(*compare.sentences(run, n)))
    protection = compare.protection(run)
    if protection:
        parts.append(paragraph(*protection, class_="warning"))
    few = run.metrics[run.metrics["metric"] == "teachers"]
    if len(few):
        named = ", ".join(f"{row.party} ({row.value:.0f})" for row in few.head(_LISTED).itertuples())
        parts.append(paragraph(f"Sites that had too few records for all teachers, and made fewer: {named}."))
    if len(run.refusals):
        times, sites = count(len(run.refusals), "time"), count(run.refusals["party"].nunique(), "site")
        words = f"Sites refused, failed or were missing {times} ({sites}):"
        parts.append(paragraph(words, element("a", "the reasons", href="#refusals"), class_="warning"))
    return parts


def _tiles(run: Run, n: dict[str, Any]) -> Markup:
    releases, protected = len(run.releases), int(run.releases["protected"].sum())
    size = run.about["public_size"]
    cases = (f"{size:,}", "everybody may see them") if size else ("-", "no public set")
    sent = f"in {count(releases, 'release')}" if releases else "no release, only replies"
    safe = (f"{protected:,} of {releases:,}", "by differential privacy") if releases else ("-", "nothing was released")
    return style.tiles(
        [
            ("Sites", f"{n['sites']:,}", _private_cases(run)),
            ("Rounds", f"{n['rounds']:,}", f"in {seconds_text(n['seconds'])}"),
            ("Mean accuracy", percent(n["last_mean"]), _accuracy_note(run, n["first_mean"])),
            ("Public cases", *cases),
            ("Left the sites", bytes_text(bytes_sent(run)), sent),
            ("Protected", *safe),
        ]
    )


# Figures: what each has below its title, which is a caption, a chart (or none, and the caption says why), and its data.


def _accuracy(run: Run) -> _Drawn:
    curves = 100 * compare.accuracy_curves(run)
    caption = "How often each site's model is right on the common test set"
    if curves.empty:
        return "No accuracy: there is no common test set, or no round yet.", None
    if len(curves) == 1:
        return _per_site(curves.iloc[0], "Accuracy on the test set", "%", f"{caption}.")
    rounds, mean, few = list(curves.index), curves.mean(axis=1), len(curves.columns) <= _NAMED_LINES
    shown = curves.columns if few else _evenly(curves.columns, _HAIR_LINES)
    looks = {party: svg.series_style(i) if few else "hair" for i, party in enumerate(shown)}
    lines = [svg.Line(str(party), rounds, curves[party], looks[party]) for party in shown]
    lines.append(svg.Line("mean of the sites", rounds, mean, "mean"))
    low, high = curves.min(axis=1), curves.max(axis=1)
    label = f"Line chart: mean accuracy {mean.iloc[0]:.1f}% in round {rounds[0]}, {mean.iloc[-1]:.1f}% in {rounds[-1]}"
    bands = [] if few else [svg.Band(rounds, low, high, "all")]
    chart = svg.line_chart(lines, bands=bands, label=label, x=compare.ROUNDS, y=compare.ACCURACY)
    sites = [(str(party), looks[party]) for party in shown]
    named = sites if few else [("one site", "hair"), ("from the worst to the best", "band all")]
    caption += ", after each round. A site that did not train in a round keeps its last value."
    if len(shown) < len(curves.columns):
        caption += f" {len(shown)} of {len(curves.columns):,} sites are drawn; mean and area are those of all."
    many = pd.DataFrame({"mean of the sites": mean, "lowest": low, "highest": high})
    data = pd.concat([many.iloc[:, :1], curves], axis=1) if few else many
    return caption, join([chart, svg.legend([("mean of the sites", "mean"), *named])]), _data(data, "%")


def _spread(run: Run) -> _Drawn:
    curves = 100 * compare.accuracy_curves(run)
    if len(curves) < 2 or len(curves.columns) < 2:
        return "The spread over rounds needs the accuracy of two sites in two rounds.", None
    extent = curves.max(axis=1) - curves.min(axis=1)
    spread = pd.DataFrame({"range (best - worst)": extent, "standard deviation": curves.std(axis=1, ddof=0)})
    caption = "How far apart the sites are: the closer to 0, the more equal their models."
    return _rounds(spread, svg.Axis("Percentage points", lowest=0), caption, " points")


def _consensus(run: Run) -> _Drawn:
    table = run.consensus
    names = {"consensus_size": "labeled", "consensus_quality": "right, of those labeled"}
    shares = 100 * table[[name for name in names if name in table]].rename(columns=names)
    if shares.empty:
        return "No consensus was formed in this run.", None
    quality = "Whether these labels are right is not known: no true labels were given."
    if len(shares.columns) > 1:
        quality = "Of these labels, the second line shows the share that is right."
    caption = f"The share of public cases that have a consensus label. {quality}"
    return _rounds(shares, svg.Axis("Share of cases", "%", lowest=0, highest=100), caption, "%")


def _changes(run: Run) -> _Drawn:
    changed = run.consensus.get("consensus_changed", pd.Series(dtype=float)).dropna()
    if len(changed) < 2:
        return "Fewer than two consensuses were formed, so no label could change.", None
    later = changed.iloc[1:]
    columns = [(r - 0.4, r + 0.4, n) for r, n in zip(later.index.tolist(), later.tolist(), strict=True)]
    label = f"Column chart: {changed.iloc[-1]:,.0f} labels changed in the last round"
    height = svg.Axis("Labels changed", whole=True, lowest=0)
    caption = "Public cases whose consensus label differs from the one before. The first consensus (round "
    caption += f"{changed.index[0]}, {changed.iloc[0]:,.0f} labels) is not drawn."
    chart = svg.column_chart(columns, label=label, x=compare.ROUNDS, y=height)
    return caption, chart, _data(changed.to_frame("labels changed"), "")


def _classes(run: Run) -> _Drawn:
    counts = run.class_counts
    if counts.empty or not counts.to_numpy().sum():
        return "How many cases of each class the sites have is not known.", None
    caption = "The share of each class in a site's private data. "
    caption += "It is known because this run is a simulation; sites do not send it."
    if len(counts) > _BARS:
        return _class_map(counts, caption)
    shown = _with_others(counts, style.PALETTE)
    shares = 100 * shown.div(shown.sum(axis=1).clip(lower=1), axis=0)
    totals = (f"n = {total:,}" for total in counts.sum(axis=1))
    axis = svg.Axis("Share of cases", "%", highest=100)
    return caption, _stacked(shares, totals, "Bars: share of each class by site", axis), _data(counts, "")


def _class_map(counts: pd.DataFrame, caption: str) -> _Drawn:
    shown = _with_others(counts.loc[_evenly(counts.index, _HAIR_LINES)], _HEAT_ROWS)
    shares = shown.div(shown.sum(axis=1).clip(lower=1), axis=0).to_numpy().T
    names = [str(name) for name in shown.columns]
    label = f"Heat map: share of {len(names)} classes at {len(shown)} sites"
    if len(shown) < len(counts):
        caption += f" {len(shown)} of {len(counts):,} sites are drawn, evenly chosen."
    chart = svg.heat_map(names, shares, label=label, x_label="Sites drawn, in the order of the table below")
    return caption, join([chart, svg.heat_legend()])


def _bytes(run: Run) -> _Drawn:
    sent = run.summary()["bytes_up"].iloc[:-1]
    if not sent.sum():
        return "Nothing has left any site.", None
    by, unit = compare.byte_unit(float(sent.max()))
    caption = "All that each site sent, messages included."
    if len(sent) > _BARS:
        return _per_site(sent / by, "Sent", f" {unit}", caption)
    released = run.releases.groupby("party")[["bytes", "wire_bytes"]].sum().reindex(sent.index, fill_value=0)
    parts = pd.DataFrame({"content of releases": released["bytes"]})
    parts["structure around it"] = released["wire_bytes"] - released["bytes"]
    parts["rest of the messages"] = (sent - released["wire_bytes"]).clip(lower=0)
    chart = _stacked(
        parts / by, map(bytes_text, sent.tolist()), "Bars: bytes sent by site", svg.Axis("Sent", f" {unit}")
    )
    return caption, chart, _data(parts, "")


def _time(run: Run) -> _Drawn:
    names = {"fit": "training", "predict": "labeling", "consensus": "consensus", "wire": "messages"}
    spent = {name: float(run.costs[f"seconds_{part}"].sum()) for part, name in names.items()}
    if not sum(spent.values()):
        return "No time was recorded.", None
    bars = [svg.Bar(name, [seconds], seconds_text(seconds)) for name, seconds in spent.items()]
    caption = "Sums over all sites and rounds. Sites work at the same time: the whole run took "
    caption += f"{seconds_text(float(run.about.get('seconds', np.nan)))}."
    return caption, svg.bar_chart(bars, label="Bars: seconds by activity", x=svg.Axis("Seconds, all sites together"))


_FIGURES: Final[tuple[tuple[str, str, Callable[[Run], _Drawn], bool], ...]] = (
    ("accuracy", "Accuracy of each site", _accuracy, False),
    ("spread", "Spread between sites", _spread, True),
    ("consensus", "Consensus on the public cases", _consensus, True),
    ("changes", "Labels that changed", _changes, False),
    ("classes", "Class balance of the sites", _classes, False),
    ("bytes", "Bytes that left each site", _bytes, False),
    ("time", "Time spent", _time, False),
)
"""Key, title, how it is drawn, and whether it takes half the width."""


def _stacked(parts: pd.DataFrame, notes: Iterable[str], label: str, axis: svg.Axis) -> Markup:
    """A bar per row and a colour per column, and what the colours mean."""
    bars = [svg.Bar(str(p), row, note) for p, row, note in zip(parts.index, parts.to_numpy(), notes, strict=True)]
    entries = [(str(name), f"s{i}") for i, name in enumerate(parts.columns)]
    return join([svg.bar_chart(bars, label=label, x=axis), svg.legend(entries, blocks=True)])


def _per_site(values: pd.Series[float], label: str, suffix: str, caption: str) -> _Drawn:
    """One value per site: bars for few sites, for many how often each value occurs."""
    known, axis = values.dropna(), svg.Axis(label, suffix)
    if len(known) <= _BARS:
        bars = [svg.Bar(str(party), [value], f"{value:,.1f}{suffix}") for party, value in known.items()]
        return caption, svg.bar_chart(bars, label=f"Bars: {label} by site", x=axis)
    low, middle, high = (f"{value:,.3g}{suffix}" for value in (known.min(), known.median(), known.max()))
    caption += f" Lowest {low}, median {middle}, highest {high}."
    return caption, svg.histogram(known.to_numpy(), label=f"Histogram: {label}, {len(known)} sites", x=axis)


def _rounds(table: pd.DataFrame, axis: svg.Axis, caption: str, suffix: str) -> _Drawn:
    """A line per column, over rounds."""
    lines = [svg.Line(str(c), list(table.index), table[c], f"s{i}") for i, c in enumerate(table.columns)]
    last = ", ".join(f"{name} {table[name].iloc[-1]:.1f}{suffix}" for name in table.columns)
    chart = svg.line_chart(lines, label=f"Line chart, last round: {last}", x=compare.ROUNDS, y=axis, size=svg.HALF)
    entries = svg.legend([(line.name, line.style) for line in lines])
    return caption, join([chart, entries]), _data(table, suffix)


def _data(frame: pd.DataFrame, suffix: str) -> Markup:
    """A figure's numbers, where they are few; whole numbers have no suffix."""
    if frame.size > _TABLE_CELLS:
        return Markup("")
    shown = frame.map(lambda value: "-" if pd.isna(value) else f"{value:.1f}{suffix}" if suffix else f"{value:,.0f}")
    rows = [[str(key), *map(number, row)] for key, row in zip(shown.index, shown.to_numpy().tolist(), strict=True)]
    head = [str(frame.index.name or ""), *map(str, frame.columns)]
    return style.details("Data as table", style.table(head, rows, title="Data of this figure"))


def _evenly(items: pd.Index[str], most: int) -> pd.Index[str]:
    return items[np.unique(np.linspace(0, len(items) - 1, min(most, len(items))).round().astype(int))]


def _with_others(counts: pd.DataFrame, most: int) -> pd.DataFrame:
    """The most frequent classes, and all others as one."""
    if len(counts.columns) <= most:
        return counts
    frequent = counts.sum().nlargest(most - 1).index
    others = counts.drop(columns=frequent)
    kept = counts[counts.columns[counts.columns.isin(frequent)]]
    return pd.concat([kept, others.sum(axis=1).rename(f"{len(others.columns)} others")], axis=1)


# Tables.


def _private_cases(run: Run) -> str:
    samples = run.about["samples"]
    return f"{sum(samples.values()):,} private cases" if samples else "only they know how many cases they have"


def _sites(run: Run) -> Markup:
    known = bool(run.about["samples"])  # in a real run only the sites themselves know
    head = ["Site", *(["Learner", "Private cases"] if known else []), "First accuracy", "Last accuracy"]
    head += ["Sent", "Received", "Releases", "Failures"]
    rows = [
        [
            str(party),
            *([str(row["learner"]), number(f"{row['samples']:,}")] if known else []),
            *(number(percent(row[name])) for name in ("first_accuracy", "accuracy")),
            *(number(bytes_text(int(row[name]))) for name in ("bytes_up", "bytes_down")),
            *(number(f"{row[name]:,}") for name in ("releases", "failures")),
        ]
        for party, row in run.summary().iterrows()
    ]
    return style.table(head, rows, title="Summary per site", total=True)


def _accuracy_note(run: Run, first: float) -> str:
    rate = run.about.get("base_rate")
    return f"first round: {percent(first)}" + ("" if rate is None else f"; always the largest class: {percent(rate)}")


def _verdict(run: Run) -> list[Markup]:
    note = "Each site's learner, trained on its own rows only and together with the others, on the same test rows. The "
    note += (
        "interval is a paired bootstrap over these rows; it does not say what other private rows or seeds would give."
    )
    return [paragraph(note), compare.verdict_markup(run.verdict, "Each site alone and together")]


def _metrics(run: Run) -> Markup:
    scores = run.scores
    rows = [
        [str(party), *(number("-" if pd.isna(value) else f"{value:.4g}") for value in row)]
        for party, row in zip(scores.index, scores.to_numpy().tolist(), strict=True)
    ]
    return style.table(["Model", *map(str, scores.columns)], rows, title="Metrics on the test set, last round")


def privacy_section(run: Run) -> list[Markup]:
    """What can be claimed about the sites' privacy, as a table; the console shows it, too."""
    if run.releases.empty:
        return [paragraph("Nothing was released, so nothing can be learned from releases.")]
    head = ["Sites", "Claim", "About one", "Epsilon", "Delta", "Accountant", "Covers", "Rests on"]
    by = ["kind", "unit", "relation", "epsilon", "delta", "accountant", "covers", "assumptions", "publishable"]
    rows = []
    claims = run.privacy.assign(epsilon=run.privacy["epsilon"].round(6))  # sites that differ by rounding stand together
    for keys, group in claims.groupby(by, sort=False, dropna=False):
        row = dict(zip(by, keys, strict=True))
        names = ", ".join(group["party"]) if len(group) <= 5 else f"{len(group):,} sites"
        bare = row["kind"] == UNPROTECTED
        numbers = ["none", "-"] if bare else [f"{row['epsilon']:.4g}", f"{row['delta']:.1g}"]
        secret = "" if row["publishable"] else " This number depends on private data: do not publish it."
        about = "-" if bare else f"{row['unit']} {_RELATIONS[str(row['relation'])]}"
        stands = (str(row["assumptions"]) or "nothing but the mechanism") + "." + secret
        rows.append(
            [names, _KINDS[str(row["kind"])], about, *map(number, numbers), row["accountant"], row["covers"], stands]
        )
    intro = "A claim of differential privacy holds whatever the data is and whatever else an attacker knows; a "
    intro += (
        "conditional one holds only if its assumption does; a nominal one guarantees nothing. They are never added up."
    )
    return [paragraph(intro), style.table(head, rows, title="Privacy claims")]


def _audit(run: Run) -> list[Markup]:
    said = (paragraph(each.in_words(), class_="warning" if each.contradicts else None) for each in run.audits)
    return [*said, *audit_section(run.audits)]


def _left(run: Run) -> list[Markup]:
    releases = run.releases
    if releases.empty:
        return [paragraph("No release has left any site.")]
    head = ["Site", "Kind", "Releases", "Content", "With structure", "First ledger entry", "Last ledger entry"]
    rows = []
    for (party, kind), group in releases.groupby(["party", "kind"], sort=False):
        sizes = [number(bytes_text(int(group[name].sum()))) for name in ("bytes", "wire_bytes")]
        entries = [code(group["entry"].iloc[0]), code(group["entry"].iloc[-1])]
        rows.append([str(party), str(kind), number(f"{len(group):,}"), *sizes, *entries])
    intro = "Everything that leaves a site passes its gate and is written to its ledger first. The coordinator keeps "
    intro += "the hash of every entry: a ledger that was changed or replaced later does not fit these hashes."
    if "HardLabels" in set(releases["kind"]):
        intro += " Labels are sent as differences from the last consensus where that is shorter: little or no content "
        intro += "means that a site agreed with it."
    kinds = style.facts((kind, _meaning(kind)) for kind in map(str, releases["kind"].unique()))
    listed = _each_release(releases) if len(releases) <= _LISTED else _where_releases(len(releases))
    return [paragraph(intro), kinds, style.table(head, rows, title="What left, by site and kind"), listed]


def _meaning(kind: str) -> str:
    known = KINDS.get(kind)
    return (
        "A kind of release that this version does not know." if known is None else " ".join(str(known.__doc__).split())
    )


def _where_releases(n: int) -> Markup:
    words = f"This run made {n:,} releases: too many to list here. All of them, each with its hashes, are in"
    return paragraph(words, code("run.releases"), "and in the ledger:", code("collegium ledger show ledger.db"))


def _each_release(releases: pd.DataFrame) -> Markup:
    head = ["Site", "Round", "Step", "Kind", "Content", "Protected", "SHA-256 of what was sent", "Ledger entry"]
    rows = [
        [row.party, number(str(row.round)), row.step, row.kind, number(f"{row.bytes:,} B"),
         "yes" if row.protected else "no", code(row.sha256), code(row.entry)]
        for row in releases.itertuples()
    ]  # fmt: skip
    return join([element("h3", "Every release"), style.table(head, rows, title="Every release")])


def _refusals(run: Run) -> Markup:
    if run.refusals.empty:
        return paragraph("No site refused, failed or was missing.")
    by = ["party", "step", "code"] if len(run.refusals) <= _LISTED else ["code", "step"]
    head = [{"party": "Site", "step": "Step", "code": "Code"}[name] for name in by]
    rows = []
    for keys, group in run.refusals.groupby(by, sort=False):
        numbers = [len(group), group["party"].nunique(), group["round"].min(), group["round"].max()]
        meaning = CODES.get(str(group["code"].iloc[0]), UNKNOWN)
        rows.append([*map(str, keys), *(number(f"{n:,}") for n in numbers), meaning])
    return style.table([*head, "Times", "Sites", "First round", "Last round", "Meaning"], rows, title="Refusals")


def _study(run: Run) -> Markup:
    if run.study is not None:
        return element("pre", element("code", run.study))
    words = "This run was started from a program, not from a study file. Its algorithm and settings:"
    return join([paragraph(words), element("pre", element("code", run.about["algorithm"]))])


def _about(run: Run) -> Markup:
    about, machine = run.about, run.environment
    packages = ", ".join(f"{name} {version}" for name, version in machine.get("packages", {}).items())
    pairs = [
        ("Run", code(about["run"])),
        ("Public set (SHA-256)", "none" if about["public_sha256"] is None else code(about["public_sha256"])),
        ("Seed", about["seed"]),
        ("Classes", ", ".join(about["classes"])),
        ("Quorum", f"{about['quorum']:.0%} of the sites" if about["quorum"] else "at least one site"),
        ("Worker processes", about.get("workers", "-")),
        *([("Nets", f"on {about['device']} in {about['precision']}")] if about.get("precision") else []),
        *([("Cohort", run.trained_together)] if run.trained_together else []),
        ("Time", seconds_text(float(about.get("seconds", np.nan)))),
        ("Python", machine.get("python", "-")),
        ("Machine", f"{machine.get('system', '-')} {machine.get('machine', '')}, {machine.get('cores', '-')} cores"),
        ("Versions", packages or "-"),
    ]
    return style.facts(pairs)
