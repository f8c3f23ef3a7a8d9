"""A plan: what a coordinator proposes to run, and what a site's owner agrees to by signing its hash.

A plan comes from outside. It is read strictly: known fields only, of known types and bounded sizes, and no characters
that would make a terminal show something else than what is signed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, ConfigDict, Field, PlainValidator, StrictBool, TypeAdapter, ValidationError

from collegium import __version__
from collegium.core.releases import BlindedSpellings, NoisyCounts, Release
from collegium.core.steps import INSTALLED
from collegium.errors import ConfigError, WireError
from collegium.flare import PROTOCOL
from collegium.secure.messages import MaskedCounts, MaskedVotes, MaskedWords
from collegium.wire.limits import PLAN

ANY_PARTY: Final = "*"
"""Stands among a plan's parties where any site of the federation may come, now or later."""
MOST_BYTES: Final = PLAN.head
_LONGEST: Final = 2000
_DEEPEST: Final = 8
_EXACT: Final = ConfigDict(extra="forbid")

T = TypeVar("T")
Scalar = str | int | float | bool


def _plain(value: T, depth: int = 0) -> T:
    """Plain data only: finite numbers, printable text, lists and tables of them."""
    if depth > _DEEPEST:
        raise ValueError("settings are nested too deeply")
    if isinstance(value, dict):
        if not all(isinstance(name, str) and name for name in value):
            raise ValueError("a setting has no name")
        if ":" in str(value.get("name", "")):
            raise ValueError("it names a class in a file, but a site runs only what is installed there")
        for inner in (*value, *value.values()):
            _plain(inner, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _plain(inner, depth + 1)
    elif isinstance(value, str):
        if len(value) > _LONGEST or not value.isprintable():
            raise ValueError(f"text must be printable, with at most {_LONGEST} characters")
    elif isinstance(value, int | float):
        if not (abs(value) < 1 << 63 if isinstance(value, int) else math.isfinite(value)):
            raise ValueError("a number is NaN, infinite or too large")
    elif value is not None:
        raise ValueError(f"expected plain data, got {type(value).__name__}")
    return value


def _scalar(value: Any) -> Any:
    if not isinstance(value, Scalar):
        raise ValueError("a class must be a number or text")
    return _plain(value)


def _named(settings: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(settings.get("name"), str) or not settings["name"]:
        raise ValueError("it has no name")
    return settings


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(set(map(repr, values))) < len(values):
        raise ValueError("something is listed twice")
    return values


_Name = Annotated[str, Field(strict=True, min_length=1), AfterValidator(_plain)]
_Count = Annotated[int, Field(strict=True, ge=0, lt=1 << 63)]
_Table = Annotated[dict[str, Any], AfterValidator(_plain)]


@dataclass(frozen=True)
class PlannedStep:
    """One step that may be asked for, and what leaves when it is answered."""

    __pydantic_config__ = _EXACT

    step: _Name
    digest: _Name
    kind: _Name
    mechanism: _Table | None
    """The noise that the site's gate puts on the release, as plain data."""
    rehearsed: StrictBool
    """False: declared, but not seen in the rehearsal: asked for when something goes wrong, or never."""
    releases: _Count = 0
    """How often one site released it in the rehearsal."""
    bytes: _Count = 0
    """The largest such release in the rehearsal."""
    most: _Count = 0
    """How often one site may be asked for the step in one run."""


@dataclass(frozen=True)
class Plan:
    """Everything about a run that its sites are asked to agree to."""

    __pydantic_config__ = _EXACT

    study: _Name
    algorithm: Annotated[_Table, AfterValidator(_named)]
    seed: _Count
    classes: Annotated[
        tuple[Annotated[Scalar, PlainValidator(_scalar)], ...],
        Field(min_length=1, max_length=1 << 16),
        AfterValidator(_distinct),
    ]
    public_sha256: Annotated[str, Field(strict=True, pattern="^[0-9a-f]{64}$")] | None
    public_rows: _Count
    parties: Annotated[tuple[_Name, ...], Field(min_length=1, max_length=10_000), AfterValidator(_distinct)]
    steps: Annotated[tuple[PlannedStep, ...], Field(max_length=500)]
    complete: StrictBool
    """Whether all rounds were rehearsed: then `releases` counts what the whole run would send."""
    version: Annotated[str, Field(strict=True), AfterValidator(_plain)] = __version__
    """The coordinator's version of Collegium."""
    protocol: _Count = PROTOCOL
    """What it says to sites; both must mean the same."""
    metrics: Annotated[tuple[_Name, ...], Field(max_length=50), AfterValidator(_distinct)] = ()
    """What sites are asked to measure on their held-out rows, beside accuracy."""

    def to_plain(self) -> dict[str, Any]:
        """As plain data."""
        lists = {"classes": list(self.classes), "parties": list(self.parties), "metrics": list(self.metrics)}
        plain = {**asdict(self), **lists, "steps": [asdict(step) for step in self.steps]}
        if not self.metrics:
            del plain["metrics"]
        return plain

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
            plain = json.loads(text)
        except (ValueError, RecursionError):
            raise WireError("This is not a plan: it is not valid JSON.") from None
        return cls.from_plain(plain)

    @classmethod
    def from_plain(cls, plain: Any) -> Plan:
        """From plain data; anything unexpected is a WireError."""
        try:
            plan = _PLAN.validate_python(plain)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            # Names that somebody else chose are not shown: they need not be printable.
            where = [str(part) for part in first["loc"] if isinstance(part, int) or part in _FIELDS]
            problem = first["msg"].removeprefix("Value error, ")
            raise WireError(f"This is not a plan: {'.'.join(where) or 'fields'}: {problem}.") from None
        if plan.to_plain() != plain:
            raise WireError("This is not a plan: a field is missing.")
        if len(plan.to_json()) > MOST_BYTES:
            raise WireError(f"A plan has at most {MOST_BYTES} bytes.")
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

    if mechanism is not None:
        try:
            bare: type[Release] | None = build_mechanism(dict(mechanism)).gives
        except ConfigError:
            return None
    else:
        bare = INSTALLED[step].releases if step in INSTALLED else None
    if masked:
        return _MASKED.get(bare, MaskedVotes).kind
    return None if bare is None else bare.kind


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


_MASKED: Final[dict[type[Release] | None, type[Release]]] = {NoisyCounts: MaskedCounts, BlindedSpellings: MaskedWords}
"""What leaves of a release that is masked, where that is not votes."""
_PLAN: Final = TypeAdapter(Plan)
_FIELDS: Final = {field.name for cls in (Plan, PlannedStep) for field in fields(cls)}
