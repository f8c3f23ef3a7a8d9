"""Real messages in both directions, recorded from a run over the link: what mutants are made of."""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.contracts.test_releases import EXAMPLES
from tests.flare.offices import OfficeHost, write_data, write_site

from collegium import wire
from collegium.core.releases import Release
from collegium.flare.coordinator.coordinate import coordinate
from collegium.study.study import Study
from collegium.wire.replies import Reply, Row, write_reply

STUDY = {
    "name": "test",
    "data": {"source": "public.csv"},
    "algorithm": {"name": "fedct", "rounds": 2},
    "federation": {"classes": ["benign", "malignant"], "metrics": False, "wait": 0.2},
}


def record(folder: Path) -> tuple[OfficeHost, dict[str, bytes]]:
    """A site that has taken part in a run, and the last message of each kind that it was sent there."""
    write_data(folder, ["site-1"])
    write_site(folder / "site-1", "site-1")
    host, sent = OfficeHost({"site-1": folder / "site-1"}), dict[str, bytes]()

    def keep(party: str, message: bytes) -> None:
        sent[wire.cut(message)[0]["do"]] = message

    host.before_request = keep  # type: ignore[method-assign]
    coordinate(Study.from_dict(STUDY), host, base=folder, out=folder / "out", progress=False)
    words = wire.cut(sent["order"])[0]
    sent["await"] = wire.join(words | {"do": "await"}, b"")
    sent["cancel"] = wire.join({name: words[name] for name in ("run", "order")} | {"do": "cancel"}, b"")
    return host, {kind: _impatient(message) for kind, message in sent.items()}


def _impatient(message: bytes) -> bytes:
    """The same, without time to wait for an answer."""
    words, payload = wire.cut(message)
    return wire.join(words | {"wait": 0.0}, payload) if "wait" in words else message


def replies() -> dict[str, list[bytes]]:
    """Whole and correct answers with every kind of release, to order number 1."""
    return {kind: [_reply(release) for release in examples] for kind, examples in EXAMPLES.items()}


def _reply(release: Release) -> bytes:
    packed = wire.pack(release.to_plain())
    row = Row(release.kind, packed.content_bytes, hashlib.sha256(packed.data).hexdigest(), "0" * 64, None)
    return wire.join({"state": "done"}, write_reply(Reply(1, row, packed.data)))
