"""One site answers the link with whatever does most harm: it is refused, and the others' run is as without it."""

from __future__ import annotations

import hashlib
import struct
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.flare.coordinator.test_link import carry_out, study
from tests.flare.offices import OfficeHost

from collegium import wire
from collegium.flare.site.office import Office
from collegium.wire.replies import Reply, read_reply

pytestmark = pytest.mark.filterwarnings("ignore::collegium.errors.CollegiumWarning")


@pytest.fixture(autouse=True)
def _traced() -> Iterator[None]:
    yield
    tracemalloc.stop()


def raw(head: bytes, body: bytes = b"") -> bytes:
    return b"CLG2" + struct.pack(">II", len(head), len(body)) + head + body


def altered(how: Callable[[Reply], tuple[dict[str, Any], bytes]]) -> Callable[[bytes], bytes]:
    """The site's own reply, with another row or another release."""

    def change(answer: bytes) -> bytes:
        header, frame = wire.cut(answer)
        if header["state"] != "done":
            return answer
        reply = read_reply(frame)
        assert isinstance(reply, Reply)
        row, payload = how(reply)
        return wire.join(header, wire.join({"number": reply.number, "row": asdict(reply.row) | row}, payload))

    return change


def released(payload: bytes) -> Callable[[bytes], bytes]:
    """Something else in the place of its release, and the right hash."""
    return altered(lambda reply: ({"sha256": hashlib.sha256(payload).hexdigest(), "bytes": 0}, payload))


def priced(text: str) -> Callable[[bytes], bytes]:
    """It says something else of what it costs."""
    return altered(lambda reply: ({"privacy": text}, reply.payload))


DEEP = b'{"labels":' + b"[" * 700 + b"]" * 700 + b"}"
FREE = b'{"labels":[' + b",".join([b'{"$labels":[1,0,[67108863,1]]}'] * 100) + b"]}"
ORDERS: dict[str, Callable[[bytes], bytes]] = {
    "nested 700 deep": released(raw(DEEP)),
    "labels that cost nothing": released(raw(FREE)),
    "a hundred thousand lists": released(raw(b'{"labels":[' + b",".join([b"[]"] * 100_000) + b"]}")),
    "far more labels than public rows": released(wire.pack({"labels": np.zeros(30_000_000, np.uint8)}).data),
    "a price nested 700 deep": priced("[" * 700 + "]" * 700),
    "a price of many parts": priced("[" + "[]," * 1_000_000 + "[]]"),
    "more than the plan's largest release": lambda answer: wire.cut(answer)[0] and wire.join({"state": "done"}, HUGE),
    "noise": lambda answer: b"\0" * 1000,
    "nothing": lambda answer: b"",
    "a header that grows": lambda answer: raw(FREE),
    "a state that is no word": lambda answer: wire.join({"state": ["done"]}, b""),
    "a code for the terminal": lambda answer: wire.join({"state": "refused", "code": "\x1b]0;owned\x07"}, b""),
}
HUGE = bytes(65 << 20)


class Hostile:
    """A site that says something else in answer to one kind of message."""

    def __init__(self, office: Office, what: str, change: Callable[[bytes], bytes]) -> None:
        self._office, self._what, self._change = office, what, change

    def answer(self, message: bytes) -> bytes:
        answer = self._office.answer(message)
        asked = wire.cut(message)[0]["do"].replace("await", "order")  # the reply to an order that took long
        if asked != self._what:
            return answer
        tracemalloc.start()  # not before: what is traced takes three times as long
        return self._change(answer)


def run_with(host: OfficeHost, kits: Path, what: str, change: Callable[[bytes], bytes]) -> tuple[Any, list[str]]:
    said: list[str] = []
    host.offices["site-2"] = Hostile(host.offices["site-2"], what, change)  # type: ignore[assignment]
    short = study(algorithm__rounds=1, federation__metrics=False)
    return carry_out(host, kits, study=short, say=said.append), said


@pytest.mark.parametrize("how", ORDERS)
def test_a_site_cannot_end_the_others_study_with_its_reply(host: OfficeHost, kits: Path, how: str) -> None:
    run, said = run_with(host, kits, "order", ORDERS[how])
    assert 0 < tracemalloc.get_traced_memory()[1] < 4 * len(HUGE)
    assert set(run.refusals["party"]) == {"site-2"}
    assert set(run.refusals["code"]) == {"bad-reply"}
    assert len(run.labels) == 150
    assert len(host.sessions) == 1, "nor can it make the others begin again"
    assert "".join(said).isprintable()


@pytest.mark.parametrize(
    ("have", "code"), [(0, "no-public-set"), (1 << 40, "bad-reply"), (-(10**15), "bad-reply"), ("x", "bad-reply")]
)
def test_a_site_that_asks_for_the_public_set_for_ever(host: OfficeHost, kits: Path, have: object, code: str) -> None:
    run, _ = run_with(host, kits, "open", lambda answer: wire.join({"state": "needs-public", "have": have}, b""))
    assert dict(zip(run.refusals["party"], run.refusals["code"], strict=True)) == {"site-2": code}
    assert host.requests < 30


@pytest.mark.parametrize(
    "how", ["noise", pytest.param("nothing", marks=pytest.mark.slow), "a header that grows", "a code for the terminal"]
)
@pytest.mark.parametrize("what", ["hello", "open", pytest.param("close", marks=pytest.mark.slow)])
def test_nor_with_any_other_answer(host: OfficeHost, kits: Path, what: str, how: str) -> None:
    run, said = run_with(host, kits, what, ORDERS[how])
    assert set(run.refusals["party"]) <= {"site-2"}
    assert set(run.refusals["code"]) <= {"bad-reply", "other-version"}
    assert len(run.labels) == 150
    assert "".join(said).isprintable()
