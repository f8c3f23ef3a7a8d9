"""`Study`: the one typed configuration, the same for Python, TOML files and the command line."""

from __future__ import annotations

import json
import re
import tomllib
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import tomli_w
from pydantic import ConfigDict, Field, model_validator

from collegium.core import own_files
from collegium.core.attendance import Cohort
from collegium.core.building import build
from collegium.core.settings import NonNegativeInt, OpenProbability, PositiveFloat
from collegium.core.terms import Precision
from collegium.errors import Advice, ConfigError
from collegium.study.sections import File, Section, located, read_toml, validate

if TYPE_CHECKING:
    from collegium.runs.making import PublicSet
    from collegium.runs.results import Run
    from collegium.study.grid import Grid
    from collegium.study.preparing import Prepared

Count = int | float
LearnerTable = dict[str, Any] | str | list[dict[str, Any] | str]
"""A name, a table of a name and settings, or a list of transformers that ends with a learner: a pipeline."""
_COMPONENTS: Final = ("algorithm", "learner", "consensus", "voters", "mechanism", "pretrain", "global_learner")


class StandardizeSection(Section):
    """Fixed numbers, one for each channel: they are known before any row is looked at."""

    mean: list[float] = Field(min_length=1)
    std: list[PositiveFloat] = Field(min_length=1)


class DataSection(Section):
    """Where the data comes from, and how much of it is public and for testing."""

    source: str | None = Field(
        None,
        description="breast_cancer, digits, iris, wine, a benchmark set, or a path to CSV, Parquet, npz; none where "
        "every site has a file of its own",
    )
    target: str | None = Field(None, description="the column (or array) that holds the labels")
    drop: list[str] = Field([], description="columns that are not used, such as a patient's number")
    public: Count | str | None = Field(
        None,
        description="rows of the public set: a count, a fraction of all rows, or a file of them (default: half of the "
        "rows of source; none where sites have files of their own); 'together': the sites make one, see the section "
        "together",
    )
    public_source: str | None = Field(
        None, description="where the public rows come from, if not from source; their labels, if any, are not used"
    )
    opinion: str | None = Field(
        None,
        description="a file that says how probable each class is for each row of a file of public rows that were made "
        "up, for the rule informed: opinion.parquet of the run that made them",
    )
    standardize: StandardizeSection | None = Field(
        None, description="images in 0 .. 1 minus this mean, divided by this standard deviation, channel by channel"
    )
    test: Count | str | None = Field(
        None,
        description="rows for testing: a count, a fraction, a file of them, or 'own' for the data set's own test rows "
        "(default: those, or a fifth of all rows)",
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


class TogetherSection(Section):
    """How sites make a public set that they do not have; see `cg.public_together`."""

    epsilon: PositiveFloat = 1.0
    delta: OpenProbability = 1e-5
    rows: int = Field(8000, ge=1, description="how many rows to make")
    columns: dict[str, Any] = Field(
        {}, description="by name: a range [17, 90], categories, or a table of low, high, bins, categories and missing"
    )
    dropouts: float = Field(
        0.2, ge=0, lt=1, description="share of the sites that may drop out without losing the claim"
    )
    relation: Literal["add_remove", "replace"] = "add_remove"
    model: Literal["tree", "fitted", "adaptive"] = Field("tree", description="all but tree: needs the extra together")


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
    """What a site brings. A section with a name is for that site; those without are cycled over the others."""

    name: str | None = Field(None, description="the site's name (default: that of its file, or any site)")
    data: str | None = Field(None, description="the site's own rows: a path to CSV, Parquet, npz")
    learner: LearnerTable = Field(
        "random_forest", description="a learner, or a list of transformers and, last, a learner: a pipeline"
    )
    prepare: Literal["auto", "none"] = Field(
        "auto", description="auto: encode categories, fill missing values and scale where the learner needs it"
    )
    policy: PolicySection = PolicySection()
    budget: BudgetSection | None = None

    @model_validator(mode="before")
    @classmethod
    def _is_called_like_its_file(cls, values: Any) -> Any:
        if isinstance(values, dict) and isinstance(values.get("data"), str):
            return {"name": Path(values["data"]).name.partition(".")[0]} | values
        return values


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
    test_every: int = Field(1, ge=1, description="in how many answers or rounds a site or common model is tested once")


class FederationSection(Section):
    """How the study is carried out between organisations, by `collegium coordinate`. Sites bring their own data."""

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
    """One experiment: data, partition, algorithm, sites, engine. Several algorithms or seeds make it a grid of runs."""

    name: str = "study"
    seed: int = Field(0, ge=0)
    seeds: list[NonNegativeInt] | None = Field(None, min_length=1, description="each algorithm runs once with each")
    data: DataSection
    together: TogetherSection = TogetherSection()
    partition: PartitionSection = PartitionSection()
    algorithm: dict[str, Any] | str = Field(description="the algorithm; of several, the first")
    algorithms: list[dict[str, Any] | str] | None = Field(
        None, min_length=1, description="several algorithms to compare; `label` is what results call one"
    )
    sites: list[SiteSection] = Field([SiteSection()], min_length=1)
    global_learner: LearnerTable | None = None
    metrics: list[str] = Field(
        [], description="what is measured beside accuracy: on the test set, and by sites on held-out rows"
    )
    alone: bool | None = Field(
        None, description="train every site alone, too, to see whom it helped (default: where that is one fit per site)"
    )
    engine: EngineSection = EngineSection()
    federation: FederationSection = FederationSection()

    @model_validator(mode="before")
    @classmethod
    def _in_one_form(cls, values: Any) -> Any:
        """`[sites]` for all sites, or `[sites.north]` by name; `algorithm` is the first of `algorithms`."""
        if not isinstance(values, dict):
            return values
        values, sites = dict(values), values.get("sites")
        if isinstance(sites, dict):
            by_name = sites and not sites.keys() & SiteSection.model_fields.keys()
            values["sites"] = [{"name": name} | dict(own) for name, own in sites.items()] if by_name else [sites]
        several = values.pop("algorithm") if isinstance(values.get("algorithm"), list) else values.get("algorithms")
        if isinstance(several, list) and several:
            if "algorithm" in values and values["algorithm"] != _unlabelled(several[0]):
                raise ValueError("give algorithm or algorithms, not both.")
            values |= {"algorithms": several, "algorithm": _unlabelled(several[0])}
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
        table = read_toml(file, "study file", "`collegium init` writes one from a folder of tables.")
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

        self._check_sites()
        for number, algorithm in enumerate(self.algorithms or []):
            build("algorithm", _unlabelled(algorithm), f"algorithms[{number}]")
        build("algorithm", self.algorithm, "algorithm")
        for label, _ in self.cells():
            if re.fullmatch(r"[^./\\\0][^/\\\0]*", label) is None:
                raise ConfigError(f"algorithms: {label!r} cannot name a folder: choose another label.")
        if len(set(self.seeds or [])) < len(self.seeds or []):
            raise ConfigError("seeds: the same seed stands there twice.")
        self.build_partition()
        if self.together != TogetherSection() and self.data.public != "together":
            raise ConfigError('together: these settings are for data.public = "together".')
        read_metrics(self.metrics)
        for number, site in enumerate(self.sites):
            build("learner", site.learner, f"sites[{number}].learner")
        if self.global_learner is not None:
            build("learner", self.global_learner, "global_learner")
        try:
            link_class(self.engine.link, self.engine.workers)
        except ConfigError as error:
            raise located(error, "engine.link") from None

    def _check_sites(self) -> None:
        """That every site has rows from somewhere, and a name of its own."""
        names = [site.name for site in self.sites if site.name is not None]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ConfigError(f"sites: two sections are for {twice[0]!r}: give each site a name of its own.")
        files = [site.data is not None for site in self.sites]
        if not any(files):
            if self.data.source is None:
                raise ConfigError("data.source: this setting is required, or a file for every site: sites[0].data.")
            return
        if not all(files):
            raise ConfigError(f"sites[{files.index(False)}].data: the other sites have a file of their own; name one.")
        data = self.data
        given = {"data.source": data.source, "data.train": data.train, "data.public_source": data.public_source}
        dealt = [name for name, value in given.items() if value is not None]
        dealt += ["partition"] if self.partition != PartitionSection() else []
        if dealt:
            raise ConfigError(f"{dealt[0]}: the sites have files of their own, and no rows are dealt; leave it out.")

    def section_for(self, number: int, party: str) -> tuple[str, SiteSection]:
        """Where a site's section stands, and the section: the one with its name, or one of those without, in turn."""
        named = {site.name: place for place, site in enumerate(self.sites) if site.name is not None}
        free = [place for place, site in enumerate(self.sites) if site.name is None]
        if party not in named and not free:
            raise ConfigError(
                f"sites: no section is for {party!r}. Add one with that name, or one without a name for all others."
            )
        place = named[party] if party in named else free[number % len(free)]
        return f"sites[{place}]", self.sites[place]

    @property
    def is_grid(self) -> bool:
        """Whether it is more than one run."""
        return len(self.algorithms or [""]) * len(self.seeds or [0]) > 1

    def single(self) -> Study:
        """The study of one algorithm and one seed; a ConfigError if there are several."""
        if self.is_grid:
            raise ConfigError(
                "The study has several algorithms or seeds. Run all with `collegium run`, or study.run_grid(out) in "
                "Python; here, keep one algorithm and one seed."
            )
        return next(iter(self.cells().values()))

    def cells(self) -> dict[tuple[str, int], Study]:
        """The study of each single run, by the algorithm's label and the seed."""
        cells, seen = {}, Counter[str]()
        for table in self.algorithms or [self.algorithm]:
            named = {"name": table} if isinstance(table, str) else table
            label = str(named.get("label", named["name"]))
            seen[label] += 1
            label += f"-{seen[label]}" if seen[label] > 1 else ""
            for seed in self.seeds or [self.seed]:
                one = {"algorithm": _unlabelled(table), "algorithms": None, "seed": seed, "seeds": None}
                cells[label, seed] = self.model_copy(update=one)
        return cells

    def by_algorithm(self) -> dict[str, Study]:
        """The study of each algorithm with the first seed, by label."""
        found: dict[str, Study] = {}
        for (label, _), cell in self.cells().items():
            found.setdefault(label, cell)
        return found

    def build_algorithm(self) -> Any:
        """The algorithm, where there is one."""
        return build("algorithm", self.single().algorithm, "algorithm")

    def build_partition(self) -> Any:
        """The partition."""
        settings = {"name": self.partition.name} | (self.partition.model_extra or {})
        return build("partition", settings, "partition")

    def prepare(self, base: Path | None = None, folder: Path | None = None, made: PublicSet | None = None) -> Prepared:
        """Load the data and build everything. Relative paths are looked up in `base`.

        Where sites make the public set together, it is `made`; without it, any rows with the same columns stand in.
        """
        from collegium.study.preparing import prepare_study

        return prepare_study(self, base, folder, made)

    def make_public(
        self, out: str | Path | None = None, *, base: Path | None = None, resume: bool = False, overwrite: bool = False
    ) -> PublicSet:
        """Have the study's sites make their public set together; `out` is a folder for that run."""
        from collegium.study.making import make_public

        return make_public(self, out, base=base, resume=resume, overwrite=overwrite)

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
        from collegium.runs.findings import doubts
        from collegium.runs.runner import run
        from collegium.study.making import sites_with_public

        study = self.single()
        with sites_with_public(study, out, base=base, resume=resume, overwrite=overwrite) as prepared:
            refuse_measurements(prepared.sites)
            if doubt := doubts(prepared.sites, prepared.shared, prepared.test):
                warnings.warn(doubt, Advice, stacklevel=2)
            return run(
                prepared.algorithm,
                sites=prepared.sites,
                public=prepared.told,
                test=prepared.test,
                metrics=study.metrics,
                alone=study.alone,
                public_truth=prepared.public_truth,
                classes=prepared.classes,
                global_learner=prepared.global_learner,
                seed=study.seed,
                **study.engine.model_dump(),
                out=out,
                resume=resume,
                overwrite=overwrite,
                progress=progress,
                callbacks=callbacks,
                study=study,
            )

    def run_grid(
        self,
        out: str | Path | None = None,
        *,
        base: Path | None = None,
        overwrite: bool = False,
        progress: bool | None = None,
        callbacks: Sequence[Any] = (),
    ) -> Grid:
        """Run every algorithm with every seed; in `out`, only what is not there yet. Returns a `Grid`."""
        from collegium.study.grid import run_grid

        return run_grid(self, out, base=base, overwrite=overwrite, progress=progress, callbacks=callbacks)


def _unlabelled(algorithm: Any) -> Any:
    """An algorithm's table without what results call it."""
    if not isinstance(algorithm, dict):
        return algorithm
    return {key: value for key, value in algorithm.items() if key != "label"}


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
