"""Fashion-MNIST with the paper's MLP: FedCT's Table 1 (sites alike), method by method.

    python -m benchmarks.fashion [--seeds 3] [--communications 400] [--steps 50] [--device cuda] [--jobs 3]
                                 [--keep runs/fashion] [--measure 1] [--private 10_000] [--public 50_000]

Five sites share 10,000 `private` rows; 50,000 `public` rows, the data set's own 10,000 test rows. The authors' rounds
are mini-batch steps: T = 20,000 with b = 50 is 400 communications of 50 steps of 64 private rows, and 64 public ones
where a method learns from those. All methods do the same number of steps, by Adam at 1e-3. Accuracy is the mean over
sites after the last step, or that of the global model where a method makes one; and its best over the run. Centralized
is one net on all private rows. `jobs` runs work at a time, all on the one device, each on a core of its own; `keep`
names a folder from which an interrupted benchmark goes on; `measure` 0 makes the table of what is there.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

import collegium as cg
from benchmarks.data import data_folder, fashion_mnist
from benchmarks.pool import Found, Task, in_parallel, machines, undisturbed
from benchmarks.report import Column, Report, print_with_options, watched
from collegium.privacy.accountant import noise_multiplier

SITES, PRIVATE, PUBLIC = 5, 10_000, 50_000
DELTA = 1e-5
SCAFFOLD_RATE = 0.02
# What the paper's table has, from the slowest run to the fastest.
PAPER = {
    "DD": 0.82, "FedCT": 0.84, "FedAvg": 0.83, "DP-FedAvg, epsilon 0.1": 0.69, "DP-FedAvg, clip parameters": 0.69,
    "local": None, "PATE": 0.73, "centralized": None,
}  # fmt: skip
SHOWN = (
    "local", "FedCT", "FedAvg", "DD", "DP-FedAvg, epsilon 0.1", "DP-FedAvg, clip parameters", "PATE", "centralized",
)  # fmt: skip
SMALL: dict[str, Any] = {"seeds": 1, "communications": 2, "steps": 5, "private": 500, "public": 500}


class Setting(NamedTuple):
    """How long all methods of a table train, and where; how rows are dealt to how many sites."""

    communications: int
    steps: int
    device: str
    private: int
    public: int
    sites: int = SITES
    alpha: float | None = None
    """Of a Dirichlet distribution of the classes over sites of one size; None: sites alike."""


def report(
    seeds: int = 3,
    communications: int = 400,
    steps: int = 50,
    device: str = "cpu",
    jobs: int = 1,
    keep: str = "",
    measure: int = 1,
    private: int = PRIVATE,
    public: int = PUBLIC,
) -> Report:
    """Measure all methods on every seed."""
    setting = Setting(communications, steps, device, private, public)
    found = measured(PAPER, setting, seeds, jobs, keep, measure)
    return table(f"Fashion-MNIST, MLP of Table 13, {SITES} sites", setting, SHOWN, PAPER, found)


def measured(
    methods: Mapping[str, Any], setting: Setting, seeds: int, jobs: int, keep: str, measure: int
) -> dict[str, list[Found]]:
    """What the runs of each method found, in the order of their names."""
    tasks = {
        f"{name}-{seed}": Task(_run, (name, setting, seed), cores=2 if "Familiar" in name else 1)
        for seed in range(seeds)
        for name in methods
    }
    found: dict[str, list[Found]] = defaultdict(list)
    running = in_parallel(tasks, jobs, keep, measure=bool(measure))
    for name, run in watched(running, "Fashion-MNIST", len(tasks)):
        found[name.rpartition("-")[0]].append(run)
    return found


def table(
    what: str,
    setting: Setting,
    shown: tuple[str, ...],
    paper: Mapping[str, float | None],
    found: Mapping[str, list[Found]],
) -> Report:
    """The table of a setting, for methods in the order in which they are shown."""
    columns = {
        "method": Column("method"),
        "seeds": Column("seeds"),
        "accuracy": Column("accuracy", ".4f"),
        "± seeds": Column("spread", ".4f"),
        "best round": Column("best", ".4f"),
        "paper": Column("paper", ".4g"),
        "true epsilon": Column("epsilon", ".3g"),
        "consensus quality": Column("quality", ".4f"),
        "kB sent per site": Column("sent", ",.1f", 1000),
        "seconds": Column("seconds", ".0f"),
    }
    runs = [run for name in shown for run in found.get(name, [])]
    devices = " and ".join(sorted({run["device"] for run in runs})) or "nothing yet"
    notes = (
        f"On {devices}. Seconds are those of runs that shared it with others. What is sent "
        f"without a release are acknowledgements. True epsilon is that of the whole run at delta {DELTA:g} for a whole "
        "site; a row without one has none."
    )
    title = f"{what}, {setting.communications} x {setting.steps} steps, {setting.device}"
    rows = [_row(name, paper[name], found[name]) for name in shown if found.get(name)]
    return Report(title, columns, rows, notes, machine=machines(runs))


def algorithm_of(method: str, setting: Setting) -> cg.Algorithm:
    """The method, with this many steps."""
    updates: dict[str, Any] = {"rounds": setting.communications, "steps": setting.steps}
    averaging: dict[str, Any] = {"rounds": setting.communications, "local_steps": setting.steps}
    match method:
        case "local" | "centralized":
            return cg.Local(**updates)
        case "FedCT":
            return cg.FedCT(**updates)
        case "FedCT (QM)":
            return cg.FedCT(**updates, consensus=cg.QualifiedMajority(0.9))
        case "FedCT (Familiar)":
            return cg.FedCT(**updates, voters=cg.Familiar(communications=10))
        case "DD":
            return cg.DistributedDistillation(**updates)
        case "FedAvg":
            return cg.FedAvg(**averaging)
        case "FedProx":
            return cg.FedProx(**averaging, mu=0.1)
        case "SCAFFOLD":
            return cg.Scaffold(**averaging, lr=SCAFFOLD_RATE)
        case "PATE":
            return cg.Pate(teachers="sites")
        case "DP-FedAvg, clip parameters":  # AIMHI's baseline and its parameters
            return cg.DPFedAvg(**averaging, variant="clip_parameters", clip=2, noise=0.01, delta=DELTA)
    noise = noise_multiplier(0.1, DELTA, setting.communications)
    return cg.DPFedAvg(**averaging, clip=1.0, noise=noise, delta=DELTA)


def _pixels(images: Any) -> Any:
    return (images.reshape(len(images), -1) / 255.0).astype(np.float32)


def _run(method: str, setting: Setting, seed: int) -> Found:
    (X, y), test = ((_pixels(images), labels) for images, labels in fashion_mnist(data_folder()))
    partition = cg.Iid() if setting.alpha is None else cg.BalancedDirichlet(setting.alpha)
    split = cg.split(
        X, y, sites=setting.sites, public=setting.public, test=0, train=setting.private, partition=partition, seed=seed
    )
    # Teachers and student of PATE train once, for all steps; the global model of the others is not what is measured.
    steps = setting.communications * setting.steps if method == "PATE" else None
    net = cg.TorchClassifier("mlp", lr=1e-3, batch_size=64, epochs=2, steps=steps, device=setting.device)
    parts = dict(zip(split.names, split.sites, strict=True))
    if method == "centralized":  # one site that has all rows: the same, without fitting the same net five times
        parts = {"pool": tuple(np.concatenate(part) for part in zip(*split.sites, strict=True))}
    sites = [cg.Site(name, *part, learner=net) for name, part in parts.items()]
    algorithm = algorithm_of(method, setting)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cg.CollegiumWarning)
        data = {"public": split.public, "test": test, "public_truth": split.public_truth}
        run = undisturbed(cg.run(algorithm, sites=sites, **data, seed=seed))
    of_all = run.metrics[run.metrics["metric"] == "global_accuracy"]["value"]
    is_global = len(of_all) > 0 and ("Avg" in method or method in ("FedProx", "SCAFFOLD", "PATE"))
    accuracy = of_all if is_global else run.accuracy.mean(axis=1)
    quality = run.metrics[run.metrics["metric"] == "consensus_quality"]["value"]
    sent = run.costs[run.costs["party"] != "coordinator"].groupby("party")["bytes_up"].sum()
    return {
        "accuracy": float(accuracy.iloc[-1]),
        "best": float(accuracy.max()),
        "quality": float(quality.iloc[-1]) if len(quality) else None,
        "epsilon": algorithm.claim().epsilon if isinstance(algorithm, cg.DPFedAvg) else None,
        "sent": float(sent.mean()),
        "seconds": run.about["seconds"],
        "device": _device(setting.device),
    }


def _device(device: str) -> str:
    import torch

    where = torch.cuda.get_device_name() if device.startswith("cuda") else device
    return f"{where} with PyTorch {torch.__version__}"


def _row(name: str, paper: float | None, runs: list[Found]) -> dict[str, Any]:
    last = np.array([run["accuracy"] for run in runs])
    means = {key: float(np.mean([run[key] for run in runs])) for key in ("best", "sent", "seconds")}
    qualities = [run["quality"] for run in runs if run["quality"] is not None]
    return means | {
        "method": name,
        "seeds": len(runs),
        "accuracy": float(last.mean()),
        "spread": float(np.abs(last - last.mean()).max()) if len(runs) > 1 else None,
        "paper": paper,
        "epsilon": runs[0].get("epsilon"),
        "quality": float(np.mean(qualities)) if qualities else None,
    }


if __name__ == "__main__":
    print_with_options(report, __doc__)
