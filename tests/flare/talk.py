"""What a coordinator says to an office, word by word: for tests of what it must not get."""

from __future__ import annotations

from typing import Any

from collegium import wire
from collegium.core.steps import Order
from collegium.flare.agreement.planning import Plan
from collegium.flare.site.office import Office
from collegium.flare.site.public_store import pack_public

RUN = "0123456789abcdef" * 2


def say(office: Office, payload: bytes = b"", **words: Any) -> tuple[dict[str, Any], bytes]:
    """One message; the header and the payload of the answer."""
    return wire.cut(office.answer(wire.join(words, payload)))


def open_run(office: Office, plan: Plan, public: Any, run: str = RUN) -> str:
    """As the link does; the state that the office ends in, or the code of its refusal."""
    data = pack_public(public)
    header, _ = say(office, wire.pack(plan.to_plain()).data, do="open", run=run)
    if header["state"] == "needs-public":
        say(office, data, do="public", run=run, sha256=plan.public_sha256, offset=0, total=len(data))
        header, _ = say(office, wire.pack(plan.to_plain()).data, do="open", run=run)
    return str(header.get("code", header["state"]))


def frame(
    number: int,
    *orders: Order[Any],
    run: str = RUN,
    sha256: str | None = None,
    mechanism: dict[str, Any] | None = None,
    mask: dict[str, Any] | None = None,
) -> bytes:
    """Orders under one number; noise or a mask are for the last one."""
    batch = [
        {"number": number, "round": 0, "step": each.step, "digest": each.digest, "args": each.args} for each in orders
    ]
    batch[-1] |= {name: value for name, value in (("mechanism", mechanism), ("mask", mask)) if value is not None}
    payload = wire.pack({"orders": batch}).data
    return wire.join({"run": run, "last": number, "public": sha256}, payload)


def inner(reply: bytes) -> dict[str, Any]:
    """What the header of a site's reply says, its row of the ledger included."""
    header = wire.cut(reply)[0]
    return header | (header.pop("row", None) or {})


def give(office: Office, sent: bytes, name: str = "a", wait: float = 30.0, run: str = RUN) -> dict[str, Any]:
    """Give an order; the header of the site's answer, or the office's own."""
    header, payload = say(office, sent, do="order", run=run, order=name, wait=wait)
    return inner(payload) if header["state"] == "done" else header


def code_of(header: dict[str, Any]) -> str:
    """The kind of release that came, or the code of the refusal."""
    return str(header.get("kind") or header.get("refused") or header.get("code"))
