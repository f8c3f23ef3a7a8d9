"""Together: a public set for sites that have none, made from noisy sums of counts.

McKenna, Miklau, Sheldon: "Winning the NIST Contest: A scalable and general approach to differentially private synthetic
data", 2021, arXiv 2108.04978 (select, measure, generate), and Maddock, Cormode, Maple: "FLAIM: AIM-based Synthetic Data
Generation in the Federated Setting", KDD 2024, arXiv 2310.03447, with the noise of Kairouz, Liu and Steinke, arXiv
2102.06387, in shares at the sites.

0. Where the values of text columns are not declared: those that many records have (`values`, `names`).
1. Where ranges are not declared: in which powers of two the values of each column lie (`ranges`).
2. The histogram of every column and of the labels (`histograms`): it says how coarse the cells of pairs must be.
3. A first look at every pair of columns (`pairs`), or at columns with the label only, as the noise allows.
4. The pairs that tell most, again, with less noise and in finer cells (`edges`).
5. A model of these counts, and rows drawn from it. Made-up labels are dropped: the sites label the rows themselves.
   How probable the default's tree takes each label to be for each row is kept for the coordinator (the rule
   `Informed`).

The coordinator sees masked sums and no site's counts. Each site charges its budget with a Gaussian release per sum,
whose noise multipliers follow from `epsilon` and `delta`; everything after the sums is post-processing.

Deviations: FLAIM chooses one table after the other, in many rounds, each of which costs a federation an exchange. With
``model="tree"`` all are chosen at once, those of a Chow-Liu tree, and fitted in closed form, or by the package mbi with
``model="fitted"``; with ``model="adaptive"`` there is one more sum, of the pairs that a model of the tree gets wrong,
and mbi fits all of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Final, Literal

import numpy as np
from numpy.typing import NDArray

from collegium.core import ActiveSite, Algorithm, Federation, Site, Steps, step
from collegium.core.releases import Counts, Spellings
from collegium.core.sensitivity import Sensitivity
from collegium.core.settings import OpenProbability, PositiveFloat, PositiveInt
from collegium.core.steps import Order, Step
from collegium.errors import ConfigError
from collegium.privacy import accountant
from collegium.privacy.claims import Charge, PrivacyClaim
from collegium.privacy.mechanisms.base import Mechanism
from collegium.privacy.mechanisms.blinding import Blinding
from collegium.protocols.masks import FEWEST_SITES
from collegium.secure import secret_counts, secret_words
from collegium.secure.secret_counts import NoisySum
from collegium.together import counting, making, naming
from collegium.together.adaptive import ROUNDS, adaptively
from collegium.together.columns import Column, check_number, read_column, require_table, template_of
from collegium.together.drawing import Drawn, Looked, by_fitted_tree, by_tree
from collegium.together.estimating import require_mbi
from collegium.together.grids import Grid, grid_of, search_grid
from collegium.together.planning import FEWER_CELLS, MOST_CELLS, Measured, first_look
from collegium.together.spending import Spending

Relation = Literal["add_remove", "replace"]
Model = Literal["tree", "fitted", "adaptive"]
MADE: Final = "the public set made together"
_MODELS: Final = {"tree": by_tree, "fitted": by_fitted_tree, "adaptive": adaptively}


def _sensitivity(args: Mapping[str, Any]) -> Sensitivity:
    """A record is in one cell of each marginal: added or removed it changes one count there, replaced two."""
    return _of_cells(len(args.get("marginals", "1")), args["relation"])


def _changed(relation: str) -> int:
    """How many records change: one that is replaced is one that leaves and one that comes."""
    return 2 if relation == "replace" else 1


def _sensitivity_of_values(args: Mapping[str, Any]) -> Sensitivity:
    """A record is in one bucket of each table for each column, or in fewer."""
    return _of_cells(naming.TABLES * len(args.get("columns", "1")), args["relation"])


def _of_cells(cells: int, relation: Relation) -> Sensitivity:
    return Sensitivity(l2=math.sqrt(_changed(relation) * cells), relation=relation)


@step(sensitivity=_sensitivity_of_values)
def values(site: ActiveSite, columns: list[Any], key: str, cells: int, relation: str) -> Counts:
    """In which buckets of a hash the values of text columns are."""
    frame = counting.frame_of(site.data.opened().X)
    return naming.count_values(frame, counting.named(frame, columns), key)


@step(sensitivity=lambda args: Sensitivity(chance=args["failure"], relation=args["relation"]))
def names(
    site: ActiveSite, columns: list[Any], key: str, marks: NDArray[np.int8], places: int, width: int, failure: float,
    multiplier: float, relation: str,
) -> Spellings:  # fmt: skip
    """Those of the values that stand out in their buckets."""
    frame = counting.frame_of(site.data.opened().X)
    chance = naming.chance_of(failure, multiplier, _changed(relation) * len(columns))
    return naming.spell(frame, counting.named(frame, columns), key, marks, chance, places)


@step(sensitivity=_sensitivity)
def ranges(
    site: ActiveSite, grids: list[Any], groups: list[Any], marginals: list[Any], cells: int, relation: str
) -> Counts:
    """In which powers of two the values of each column lie."""
    return counting.count(site, grids, groups, marginals, cells, noted=True)


@step(sensitivity=_sensitivity)
def histograms(
    site: ActiveSite, grids: list[Any], groups: list[Any], marginals: list[Any], cells: int, relation: str
) -> Counts:
    """How many rows lie in each cell of each column."""
    return counting.count(site, grids, groups, marginals, cells, noted=True)


@step(sensitivity=_sensitivity)
def pairs(
    site: ActiveSite, grids: list[Any], groups: list[Any], marginals: list[Any], cells: int, relation: str
) -> Counts:
    """How many rows lie in each pair of cells of two columns."""
    return counting.count(site, grids, groups, marginals, cells)


@step(sensitivity=_sensitivity)
def edges(
    site: ActiveSite, grids: list[Any], groups: list[Any], marginals: list[Any], cells: int, relation: str
) -> Counts:
    """The same for the pairs of columns that belong together, in finer cells."""
    return counting.count(site, grids, groups, marginals, cells)


_COUNTING: Final = (values, ranges, histograms, pairs, edges)


@dataclass(frozen=True)
class Together(Algorithm):
    """Makes a public set: ``run.made`` are the rows, and `claim` says what they cost every record."""

    asks_for: ClassVar[Steps] = (*_COUNTING, names, *secret_counts.STEPS)
    needs_public: ClassVar[bool] = False
    needs_learner: ClassVar[bool] = False
    trains_sites: ClassVar[bool] = False
    makes_public: ClassVar[bool] = True
    fresh_secrets: ClassVar[bool] = True

    columns: dict[str, Any] | None = None
    """Every column by name: its range ``[17, 90]``, its categories, its kind, or a table of settings."""
    epsilon: PositiveFloat = 1.0
    delta: OpenProbability = 1e-5
    rows: PositiveInt = 8000
    """How many rows to make."""
    fewest: PositiveInt = FEWEST_SITES
    """How many sites must take part: each adds noise for a sum of so many, and gives nothing to a smaller one."""
    relation: Relation = "add_remove"
    """Whom the claim hides: that a record is there at all, or which one it is."""
    model: Model = "tree"
    """A tree over all columns, the same counts fitted by the package mbi (extra `together`), or more edges and mbi."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.fewest < FEWEST_SITES:
            raise ConfigError(f"Together: fewest must be at least {FEWEST_SITES}: a sum of fewer sites hides none.")
        self._spending.require_use(len(self.columns or ()))
        if self.model != "tree":
            require_mbi()

    @property
    def declared(self) -> tuple[Column, ...]:
        """The columns; none of them can be left out."""
        if not self.columns:
            raise ConfigError("Together: declare every column, such as columns={'age': [17, 90], 'sex': ['F', 'M']}.")
        check_number(len(self.columns))
        columns = tuple(read_column(name, said) for name, said in self.columns.items())
        require_table(columns)
        return columns

    def unasked(self) -> Steps:
        if self.columns is None:
            return ()
        sought: Steps = () if any(column.seeks_range for column in self.declared) else (ranges,)
        return sought if self._seek_names else (*sought, values, names)

    @property
    def _seek_names(self) -> tuple[str | int, ...]:
        return tuple(column.name for column in self.declared if column.seeks_names) if self.columns else ()

    def noise_on(self, step: Step[..., Any]) -> Mechanism | None:
        if step is names:
            return Blinding(delta=self.delta)
        return self._spending.noise(step.function.__name__) if step in _COUNTING else None

    @property
    def _spending(self) -> Spending:
        never = self.unasked()
        sums = tuple(each.function.__name__ for each in _COUNTING if each not in never)
        return Spending(self.epsilon, self.delta, self.fewest, self.relation, sums, self.most_rounds)

    @property
    def most_rounds(self) -> int:
        """In how many sums the edges are counted."""
        return ROUNDS if self.model == "adaptive" else 1

    def fixed(self, public_size: int) -> Mapping[str, Mapping[str, Any]]:
        # how many marginals there are is known later; a site computes their sensitivity from the order itself
        fixed: dict[str, dict[str, Any]] = {each.name: {"relation": self.relation} for each in _COUNTING}
        return fixed | {names.name: self._of_names()}

    def _of_names(self) -> dict[str, Any]:
        spent = self._spending
        settings = {"relation": self.relation, "width": naming.WIDTH}
        return settings | {"failure": spent.failure, "multiplier": spent.multiplier(values.function.__name__)}

    def site_charge(self, public_size: int) -> Charge:
        return self._spending.charge()

    def claim(self) -> PrivacyClaim:
        """What making the set costs every record, known before anything is counted."""
        return accountant.claim([self.site_charge(0)])

    def learners(self, site: Site) -> Sequence[Any]:
        return []

    def learns(self) -> dict[str, str]:
        return {"coordinator": "noisy sums over all sites, and the rows made from them; no site's counts"}

    def check_site(self, site: Site) -> None:
        template = template_of(site.X, "X")
        declared = [column.name for column in self.declared]
        if [str(name) for name in template.columns] != [str(name) for name in declared]:
            raise ConfigError(f"its columns are not those that were declared: {declared}.")
        frame = counting.frame_of(site.X)
        for name in counting.named(frame, self._seek_names):
            naming.require_categories(frame[name])

    def coordinate(self, fed: Federation) -> None:
        if len(fed.parties) < self.fewest:
            raise ConfigError(
                f"Together: {self.fewest} sites must take part, and there are {len(fed.parties)}. A masked sum hides a "
                f"site among at least {FEWEST_SITES}, and the noise is made for {self.fewest}."
            )
        columns, octaves = self.declared, dict[str | int, tuple[float, ...]]()
        for _ in fed.rounds(1):
            if self._seek_names:
                columns = self._with_names(fed, columns)
            if any(column.seeks_range for column in columns):
                columns, octaves = self._with_ranges(fed, columns)
            grids: Sequence[Grid] = [grid_of(column, octaves.get(column.name, ())) for column in columns]
            sizes = [*(grid.cells for grid in grids), fed.n_classes]
            identity = [np.arange(size) for size in sizes]
            singles = [(column,) for column in range(len(sizes))]
            first = self._counted(fed, histograms, grids, identity, singles)
            grids, first = making.settled(columns, grids, first)
            ordered = [grid.kind != "category" for grid in grids] + [False]
            drawn = self._drawn(fed, grids, first, ordered)
            made = [grid.values(drawn.numbers[:, number], fed.rng) for number, grid in enumerate(grids)]
            fed.charge(MADE, self.site_charge(0))
            fed.make_public(making.table(columns, grids, made), drawn.opinion)

    def _drawn(
        self, fed: Federation, grids: Sequence[Grid], first: Sequence[Measured], ordered: Sequence[bool]
    ) -> Drawn:
        """Made-up rows, as numbers of cells, and how probable each label is for each of them."""
        spent, cells = self._spending, FEWER_CELLS if self._seek_names else MOST_CELLS
        look = first_look([each.counts for each in first], ordered, lambda n: spent.cell("pairs", n), cells)
        making.warn_of_noise(first, look.marginals)
        second = self._counted(fed, pairs, grids, look.groups, look.marginals)

        def again(groups: Sequence[NDArray[Any]], marginals: Sequence[tuple[int, ...]]) -> list[Measured]:
            return self._counted(fed, edges, grids, groups, marginals)

        timed = partial(fed.timed, "model")
        looked = Looked(first, look, second, ordered, lambda n: spent.cell("edges", n), again, cells, timed)
        return _MODELS[self.model](looked, self.rows, fed.rng)

    def _with_names(self, fed: Federation, columns: Sequence[Column]) -> tuple[Column, ...]:
        sought, key = list(self._seek_names), fed.noise.words(4).tobytes().hex()
        total = self._total(fed, values, values(sought, key, naming.CELLS, self.relation))
        marks, own = naming.marks_of(total.counts, total.noise), self._of_names()
        chance = naming.chance_of(own["failure"], own["multiplier"], _changed(self.relation) * len(sought))
        places = naming.places_for(marks, naming.bar_of(marks, chance))
        order = names(sought, key, marks, places, **own).through(self.noise_on(names))
        secret = order.secretly(secret_words.PROTOCOL)
        spelled = fed.total(secret, quorum=self.fewest / len(fed.parties))
        found = naming.read_spelled(spelled.words, sought, key)
        return making.with_names(columns, sought, found, key, total)

    def _with_ranges(
        self, fed: Federation, columns: Sequence[Column]
    ) -> tuple[tuple[Column, ...], dict[str | int, tuple[float, ...]]]:
        sought = [column for column in columns if column.seeks_range]
        grids = [search_grid(column) for column in sought]
        identity = [np.arange(grid.cells) for grid in grids]
        counts = self._counted(fed, ranges, grids, identity, [(number,) for number in range(len(grids))])
        return making.with_ranges(columns, dict(zip((each.name for each in sought), counts, strict=True)))

    def _counted(
        self, fed: Federation, asked: Step[..., Any], grids: Sequence[Grid], groups: Sequence[NDArray[Any]],
        marginals: Sequence[tuple[int, ...]],
    ) -> list[Measured]:  # fmt: skip
        """Noisy counts by marginal."""
        shapes = counting.shapes(groups, marginals)
        order: Order[Counts] = asked(
            [grid.to_plain() for grid in grids],
            [[int(group) for group in each] for each in groups],
            [list(each) for each in marginals],
            sum(math.prod(shape) for shape in shapes),
            self.relation,
        )
        total = self._total(fed, asked, order)
        tables = counting.split(total.counts, shapes)
        return [Measured(tuple(each), table, total.noise) for each, table in zip(marginals, tables, strict=True)]

    def _total(self, fed: Federation, asked: Step[..., Any], order: Order[Counts]) -> NoisySum:
        secret = order.through(self.noise_on(asked)).secretly(secret_counts.PROTOCOL)
        total: NoisySum = fed.total(secret, quorum=self.fewest / len(fed.parties))
        return total
