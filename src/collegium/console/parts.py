"""Parts of the pages of `collegium watch` that the server makes anew whenever they are asked for."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from starlette.responses import HTMLResponse

from collegium.console.access import Visit
from collegium.console.following import Follower
from collegium.console.inspection import PATIENCE, Inspection
from collegium.console.page import Markup, button, element, form, fragment, join
from collegium.errors import StorageError
from collegium.reports import style
from collegium.reports.style import code, number, paragraph

ROWS: Final = 50
"""Rows of the ledger on one page."""
_LATER: Final = (
    f"What was spent is worked out at the end of the run, and before that once it has gone on for {PATIENCE / 60:.0f} "
    "minutes: that takes seconds of a processor, which are the run's."
)
_WITH_PRIVACY: Final = "The hash chain is verified whenever the privacy that was spent is worked out."


def controls(follower: Follower, n: int, visit: Visit, message: object = "") -> HTMLResponse:
    """What its owner may do with the run now."""
    return fragment(_actions(follower, n, visit), message)


def _actions(follower: Follower, n: int, visit: Visit) -> Markup:
    if not visit.may_act:
        return Markup("")
    state, can = follower.state, follower.history.command is not None
    parts: list[object] = []
    if state == "running":
        sure = "Stop the run? What it has done is kept, and it can be continued."
        stop = button("Stop", kind="danger")
        parts.append(form(f"/run/{n}/stop", visit, stop, confirm=sure, hx_target="#actions", hx_swap="innerHTML"))
    if state in ("interrupted", "failed", "killed") and can and not follower.is_starting:
        resume = button("Resume")
        parts.append(form(f"/run/{n}/resume", visit, resume, hx_target="#actions", hx_swap="innerHTML"))
    if (follower.folder / "report.html").is_file():
        parts.append(element("a", "Download the report", href=f"/run/{n}/report", class_="button quiet"))
    return join(parts)


def privacy_part(inspection: Inspection, n: int, visit: Visit) -> HTMLResponse:
    """The privacy that was spent, as of the last time that it was worked out."""
    again = form(f"/run/{n}/privacy", visit, button("Work it out now", kind="quiet"), hx_target="#privacy-now")
    found, soon = inspection.found, _soon(f"/run/{n}/privacy", "#privacy-now") if inspection.is_at_work else ""
    if found is None:
        working = "The privacy that was spent is being worked out." if inspection.is_at_work else _LATER
        button_too = again if visit.may_act and not inspection.is_at_work else ""
        return fragment(paragraph(inspection.problem or working), button_too, soon)
    when = time.strftime("%H:%M:%S", time.localtime(inspection.when))
    as_of = paragraph(f"As of {when}, after {found['rounds']:,} rounds.", class_="meta")
    concerns = [paragraph(text, class_="warning") for text in found["concerns"]]
    # The report's own mark-up, from our own process: whatever it quotes was escaped there.
    chain = _chain(inspection, hx_swap_oob="true") if found["ledger"] is not None else ""
    return fragment(*concerns, Markup(found["privacy"]), as_of, again if visit.may_act else "", soon, chain)


def ledger_part(follower: Follower, inspection: Inspection, n: int, after: int, party: str) -> HTMLResponse:
    """Whether the chain is whole, and the rows of the ledger, the latest first."""
    file = follower.folder / "ledger.db"
    if not file.is_file():
        words = "Each site keeps its own ledger, at the site. The coordinator keeps the hash of every entry; these "
        words += "are the latest releases."
        return fragment(paragraph(words), element("div", "", id="latest"))
    soon = _soon(f"/run/{n}/ledger?after={after}", "#ledger-now") if inspection.is_at_work else ""
    parts: list[object] = [_chain(inspection), soon]
    rows, total = read_rows(file, after, party)
    head = ["Site", "Entry", "Time", "Round", "Step", "Kind", "Content", "Protection", "SHA-256 of what was sent"]
    listed = [
        [row["party"], number(str(row["seq"])), row["time"], number(str(row["round"])), row["step"], row["kind"],
         number(f"{row['bytes']:,} B"), row["claim"] or "unprotected", code(row["sha256"][:16])]
        for row in rows
    ]  # fmt: skip
    parts.append(style.table(head, listed, title="Ledger") if listed else paragraph("Nothing has left any site yet."))
    first, last = min(after + 1, total), min(after + ROWS, total)
    ways = (("Newer", max(0, after - ROWS), after > 0), ("Older", after + ROWS, last < total))
    turn = [_turn(words, f"/run/{n}/ledger?after={start}") for words, start, there in ways if there]
    if total:
        parts.append(element("p", join([f"{first:,} to {last:,} of {total:,} releases ", *turn]), class_="meta"))
    return fragment(*parts)


def _soon(url: str, target: str) -> Markup:
    """Has the browser ask again: what is being worked out is not waited for."""
    return element("span", "", hx_get=url, hx_target=target, hx_trigger="load delay:1s", hx_swap="innerHTML")


def _turn(words: str, url: str) -> Markup:
    return element("button", words, type="button", class_="button quiet", hx_get=url, hx_target="#ledger-now")


def _chain(inspection: Inspection, **where: str) -> Markup:
    """What is known of the chain, in a place of its own: it is put in again when the privacy is."""
    words, kind = _of_chain(inspection)
    return element("p", words, class_=kind, id="chain", **where)


def _of_chain(inspection: Inspection) -> tuple[str, str]:
    ledger = None if inspection.found is None else inspection.found["ledger"]
    if ledger is None:
        working = "The hash chain is being verified." if inspection.is_at_work else _WITH_PRIVACY
        return inspection.problem or working, "meta"
    if "broken" in ledger:
        return f"The ledger is not whole: {ledger['broken']}", "notice bad"
    when, total = time.strftime("%H:%M:%S", time.localtime(inspection.when)), sum(ledger["rows"].values())
    return f"Hash chain intact: {total:,} releases, verified at {when}.", "notice good"


def read_rows(file: Path, after: int, party: str) -> tuple[list[dict[str, Any]], int]:
    """Rows of a ledger, the latest first, and how many there are. Salts stay in the file."""
    where, args = ("WHERE party = ?", [party]) if party else ("", [])
    columns = "party, seq, time, round, step, kind, bytes, claim, sha256"
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True, timeout=5)) as db:
            db.row_factory = sqlite3.Row
            total = int(db.execute(f"SELECT COUNT(*) FROM ledger {where}", args).fetchone()[0])  # noqa: S608
            query = f"SELECT {columns} FROM ledger {where} ORDER BY rowid DESC LIMIT ? OFFSET ?"  # noqa: S608
            return [dict(row) for row in db.execute(query, [*args, ROWS, after])], total
    except sqlite3.DatabaseError:
        raise StorageError(f"Cannot read {file}: it is damaged, or of another kind.") from None
