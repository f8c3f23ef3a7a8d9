"""All that a site's owner can show to others: decisions, releases, refusals and the budget, in one signed file.

An export is JSON, an HTML page, or CSV tables in a zip archive. Its last line says which site signed it, with which
identity and signature: an Ed25519 signature of every other byte of the file. It has no row of data, and nothing of what
a release held.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import zipfile
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal

from collegium import __version__
from collegium.errors import ConfigError, LedgerError, StorageError
from collegium.flare.site.desk import Desk
from collegium.flare.site.export_page import export_page
from collegium.flare.site.file import LEDGER
from collegium.flare.site.overview import decided_plans, installation_of, ledger_of, moment, site_runs
from collegium.flare.site.spending import SpendingReader
from collegium.privacy.claims import NOT_PUBLISHED, UNPROTECTED
from collegium.protocols import primitives
from collegium.protocols.keys import SiteKeys
from collegium.protocols.primitives import bind
from collegium.site.ledger import read_ledger, read_refusals, storage_errors, verify_ledger

Form = Literal["json", "html", "csv"]
SUFFIXES: Final[dict[Form, str]] = {"json": ".json", "html": ".html", "csv": ".zip"}
_PURPOSE: Final = "collegium export v1"
_PLACE: Final = "0" * 128
_TAIL: Final = re.compile(
    rb"collegium-signature site=(?P<site>[A-Za-z0-9][A-Za-z0-9_.-]{0,99}) identity=(?P<identity>[0-9a-f]{64}) "
    rb"ed25519=(?P<signature>[0-9a-f]{128})"
)
_TAIL_BYTES: Final = 512
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""How a cell begins that a spreadsheet would compute."""


@dataclass(frozen=True)
class Signed:
    """Who signed an export."""

    site: str
    identity: str
    sha256: str
    """Of the whole file."""


def export(desk: Desk, form: Form) -> bytes:
    """The site's records as one signed file."""
    facts = facts_of(desk)
    tail = f"collegium-signature site={desk.keys.party} identity={desk.keys.identity} ed25519={_PLACE}"
    if form == "json":
        body = json.dumps(facts, indent=1)
        content = f'{body.removesuffix("}").rstrip()},\n "signed": {json.dumps(tail)}\n}}\n'.encode()
    elif form == "html":
        content = f"{export_page(facts)}<!-- {tail} -->\n".encode()
    else:
        content = _archive(facts, tail)
    return _sign(content, desk.keys)


def facts_of(desk: Desk) -> dict[str, Any]:
    """What an export says, as plain data; a LedgerError where the ledger or the journal was changed."""
    ledger = desk.kit / LEDGER
    chain = verify_ledger(ledger) if ledger.is_file() else {}
    rows = read_ledger(ledger) if ledger.is_file() else []
    spending = SpendingReader(desk).read()
    decisions = desk.approvals.journal.entries()
    return {
        "about": {
            "what": "the records of a site in a Collegium federation",
            "site": desk.file.name,
            "identity": desk.keys.identity,
            "installation": installation_of(desk),
            "time": moment(datetime.now(UTC)),
            "version": __version__,
            "releases in the ledger": sum(chain.values()),
            "last hash of the ledger": rows[-1]["hash"] if rows else "",
            "last hash of the journal": decisions[-1].hash if decisions else "",
        },
        "pause": None if desk.pause is None else asdict(desk.pause),
        "budget": {
            "epsilon": spending.limit,
            "delta": spending.delta,
            "spent": spending.spent,
            "left": spending.left,
            "problem": spending.problem,
            "over time": [asdict(point) for point in spending.points],
        },
        "runs": [_run_facts(asdict(each)) for each in site_runs(desk)],
        "decisions": [asdict(each) for each in decisions],
        "releases": [{key: row[key] for key in _RELEASE} | {"claim": _claim(row["claim"])} for row in rows],
        "refusals": [_refusal(row) for row in (read_refusals(ledger) if ledger.is_file() else [])],
        "refusals kept": ledger_of(desk).count("refusal"),
        "plans": {each.digest: each.to_plain() for each in _plans(desk)},
    }


_RELEASE: Final = (
    "seq", "time", "run", "number", "round", "step", "kind", "bytes", "wire_bytes", "sha256", "claim", "hash",
)  # fmt: skip


def _claim(text: str | None) -> str:
    """A release's claim, for others to read: a cost that depends on votes stays in the ledger."""
    if text is None:
        return UNPROTECTED
    return "depends on private data: only in the ledger" if NOT_PUBLISHED in text else text


def _plans(desk: Desk) -> list[Any]:
    return [*desk.approvals.pending(), *(each.plan for each in decided_plans(desk.approvals))]


def _run_facts(run: dict[str, Any]) -> dict[str, Any]:
    released = run.pop("released") or {"releases": 0, "bytes": 0, "unprotected": 0}
    return run | {name: released[name] for name in ("releases", "bytes", "unprotected")}


def _refusal(row: dict[str, Any]) -> dict[str, Any]:
    return {key: row[key] for key in ("time", "run", "number", "step", "code")}


def _archive(facts: dict[str, Any], tail: str) -> bytes:
    made = io.BytesIO()
    tables = {name: facts[name] for name in ("decisions", "releases", "refusals", "runs")}
    tables["budget"] = facts["budget"]["over time"]
    tables["about"] = [{"what": key, "value": value} for key, value in facts["about"].items()]
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, rows in tables.items():
            archive.writestr(zipfile.ZipInfo(f"{name}.csv", (1980, 1, 1, 0, 0, 0)), _table(rows))
        archive.comment = tail.encode()
    return made.getvalue()


def _table(rows: list[dict[str, Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    if rows:
        writer.writerow(rows[0])
        writer.writerows([_cell(value) for value in row.values()] for row in rows)
    return text.getvalue().encode()


def _cell(value: Any) -> str:
    """A cell as text. What a coordinator or a person wrote must not become a formula in a spreadsheet."""
    shown = json.dumps(value) if isinstance(value, dict | list) else "" if value is None else str(value)
    is_text = isinstance(value, str) and shown.startswith(_FORMULA)
    return f"'{shown}" if is_text else shown


def _sign(content: bytes, keys: SiteKeys) -> bytes:
    before, place, after = content.rpartition(_PLACE.encode())
    if not place:
        raise StorageError("An export has no place for its signature.")
    signature = primitives.sign(keys.secret, _message(before, after)).hex()
    return before + signature.encode() + after


def _message(before: bytes, after: bytes) -> bytes:
    return bind(_PURPOSE, hashlib.sha256(bind(before, after)).digest())


def verify_export(file: str | Path, identity: str | None = None) -> Signed:
    """Who signed an export; a LedgerError if any of its bytes was changed, or by another identity than `identity`."""
    path = Path(file)
    if not path.is_file():
        raise ConfigError(f"There is no export {path}.")
    with storage_errors(path, StorageError):
        content = path.read_bytes()
    tails = list(_TAIL.finditer(content, max(0, len(content) - _TAIL_BYTES)))
    if not tails:
        raise LedgerError(f"{path} has no signature: it is not an export, or its end was cut off.")
    found = tails[-1]
    signed = Signed(found["site"].decode(), found["identity"].decode(), hashlib.sha256(content).hexdigest())
    before, after = content[: found.start("signature")], content[found.end("signature") :]
    public, signature = bytes.fromhex(signed.identity), bytes.fromhex(found["signature"].decode())
    if not primitives.is_signed(public, signature, _message(before, after)):
        raise LedgerError(f"{path} was changed after {signed.site} signed it: ask the site for another export.")
    if identity is not None and identity.lower() != signed.identity:
        raise LedgerError(f"{path} was signed by the identity {signed.identity}, not by the one that you gave.")
    return signed
