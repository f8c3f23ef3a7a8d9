"""Audits of mechanisms: how often correct ones are flagged, and planted faults are found.

    python -m benchmarks audit_mechanisms [--correct 1000] [--faulty 40] [--trials 10000]

`correct` audits in all, over one mechanism of each kind; `faulty` audits of each fault in each mechanism that can have
it. The faults: half the noise; a sensitivity of which the charge knows half; composition left out of the charge (for
numbers, a mean of four noisy answers that is charged as one); noise from a fixed seed; and noise by the inverse
distribution function of 52-bit uniform numbers on a grid, whose tails have holes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from benchmarks.report import Column, Report, print_with_options, watched
from collegium.auditing.mechanisms import audit_mechanism
from collegium.core.releases import Numbers
from collegium.privacy.claims import Charge
from collegium.privacy.mechanisms.base import Mechanism
from collegium.privacy.mechanisms.gaussian import Gaussian
from collegium.privacy.mechanisms.laplace import Laplace
from collegium.privacy.mechanisms.noisy_max import ConfidentNoisyMax, GaussianNoisyMax, LaplaceNoisyMax
from collegium.privacy.mechanisms.randomized_response import RandomizedResponse
from collegium.privacy.mechanisms.unary import UnaryEncoding
from collegium.privacy.mechanisms.xor import XorMechanism
from collegium.privacy.noise import Noise, SeededNoise

SMALL = {"correct": 16, "faulty": 1, "trials": 10_000}
CORRECT: dict[str, Mechanism] = {
    "randomized_response": RandomizedResponse(1.0),
    "unary_encoding": UnaryEncoding(1.0),
    "xor": XorMechanism(0.5),
    "laplace": Laplace(1.0),
    "gaussian": Gaussian(1.0),
    "laplace_noisy_max": LaplaceNoisyMax(0.3, changed_votes=2),
    "gaussian_noisy_max": GaussianNoisyMax(4.0, changed_votes=2),
    "confident_noisy_max": ConfidentNoisyMax(20, 4.0, 4.0, changed_votes=2),
}
WEAKER: dict[str, Mechanism] = {
    "randomized_response": RandomizedResponse(2.0),
    "unary_encoding": UnaryEncoding(2.0),
    "xor": XorMechanism(1.0),
    "laplace": Laplace(2.0),
    "gaussian": Gaussian(sigma=Gaussian(1.0).sigma / 2),
    "laplace_noisy_max": LaplaceNoisyMax(0.6, changed_votes=2),
    "gaussian_noisy_max": GaussianNoisyMax(2.0, changed_votes=2),
    "confident_noisy_max": ConfidentNoisyMax(20, 2.0, 2.0, changed_votes=2),
}
"""The same with half the noise."""


class Planted(Mechanism):
    """A mechanism that charges like one, and answers otherwise."""

    name = "planted"

    def __init__(self, claimed: Any, answer: Callable[[Any, Noise], Any], charge: Callable[..., Charge]) -> None:
        self._keep({}, claimed=claimed, answer=answer, bill=charge, takes=claimed.takes, gives=claimed.gives)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["claimed"], name)

    @property
    def independent(self) -> bool:
        return bool(self.claimed.independent)

    def apply(self, release: Any, noise: Noise) -> Any:
        return self.answer(release, noise)

    def charge(self, release_size: int, n_classes: int, **known: Any) -> Charge:
        return self.bill(release_size, n_classes, **known)


class Porous(Noise):
    """Noise by the inverse distribution function, on a grid."""

    seeded = True

    def __init__(self, source: Noise) -> None:
        self.words = source.words  # type: ignore[method-assign]

    def words(self, n: int) -> NDArray[np.uint64]:
        raise NotImplementedError

    def add_laplace(self, values: NDArray[Any], scale: float, sensitivity: float) -> NDArray[np.float64]:
        u = self.uniform(values.shape) - 0.5
        return _on_grid(values - scale * np.sign(u) * np.log1p(-2 * np.abs(u)), scale)

    def add_normal(self, values: NDArray[Any], sigma: float, sensitivity: float) -> NDArray[np.float64]:
        return _on_grid(values + sigma * ndtri(self.uniform(values.shape)), sigma)


def _on_grid(values: NDArray[Any], spread: float) -> NDArray[np.float64]:
    grid = 2.0 ** (np.ceil(np.log2(spread)) - 40)
    return np.asarray(np.round(values / grid) * grid)


def planted() -> Iterator[tuple[str, str, Mechanism]]:
    """Every fault in every mechanism that can have it."""
    for name, made in CORRECT.items():
        yield "half the noise", name, Planted(made, WEAKER[name].apply, made.charge)
        yield "wrong sensitivity", name, Planted(made, made.apply, _half_charged(made))
        several = _mean_of_four(made) if made.takes is Numbers else made.apply
        once = made.charge if made.takes is Numbers else (lambda size, *a, m=made, **k: m.charge(min(size, 1), *a, **k))
        yield "ignored composition", name, Planted(made, several, once)
        yield "seeded noise", name, Planted(made, _seeded(made), made.charge)
        if made.takes is Numbers:
            yield "holes", name, Planted(made, lambda x, noise, m=made: m.apply(x, Porous(noise)), made.charge)


def _half_charged(made: Any) -> Callable[..., Charge]:
    """What is charged if only half as much changes: half the votes, half the number, or every other label's cost."""
    if made.takes is Numbers:
        named = {Laplace: "scale", Gaussian: "sigma"}[type(made)]
        halved: Any = type(made)(**{named: made.spread}, sensitivity=made.sensitivity / 2)
        return halved.charge  # type: ignore[no-any-return]
    if hasattr(made, "changed_votes"):
        return replace(made, changed_votes=made.changed_votes // 2).charge  # type: ignore[no-any-return]
    halved = {"randomized_response": RandomizedResponse(0.5), "unary_encoding": UnaryEncoding(0.5)}
    return halved.get(made.name, XorMechanism(0.25)).charge  # type: ignore[no-any-return]


def _mean_of_four(made: Any) -> Callable[[Any, Noise], Numbers]:
    return lambda release, noise: Numbers(np.mean([made.apply(release, noise).values for _ in range(4)], axis=0))


def _seeded(made: Any) -> Callable[[Any, Noise], Any]:
    return lambda release, noise: made.apply(release, SeededNoise(np.random.default_rng(7)))


def _flagged(made: Mechanism, audits: int, trials: int, first_seed: int) -> dict[str, Any]:
    started = time.perf_counter()
    found = [audit_mechanism(made, trials=trials, seed=first_seed + i) for i in range(audits)]
    flagged = sum(audit.verdict != "consistent" for audit in found)
    why = next((audit.why.partition(":")[0] for audit in found if audit.verdict != "consistent"), "")
    return {"audits": audits, "flagged": flagged, "share": flagged / audits, "why": why,
            "seconds": (time.perf_counter() - started) / audits}  # fmt: skip


def measure(correct: int, faulty: int, trials: int) -> list[dict[str, Any]]:
    """A row for each mechanism without a fault, and for each fault in each."""
    each = -(-correct // len(CORRECT))
    rows = [
        {"case": "correct", "mechanism": name} | _flagged(made, each, trials, 3_000_000 + 10_000 * place)
        for place, (name, made) in enumerate(watched(CORRECT.items(), "correct mechanisms", len(CORRECT)))
    ]
    total = {key: sum(row[key] for row in rows) for key in ("audits", "flagged")}
    rows.append({"case": "correct", "mechanism": "all of them"} | total | {"share": total["flagged"] / total["audits"]})
    faults = list(planted())
    for fault, name, made in watched(faults, "planted faults", len(faults)):
        rows.append({"case": fault, "mechanism": name} | _flagged(made, faulty, trials, 2_000_000))
    return rows


def report(correct: int = 1000, faulty: int = 40, trials: int = 10_000) -> Report:
    """How often audits flag what they should, and what they should not."""
    return Report(
        f"Audits of mechanisms with {trials:,} trials, alpha .05",
        {
            "case": Column("case"), "mechanism": Column("mechanism"), "audits": Column("audits"),
            "flagged": Column("flagged"), "share": Column("share", ".1%"), "found by": Column("why"),
            "seconds each": Column("seconds", ".2f"),
        },
        measure(correct, faulty, trials),
        words=2,
        notes="Correct mechanisms may be flagged in at most 5% of audits.",
    )  # fmt: skip


if __name__ == "__main__":
    print_with_options(report, __doc__)
