"""`audit`: attack a site in a simulation, with the real algorithm, and compare what is found with what is claimed."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, get_args

import numpy as np
from annotated_types import Ge
from numpy.typing import NDArray

from collegium.auditing import statistics
from collegium.auditing.attacks import FEW_SHADOWS, Attack, gather, score
from collegium.auditing.canaries import FEWEST, Canaries, make_canaries, write_canaries
from collegium.auditing.game import Forged, Game, Played
from collegium.auditing.result import CONSISTENT, CONTRADICTS, NO_CLAIM, Audit, Part, Verdict
from collegium.auditing.shadows import play_all
from collegium.auditing.views import VIEWS, ViewName, find_view
from collegium.core.algorithm import Algorithm
from collegium.core.attendance import Cohort
from collegium.core.public_set import PublicSet
from collegium.core.settings import NonNegativeInt, OpenProbability, PositiveInt, check
from collegium.core.site import Site
from collegium.errors import CollegiumWarning, ConfigError
from collegium.privacy.claims import Account, Charge, PrivacyClaim
from collegium.privacy.learners.base import PrivateLearner
from collegium.runs import checks
from collegium.wire import tables

Workers = Annotated[int, Ge(0)]
CANARIES: Final = 1000
"""As many as there can be, up to so many."""
_FPRS: Final = (0.001, 0.01)
_DELTA: Final = 1e-5
"""For the bound on epsilon where nothing is claimed."""
_GUESSED: Final = 5
"""One in so many canaries is guessed to be in, and as many to be out: fixed before anything is known."""


def audit(
    algorithm: Algorithm,
    sites: Sequence[Site],
    public: Any = None,
    *,
    site: str | None = None,
    view: ViewName = "coordinator",
    forged: bool | Forged = False,
    canaries: int = CANARIES,
    kinds: str | Mapping[str, float] = "mislabelled",
    shadows: int = 0,
    attack: Attack | None = None,
    alpha: float = 0.05,
    seed: int = 0,
    workers: int = 0,
    link: Literal["local", "ray"] = "local",
    cohort: Cohort = "auto",
    classes: Any = None,
    progress: bool | None = None,
    canaries_to: str | Path | None = None,
) -> Audit:
    """Attack one site of a simulated run, and say what the attack proves about its privacy.

    Coins decide which canaries are among the site's records. The algorithm runs as it would; an attacker who sees what
    `view` says guesses the coins. From one run and no shadows follow an AUC and a lower bound on epsilon that holds
    whatever the algorithm does (Steinke, Nasr, Jagielski 2023); shadow runs make the attack stronger.

    Args:
        algorithm: For example ``cg.FedCT(rounds=3)``.
        sites: The sites, each with data and a learner.
        public: The public set, as for `cg.run`; or the algorithm with which the sites make one, ``cg.Together(...)``:
            then each run makes it first, and the attacker sees the sums that it is made of and what the sites label.
        site: The name of the site that is attacked (default: the first one).
        view: Who attacks: 'observer', 'member', 'coordinator', 'glance', 'secret', 'model' or 'weights'.
        forged: Whether the coordinator puts the canaries into the public set: True or 'static'; 'adaptive' runs twice,
            with a second set that is chosen after the first run.
        canaries: How many, at most; no more than half of the site's records.
        kinds: A kind of canary, or shares of several: 'ordinary', 'mislabelled', 'out_of_distribution', 'duplicated'.
        shadows: How many further runs, with other coins, the attacker compares with.
        attack: 'one_run', 'lira', 'rmia', 'quantile' or 'shokri' (default: by the number of shadows).
        alpha: One minus the confidence of each interval, and of the bound on epsilon.
        seed: Same seed, same audit.
        workers: Processes for the runs (0: none but this one).
        link: 'ray' spreads the runs over a Ray cluster instead.
        cohort: Whether alike nets are trained in one computation, those of all shadow runs of a process among them:
            'auto' on a GPU, 'on' everywhere, 'off' nowhere. `Audit.together` says how many shadow runs were.
        classes: All classes, if no site has some of them.
        progress: Show a progress bar (default: if standard error is a terminal).
        canaries_to: For the site's owner: a CSV file for the canaries, with coins and scores. They are records of the
            site, and stand nowhere else.
    """
    start = time.perf_counter()
    game = _game(algorithm, sites, public, site, view, forged, canaries, kinds, seed, classes)
    game = replace(game, cohort=check(Cohort, cohort, "audit: cohort"))
    alpha = check(OpenProbability, alpha, "audit: alpha")
    shadows = check(NonNegativeInt, shadows, "audit: shadows")
    workers = check(NonNegativeInt, workers, "audit: workers")
    chosen = _attack(attack, shadows)
    rng = np.random.default_rng([seed, 2])
    coins = rng.random((1 + shadows, len(game.canaries))) < 0.5
    played, together = play_all(game, coins, seed, workers=workers, link=link, progress=progress)
    _require_evidence(game, view, played[0])
    kept = np.array([each is not None for each in played])
    told = [each for each in played if each is not None]
    codes = np.concatenate([game.canaries.codes, game.population.codes])
    seen = gather([each.evidence for each in told], coins[kept], codes, own_row=game.forged is not None)
    scores = score(seen, chosen, seed)
    if canaries_to is not None:
        write_canaries(game.canaries, coins[0], scores[0], Path(canaries_to))
    found = _found(game, view, chosen, scores, coins[kept], told[0], alpha, seed)
    return replace(found, together=together, seconds=time.perf_counter() - start)


def _game(
    algorithm: Algorithm, sites: Sequence[Site], public: Any, name: str | None, view: str, forged: bool | Forged,
    canaries: int, kinds: str | Mapping[str, float], seed: int, classes: Any,
) -> Game:  # fmt: skip
    checks.check_algorithm(algorithm)
    checked = checks.check_sites(sites, algorithm)
    names = [each.name for each in checked]
    if name is not None and name not in names:
        raise ConfigError(f"audit: there is no site {name!r}; there are {', '.join(names)}.")
    if view not in VIEWS:
        raise ConfigError(f"audit: view must be one of {', '.join(VIEWS)}, got {view!r}.")
    place = 0 if name is None else names.index(name)
    making = public if isinstance(public, Algorithm) else None
    if making is not None:
        _check_making(making, checked)
    _, labels = checks.check_labelled(algorithm, None if making is not None else public)
    opinion = getattr(public, "opinion", None)
    public = _tables(public) if making is None else making
    every = checks.find_classes(checked, classes, labels)
    number = check(PositiveInt, canaries, "audit: canaries")
    if number < FEWEST:
        raise ConfigError(f"audit: with {number} canaries no attack shows anything; pass {FEWEST} or more.")
    shares = {kinds: 1.0} if isinstance(kinds, str) else dict(kinds)
    rng = np.random.default_rng([check(NonNegativeInt, seed, "audit: seed"), 3])
    made, rest = make_canaries(checked[place], every, number, shares, rng)
    if len(made) < number != CANARIES:
        warnings.warn(
            f"Site {rest.name!r} has {len(checked[place])} records: half of them, {len(made)}, become canaries, not "
            f"{number}. With more records an audit shows more.",
            CollegiumWarning,
            stacklevel=3,
        )
    others = list(checked)
    others[place] = rest
    how = _forged(forged, algorithm, view, checked[place], public)
    if find_view(view).model == "member" and len(others) < 2:
        raise ConfigError("audit: view='member' is another site, and there is only one: pass more sites.")
    replaces = _relation(algorithm, checked[place], public, len(every)) == "replace"
    return Game(algorithm, tuple(others), place, public, every, made, find_view(view), how, replaces, opinion=opinion)


def _check_making(algorithm: Algorithm, sites: Sequence[Site]) -> None:
    """The algorithm makes a public set, and can do so for these sites."""
    if not algorithm.makes_public:
        raise ConfigError(
            f"audit: public is {type(algorithm).__name__}, which makes no public set. Pass rows, or cg.Together(...)."
        )
    checks.check_algorithm(algorithm)
    checks.check_sites(sites, algorithm)


def _tables(public: Any) -> Any:
    """The public set with its rows as a table."""
    X = public[0] if isinstance(public, tuple) else public
    X = X.X if isinstance(X, PublicSet) else X
    rows = None if X is None else tables.as_table(X, "audit: public")
    return (rows, *public[1:]) if isinstance(public, tuple) else rows


def _forged(forged: bool | Forged, algorithm: Algorithm, view: str, site: Site, public: Any) -> Forged | None:
    """How the public set is forged, if it is; an error where nobody could."""
    if forged is False:
        return None
    if forged is not True and forged not in get_args(Forged):
        raise ConfigError(f"audit: forged must be True, False, 'static' or 'adaptive', got {forged!r}.")
    how: Forged = "static" if forged is True else forged
    if algorithm.labels_own_points and view == "member":
        return how
    if not find_view(view).forges:
        raise ConfigError(f"audit: only a coordinator chooses the public set; with view={view!r} leave forged out.")
    X = public[0] if isinstance(public, tuple) else public
    if X is None or not (isinstance(X, Algorithm) or tables.n_rows(X)):
        raise ConfigError(
            f"audit: there is no room for a forged row, since {type(algorithm).__name__} was given no public set: pass "
            "public=, or leave forged out."
        )
    if site.policy.public_sha256 is not None or site.public is not None:
        what = "pins the public set" if site.policy.public_sha256 is not None else "has its own copy of the public set"
        raise ConfigError(
            f"audit: site {site.name!r} {what}, so there is no room for a forged row: it would refuse another one. "
            "Audit it with forged=False."
        )
    return how


def _relation(algorithm: Algorithm, site: Site, public: Any, n_classes: int) -> str:
    """The neighbours that the claims of this site are about; adding and removing where there is no claim."""
    X = public[0] if isinstance(public, tuple) else public
    size = 0 if X is None or isinstance(X, Algorithm) else tables.n_rows(X)
    charges: list[Charge | None] = [algorithm.site_charge(size)]
    if isinstance(X, Algorithm):
        size = getattr(X, "rows", 0)
        charges = [algorithm.site_charge(size), X.site_charge(0)]
    if isinstance(site.learner, PrivateLearner):
        charges.append(site.learner.charge(len(site), size, n_classes))
    elif (mechanism := algorithm.protection()) is not None:
        charges.append(mechanism.charge(size, n_classes, records=len(site), observed=1))
    return "replace" if any(each is not None and each.relation == "replace" for each in charges) else "add_remove"


def _attack(attack: str | None, shadows: int) -> Attack:
    if attack is None:
        return "one_run" if not shadows else "rmia" if shadows < FEW_SHADOWS else "lira"
    if attack not in get_args(Attack):
        raise ConfigError(f"audit: attack must be one of {', '.join(get_args(Attack))}, got {attack!r}.")
    if shadows == 0 and attack not in ("one_run", "quantile"):
        raise ConfigError(f"audit: {attack} compares with shadow runs: pass shadows=16 or more, or attack='one_run'.")
    return attack  # type: ignore[return-value]


def _require_evidence(game: Game, view: str, first: Played | None) -> None:
    me = type(game.algorithm).__name__
    if first is None or first.evidence.readings:
        return
    if first.refused is not None:
        raise ConfigError(
            f"audit: site {game.site.name!r} refuses what {me} asks for ({first.refused}), so there is nothing to "
            "attack: audit a study that it takes part in."
        )
    if game.view.model is None and not first.released:
        raise ConfigError(
            f"audit: {me} releases nothing from {game.site.name!r}, so there is nothing to attack. view='model' "
            "attacks the site's model."
        )
    unread = ", ".join(first.evidence.unread) or "nothing"
    raise ConfigError(
        f"audit: view={view!r} shows nothing about single records in {me} (it sees: {unread}). Try another view: "
        f"{', '.join(VIEWS)}."
    )


def _found(
    game: Game, view: str, attack: Attack, scores: NDArray[np.float64], coins: NDArray[np.bool_], first: Played,
    alpha: float, seed: int,
) -> Audit:  # fmt: skip
    claim = _claim(game, first)
    auc, interval, tpr, tpr_interval = statistics.over_runs(scores, coins, _FPRS, alpha, seed)
    delta = _DELTA if claim is None else claim.delta
    right, guesses, bound = _bound(scores[0], coins[0], game.canaries, delta, alpha)
    false, true = statistics.roc(scores.ravel(), coins.ravel())
    verdict: Verdict = NO_CLAIM
    if claim is not None:
        permitted, delta = _about_one_record(claim)
        refuted = _bound(scores[0], coins[0], game.canaries, delta, alpha)[2] > permitted
        verdict = CONTRADICTS if refuted else CONSISTENT
    return Audit(
        algorithm=repr(game.algorithm), site=game.site.name, view=view, attack=attack, forged=game.forged,
        canaries=len(game.canaries), kinds=game.canaries.in_words(), shadows=len(scores) - 1, alpha=alpha, seed=seed,
        auc=auc, auc_interval=interval, tpr=tpr, tpr_interval=tpr_interval, guesses=guesses, right=right,
        epsilon_lower=bound, claim=claim, verdict=verdict, relation="replace" if game.replaces else "add_remove",
        roc=(false.tolist(), true.tolist()), by_kind=_by_kind(game.canaries, scores, coins, alpha, seed),
        unread=dict(first.evidence.unread),
    )  # fmt: skip


def _bound(
    scores: NDArray[np.float64], coins: NDArray[np.bool_], canaries: Canaries, delta: float, alpha: float
) -> tuple[int, int, float]:
    """Right guesses, guesses, and the epsilon that they refute: the highest scores are in, the lowest are out."""
    single = np.flatnonzero(canaries.single)
    each = len(single) // _GUESSED
    if not each:
        return 0, 0, 0.0
    order = single[np.argsort(-scores[single], kind="stable")]
    right = int(coins[order[:each]].sum() + (~coins[order[-each:]]).sum())
    return right, 2 * each, statistics.one_run_epsilon(len(single), 2 * each, right, delta, alpha)


def _about_one_record(claim: PrivacyClaim) -> tuple[float, float]:
    """The epsilon and delta that a claim permits where one record changes.

    For a claim about sites that are added or removed that is two steps: the site leaves, and another one comes.
    """
    if (claim.unit, claim.relation) != ("party", "add_remove"):
        return claim.epsilon, claim.delta
    return 2 * claim.epsilon, min(1.0, (1 + math.exp(min(claim.epsilon, 100.0))) * claim.delta)


def _by_kind(
    canaries: Canaries, scores: NDArray[np.float64], coins: NDArray[np.bool_], alpha: float, seed: int
) -> dict[str, Part]:
    parts = {}
    for kind in canaries.in_words():
        mine = canaries.kinds == kind
        if mine.sum() > 1 and len(canaries.in_words()) > 1:
            auc, interval, tpr, _ = statistics.over_runs(scores[:, mine], coins[:, mine], _FPRS, alpha, seed)
            parts[kind] = Part(int(mine.sum()), auc, interval, tpr)
    return parts


def _claim(game: Game, first: Played) -> PrivacyClaim | None:
    """What is claimed about all that this attacker sees; None where something of it has no claim."""
    charges: tuple[Charge, ...] | None
    if game.view.sees_releases:
        charges = first.charges
    elif isinstance(game.site.learner, PrivateLearner):
        charges = first.charges  # its model, too, is made of private fits
    else:
        charges = None if game.view.model == "site" else first.made_public or first.charges
    # What cost nothing, such as a greeting, has no claim of its own.
    claims = Account(tuple(charge for charge in charges or () if charge.events)).claims()
    # With claims of several kinds, or a nominal one, nothing is claimed about the whole.
    return claims[0] if len(claims) == 1 and claims[0].kind != "nominal" else None
