"""Small tables of mixed types, dealt to sites."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import collegium as cg

COLUMNS: dict[str, Any] = {
    "age": (18, 90),
    "sex": ["F", "M"],
    "dose": (0.0, 50.0),
    "ward": {"categories": ["A", "B", "C"], "missing": True},
}


def rows(n: int, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Patients whose dose depends on their age, and whose ward depends on their label; most doses are 0."""
    rng = np.random.default_rng(seed)
    age = rng.integers(18, 91, n)
    ill = rng.random(n) < (age - 10) / 100
    dose = np.where(rng.random(n) < 0.6, 0.0, np.minimum(age / 2 + rng.random(n) * 5, 50.0))
    ward = np.where(ill, "A", np.where(rng.random(n) < 0.5, "B", "C")).astype(object)
    ward[rng.random(n) < 0.1] = None
    frame = pd.DataFrame({"age": age, "sex": rng.choice(["F", "M"], n), "dose": dose, "ward": ward})
    return frame, np.where(ill, "ill", "well")


def sites(count: int = 5, n: int = 400, **settings: Any) -> list[cg.Site]:
    """Sites with such rows."""
    return [cg.Site(f"s{number}", *rows(n, number), **settings) for number in range(count)]
