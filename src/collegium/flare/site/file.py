"""`site.toml`: what a site brings to a federation and what it allows there. Its owner writes it, nobody else.

The file lies in the site's kit and never leaves it. It names the data, the learner, the policy and the budget; the
coordinator learns only what passes the gate.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, Field

from collegium import registry
from collegium.core.building import build
from collegium.errors import ConfigError
from collegium.flare.kits.kit import kind_of
from collegium.flare.operations.settings import MetricsSection
from collegium.study.sections import File, Section, read_toml, validate

SITE_FILE: Final = "site.toml"
LEDGER: Final = Path("agent") / "ledger.db"
_SOURCES: Final = ("source", "database", "entry_point")


def _hash(text: str) -> str:
    if not re.fullmatch(r"[0-9a-f]{64}", text):
        raise ConfigError("expected 64 hexadecimal digits, as `collegium site init` and `check` show them.")
    return text


Hash = Annotated[str, AfterValidator(_hash)]


class SiteData(Section):
    """Where the site's rows are: a file, a query to a database, or a function installed here. One of the three."""

    source: str | None = Field(None, description="a CSV, Parquet or npz file; a relative path starts at the kit")
    database: str | None = Field(None, description="SQLAlchemy's address; ${NAME} is taken from the environment")
    query: str | None = Field(None, description="the SQL query that gives the rows")
    entry_point: str | None = Field(None, description="a function of the entry-point group collegium.site_data")
    target: str | None = Field(None, description="the column (or array) that holds the labels")
    columns: list[str] | None = Field(None, min_length=1, description="the features to use, in this order")
    held_out: float = Field(0.0, ge=0, lt=1, description="share of the rows kept from training, to measure with")
    unlabeled: str | None = Field(None, description="a file of rows without labels")

    def check(self) -> None:
        """Exactly one source, with the settings that belong to it."""
        given = [name for name in _SOURCES if getattr(self, name) is not None]
        if len(given) != 1:
            raise ConfigError(
                f"data: expected exactly one of source, database and entry_point, got {' and '.join(given) or 'none'}."
            )
        for name in ("query", "target"):
            if self.database is not None and getattr(self, name) is None:
                raise ConfigError(f"data.{name}: this setting is needed with database.")
        if self.database is None and self.query is not None:
            raise ConfigError("data.query: a query needs a database; add the setting database.")
        if self.entry_point is not None and self.target is not None:
            raise ConfigError("data.target: an entry point returns X and y; leave target out.")
        if self.columns is not None:
            twice = sorted({name for name in self.columns if self.columns.count(name) > 1})
            if twice:
                raise ConfigError(f"data.columns: {twice[0]!r} is listed twice.")
            if self.target in self.columns:
                raise ConfigError(
                    f"data.columns: {self.target!r} holds the labels and cannot be a feature; leave it out."
                )


class SitePolicy(Section):
    """What may run here and what may leave. Names may hold ``*``."""

    algorithms: list[str] = Field(["*"], description="algorithms that this site takes part in")
    steps: list[str] = Field(["*"], description="steps that may run here")
    unprotected: list[str] = Field(["*"], description="kinds of release that may leave without a privacy mechanism")
    requires: Literal["dp"] | None = Field(None, description="dp: nothing leaves without differential privacy")
    max_release_bytes: int = Field(1 << 30, ge=0, description="the largest single release")
    max_run_bytes: int = Field(1 << 36, ge=0, description="all releases of one run together")
    max_message_bytes: int = Field(1 << 30, ge=1 << 10, description="the largest message that is accepted")
    public_sha256: Hash | None = Field(None, description="the only public set that this site answers about")
    approval: Literal["auto", "plan", "each"] = Field(
        "plan", description="auto: the policy decides; plan: a person signs each plan; each: a person signs each order"
    )

    def check(self) -> None:
        """Names that exist."""
        known = registry.names("algorithm")
        for pattern in self.algorithms:
            if not re.search(r"[*?\[]", pattern) and pattern not in known:
                raise ConfigError(
                    f"policy.algorithms: unknown algorithm {pattern!r}.{registry.nearest(pattern, known)} "
                    f"Known: {', '.join(known)}."
                )


class SiteBudget(Section):
    """All the privacy that the site may ever spend; how much it has spent is in its ledger."""

    epsilon: float = Field(gt=0, allow_inf_nan=False)
    delta: float = Field(1e-5, gt=0, lt=1)


class SitePublic(Section):
    """The public set: the site's own copy, or none, and then the coordinator sends it."""

    path: str | None = Field(None, description="the site's own copy; a relative path starts at the kit")
    target: str | None = Field(None, description="a column of the copy to leave out, since it is not a feature")
    max_bytes: int = Field(
        1 << 30, ge=0, description="the largest public set that may be fetched; all together take four times as much"
    )


class SiteRuns(Section):
    """How long a run stays open here when nobody asks for it, and how many compute at the same time."""

    idle_minutes: float = Field(
        60.0, gt=0, allow_inf_nan=False, description="a run that was not heard of for so long is put to sleep"
    )
    at_once: int | None = Field(
        None, ge=1, description="so many runs compute at the same time, and orders of others wait (default: no limit)"
    )


class SiteNotify(Section):
    """Who is told when a plan or an order waits for a person."""

    command: list[str] | None = Field(
        None, min_length=1, description="a program and its arguments; it gets one JSON object on its standard input"
    )
    mail: str | None = Field(None, pattern=r"^[^@\s]+@[^@\s]+$", description="an address")
    smtp: str = Field("localhost:25", pattern=r"^.+:\d+$", description="a mail server that needs no password")
    sender: str | None = Field(None, pattern=r"^[^@\s]+@[^@\s]+$", description="the sender (default: that address)")


class SiteFile(File):
    """A site, as its owner describes it."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=100)
    prepare: Literal["auto", "none"] = Field(
        "auto", description="auto: encode categories, fill missing values and scale where the learner needs it"
    )
    data: SiteData
    learner: dict[str, Any] | str | list[dict[str, Any] | str] = "random_forest"
    policy: SitePolicy = SitePolicy()
    budget: SiteBudget | None = None
    public: SitePublic = SitePublic()
    runs: SiteRuns = SiteRuns()
    notify: SiteNotify = SiteNotify()
    metrics: MetricsSection = MetricsSection()
    identities: dict[str, Hash] = Field({}, description="the other sites' identities, by name")

    @classmethod
    def from_toml(cls, path: str | Path) -> SiteFile:
        """Read and check a site's file; every problem is named by its path, with the nearest right name."""
        file = Path(path)
        return validate(cls, read_toml(file, "site file", _remedy(file.parent)), str(file), "site")

    def check(self) -> None:
        """Check that the settings fit each other. No data is read."""
        self.data.check()
        self.policy.check()
        build("learner", self.learner, "learner")


class SiteSettings(SiteFile):
    """The same, for whoever looks at it and trains nothing: the packages of its learner are not loaded."""

    def check(self) -> None:
        """As far as that goes without the learner."""
        self.data.check()
        self.policy.check()


def _remedy(kit: Path) -> str:
    """What to do about a folder that has no site file."""
    if kind_of(kit) is not None:
        return f"`collegium site init {kit}` writes one to fill in."
    return (
        "this is no kit of a site. Give the folder that the coordinator made with `collegium provision` and sent to "
        "you, and run `collegium site init` on it first."
    )
