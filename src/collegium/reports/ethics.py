"""A template for an ethics board or a data-protection impact assessment, filled in as far as a study can tell.

It says what leaves, how often, in how many bytes, and what is claimed about it. It never shows rows, and what a study
cannot know is left to fill in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pandas as pd

from collegium.core.releases import KINDS
from collegium.privacy.claims import SEEDED_NOISE, UNPROTECTED
from collegium.reports.compare import privacy_words
from collegium.reports.style import Markup, element, join, page, paragraph, section, table
from collegium.reports.tables import bytes_text

if TYPE_CHECKING:
    from collegium.runs.results import Run

_CLAIMS: Final = {
    "dp": "differential privacy, whatever the data is and whatever else an attacker knows",
    "conditional": "differential privacy, only if what it rests on is true, which nobody verifies",
    "nominal": "a number without a guarantee",
}
MAKING: Final = "making the public set"
_RELATIONS: Final = {"replace": "replaced by another", "add_remove": "added or removed"}


@dataclass(frozen=True)
class Party:
    """A site, as far as the study describes it."""

    name: str
    learner: str
    policy: str
    budget: str


@dataclass(frozen=True, eq=False)
class Method:
    """One algorithm of the study: what it is, and a run of it, real or rehearsed with made-up rows."""

    label: str
    settings: str
    run: Run
    sizes: pd.Series
    """Bytes of each of the run's releases, at most."""
    learns: Mapping[str, str]
    notes: Sequence[str] = ()
    """What else is to be said of what leaves."""


@dataclass(frozen=True, eq=False)
class Assessment:
    """All that the template is filled in with."""

    title: str
    rehearsed: bool
    """Whether the numbers are those of a rehearsal, not of a run."""
    federated: bool
    parties: Sequence[Party]
    methods: Sequence[Method]


@dataclass(frozen=True)
class Table:
    """Rows of a template under their heads."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


Block = str | list[str] | Table
Section = tuple[str, list[Block]]


def _fill(what: str) -> str:
    return f"[to fill in: {what}]"


def render_ethics(facts: Assessment, *, html: bool) -> str:
    """The template as Markdown or as one HTML page."""
    title = f"{facts.title}: ethics and data protection"
    return render_sections(title, _about(facts), ethics_sections(facts), html=html)


def ethics_sections(facts: Assessment) -> list[Section]:
    """The template as plain data: titles, and what stands under each."""
    return [
        _purpose(facts), _parties(facts), _data(facts), *_leaving(facts), *_claims(facts), _budgets(facts),
        _retention(facts), _risks(facts), _decision(),
    ]  # fmt: skip


def render_sections(title: str, about: str, sections: Sequence[Section], *, html: bool) -> str:
    """Sections as Markdown or as one HTML page; whatever they say is shown as text."""
    return _html(title, about, sections) if html else _markdown(title, about, sections)


def _about(facts: Assessment) -> str:
    source = "a rehearsal of the study with made-up rows" if facts.rehearsed else "a run of the study"
    return (
        f"Filled in by Collegium from {source}. It is a template: whoever signs it checks every statement, and "
        "completes what stands in square brackets."
    )


def _purpose(facts: Assessment) -> Section:
    first = facts.methods[0].run
    classes = ", ".join(str(value) for value in first.classes[:12]) + (", ..." if len(first.classes) > 12 else "")
    methods = "; ".join(f"{method.label}: {method.settings}" for method in facts.methods)
    return "Purpose", [
        f"Models are trained that tell apart: {classes}.",
        f"Method: {methods}.",
        _fill("the question, who benefits from the answer, and why it needs data of several organisations"),
        _fill("the legal basis, and the consent or the waiver for every site"),
    ]


def _parties(facts: Assessment) -> Section:
    rows = [
        [party.name, "site: keeps its rows and its model", party.learner, _fill("name, office, e-mail")]
        for party in facts.parties
    ]
    rows.append(["coordinator", "runs the method; sees what leaves, no rows", "-", _fill("name, office, e-mail")])
    rows.append([_fill("name"), "data protection officer", "-", _fill("e-mail")])
    return "Parties and contacts", [Table(["Party", "Role", "Learner", "Contact"], rows)]


def _data(facts: Assessment) -> Section:
    about = facts.methods[0].run.about
    if facts.federated:
        where = "Private rows stay at their sites: there is no order by which a coordinator can have them."
    else:
        where = "This study is a simulation: the rows of all sites lie on the machine that runs it, and whoever "
        where += "operates it can read them. Between organisations, every site keeps its own."
    size, digest = about.get("public_size") or 0, about.get("public_sha256")
    public = ["There is no public set."]
    if made := about.get("public_made"):
        public = [f"Public set: {size:,} rows that the sites made together, out of sums with noise (SHA-256 {digest})."]
        public.append(f"Making it cost every site, beside what is listed below: {made['said']} (run {made['run']}).")
    elif any(method.label == MAKING for method in facts.methods):
        public = ["Public set: rows that the sites make together, out of sums with noise; what that takes comes first."]
    elif size:
        public = [f"Public set: {size:,} rows without labels that every party may read (SHA-256 {digest})."]
        public.append(
            _fill("where the public rows come from, their license, and why they concern no patient of a site")
        )
    return "Data", [where, _fill("what a private row is, its variables, and how it is pseudonymized"), *public]


def _leaving(facts: Assessment) -> list[Section]:
    sections: list[Section] = []
    for method in facts.methods:
        title = "What leaves each site" + (f" ({method.label})" if len(facts.methods) > 1 else "")
        sections.append((title, _left(method, facts)))
    return sections


def _left(method: Method, facts: Assessment) -> list[Block]:
    releases = method.run.releases.assign(size=method.sizes)
    if releases.empty:
        return ["Nothing leaves any site but that it has done its work."]
    rows = []
    for (step, kind), group in releases.groupby(["step", "kind"], sort=False):
        by_site = group.groupby("party")["size"].agg(["count", "sum"])
        doc = str(KINDS[str(kind)].__doc__ or "").strip().split("\n\n")[0] if str(kind) in KINDS else "unknown here"
        often, most = int(by_site["count"].max()), bytes_text(int(group["size"].max()))
        rows.append(
            [str(step), f"{kind}: {' '.join(doc.split())}", str(often), most, bytes_text(int(by_site["sum"].max()))]
        )
    total = bytes_text(int(releases.groupby("party")["size"].sum().max()))
    counted = "at most, as rehearsed" if facts.rehearsed else "as it was in this run"
    head = ["Step", "What it is", "Times per site", "Bytes each, at most", "Bytes per site in all"]
    learned = method.learns or {
        "coordinator": "; ".join(
            dict.fromkeys(
                KINDS[str(kind)].coordinator_learns or f"each site's {kind}"
                for kind in releases["kind"].unique()
                if str(kind) in KINDS
            )
        ),
        "other sites": "what the coordinator computes from all of them",
    }
    return [
        f"All that leaves, {counted}; one site sends {total} in all. Every release passes the site's gate and is "
        "written to its ledger first.",
        Table(head, rows),
        *method.notes,
        Table(["Who", "Learns"], [[who, what] for who, what in learned.items()]),
    ]


def _claims(facts: Assessment) -> list[Section]:
    return [
        ("Privacy" + (f" ({method.label})" if len(facts.methods) > 1 else ""), _claimed(method.run, facts))
        for method in facts.methods
    ]


def _claimed(run: Run, facts: Assessment) -> list[Block]:
    if run.releases.empty:
        return ["Nothing is released, so that nothing can be learned from releases."]
    said: list[str] = []
    by = ["kind", "unit", "relation", "epsilon", "delta", "assumptions"]
    claims = run.privacy.assign(epsilon=run.privacy["epsilon"].round(6))
    for keys, group in claims.groupby(by, sort=False, dropna=False):
        kind, unit, relation, epsilon, delta, assumptions = keys
        sites = "Every site" if set(group["party"]) == set(run.about["parties"]) else ", ".join(group["party"])
        covered = str(group["covers"].iloc[0])
        if kind == UNPROTECTED:
            said.append(f"{sites}: nothing protects {covered}. Whoever sees them may learn about single records.")
            continue
        text = f"{sites}: epsilon {epsilon:.4g}, delta {delta:.1g}, for one {unit} that is "
        text += f"{_RELATIONS.get(str(relation), relation)}; it covers {covered}. This is {_CLAIMS[str(kind)]}."
        rests = str(assumptions).replace(SEEDED_NOISE, "") if facts.federated else str(assumptions)
        rests = rests.strip("; ")
        said.append(text + (f" It rests on: {rests}." if rests else ""))
    words: list[Block] = [said]
    if set(run.privacy["kind"]) == {"dp"}:
        words.append(privacy_words(run))
    audits = [each.in_words() for each in run.audits]
    return [*words, *([audits] if audits else [])]


def _budgets(facts: Assessment) -> Section:
    rows = [[party.name, party.budget, party.policy] for party in facts.parties]
    note = "A budget is all the privacy that a site may ever spend, over all studies; its gate refuses what would "
    note += "exceed it. A site without one may take part in further studies, whose costs add up."
    return "Budget and policy", [Table(["Site", "Budget", "What it allows"], rows), note]


def _retention(facts: Assessment) -> Section:
    kept = [
        "At a site: the ledger of what left (kinds, sizes, hashes, costs; no rows), the log, and the state of runs. "
        "`collegium site clean` removes the state of runs that have ended; the ledger must stay for as long as a "
        "budget counts.",
        "At the coordinator: the run's folder, with every exchange, the tables and the models that it has.",
        _fill("how long each is kept, by whom it is removed, and what happens if a person objects later"),
    ]
    return "Retention", [kept]


def _risks(facts: Assessment) -> Section:
    every = [run for method in facts.methods for run in [method.run]]
    bare = any((run.privacy["kind"] == UNPROTECTED).any() for run in every if len(run.releases))
    rows = [
        ["Somebody finds out from what a site sent whether a person is in its data.",
         "Not limited by differential privacy: `collegium audit` measures what an attack achieves."
         if bare else "Limited by the claims above."],
        ["Somebody finds out from a model whether a person is in the data.",
         "What leaves of a model is listed above. A site's own model may tell of its rows if it is passed on."],
        ["The public set is about people who did not agree.", "Everybody reads it: it must be free to use."],
        ["A site sends false labels.", "Not detected as such; rules differ in what they bear (docs/consensus.md)."],
        ["A consensus makes models worse, for a site or for a group of patients.",
         "Measured: a simulation compares every site's model with the one it would have had alone; between "
         "organisations, sites score theirs on rows that they hold out. Limited only where the method has guard=True: "
         "each site then takes no more of the consensus than helps it on rows of its own."],
    ]  # fmt: skip
    if facts.federated:
        rows += [
            ["The coordinator, or whoever controls its machine, reads what sites send.",
             "Messages are signed, not sealed: it sees releases, never rows; sums alone where votes are secret."],
            ["A stolen key or kit is used.",
             "It gives no rows: the site's gate, plan and budget hold. Keys are revoked without a restart."],
            ["How long a step takes, or a refusal, tells of a row.",
             "With requires = \"dp\" refusals, sizes and costs do not depend on a record; times may."],
            ["Somebody ends or delays the study.", "Possible for whoever controls the server. Nothing is revealed."],
        ]  # fmt: skip
    rows = [[*row, _fill("likelihood, severity, decision")] for row in rows]
    return "Risks and measures", [Table(["Risk", "Measure", "Assessment"], rows)]


def _decision() -> Section:
    lines = [
        _fill(f"{what}: name, date, signature") for what in ("applicant", "data protection officer", "ethics board")
    ]
    return "Decision", [lines]


def _cell(value: str) -> str:
    return " ".join(value.replace("|", "\\|").replace("<", "&lt;").split())


def _markdown(title: str, about: str, sections: Sequence[Section]) -> str:
    lines = [f"# {_cell(title)}", "", about, ""]
    for number, (name, blocks) in enumerate(sections, start=1):
        lines += [f"## {number}. {_cell(name)}", ""]
        for block in blocks:
            if isinstance(block, str):
                lines += [_cell(block), ""]
            elif isinstance(block, list):
                lines += [*(f"- {_cell(each)}" for each in block), ""]
            else:
                rows = [block.head, ["---"] * len(block.head), *block.rows]
                lines += [*("| " + " | ".join(map(_cell, row)) + " |" for row in rows), ""]
    return "\n".join(lines)


def _html(title: str, about: str, sections: Sequence[Section]) -> str:
    keys = [(f"part-{number}", f"{number}. {name}") for number, (name, _) in enumerate(sections, start=1)]
    parts = [
        section(key, name, *(_markup(block, name) for block in blocks))
        for (key, name), (_, blocks) in zip(keys, sections, strict=True)
    ]
    head = join([element("h1", title), paragraph(about, class_="meta")])
    foot = paragraph("Made with Collegium. This page loads nothing and runs no script.")
    return page(title, head, join(parts), keys, foot)


def _markup(block: Block, name: str) -> Markup:
    if isinstance(block, str):
        return paragraph(block)
    if isinstance(block, list):
        return element("ul", join(element("li", each) for each in block))
    return table(list(block.head), [list(row) for row in block.rows], title=name)
