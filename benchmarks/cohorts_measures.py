"""What `benchmarks.cohorts` measures, each through `cg.run` as users call it.

A measure is a function of the place, and of sizes, that yields rows. Where sites that take turns would need minutes,
their time is that of few steps, rounds or epochs, continued in proportion; the row's note says so.
"""

from __future__ import annotations

import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import collegium as cg
from benchmarks.data import fashion_mnist
from benchmarks.fedkt import dirichlet
from benchmarks.machine import available_cores, limited_to
from benchmarks.pool import undisturbed
from collegium.data.sources import load_source
from collegium.runs.callbacks import RoundReport

Row = dict[str, Any]
Cohort = Literal["auto", "on", "off"]
Shape = tuple[int, ...]
CLASSES = np.arange(10)
WARM = 2
"""Rounds before the clock counts: the first one of FedCT has no public labels, and in the second all is new."""
PRECISIONS = ("float32", "tf32", "bfloat16")
PIXELS, DIGIT, PICTURE = (784,), (1, 28, 28), (3, 32, 32)


@dataclass(frozen=True)
class Place:
    """Where to measure: the device, and the folder with the data sets."""

    device: str
    data: Path


@dataclass(frozen=True)
class Lengths:
    """Of two runs, how many steps their rounds have, in turns and together."""

    turns: tuple[int, int]
    together: tuple[int, int]


def dense(m: int) -> Lengths:
    """About half a second between the two for a small dense net at m sites, on a GPU; with 1,000 sites, one second."""
    few = 50 if m <= 100 else 10
    return Lengths((5, 5 + 1000 // m), (few, few + max(60, min(500, 20_000 // m))))


def convolved(m: int) -> Lengths:
    """The same for a net with convolutions."""
    return Lengths((2, 2 + 160 // m), (10, 60))


@dataclass
class Clock(cg.Callback):
    """When the rounds of a run ended; a GPU has done by then what it was given."""

    device: str
    ends: list[float] = field(default_factory=list)
    computed: list[float] = field(default_factory=list)
    """The seconds that all cores had worked by then, which a busy machine changes little."""

    def on_round(self, report: RoundReport) -> None:
        if self.device.startswith("cuda"):
            import torch

            torch.cuda.synchronize()
        self.ends.append(time.perf_counter())
        self.computed.append(time.process_time())

    def round_seconds(self, *, with_last: bool = True) -> float:
        """The median of the rounds after the first ones. In the last of some methods sites receive the final model."""
        seconds: list[float] = np.diff(self.ends)[WARM - 1 :].tolist()
        return median(seconds if with_last else seconds[:-1])


@dataclass(frozen=True)
class Trial:
    """A run, its clock, and its seconds from end to end."""

    run: cg.Run
    clock: Clock
    seconds: float

    @property
    def joined(self) -> int:
        """How many sites were trained together with others."""
        return int(self.run.about["cohort"]["together"])


def tried(place: Place, algorithm: cg.Algorithm, sites: Sequence[cg.Site], cohort: Cohort, **options: Any) -> Trial:
    """Run it with the sites in turns ("off"), together ("on"), or as it comes ("auto")."""
    clock = Clock(place.device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cg.CollegiumWarning)
        begun = time.perf_counter()
        run = cg.run(
            algorithm,
            sites=sites,
            cohort=cohort,
            device=place.device,
            classes=CLASSES,
            callbacks=[clock],
            progress=False,
            **options,
        )
        seconds = time.perf_counter() - begun
    return Trial(undisturbed(run), clock, seconds)


def compared(what: str, sites: int, unit: str, turns: float | None, together: float, aim: float | None = None) -> Row:
    """A row with both ways."""
    return {
        "what": what,
        "sites": sites,
        "unit": unit,
        "turns": turns,
        "together": together,
        "ratio": None if not turns or not together else turns / together,
        "aim": aim,
        "reached": None if aim is None else together <= aim,
    }


def in_turns_at(precision: str, row: Row) -> Row:
    """The row of this precision: sites in turns were measured in float32 alone."""
    return row | {"precision": precision} | ({} if precision == "float32" else {"turns": None, "ratio": None})


def last_of(run: cg.Run, metric: str) -> float:
    """The last value of one of the run's metrics; NaN where it has none."""
    values = run.metrics[run.metrics["metric"] == metric]["value"]
    return float(values.iloc[-1]) if len(values) else float("nan")


def random_rows(n: int, shape: Shape, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Noise around the mean of its class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, len(CLASSES), n)
    X = rng.random((n, *shape), dtype=np.float32)
    X += (y / len(CLASSES)).astype(np.float32).reshape(-1, *[1] * len(shape))
    return X, y


def random_sites(m: int, rows: int, shape: Shape, net: cg.TorchClassifier) -> list[cg.Site]:
    """Sites of one size."""
    X, y = random_rows(m * rows, shape)
    return [
        cg.Site(f"s{i:04}", X[i * rows : (i + 1) * rows], y[i * rows : (i + 1) * rows], learner=net) for i in range(m)
    ]


def step_ms(
    place: Place, sites: Sequence[cg.Site], public: Any, cohort: Cohort, steps: tuple[int, int], precision: str
) -> tuple[float, int]:
    """Milliseconds of a step of all sites, and how many sites trained together."""
    seconds, joined = [], 0
    for each in steps:
        if public is None:
            algorithm: cg.Algorithm = cg.Local(rounds=WARM + 5, steps=each)
        else:
            algorithm = cg.FedCT(rounds=WARM + 5, steps=each)
        trial = tried(place, algorithm, sites, cohort, public=public, precision=precision)
        seconds.append(trial.clock.round_seconds())
        joined = trial.joined
    return 1000 * (seconds[1] - seconds[0]) / (steps[1] - steps[0]), joined


def step_row(
    place: Place,
    what: str,
    sites: Sequence[cg.Site],
    lengths: Lengths,
    *,
    public: Any = None,
    precision: str = "float32",
    aim: float | None = None,
) -> Row:
    """A step of all sites, both ways."""
    turns, _ = step_ms(place, sites, public, "off", lengths.turns, precision)
    together, joined = step_ms(place, sites, public, "on", lengths.together, precision)
    return compared(what, len(sites), "ms", turns, together, aim) | {"precision": precision, "joined": joined}


def mlp(
    place: Place,
    sites: Sequence[int] = (5, 20, 100),
    rows: int = 500,
    lengths: Callable[[int], Lengths] = dense,
    precisions: Sequence[str] = PRECISIONS[:2],
) -> Iterator[Row]:
    """A step of FedCT's MLP: 64 private rows, alone and with 64 public ones beside them."""
    public = random_rows(512, PIXELS, seed=1)[0]
    for m in sites:
        aim = {5: 0.25, 20: 0.4, 100: 1.3}.get(m)
        parts = random_sites(m, rows, PIXELS, cg.TorchClassifier("mlp", batch_size=64, random_state=0))
        for precision in precisions:
            yield step_row(place, "step, MLP", parts, lengths(m), precision=precision, aim=aim)
            beside: dict[str, Any] = {"public": public, "precision": precision, "aim": aim}
            yield step_row(place, "step, MLP, public rows beside", parts, lengths(m), **beside)


def clothes(place: Place, m: int, private: int, public: int) -> tuple[list[cg.Site], dict[str, Any]]:
    """Fashion-MNIST over m sites alike, with the MLP of FedCT's Table 13; and the other data of a run."""
    (X, y), (T, t) = fashion_mnist(place.data)
    flat = (X.reshape(len(X), -1) / 255).astype(np.float32)
    split = cg.split(flat, y.astype(np.int64), sites=m, public=public, test=0, train=private, seed=0)
    net = cg.TorchClassifier("mlp", lr=1e-3, batch_size=64, epochs=2)
    sites = [cg.Site(name, *part, learner=net) for name, part in zip(split.names, split.sites, strict=True)]
    test = (T.reshape(len(T), -1) / 255).astype(np.float32), t.astype(np.int64)
    return sites, {"public": split.public, "public_truth": split.public_truth, "test": test, "test_sites": False}


def fedct(
    place: Place,
    sites: Sequence[int] = (5, 20, 100),
    private: int = 10_000,
    public: int = 50_000,
    steps: int = 50,
    rounds: tuple[int, int] = (WARM + 2, WARM + 10),
    precisions: Sequence[str] = PRECISIONS[:2],
) -> Iterator[Row]:
    """All of a FedCT round, predictions and consensus included, divided by its steps."""
    for m in sites:
        parts, data = clothes(place, m, private, public)
        aim = {5: 0.4, 20: 0.8, 100: 3.0}.get(m)
        turns = None
        if "float32" in precisions:
            slow = tried(place, cg.FedCT(rounds=rounds[0], steps=steps), parts, "off", **data)
            turns = 1000 * slow.clock.round_seconds() / steps
        for precision in precisions:
            together = tried(place, cg.FedCT(rounds=rounds[1], steps=steps), parts, "on", precision=precision, **data)
            ms = 1000 * together.clock.round_seconds() / steps
            yield in_turns_at(precision, compared("round of FedCT, per step", m, "ms", turns, ms, aim)) | {
                "joined": together.joined,
                "note": f"{steps} steps a round, {public:,} public rows",
            }


def cnn(
    place: Place,
    sites: Sequence[int] = (5, 20),
    rows: int = 500,
    lengths: Callable[[int], Lengths] = convolved,
    precisions: Sequence[str] = PRECISIONS,
) -> Iterator[Row]:
    """A step of the CNN of FedCT's Table 12: batch norm and dropout, 64 rows."""
    aims = {("float32", 5): 2.0, ("float32", 20): 8.0, ("bfloat16", 5): 1.3, ("bfloat16", 20): 5.0}
    for m in sites:
        parts = random_sites(m, rows, PICTURE, cg.TorchClassifier("cnn_cifar10", batch_size=64, random_state=0))
        for precision in precisions:
            aim = aims.get((precision, m))
            yield step_row(place, "step, CNN of Table 12", parts, lengths(m), precision=precision, aim=aim)


def resnet(
    place: Place,
    m: int = 16,
    rows: int = 500,
    lengths: Callable[[int], Lengths] = convolved,
    precisions: Sequence[str] = PRECISIONS,
) -> Iterator[Row]:
    """A step of ResNet-8, 32 rows."""
    parts = random_sites(m, rows, PICTURE, cg.TorchClassifier("resnet8", batch_size=32, random_state=0))
    for precision in precisions:
        yield step_row(place, "step, ResNet-8", parts, lengths(m), precision=precision, aim=0.5 * m)


def ledger(
    place: Place,
    m: int = 5,
    private: int = 10_000,
    public: int = 50_000,
    steps: int = 50,
    rounds: int = 400,
    few: int = 10,
    precisions: Sequence[str] = PRECISIONS[:2],
) -> Iterator[Row]:
    """FedCT on Fashion-MNIST from end to end, with a folder: record, ledger and results."""
    parts, data = clothes(place, m, private, public)

    def whole(cohort: Cohort, n: int, precision: str) -> Trial:
        algorithm = cg.FedCT(rounds=n, steps=steps)
        with tempfile.TemporaryDirectory() as folder:
            return tried(place, algorithm, parts, cohort, out=Path(folder) / "run", precision=precision, **data)

    turns = None
    if "float32" in precisions:
        short = whole("off", few, "float32")
        turns = short.seconds + (rounds - few) * short.clock.round_seconds()
    for precision in precisions:
        long = whole("on", rounds, precision)
        quality = last_of(long.run, "consensus_quality")
        row = compared(f"FedCT, T = {rounds * steps:,}, with a run folder", m, "s", turns, long.seconds, 8.0)
        yield in_turns_at(precision, row) | {
            "joined": long.joined,
            "note": f"in turns: from {few} of {rounds} rounds; consensus quality together {quality:.4f}",
        }


def fedaux(
    place: Place,
    m: int = 40,
    rows: int = 1_250,
    distilled: int = 48_000,
    rounds: int = WARM + 3,
    precisions: Sequence[str] = PRECISIONS,
) -> Iterator[Row]:
    """A round of FedAUX: .4 of the sites train for an epoch, all of them teach, the coordinator distills."""
    parts = random_sites(m, rows, PICTURE, cg.TorchClassifier("resnet8", lr=1e-3, batch_size=32, random_state=0))
    negatives = distilled // 24
    public = random_rows(distilled + negatives, PICTURE, seed=1)[0]
    algorithm = cg.FedAUX(rounds=rounds, participation=0.4, negatives=negatives / len(public), epsilon=1.0, ridge=0.01)
    turns = None
    if "float32" in precisions:
        turns = tried(place, algorithm, parts, "off", public=public).clock.round_seconds(with_last=False)
    for precision in precisions:
        together = tried(place, algorithm, parts, "on", public=public, precision=precision)
        seconds = together.clock.round_seconds(with_last=False)
        row = compared("round of FedAUX, ResNet-8", m, "s", turns, seconds, 2.0)
        yield in_turns_at(precision, row) | {
            "joined": together.joined,
            "note": f"{round(0.4 * m)} of {m} sites, {distilled:,} public rows distilled",
        }


def simclr(place: Place, rows: int = 60_000, batch: int = 512, epochs: int = 4) -> Iterator[Row]:
    """An epoch of SimCLR: one net, so nothing to train together."""
    X = random_rows(rows, PICTURE)[0]
    ends: list[float] = []
    cg.SimCLR(epochs=epochs, batch_size=batch, device=place.device, progress=False).pretrain(
        cg.TorchClassifier("resnet8", random_state=0), X, on_epoch=lambda *_: ends.append(time.perf_counter())
    )
    seconds = median(np.diff(ends).tolist())
    note = f"batches of {batch}; convolutions in bfloat16 on a GPU"
    yield compared(f"epoch of SimCLR, {rows:,} images, ResNet-8", 1, "s", None, seconds, 1.0) | {"note": note}


def fedkt(
    place: Place,
    parties: int = 10,
    rows: int = 50_000,
    public: int = 5_000,
    epochs: int = 100,
    few: tuple[int, int] = (1, 3),
) -> Iterator[Row]:
    """FedKT on MNIST from end to end: ten teachers and two students a party, and the final model."""
    data = load_source("mnist", folder=place.data)
    assert data.test is not None
    X, test = (np.asarray(part, dtype=np.float32)[:, None] / 255 for part in (data.X, data.test[0]))
    dealt = dirichlet(data.y[:rows], parties, np.random.RandomState(0))
    exam = {"public": test[:public], "test": (test[public:], data.test[1][public:])}

    def whole(cohort: Cohort, length: int) -> Trial:
        net = cg.TorchClassifier("lenet", lr=1e-3, batch_size=32, epochs=length, weight_decay=1e-6)
        sites = [cg.Site(f"party{i}", X[own], data.y[own], learner=net) for i, own in enumerate(dealt)]
        return tried(place, cg.FedKT(), sites, cohort, **exam)

    whole("off", few[0])  # the first run in a process also starts what all runs use
    short, longer = (whole("off", length).seconds for length in few)
    turns = short + (epochs - few[0]) * (longer - short) / (few[1] - few[0])
    together = whole("on", epochs)
    accuracy = last_of(together.run, "global_accuracy")
    yield compared(f"FedKT, MNIST, {epochs} epochs", parties, "s", turns, together.seconds, 20.0) | {
        "precision": "float32",
        "joined": together.joined,
        "note": f"in turns: from runs of {few[0]} and {few[1]} epochs; accuracy together {accuracy:.4f}",
    }


def curve(
    place: Place,
    sites: Sequence[int] = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000),
    rows: int = 100,
    lengths: Callable[[int], Lengths] = dense,
    most_in_turns: int = 100,
) -> Iterator[Row]:
    """What a site's step costs, by the number of sites."""
    for m in sites:
        parts = random_sites(m, rows, PIXELS, cg.TorchClassifier("mlp", batch_size=64, random_state=0))
        turns = step_ms(place, parts, None, "off", lengths(m).turns, "float32")[0] / m if m <= most_in_turns else None
        together, joined = step_ms(place, parts, None, "on", lengths(m).together, "float32")
        yield compared("step of a site, MLP", m, "ms", turns, together / m) | {"precision": "float32", "joined": joined}


def equality(place: Place, m: int = 5, rows: int = 500, steps: int = 50) -> Iterator[Row]:
    """The largest difference between a weight of a site trained together and the same trained in its turn."""
    kinds = [("mlp", PIXELS, 500), ("lenet", DIGIT, 0), ("resnet8", PICTURE, 0)]
    for (name, shape, public), (optimizer, lr) in product(kinds, [("adam", 1e-3), ("sgd", 0.05)]):
        net = cg.TorchClassifier(name, optimizer=optimizer, lr=lr, batch_size=32, random_state=0)
        parts = random_sites(m, rows, shape, net)
        algorithm = cg.FedCT(rounds=2, steps=steps // 2) if public else cg.Local(steps=steps)
        data = {"public": random_rows(public, shape, seed=1)[0]} if public else {}
        runs = [tried(place, algorithm, parts, cohort, **data) for cohort in ("off", "off", "on")]
        again, apart = (difference(runs[0].run, other.run) for other in runs[1:])
        yield compared(
            f"weights of {name} after {steps} steps of {optimizer}", m, "largest difference", again, apart, 1e-4
        ) | {
            "ratio": None,
            "precision": "float32",
            "joined": runs[2].joined,
            "note": "in turns: of a second run in turns from the first",
        }


def difference(one: cg.Run, other: cg.Run) -> float:
    """Of all weights of all sites, the largest absolute difference."""
    return max(
        float(np.abs(weight - other.models[party].estimator.get_weights()[name]).max())
        for party, model in one.models.items()
        for name, weight in model.estimator.get_weights().items()
    )


def cpu(
    place: Place, sites: Sequence[int] = (5, 20), rows: int = 200, steps: int = 10, repeats: int = 2, cores: int = 2
) -> Iterator[Row]:
    """Rounds of FedCT with small nets on the CPU: "auto" may not be slower than sites in turns."""
    here = Place("cpu", place.data)
    with limited_to(min(cores, available_cores())):
        for name, shape in (("linear", (20,)), ("mlp", (20,)), ("lenet", DIGIT)):
            public = random_rows(500, shape, seed=1)[0]
            for m in sites:
                parts = random_sites(m, rows, shape, cg.TorchClassifier(name, batch_size=32, random_state=0))
                algorithm = cg.FedCT(rounds=WARM + 4, steps=steps)
                found: dict[Cohort, list[float]] = {"off": [], "auto": [], "on": []}
                computed: dict[Cohort, list[float]] = {"off": [], "auto": [], "on": []}
                joined = dict.fromkeys(found, 0)
                for _ in range(repeats):
                    for cohort, seconds in found.items():
                        trial = tried(here, algorithm, parts, cohort, public=public)
                        seconds.append(1000 * trial.clock.round_seconds())
                        computed[cohort].append(1000 * min(np.diff(trial.clock.computed)[WARM - 1 :]))
                        joined[cohort] = trial.joined
                best = {cohort: min(seconds) for cohort, seconds in found.items()}
                for cohort in list(found)[1:]:
                    aim = 1.05 * best["off"] if cohort == "auto" else None
                    what = f"round of FedCT, {name}, CPU, {cohort}"
                    yield compared(what, m, "ms", best["off"], best[cohort], aim) | {
                        "precision": "float32",
                        "joined": joined[cohort],
                        "note": f"{steps} steps a round, best of {repeats} medians; CPU time in turns "
                        f"{min(computed['off']):.0f} ms, so {min(computed[cohort]):.0f} ms",
                    }


MEASURES: dict[str, Callable[..., Iterator[Row]]] = {
    "mlp": mlp, "fedct": fedct, "cnn": cnn, "resnet": resnet, "ledger": ledger, "fedaux": fedaux, "simclr": simclr,
    "fedkt": fedkt, "curve": curve, "equality": equality, "cpu": cpu,
}  # fmt: skip
TINY: dict[str, dict[str, Any]] = {
    "mlp": {"sites": (2,), "rows": 70, "lengths": lambda _: Lengths((1, 2), (1, 2))},
    "fedct": {"sites": (2,), "private": 100, "public": 50, "steps": 2, "rounds": (WARM + 2, WARM + 2)},
    "cnn": {"sites": (2,), "rows": 20, "lengths": lambda _: Lengths((1, 2), (1, 2)), "precisions": ["float32"]},
    "resnet": {"m": 2, "rows": 20, "lengths": lambda _: Lengths((1, 2), (1, 2)), "precisions": ["float32"]},
    "ledger": {"private": 100, "public": 50, "steps": 2, "rounds": 5, "few": 4, "precisions": ["float32"]},
    "fedaux": {"m": 5, "rows": 16, "distilled": 48, "rounds": WARM + 2, "precisions": ["float32"]},
    "simclr": {"rows": 8, "batch": 4, "epochs": 2},
    "fedkt": {"parties": 2, "rows": 120, "public": 20, "epochs": 3, "few": (1, 2)},
    "curve": {"sites": (1, 2), "rows": 70, "lengths": lambda _: Lengths((1, 2), (1, 2))},
    "equality": {"m": 2, "rows": 40, "steps": 4},
    "cpu": {"sites": (2,), "rows": 40, "steps": 2, "repeats": 1},
}
