"""A plan: what a coordinator proposes to run, and what a site's owner agrees to by signing its hash.

A plan comes from outside. It is read strictly: known fields only, of known types and bounded sizes, and no characters
that would make a terminal show something else than what is signed.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Final, NoReturn

from collegium.core.steps import INSTALLED
from collegium.errors import ConfigError, WireError
from collegium.secure.messages import MaskedVotes

ANY_PARTY: Final = "*"
"""Stands among a plan's parties where any site of the federation may come, now or later."""
MOST_BYTES: Final = 1 << 22
_MOST: Final = {"classes": 1 << 16, "parties": 10_000, "steps": 500, "learns": 100}
_LONGEST: Final = 2000
_DEEPEST: Final = 8
_SHA256: Final = re.compile(r"[0-9a-f]{64}")

Scalar = str | int | float | bool


@dataclass(frozen=True)
class PlannedStep:
    """One step that may be asked for, and what leaves when it is answered."""

    step: str
    digest: str
    kind: str
    mechanism: dict[str, Any] | None
    """The noise that the site's gate puts on the release, as plain data."""
    rehearsed: bool
    """False: not seen in the rehearsal, but of the same code; asked for when something goes wrong, or never."""
    releases: int = 0
    """How often one site released it in the rehearsal."""
    bytes: int = 0
    """The largest such release in the rehearsal."""

    @classmethod
    def from_plain(cls, plain: Any) -> PlannedStep:
        """From plain data; anything unexpected is a WireError."""
        _check_fields(plain, cls)
        for name in ("step", "digest", "kind"):
            _check_text(plain[name])
        if plain["mechanism"] is not None:
            _check_table(plain["mechanism"])
        if not isinstance(plain["rehearsed"], bool):
            _odd("a step says neither yes nor no")
        for name in ("releases", "bytes"):
            _check_count(plain[name])
        return cls(**plain)


@dataclass(frozen=True)
class Plan:
    """Everything about a run that its sites are asked to agree to."""

    study: str
    algorithm: dict[str, Any]
    seed: int
    classes: tuple[Scalar, ...]
    public_sha256: str | None
    public_rows: int
    parties: tuple[str, ...]
    steps: tuple[PlannedStep, ...]
    complete: bool
    """Whether all rounds were rehearsed: then `releases` counts what the whole run would send."""
    learns: dict[str, str]
    """What each party gets to know."""

    def to_plain(self) -> dict[str, Any]:
        """As plain data."""
        lists = {"classes": list(self.classes), "parties": list(self.parties)}
        return {**asdict(self), **lists, "steps": [asdict(step) for step in self.steps]}

    def to_json(self) -> str:
        """In the one form that is hashed: the same plan is the same text everywhere."""
        return json.dumps(self.to_plain(), sort_keys=True, separators=(",", ":"), allow_nan=False)

    @cached_property
    def digest(self) -> str:
        """What a site signs."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    @classmethod
    def from_json(cls, text: str | bytes) -> Plan:
        """From a file or a message."""
        if len(text) > MOST_BYTES:
            raise WireError(f"A plan of {len(text)} bytes is over the limit of {MOST_BYTES}.")
        try:
            return cls.from_plain(json.loads(text))
        except (ValueError, RecursionError) as error:
            if isinstance(error, ConfigError):
                raise
            raise WireError("This is no plan: it is not valid JSON.") from None

    @classmethod
    def from_plain(cls, plain: Any) -> Plan:
        """From plain data; anything unexpected is a WireError."""
        _check_fields(plain, cls)
        for name, most in _MOST.items():
            if not isinstance(plain[name], dict if name == "learns" else list) or len(plain[name]) > most:
                _odd(f"{name} is no list of at most {most}")
        _check_text(plain["study"])
        _check_table(plain["algorithm"])
        _check_text(plain["algorithm"].get("name"))
        for name in ("seed", "public_rows"):
            _check_count(plain[name])
        sha256 = plain["public_sha256"]
        if sha256 is not None and not (isinstance(sha256, str) and _SHA256.fullmatch(sha256)):
            _odd("the public set's hash is none")
        if not isinstance(plain["complete"], bool):
            _odd("it says neither yes nor no to being complete")
        for name in ("classes", "parties", "learns"):
            _check_values(plain[name])
        if not all(isinstance(text, str) for text in (*plain["parties"], *plain["learns"].values())):
            _odd("names and words are text")
        if any(isinstance(each, dict | list) or each is None for each in plain["classes"]):
            _odd("a class is a number or a word")
        steps = tuple(PlannedStep.from_plain(each) for each in plain["steps"])
        lists = {"classes": tuple(plain["classes"]), "parties": tuple(plain["parties"]), "steps": steps}
        for name in ("classes", "parties"):
            if not lists[name] or len(set(map(repr, lists[name]))) < len(lists[name]):
                _odd(f"{name} are missing, or some stand twice")
        plan = cls(**{**plain, **lists})
        if len(plan.to_json()) > MOST_BYTES:
            _odd(f"it has more than {MOST_BYTES} bytes")
        return plan

    def covers(
        self, step: str, digest: str, mechanism: Mapping[str, Any] | None = None, *, masked: bool = False
    ) -> bool:
        """Is this order one that was planned: this step, in this version, and with this noise or mask on its answer?

        A coordinator that leaves out the noise or the mask which a site agreed to asks for something else.
        """
        kind = answer_kind(step, mechanism, masked=masked)
        return any(
            (each.step, each.digest, each.kind, each.mechanism)
            == (step, digest, kind, None if mechanism is None else dict(mechanism))
            for each in self.steps
        )


def answer_kind(step: str, mechanism: Mapping[str, Any] | None, *, masked: bool) -> str | None:
    """The kind of release that answers a step through this noise or a mask; None where there is no such answer."""
    from collegium.privacy.mechanisms.named import build_mechanism

    if masked:
        return MaskedVotes.kind
    if mechanism is not None:
        try:
            return build_mechanism(dict(mechanism)).gives.kind
        except ConfigError:
            return None
    installed = INSTALLED.get(step)
    return None if installed is None else installed.releases.kind


def same_setting(asked: Any, planned: Any) -> bool:
    """Is an order's argument what the plan's method makes it? Calibrated noise may differ in its last digits."""
    if isinstance(planned, Mapping):
        return (
            isinstance(asked, Mapping)
            and set(asked) == set(planned)
            and all(same_setting(asked[name], planned[name]) for name in planned)
        )
    if isinstance(planned, list | tuple):
        return isinstance(asked, list | tuple) and len(asked) == len(planned) and all(map(same_setting, asked, planned))
    if isinstance(planned, float):
        return (
            isinstance(asked, float | int)
            and not isinstance(asked, bool)
            and math.isclose(asked, planned, rel_tol=1e-9)
        )
    return type(asked) is type(planned) and bool(asked == planned)


def _odd(what: str) -> NoReturn:
    raise WireError(f"This is no plan: {what}.")


def _check_fields(plain: Any, cls: type[Any]) -> None:
    known = {field.name for field in fields(cls)}
    if not isinstance(plain, dict) or set(plain) != known:
        _odd(f"a {cls.__name__} has the fields {', '.join(sorted(known))}, and no others")


def _check_text(value: Any) -> None:
    if not isinstance(value, str) or not 0 < len(value) <= _LONGEST or not value.isprintable():
        _odd(f"a name is no printable text of at most {_LONGEST} characters")


def _check_count(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
        _odd("a number is none that counts something")


def _check_table(value: Any) -> None:
    if not isinstance(value, dict):
        _odd("settings are no table")
    _check_values(value)


def _check_values(value: Any, depth: int = 0) -> None:
    """Plain data only: finite numbers, printable words, lists and tables of them."""
    if depth > _DEEPEST:
        _odd("settings are nested too deeply")
    if isinstance(value, dict):
        for key, inner in value.items():
            _check_text(key)
            _check_values(inner, depth + 1)
        if ":" in str(value.get("name", "")):
            _odd("it names a class in a file; a site runs what is installed there")
    elif isinstance(value, list):
        for inner in value:
            _check_values(inner, depth + 1)
    elif isinstance(value, str):
        if value:
            _check_text(value)
    elif isinstance(value, float):
        if not math.isfinite(value):
            _odd("a number is infinite or none")
    elif isinstance(value, int):
        if abs(value) >= 1 << 63:
            _odd("a number is too large")
    elif value is not None:
        _odd(f"it holds a {type(value).__name__}")
