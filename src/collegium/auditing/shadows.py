"""All runs of a game: one after the other, in worker processes, or on a Ray cluster.

Shadow runs whose nets are alike take place at the same time in one process, where the sites of all of them meet: their
nets are trained together, as those of the sites of one run are.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final, Literal, NamedTuple

import joblib
import numpy as np
from numpy.typing import NDArray

from collegium.auditing.game import Game, Played
from collegium.core.attendance import Attendance
from collegium.core.meeting import convene
from collegium.core.places import Places
from collegium.errors import CollegiumWarning, ConfigError, MissingExtra
from collegium.links.hosting import available_cores, threads_per_site, why_alone
from collegium.reports.progress import progress_bar

SITES_AT_ONCE: Final = 128
"""Sites of the shadow runs that take place at once: more of them train hardly faster, and each has a thread."""


class PlayedAll(NamedTuple):
    """What came of all runs of a game."""

    runs: list[Played | None]
    """The attacked run, and the shadows; one that failed is None."""
    together: int
    """How many shadow runs had nets that were trained together with those of others."""


def play_all(
    game: Game,
    coins: NDArray[np.bool_],
    seed: int,
    *,
    workers: int,
    link: Literal["local", "ray"],
    progress: bool | None,
) -> PlayedAll:
    """Play once for each row of coins. The first is the attacked run. At least half of the shadows must succeed."""
    if link not in ("local", "ray"):
        raise ConfigError(f"audit: link must be 'local' or 'ray', got {link!r}.")
    seeds = [int(each) for each in np.random.SeedSequence([seed, 4]).generate_state(len(coins)).astype(np.int64)]
    # In this process, where an error of the algorithm's own is an error of the audit.
    played: list[Played | None] = [game.play(coins[0], seeds[0], game.reference(seed))]
    failed: list[str] = []
    together = 0
    with progress_bar("audit", progress if len(coins) > 1 else False) as note:
        for some, attendance in _rest(game, coins[1:], seeds[1:], workers, link):
            failed += [outcome for outcome in some.values() if isinstance(outcome, str)]
            played += [None if isinstance(outcome, str) else outcome for outcome in some.values()]
            together += sum(name in attendance.together and not isinstance(run, str) for name, run in some.items())
            if note is not None:
                note(len(played) - 1, len(coins))
    if len(failed) * 2 > max(1, len(coins) - 1):
        raise ConfigError(
            f"audit: {len(failed)} of {len(coins) - 1} shadow runs failed (first: {failed[0]}). With fewer than half "
            "of them an audit would mislead: make the learners succeed on samples of the site's records, or use "
            "shadows=0."
        )
    return PlayedAll(played, together)


_Some = tuple[dict[str, Played | str], Attendance]
"""What came of a few shadow runs, by name, and which of them were trained together."""


def _rest(game: Game, coins: NDArray[np.bool_], seeds: Sequence[int], workers: int, link: str) -> Iterator[_Some]:
    size = _at_once(game, len(seeds), workers or (available_cores() if link == "ray" else 1))
    parts = [slice(start, start + size) for start in range(0, len(seeds), size)]
    tasks = (joblib.delayed(_try_some)(game, coins[part], seeds[part]) for part in parts)
    if link == "ray":
        _use_ray()
        with joblib.parallel_config(backend="ray"):
            yield from joblib.Parallel(n_jobs=workers or -1, return_as="list")(tasks)
    elif workers > 1:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "A worker stopped", UserWarning)  # joblib starts another one
            yield from joblib.Parallel(n_jobs=workers, return_as="generator")(tasks)
    else:
        yield from (_try_some(game, coins[part], seeds[part]) for part in parts)


def _at_once(game: Game, shadows: int, processes: int) -> int:
    """How many shadow runs take place at once in a process: several where their nets can be trained together."""
    if all(why_alone(site.learner, game.cohort) is not None for site in game.sites):
        return 1
    return max(1, min(SITES_AT_ONCE // len(game.sites), -(-shadows // processes)))


def _try_some(game: Game, coins: NDArray[np.bool_], seeds: Sequence[int]) -> _Some:
    tasks = {f"{place:06}": partial(_try, game, coins[place], seed) for place, seed in enumerate(seeds)}
    attendance = Attendance()
    if len(tasks) == 1:
        return {name: task() for name, task in tasks.items()}, attendance
    on_gpu = all(why_alone(site.learner, "auto") is None for site in game.sites)
    # What each run sets for its process, and puts back, is the same for all of them.
    with threads_per_site(), warnings.catch_warnings():
        warnings.simplefilter("ignore", CollegiumWarning)
        return convene(tasks, attendance, Places(1 if on_gpu else available_cores())), attendance


def _try(game: Game, coins: NDArray[np.bool_], seed: int) -> Played | str:
    """One run, or what kind of error ended it: its text could quote a record."""
    try:
        return game.play(coins, seed)
    except Exception as error:  # whatever a learner may raise
        return type(error).__name__


def _use_ray() -> None:
    try:
        from ray.util.joblib import register_ray
    except ModuleNotFoundError as missing:
        raise MissingExtra("ray", "link='ray'") from missing
    register_ray()  # type: ignore[no-untyped-call]
