"""FedCT's Table 1 and AIMHI's Table 2: the VUL columns, as AUC and as TPR at 0.1 %, with intervals.

    python -m benchmarks.audit_vul [--shadows 8] [--records 400] [--rounds 3] [--steps 40] [--jobs 0] [--keep FOLDER]

VUL is the AUC of Shokri's shadow attack on a site's training records. Fashion-MNIST with the paper's MLP, on a scale
for two cores: three sites with half of `records` each, 1,000 public rows, `rounds` communications of `steps` steps. All
records of one site are canaries, as they are; each is there by a coin. Who sends labels is attacked by a coordinator
that puts the canaries into the public set, who sends weights by one that keeps them. LiRA attacks the same runs.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

import collegium as cg
from benchmarks.data import data_folder, fashion_mnist
from benchmarks.pool import Found, Task, in_parallel, machines
from benchmarks.report import Column, Report, print_with_options, watched
from collegium.privacy.accountant import noise_multiplier

SITES, PUBLIC, DELTA = 3, 1_000, 1e-5
ATTACKS: Final = ("shokri", "lira")
SMALL: dict[str, Any] = {"shadows": 3, "records": 60, "rounds": 1, "steps": 2}
LABELS: Final[Mapping[str, Any]] = {"view": "coordinator", "forged": True}
WEIGHTS: Final[Mapping[str, Any]] = {"view": "weights"}


class Method(NamedTuple):
    """A row of the papers: who attacks here, and the VUL that each paper states."""

    options: Mapping[str, Any]
    fedct: float | None
    """On Fashion-MNIST."""
    aimhi: str | None = None
    """On CIFAR-10: realistic, and relaxed."""


METHODS: Final = {
    "FedCT": Method(LABELS, 0.51, "0.51, 0.56"),
    "DP-FedCT, the paper's parameters": Method(LABELS, 0.52),
    "FedAvg": Method(WEIGHTS, 0.72, "0.96, 0.94"),
    "DP-FedAvg, epsilon 0.1": Method(WEIGHTS, 0.71),
    "DP-FedAvg, clip parameters": Method(WEIGHTS, None, "0.85, 0.87"),
    "DD": Method(LABELS, 0.60),
    "PATE": Method(LABELS, 0.59),
}


def report(
    shadows: int = 8, records: int = 400, rounds: int = 3, steps: int = 40, jobs: int = 0, keep: str = ""
) -> Report:
    """Attack every method."""
    tasks = {
        f"{name}|{attack}": Task(_attacked, (name, attack, shadows, records, rounds, steps))
        for name in METHODS
        for attack in ATTACKS
    }
    found = dict(watched(in_parallel(tasks, jobs, keep), "VUL", len(tasks)))
    rows = [_row(name, [found[f"{name}|{attack}"] for attack in ATTACKS]) for name in METHODS]
    columns = {
        "method": Column("method"),
        "attacker": Column("view"),
        "VUL, FedCT's paper": Column("fedct", ".2f"),
        "VUL, AIMHI's paper": Column("aimhi"),
        "AUC, Shokri": Column("shokri"),
        "TPR at .1 %, Shokri": Column("shokri_tpr"),
        "AUC, LiRA": Column("lira"),
        "TPR at .1 %, LiRA": Column("lira_tpr"),
        "claim": Column("claim", ".3g"),
        "seconds": Column("seconds", ".0f"),
    }
    notes = (
        f"{SITES} sites, {records} canaries, {rounds} x {steps} steps, {shadows} shadows, 95 % intervals over "
        "canaries. FedCT's paper has 5 sites with 2,000 images each and 400 x 50 steps; AIMHI's figures (realistic and "
        "relaxed) are of CIFAR-10. Not run here: CIFAR-10, SVHN, Pneumonia and MRI, whose nets are too large for two "
        "cores or whose images are not at hand. A site of few records is remembered better than one of many: compare "
        "rows, not levels. Weights are seen as a site sends them; DP-FedAvg's noise at epsilon 0.1 is added by the "
        "coordinator, and does not protect from it."
    )
    return Report("Fashion-MNIST: vulnerability", columns, rows, notes, words=2, machine=machines(found.values()))


def algorithm_of(name: str, rounds: int, steps: int) -> cg.Algorithm:
    """The method, with so many steps."""
    updates: dict[str, Any] = {"rounds": rounds, "steps": steps}
    averaging: dict[str, Any] = {"rounds": rounds, "local_steps": steps}
    match name:
        case "FedCT":
            return cg.FedCT(**updates)
        case "FedAvg":
            return cg.FedAvg(**averaging)
        case "DD":
            return cg.DistributedDistillation(**updates)
        case "PATE":
            return cg.Pate(teachers="sites")
        case "DP-FedAvg, epsilon 0.1":
            noise = noise_multiplier(0.1, DELTA, rounds)
            return cg.DPFedAvg(**averaging, clip=1.0, noise=noise, delta=DELTA)
        case "DP-FedAvg, clip parameters":  # AIMHI's baseline and its parameters
            return cg.DPFedAvg(**averaging, variant="clip_parameters", clip=2, noise=0.01, delta=DELTA)
    return cg.FedCT(**updates, mechanism=cg.XorMechanism(theta=0.1 / 3000))


def _attacked(name: str, attack: str, shadows: int, records: int, rounds: int, steps: int) -> Found:
    images, labels = fashion_mnist(data_folder())[0]
    drawn = np.random.default_rng(0).permutation(len(images))[: records + (SITES - 1) * records // 2 + PUBLIC]
    X, y = (images[drawn].reshape(len(drawn), -1) / 255.0).astype(np.float32), labels[drawn].astype(np.int64)
    # PATE's teachers train once, for all steps.
    net = cg.TorchClassifier("mlp", lr=1e-3, batch_size=64, steps=rounds * steps if name == "PATE" else None)
    edges = [0, records, *(records + (1 + i) * records // 2 for i in range(SITES - 1))]
    sites = [
        cg.Site(f"site{i}", X[edges[i] : edges[i + 1]], y[edges[i] : edges[i + 1]], learner=net) for i in range(SITES)
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cg.CollegiumWarning)
        found = cg.audit(
            algorithm_of(name, rounds, steps), sites, X[edges[-1] :], canaries=records, kinds="ordinary",
            shadows=shadows, attack=attack, progress=False, **METHODS[name].options,
        )  # fmt: skip
    low, high = found.auc_interval
    rates = found.tpr_interval[0.001]
    return {
        "auc": f"{found.auc:.3f} ({low:.3f}-{high:.3f})",
        "tpr": f"{found.tpr[0.001]:.4f} ({rates[0]:.4f}-{rates[1]:.4f})",
        "claim": None if found.claim is None else found.claim.epsilon,
        "seconds": found.seconds,
    }


def _row(name: str, found: list[Found]) -> dict[str, Any]:
    method = METHODS[name]
    view = f"{method.options['view']}{', forged public set' if 'forged' in method.options else ''}"
    row = {"method": name, "view": view, "fedct": method.fedct, "aimhi": method.aimhi, "claim": found[0]["claim"]}
    for attack, one in zip(ATTACKS, found, strict=True):
        row |= {attack: one["auc"], f"{attack}_tpr": one["tpr"]}
    return row | {"seconds": sum(one["seconds"] for one in found)}


if __name__ == "__main__":
    print_with_options(report, __doc__)
