"""FedAvg beside pfl-research: its own CIFAR-10 benchmark, run by its own program and by ours, on the same files.

    python -m benchmarks.beside_pfl --pfl pfl-research/benchmarks [--python python] [--processes 1,4] [--device cuda]
                                    [--data FOLDER] [--rounds 1_500] [--pixels plain,scrambled] [--precisions float32]
                                    [--train 50_000] [--tests 10_000] [--cohort 50] [--out rows.jsonl] [--measure 1]

The settings are those of pfl's image_classification/configs/baseline.yaml: 1,000 users with 50 rows each, 50 of them in
a round, batches of 10, local rate .1, one local epoch, a CNN with two convolutions and dropout, the test rows every 10
rounds. `pfl` is the folder `benchmarks` of a checkout of pfl-research and `python` an interpreter that can import pfl
(of the checkout, or installed); pfl runs in processes of its own, as many as `processes` says, all on the one device.
Both read the same two pickles, made of the CIFAR-10 in the folder `data` (default: the one that COLLEGIUM_DATA names).
pfl's own preparation takes the planes of colors for rows of pixels: those are the `scrambled` ones. `out` names a file
that gets each row as JSON, and `measure` 0 makes the table of it.
"""

from __future__ import annotations

import csv
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import collegium as cg
from benchmarks.data import data_folder
from benchmarks.machine import in_words
from benchmarks.pool import machines, undisturbed
from benchmarks.report import Column, Report, print_with_options
from collegium.core.observations import Disclosure
from collegium.data.benchmarks import read_benchmark
from collegium.runs.callbacks import RoundReport

Images = tuple[NDArray[np.float32], NDArray[np.int64]]
Found = dict[str, Any]
PROGRAM = Path(__file__).with_name("beside_pfl_program.py")
CONFIG, FIRST_PORT = "image_classification/configs/baseline.yaml", 29_610
ROWS_PER_USER, EVERY, LAST = 50, 10, 10
"""Rows of a user, rounds between evaluations, evaluations of which the accuracy is the mean."""
SMALL: dict[str, Any] = {"rounds": 12, "train": 300, "tests": 100, "cohort": 2}


class Setting(NamedTuple):
    """What both do: on which files, for how many rounds, with how many users each, and where."""

    data: Path
    rounds: int
    cohort: int
    device: str


def report(
    pfl: str = "",
    python: str = sys.executable,
    processes: str = "1",
    device: str = "cpu",
    data: str = "",
    rounds: int = 1_500,
    train: int = 50_000,
    tests: int = 10_000,
    cohort: int = 50,
    pixels: str = "plain,scrambled",
    precisions: str = "float32",
    out: str = "",
    measure: int = 1,
) -> Report:
    """Run both on each form of the images; without a folder `pfl` ours alone, without a precision pfl alone."""
    file = Path(out) if out else None
    if measure:
        ways: list[int | str] = [int(number) for number in processes.split(",") if pfl]
        ways += [precision for precision in precisions.split(",") if precision]
        source, theirs = Path(data) if data else data_folder(), (Path(pfl).resolve(), python)
        rows = []
        for form in pixels.split(","):
            with tempfile.TemporaryDirectory() as folder:
                write_pickles(source, Path(folder), train, tests, scrambled=form == "scrambled")
                for way in ways:
                    setting = Setting(Path(folder), rounds, cohort, device)
                    found = by_us(setting, way) if isinstance(way, str) else by_pfl(setting, *theirs, way)
                    rows.append({"pixels": form, "rounds": rounds, "machine": in_words()} | found)
                    print(json.dumps(rows[-1]), flush=True)
                    if file is not None:
                        with file.open("a") as lines:
                            lines.write(json.dumps(rows[-1]) + "\n")
    elif file is None:
        raise SystemExit("measure 0 makes the table of what a file has: name it with --out.")
    else:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
    return _table(rows, device)


def _table(rows: list[Found], device: str) -> Report:
    columns = {
        "pixels": Column("pixels"),
        "who": Column("who"),
        "rounds": Column("rounds", ","),
        "seconds": Column("seconds", ".1f"),
        "from end to end": Column("whole", ".1f"),
        "ms per round": Column("ms", ".2f"),
        "fastest pfl to this": Column("ratio", ".1f"),
        "accuracy, %": Column("accuracy", ".2f", 0.01),
        "best, %": Column("best", ".2f", 0.01),
        "sites trained together": Column("joined", ","),
    }
    shown = [row | {"ms": 1000 * row["seconds"] / row["rounds"]} for row in rows if "seconds" in row]
    for row in shown:
        theirs = [each["ms"] for each in shown if "processes" in each and each["pixels"] == row["pixels"]]
        row["ratio"] = min(theirs) / row["ms"] if theirs else None
    notes = (
        f"Accuracy is the mean of the last {LAST} evaluations, which both make every {EVERY} rounds. Seconds are those "
        "of the training loop, evaluations included; from end to end is with all that comes before and after (for pfl "
        "its process, for ours the call of run). The ratio is of milliseconds per round, with pfl's fastest number "
        "of processes. Images are CIFAR-10 stored as JPEG of quality 95. On a GPU pfl's convolutions are in TF32, "
        "PyTorch's default."
    )
    return Report(f"FedAvg beside pfl-research, CIFAR-10, {device}", columns, shown, notes, 2, machines(rows))


def write_pickles(data: Path, folder: Path, train: int, tests: int, *, scrambled: bool) -> None:
    """The two files that pfl reads: images (N, 32, 32, 3) as bytes, and labels (N, 1)."""
    X, y, test = read_benchmark("cifar10", data)
    assert test is not None
    for name, images, labels in (("train", X[:train], y[:train]), ("test", test[0][:tests], test[1][:tests])):
        planes = np.asarray(images, dtype=np.uint8)
        # CIFAR-10's files hold planes of colors; pfl reads their bytes as if colors came last.
        shaped = planes.reshape(-1, 32, 32, 3) if scrambled else planes.transpose(0, 2, 3, 1)
        with (folder / f"cifar10_{name}.p").open("wb") as file:
            pickle.dump((np.ascontiguousarray(shaped), np.asarray(labels, dtype=np.int64).reshape(-1, 1)), file)


def read_pickles(folder: Path) -> tuple[Images, Images]:
    """The same files as our net takes them, scaled as pfl does: by the channels' means and deviations."""
    both = []
    mean = deviation = None
    for name in ("train", "test"):
        with (folder / f"cifar10_{name}.p").open("rb") as file:
            images, labels = pickle.load(file)
        if mean is None:
            mean = images.mean(axis=(0, 1, 2), dtype=np.float64)
            deviation = images.std(axis=(0, 1, 2), dtype=np.float64)
        scaled = ((images.astype(np.float32) - mean) / deviation).astype(np.float32)
        both.append((np.ascontiguousarray(scaled.transpose(0, 3, 1, 2)), labels.reshape(-1)))
    return both[0], both[1]


def by_pfl(setting: Setting, pfl: Path, python: str, processes: int) -> Found:
    """pfl's own program with its own settings."""
    ours = {"PYTHONPATH": f"{pfl}{os.pathsep}{pfl.parent}", "PFL_PYTORCH_DEVICE": setting.device}
    addresses = ",".join(f"127.0.0.1:{FIRST_PORT + number}" for number in range(processes))
    settings = ["--args_config", str(pfl / CONFIG), "--data_path", str(setting.data)]
    settings += ["--central_num_iterations", str(setting.rounds), "--cohort_size", str(setting.cohort)]
    number = "1 process" if processes == 1 else f"{processes} processes"
    with tempfile.TemporaryDirectory() as scratch:
        begun = time.perf_counter()
        started = []
        for rank in range(processes):
            folder = Path(scratch) / str(rank)
            folder.mkdir()
            together = {"PFL_WORKER_ADDRESSES": addresses, "PFL_WORKER_RANK": str(rank)} if processes > 1 else {}
            with (folder / "log").open("w") as log:
                command = [python, str(PROGRAM), str(pfl / "image_classification/pytorch/train.py"), *settings]
                environment = os.environ | ours | together
                started.append(subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log))
        failed = first_to_fail(started)
        whole = time.perf_counter() - begun
        first = Path(scratch) / str(failed or 0)
        if failed is not None:  # as several processes on one GPU may
            print((first / "log").read_text()[-3000:], file=sys.stderr)
            return {"who": f"pfl, {number}: failed"}
        seconds = json.loads((first / "seconds.json").read_text())
        with (first / "metrics.csv").open() as lines:
            accuracies = [row["Central val | accuracy"] for row in csv.DictReader(lines)]
    return {"who": f"pfl, {number}", "processes": processes, "seconds": seconds, "whole": whole} | _accuracy(
        [float(value) for value in accuracies if value]
    )


def first_to_fail(started: Sequence[subprocess.Popen[bytes]]) -> int | None:
    """Wait for all of them. When one fails, the others, which would wait for it without end, are ended."""
    failed = None
    while any(process.poll() is None for process in started):
        if failed is None:
            failed = next((rank for rank, process in enumerate(started) if process.poll()), None)
            for process in started if failed is not None else ():
                process.kill()
        time.sleep(0.05)
    return failed if failed is not None else next((rank for rank, each in enumerate(started) if each.returncode), None)


def _accuracy(found: list[float]) -> Found:
    return {"accuracy": float(np.mean(found[-LAST:])), "best": max(found)} if found else {}


@dataclass
class Evaluation(cg.Callback):
    """Tests the common model as often as pfl does, and notes when the rounds began and ended."""

    net: cg.TorchClassifier
    test: Images
    accuracies: list[float] = field(default_factory=list)
    begun: float = 0.0
    ended: float = 0.0
    weights: Any = None

    def on_start(self, about: dict[str, Any]) -> None:
        self.begun = time.perf_counter()

    def on_disclosure(self, disclosure: Disclosure) -> None:
        if disclosure.to == "sites":
            self.weights = disclosure.value

    def on_round(self, report: RoundReport) -> None:
        if report.round > 0 and report.round % EVERY == 0:
            X, y = self.test
            self.accuracies.append(float(np.mean(self.net.set_weights(self.weights).predict(X) == y)))
        self.ended = time.perf_counter()


def simple_cnn(input_shape: tuple[int, ...], n_classes: int) -> Any:
    """pfl's net: two convolutions without padding, one hidden layer of 128, dropout, Glorot's weights."""
    from torch import nn

    channels, height, width = input_shape
    net = nn.Sequential(
        nn.Conv2d(channels, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Dropout(0.25),
        nn.Flatten(),
        nn.Linear(64 * ((height - 4) // 2) * ((width - 4) // 2), 128),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(128, n_classes),
    )
    for layer in net:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
    return net


def by_us(setting: Setting, precision: str) -> Found:
    """FedAvg with the same settings."""
    (X, y), test = read_pickles(setting.data)
    order = np.random.default_rng(0).permutation(len(X))
    net = cg.TorchClassifier(simple_cnn, optimizer="sgd", lr=0.1, batch_size=10, epochs=1, random_state=0)
    users = [order[start : start + ROWS_PER_USER] for start in range(0, len(order), ROWS_PER_USER)]
    sites = [cg.Site(f"u{number:04}", X[rows], y[rows], learner=net) for number, rows in enumerate(users)]
    judge = cg.TorchClassifier(simple_cnn, device=setting.device, random_state=0).initialize(test[0], np.arange(10))
    test[0].flags.writeable = False  # so that it stays on the GPU
    evaluation = Evaluation(judge, test)
    where: dict[str, Any] = {"cohort": "on", "device": setting.device, "precision": precision}
    algorithm = cg.FedAvg(rounds=setting.rounds, participation=setting.cohort / len(sites), weighting="equal")
    begun = time.perf_counter()
    run = cg.run(algorithm, sites=sites, classes=np.arange(10), callbacks=[evaluation], progress=False, **where)
    whole = time.perf_counter() - begun
    together = undisturbed(run).about["cohort"]["together"]
    return {
        "who": f"Collegium, {precision}",
        "seconds": evaluation.ended - evaluation.begun,
        "whole": whole,
        "joined": together,
    } | _accuracy(evaluation.accuracies)


if __name__ == "__main__":
    print_with_options(report, __doc__)
