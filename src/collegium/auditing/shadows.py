"""All runs of a game: one after the other, in worker processes, or on a Ray cluster."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from typing import Literal

import joblib
import numpy as np
from numpy.typing import NDArray

from collegium.auditing.game import Game, Played
from collegium.errors import ConfigError, MissingExtra
from collegium.reports.progress import progress_bar


def play_all(
    game: Game,
    coins: NDArray[np.bool_],
    seed: int,
    *,
    workers: int,
    link: Literal["local", "ray"],
    progress: bool | None,
) -> list[Played | None]:
    """Play once for each row of coins. The first is the attacked run; a shadow that fails is None.

    At least half of the shadows must succeed.
    """
    if link not in ("local", "ray"):
        raise ConfigError(f"audit: link must be 'local' or 'ray', got {link!r}.")
    seeds = [int(each) for each in np.random.SeedSequence([seed, 4]).generate_state(len(coins)).astype(np.int64)]
    # In this process, where an error of the algorithm's own is an error of the audit.
    played: list[Played | None] = [game.play(coins[0], seeds[0], game.reference(seed))]
    failed: list[str] = []
    with progress_bar("audit", progress if len(coins) > 1 else False) as note:
        for number, outcome in enumerate(_rest(game, coins[1:], seeds[1:], workers, link), start=1):
            if note is not None:
                note(number, len(coins))
            if isinstance(outcome, str):
                failed.append(outcome)
            played.append(None if isinstance(outcome, str) else outcome)
    if len(failed) * 2 > max(1, len(coins) - 1):
        raise ConfigError(
            f"audit: {len(failed)} of {len(coins) - 1} shadow runs failed (first: {failed[0]}). With fewer than half "
            "of them an audit would mislead: make the learners succeed on samples of the site's records, or use "
            "shadows=0."
        )
    return played


def _rest(
    game: Game, coins: NDArray[np.bool_], seeds: Sequence[int], workers: int, link: str
) -> Iterator[Played | str]:
    tasks = (joblib.delayed(_try)(game, row, seed) for row, seed in zip(coins, seeds, strict=True))
    if link == "ray":
        _use_ray()
        with joblib.parallel_config(backend="ray"):
            yield from joblib.Parallel(n_jobs=workers or -1, return_as="list")(tasks)
    elif workers > 1:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "A worker stopped", UserWarning)  # joblib starts another one
            yield from joblib.Parallel(n_jobs=workers, return_as="generator")(tasks)
    else:
        yield from (_try(game, row, seed) for row, seed in zip(coins, seeds, strict=True))


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
