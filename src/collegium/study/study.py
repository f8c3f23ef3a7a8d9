"""`Study`: the one typed configuration, the same for Python, TOML files and the command line."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import tomli_w
from pydantic import ConfigDict, Field, model_validator

from collegium import registry
from collegium.core import own_files
from collegium.core.building import build, needed_of, nested_kind, settings_of
from collegium.core.meeting import Cohort
from collegium.core.settings import NonNegativeInt, OpenProbability, PositiveFloat, schema_of
from collegium.core.terms import Precision
from collegium.errors import ConfigError
from collegium.study.sections import File, Section, located, read_toml, validate

if TYPE_CHECKING:
    from collegium.runs.results import Run
    from collegium.study.preparing import Prepared

Count = int | float
_COMPONENTS: Final = ("algorithm", "learner", "consensus", "voters", "mechanism", "pretrain", "global_learner")


class StandardizeSection(Section):
    """Fixed numbers, one for each channel: they are known before any row is looked at."""

    mean: list[float] = Field(min_length=1)
    std: list[PositiveFloat] = Field(min_length=1)


class DataSection(Section):
    """Where the data comes from, and how much of it is public and for testing."""

    source: str = Field(
        description="breast_cancer, digits, iris, wine, a benchmark set, or a path to CSV, Parquet, npz"
    )
    target: str | None = Field(None, description="the column (or array) that holds the labels")
    public: Count = Field(0.5, description="rows of the public set: a count, or a fraction of all rows")
    public_source: str | None = Field(
        None, description="where the public rows come from, if not from source; their labels, if any, are not used"
    )
    standardize: StandardizeSection | None = Field(
        None, description="images in 0 .. 1 minus this mean, divided by this standard deviation, channel by channel"
    )
    test: Count | Literal["own"] | None = Field(
        None, description="rows for testing: a count, a fraction, or 'own' for the data set's own test rows"
    )
    train: Count | None = Field(None, description="private rows in all sites together (default: the rest)")
    unlabeled: float = Field(
        0.0, ge=0, lt=1, description="share of each site's rows that lose their labels, for methods that label them"
    )
    labels: Literal["random", "even"] = Field(
        "random", description="which rows keep them: any, or as many of each class, as far as that goes"
    )
    labeled_sites: float = Field(
        1.0, gt=0, le=1, description="share of the sites that keep labels; all rows of the others lose theirs"
    )


class PartitionSection(Section):
    """How the private rows are dealt to sites, with the settings of the partition beside its name."""

    model_config = ConfigDict(extra="allow", frozen=True)
    name: str = "iid"
    sites: int | None = Field(None, ge=1, description="how many sites")


class PolicySection(Section):
    """What a site allows."""

    steps: list[str] = Field(["*"])
    unprotected: list[str] = Field(["*"])
    requires: Literal["dp"] | None = Field(None, description="dp: nothing leaves without differential privacy")
    max_release_bytes: NonNegativeInt = 1 << 30
    max_run_bytes: NonNegativeInt = 1 << 36
    public_sha256: str | None = None


class BudgetSection(Section):
    """All the privacy that a site may ever spend."""

    epsilon: PositiveFloat
    delta: OpenProbability = 1e-5
    ledger: str | None = Field(
        None,
        description="where it is kept between runs; {site} is replaced by the site's name (default: for one run only)",
    )


class SiteSection(Section):
    """What a site brings besides data. The sections are cycled over the sites."""

    learner: dict[str, Any] | str = "random_forest"
    prepare: Literal["auto", "none"] = Field(
        "auto", description="auto: encode categories, fill missing values and scale where the learner needs it"
    )
    policy: PolicySection = PolicySection()
    budget: BudgetSection | None = None


class EngineSection(Section):
    """How the run is carried out. It does not change the result, but for the rounding of nets."""

    workers: int = Field(0, ge=0, description="worker processes; 0 keeps the sites in this process")
    link: str = Field("auto", description="local, workers or ray: how sites are hosted (auto: by workers alone)")
    address: str | None = Field(None, description="an existing Ray cluster (default: one for this run)")
    quorum: float = Field(0.0, ge=0, le=1, description="share of the asked sites that must answer")
    deadline: float | None = Field(None, gt=0, description="seconds that sites have to answer")
    cohort: Cohort = Field(
        "auto", description="whether alike nets are trained in one computation: on a GPU (auto), everywhere or nowhere"
    )
    device: str | None = Field(None, description="cpu, cuda or cuda:N for all learners that have a device")
    gpus: float = Field(0.0, ge=0, description="with link ray: over how many GPUs sites are spread, or a share of one")
    precision: Precision | None = Field(None, description="float32, tf32 or bfloat16 for all nets")


class FederationSection(Section):
    """How the study is carried out between organizations, by `collegium coordinate`. Sites bring their own data."""

    classes: list[bool | int | float | str] | None = Field(
        None, min_length=2, description="all classes; data.source then contains only public rows"
    )
    parties: list[str] | None = Field(
        None, min_length=1, description="the sites that take part (default: all that are connected, or join later)"
    )
    at_least: int = Field(1, ge=1, description="how many sites must be connected before the study starts")
    wait: float = Field(60.0, ge=0, description="seconds to wait for them")
    metrics: bool = Field(True, description="ask sites in each round for their accuracy on held-out rows")
    patience: float = Field(30.0, ge=0, description="seconds to wait for a missing site before continuing without it")
    outage: float = Field(600.0, ge=0, description="seconds to wait for an unreachable server before giving up")


class Study(File):
    """One experiment: data, partition, algorithm, sites, engine."""

    name: str = "study"
    seed: int = Field(0, ge=0)
    data: DataSection
    partition: PartitionSection = PartitionSection()
    algorithm: dict[str, Any] | str
    sites: list[SiteSection] = Field([SiteSection()], min_length=1)
    global_learner: dict[str, Any] | str | None = None
    metrics: list[str] = Field([], description="what a simulation measures on the test set beside accuracy")
    engine: EngineSection = EngineSection()
    federation: FederationSection = FederationSection()

    @model_validator(mode="before")
    @classmethod
    def _one_site_may_stand_alone(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("sites"), dict):
            return values | {"sites": [values["sites"]]}
        return values

    @classmethod
    def from_dict(cls, table: Mapping[str, Any], where: str = "study", folder: Path | None = None) -> Study:
        """Check a table of settings; every problem is named by its path, with the nearest known name.

        ``"my_file:MyMethod"`` is the class MyMethod of my_file.py in `folder` or the working directory.
        """
        with own_files.allowed(folder or Path.cwd()):
            return validate(cls, table, where, "study")

    @classmethod
    def from_toml(cls, path: str | Path, changes: Sequence[str] = (), *, own: bool = True) -> Study:
        """Read a study file; `changes` are settings such as ``algorithm.rounds=3`` that replace those of the file.

        A study of somebody else's (`own` false) cannot name a class in a file, so that reading it runs no such file.
        """
        file = Path(path)
        table = read_toml(file, "study file")
        for change in changes:
            _apply(table, change)
        if not own:
            return validate(cls, table, str(file), "study")
        return cls.from_dict(table, where=str(file), folder=file.parent)

    def to_toml(self) -> str:
        """The study as a file."""
        return tomli_w.dumps(json.loads(self.model_dump_json(exclude_none=True)))

    def check(self) -> None:
        """Build every component, so that a wrong name or value is found before any data is read."""
        from collegium.learners.metrics import read_metrics
        from collegium.links.simulated import link_class

        self.build_algorithm()
        self.build_partition()
        read_metrics(self.metrics)
        for number, site in enumerate(self.sites):
            build("learner", site.learner, f"sites[{number}].learner")
        if self.global_learner is not None:
            build("learner", self.global_learner, "global_learner")
        try:
            link_class(self.engine.link, self.engine.workers)
        except ConfigError as error:
            raise located(error, "engine.link") from None

    def build_algorithm(self) -> Any:
        """The algorithm."""
        return build("algorithm", self.algorithm, "algorithm")

    def build_partition(self) -> Any:
        """The partition."""
        settings = {"name": self.partition.name} | (self.partition.model_extra or {})
        return build("partition", settings, "partition")

    def prepare(self, base: Path | None = None, folder: Path | None = None) -> Prepared:
        """Load the data and build everything. Relative paths are looked up in `base`."""
        from collegium.study.preparing import prepare_study

        return prepare_study(self, base, folder)

    def run(
        self,
        out: str | Path | None = None,
        *,
        base: Path | None = None,
        resume: bool = False,
        overwrite: bool = False,
        progress: bool | None = None,
        callbacks: Sequence[Any] = (),
    ) -> Run:
        """Run the study; `out` is the run's folder, where `overwrite` removes an earlier run. Returns a `Run`."""
        from collegium.runs.checks import refuse_measurements
        from collegium.runs.runner import run

        prepared = self.prepare(base)
        for site in prepared.sites:
            refuse_measurements(site)
        return run(
            prepared.algorithm,
            sites=prepared.sites,
            public=prepared.shared,
            test=prepared.test,
            metrics=self.metrics,
            public_truth=prepared.public_truth,
            classes=prepared.classes,
            global_learner=prepared.global_learner,
            seed=self.seed,
            **self.engine.model_dump(),
            out=out,
            resume=resume,
            overwrite=overwrite,
            progress=progress,
            callbacks=callbacks,
            study=self,
        )


def json_schema() -> dict[str, Any]:
    """A JSON Schema of study files, with the settings of every registered component and the values that they take."""
    schema = Study.model_json_schema()
    kinds = ("algorithm", "consensus", "voters", "learner", "mechanism", "pretraining")
    schema["$defs"] |= {kind: _component_schema(kind) for kind in kinds}
    schema["properties"]["algorithm"] = {"$ref": "#/$defs/algorithm"}
    schema["properties"]["global_learner"] = {"$ref": "#/$defs/learner"}
    schema["$defs"]["SiteSection"]["properties"]["learner"] = {"$ref": "#/$defs/learner"}
    schema["$defs"]["PartitionSection"] = _partition_schema(schema["$defs"]["PartitionSection"]["properties"])
    schema["$defs"]["EngineSection"]["properties"]["link"]["enum"] = ["auto", *registry.names("link")]
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return schema


def _component_schema(kind: str) -> dict[str, Any]:
    """A name, or a table of a name and settings."""
    own = {"type": "string", "pattern": "^[^:]+:[^:]+$", "description": "my_file:MyClass, of a file beside the study"}
    table = {"type": "object", "properties": {"name": own}, "required": ["name"]}
    known = registry.names(kind)
    return {"anyOf": [{"enum": known}, own, table, *(_table_schema(kind, name) for name in known)]}


def _table_schema(kind: str, name: str) -> dict[str, Any]:
    try:
        cls = registry.lookup(kind, name)
    except ConfigError:  # an extra that is not installed: its settings are not known here
        return {"type": "object", "properties": {"name": {"const": name}}, "required": ["name"]}
    properties = {key: _type_schema(hint) for key, hint in settings_of(cls).items()}
    return {
        "type": "object",
        "title": name,
        "properties": {"name": {"const": name}} | properties,
        "required": ["name", *needed_of(cls)],
        "additionalProperties": False,
    }


def _partition_schema(common: Mapping[str, Any]) -> dict[str, Any]:
    """A table in which the settings of the section stand beside those of the partition; without a name it is iid."""
    tables = [_table_schema("partition", name) for name in registry.names("partition")]
    for table in tables:
        table["properties"] = {**common, **table["properties"]}
        if table["title"] == common["name"]["default"]:
            table["required"].remove("name")
    return {"anyOf": tables}


def _type_schema(hint: Any) -> dict[str, Any]:
    nested = nested_kind(hint)
    return schema_of(hint) if nested is None else {"$ref": f"#/$defs/{nested}"}


def _apply(table: dict[str, Any], change: str) -> None:
    """Put ``a.b.0.c=value`` into a table."""
    path, equals, text = change.partition("=")
    if not equals or not path.strip():
        raise ConfigError(f"--set takes PATH=VALUE, such as algorithm.rounds=3, got {change!r}.")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        value = text.strip()
    *parents, last = path.strip().split(".")
    place: Any = table
    for step in parents:
        place = _enter(place, step, change)
    if isinstance(place, list) and last.isdigit() and int(last) < len(place):
        place[int(last)] = value
    elif isinstance(place, dict):
        place[last] = value
    else:
        raise ConfigError(f"--set {change}: there is no {path} in the study.")


def _enter(place: Any, step: str, change: str) -> Any:
    if isinstance(place, list) and step.isdigit() and int(step) < len(place):
        return place[int(step)]
    if isinstance(place, dict):
        inner = place.setdefault(step, {})
        if isinstance(inner, str) and step in _COMPONENTS:
            place[step] = inner = {"name": inner}
        if isinstance(inner, dict | list):
            return inner
    raise ConfigError(f"--set {change}: {step!r} is not a table in the study.")
