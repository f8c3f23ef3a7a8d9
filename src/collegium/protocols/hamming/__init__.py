"""Hamming distances between the codes of two sites, of which the sites see nothing and the server only the distances.

| backend | what hides the codes | for |
| --- | --- | --- |
| ``ot`` | oblivious transfer | the default |
| ``paillier`` | Paillier encryption | slow links |
| ``bfv`` | lattice encryption (extra `bfv`) | a middle way |
| ``masked`` | a key that all sites share | speed; the server and any one site together read everything |
| ``plain`` | nothing | simulations only |

Every backend is a module with a class for each party, whose methods make and take messages of plain data; `LEARNS`
says what each party gets to know. All give exactly the same distances.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import Any, Final, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigError
from collegium.protocols.hamming.distances import Distances, checked_bits
from collegium.protocols.hamming.transcript import Transcript

Backend = Literal["ot", "paillier", "bfv", "masked", "plain"]
BACKENDS: Final = get_args(Backend)
LONGEST: Final = {
    "ot": (1 << 32) - 1,
    "paillier": (1 << 32) - 1,
    "bfv": (1 << 16) - 1,
    "masked": (1 << 15) - 1,
    "plain": (1 << 32) - 1,
}
"""The bits that a backend's codes may have at most."""

__all__ = ["BACKENDS", "Backend", "LONGEST", "Transcript", "check_length", "named", "pairwise"]


def named(name: str) -> ModuleType:
    """The module of a backend."""
    if name not in BACKENDS:
        raise ConfigError(f"Hamming distances are computed by {', '.join(BACKENDS)}, not {name!r}.")
    return importlib.import_module(f"collegium.protocols.hamming.{name}")


def check_length(who: str, name: str, bits: int) -> None:
    """A ConfigError where codes are too long for a backend; it names those that take them."""
    if bits > LONGEST[name]:
        able = [other for other in BACKENDS if bits <= LONGEST[other]]
        others = f"take hamming={' or '.join(map(repr, able))}, or fewer bits" if able else "take fewer bits"
        raise ConfigError(f"{who}: hamming={name!r} takes codes of at most {LONGEST[name]} bits, not {bits}: {others}.")


def pairwise(
    A_bits: NDArray[Any],
    B_bits: NDArray[Any],
    backend: str = "ot",
    transcript: Transcript | None = None,
    **options: Any,
) -> Distances:
    """All distances between the rows of A_bits (n, L) and those of B_bits (m, L): a table (n, m).

    Runs all parties in this one process: for tests and measurements. `transcript` takes the sizes of all messages
    and the time of each party ("a", "b" and "server"); options go to the backend.
    """
    a, b = checked_bits(A_bits), checked_bits(B_bits)
    if a.shape[1] != b.shape[1]:
        raise ConfigError(f"Codes of both sites have the same length, not {a.shape[1]} and {b.shape[1]} bits.")
    module = named(backend)
    distances: Distances = module.run(a, b, Transcript() if transcript is None else transcript, **options)
    return np.ascontiguousarray(distances)
