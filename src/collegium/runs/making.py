"""`public_together`: a public set for sites on this machine that have none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from collegium.algorithms.together import Model, Relation, Together
from collegium.core.public_set import PublicSet as Rows
from collegium.core.settings import NonNegativeInt, PositiveInt, Probability, check
from collegium.core.site import Site
from collegium.errors import ConfigError, SiteError
from collegium.privacy import accountant
from collegium.privacy.claims import SEEDED_NOISE, PrivacyClaim
from collegium.protocols.masks import FEWEST_SITES
from collegium.runs.results import Run
from collegium.runs.runner import run
from collegium.secure.messages import MaskedCounts
from collegium.together.columns import Column, read_columns, same_columns, template_of
from collegium.together.making import like, warn_of_spelling
from collegium.wire import tables


class PublicSet(Rows):
    """A public set, identified by its hash; one that sites have made together knows what that cost them."""

    def __init__(self, X: Any, claim: PrivacyClaim | None = None, run: Run | None = None) -> None:
        super().__init__(tables.as_table(X, "public"))
        self.claim = claim
        """What making it cost every record of every site; None where it was not made from private rows."""
        self.run = run
        """The run that made it: what left each site, in how many bytes, and at which cost."""
        self.made = None if claim is None or run is None else _about(self, claim, run)

    @classmethod
    def together(cls, sites: Sequence[Site], **settings: Any) -> PublicSet:
        """Have sites make one: see `public_together`."""
        return public_together(sites, **settings)

    def __repr__(self) -> str:
        origin = "" if self.claim is None else f", made together: {self.claim}"
        return f"PublicSet({len(self)} rows, {self.digest[:12]}{origin})"


def _about(made: Rows, claim: PrivacyClaim, run: Run) -> dict[str, Any]:
    """How a public set was made, as plain data for a run that uses it."""
    counted = run.releases[run.releases["kind"] == MaskedCounts.kind]
    sent = run.costs.groupby("party")["bytes_up"].sum()
    return {
        "rows": len(made),
        "sites": len(run.about["parties"]),
        "run": run.about["run"],
        "claim": claim.to_plain(),
        "said": str(claim),
        "sums": [str(step).rpartition(".")[2] for step in dict.fromkeys(counted["step"])],
        "counts": int(counted.groupby("party")["bytes"].sum().max()) // 4,
        "bytes": int(sent.reindex(run.about["parties"]).max()),
        "algorithm": run.about["algorithm"],
    }


def public_together(
    sites: Sequence[Site],
    *,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    rows: int = 8000,
    columns: Mapping[Any, Any] | None = None,
    dropouts: float = 0.2,
    relation: Relation = "add_remove",
    model: Model = "tree",
    seed: int = 0,
    **options: Any,
) -> PublicSet:
    """Have sites make a public set together, with differential privacy for each of their records.

    Every site adds noise to counts of its rows and masks them; the coordinator sees the sums only, fits a model to them
    and draws rows from it. Sites then label these rows as they would label real ones: ``cg.run(..., public=made)``.

    Args:
        sites: At least three, with tables of the same columns. Their learners are not used.
        epsilon: What it may cost each record, all rounds together.
        delta: At which epsilon is stated.
        rows: How many rows to make.
        columns: What is declared of columns, by name: a range ``(17, 90)``, categories ``["F", "M"]``, or a table such
            as ``{"low": 0, "high": 90, "bins": 18, "missing": True}``. Categories of text
            and ranges that are not declared are found, with 15% of the budget each; a pandas category that is the same
            at all sites counts as declared.
        dropouts: The share of sites that may drop out without losing the claim: the others add so much more noise.
        relation: "add_remove" or "replace": which change of a record the claim hides.
        model: "tree"; "fitted" for the same counts fitted by the package mbi, or "adaptive" for a model with more edges
            (both need ``collegium[together]``).
        seed: Same seed, same rows.
        **options: Further arguments of `cg.run`, such as `workers`, `link`, `out` or `deadline`.
    """
    algorithm = making_of(
        sites,
        epsilon=epsilon,
        delta=delta,
        rows=rows,
        columns=columns,
        dropouts=dropouts,
        relation=relation,
        model=model,
    )
    bare = [replace(site, learner=None, public=None) for site in sites]
    made = run(algorithm, sites=bare, seed=check(NonNegativeInt, seed, "seed"), alone=False, **options)
    if made.made is None:
        raise ConfigError("No public set was made: no budget is left at the sites.")
    claim = accountant.claim([algorithm.site_charge(0).assuming(SEEDED_NOISE)])
    public = PublicSet(like(made.made, sites[0].X), claim, made)
    public.opinion = made.opinion
    warn_of_spelling(public.X, sites[0].X)
    return public


def making_of(
    sites: Sequence[Site], *, columns: Mapping[Any, Any] | None, dropouts: float, rows: int, **settings: Any
) -> Together:
    """The algorithm that makes a public set for these sites; sites whose columns differ are an error."""
    if isinstance(sites, Site) or len(sites) < FEWEST_SITES or not all(isinstance(site, Site) for site in sites):
        raise ConfigError(
            f"A public set is made together by a list of at least {FEWEST_SITES} sites: a sum over fewer would show "
            "what single sites have."
        )
    known: tuple[Column, ...] | None = None
    for site in sites:
        try:
            found = read_columns(columns, template_of(site.X, "X"))
        except ConfigError as error:
            raise SiteError(site.name, str(error)) from None
        if known is not None and [each.name for each in known] != [each.name for each in found]:
            raise SiteError(site.name, f"its columns differ from those of site {sites[0].name!r}.")
        if known is not None and (problem := same_columns(known, found)):
            raise SiteError(
                site.name, f"it cannot count with site {sites[0].name!r}: {problem}. Declare it in columns."
            )
        known = found
    fewest = math.ceil((1 - check(Probability, dropouts, "dropouts")) * len(sites) - 1e-9)
    declared = {str(column.name): _settings(column) for column in known or ()}
    rows = check(PositiveInt, rows, "rows")
    return Together(declared, rows=rows, fewest=max(FEWEST_SITES, fewest), **settings)


def _settings(column: Column) -> dict[str, Any]:
    return {key: value for key, value in column.to_plain().items() if key != "name"}
