"""Hamming distances between the sketches of two sites: the sites see nothing, and the server only the distances.

| backend | what hides the sketches | for |
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
from typing import Final, Literal, get_args

from collegium.errors import ConfigError

Backend = Literal["ot", "paillier", "bfv", "masked", "plain"]
BACKENDS: Final = get_args(Backend)
LONGEST: Final = dict.fromkeys(BACKENDS, (1 << 32) - 1) | {"bfv": (1 << 16) - 1, "masked": (1 << 15) - 1}
"""The bits that a backend's sketches may have at most."""
PACKAGES: Final = {"ot": "nacl", "paillier": "gmpy2", "bfv": "tenseal"}
"""What a backend imports where it runs."""


def named(name: str) -> ModuleType:
    """The module of a backend."""
    return importlib.import_module(f"collegium.protocols.hamming.{name}")


def check_length(who: str, name: str, bits: int) -> None:
    """A ConfigError where sketches are too long for a backend; it names those that take them."""
    if bits > LONGEST[name]:
        able = [other for other in BACKENDS if bits <= LONGEST[other]]
        others = f"take hamming={' or '.join(map(repr, able))}, or fewer bits" if able else "take fewer bits"
        raise ConfigError(
            f"{who}: hamming={name!r} takes sketches of at most {LONGEST[name]} bits, not {bits}: {others}."
        )
