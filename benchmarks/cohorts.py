"""Nets trained together, beside sites that take turns: what a training step, a round and a whole run cost.

    python -m benchmarks.cohorts [--only mlp,fedct] [--device cuda] [--data FOLDER] [--out cohorts.jsonl] [--tiny 1]
                                 [--measure 1] [--into FILE] [--sites 5,100] [--precisions tf32]

`only` names measures (default: all of them): mlp, fedct, cnn, resnet, ledger, fedaux, simclr, fedkt, curve, equality,
cpu. Each runs the same with cohort="off" and cohort="on" and prints a line as soon as it is done; `out` names a file to
which that line is added as JSON, so that a run that is killed keeps what it found. `measure` 0 makes the table of what
that file has. `into` names the file of all rows (benchmarks/cohorts_results.jsonl): new ones take the place of those of
the same measure, sites and precision, others stay, and the table has all of them. So measures can be taken one by one,
on a machine that is there for minutes, and brought together later:

    python -m benchmarks cohorts --measure 0 --out cohorts.jsonl --into benchmarks/cohorts_results.jsonl --write

`sites` and `precisions` take only these rows of measures that have several. `data` is the folder with Fashion-MNIST and
MNIST (default: the one that COLLEGIUM_DATA names); other measures take random images, since only their time is
measured. `tiny` 1 shows only that everything works.
"""

from __future__ import annotations

import gc
import inspect
import json
import sys
import time
import traceback
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

from benchmarks.cohorts_measures import MEASURES, TINY, Place
from benchmarks.data import data_folder
from benchmarks.machine import in_words
from benchmarks.pool import machines
from benchmarks.report import Column, Report, print_with_options

NEEDS_DATA = ("fedct", "ledger", "fedkt")
SMALL: dict[str, Any] = {"only": "mlp,curve,equality", "tiny": 1}
COLUMNS = {
    "what": Column("what"),
    "sites": Column("sites", ","),
    "precision": Column("precision"),
    "unit": Column("unit"),
    "in turns": Column("turns", ".4g"),
    "together": Column("together", ".4g"),
    "ratio": Column("ratio", ".1f"),
    "aim": Column("aim", ".4g"),
    "reached": Column("reached"),
    "sites trained together": Column("joined", ","),
    "on": Column("date"),
    "note": Column("note"),
}
NOTES = (
    "A step is one mini-batch at every site: the difference between rounds of many and of few steps, divided by their "
    "difference, so that what a round costs beside its steps is left out. A round is the median of those after the "
    "first ones, with all that a user's round has. Data and nets are on the device already; a whole run begins with "
    "nothing there. Where a row has no time in turns, that was measured in float32 alone, or not at all. Rows of "
    "earlier days are from earlier versions.\n\n"
    "Sites in turns are recorded, too, and keep their recordings from round to round. On a GPU, products of several "
    "nets' matrices are rounded otherwise than those of one net; a ReLU unit that is on in one computation and off in "
    "the other is enough for .02 in a few weights after 50 steps of Adam, and for .002 after 50 of SGD. On a CPU dense "
    "layers are the same bits, and so are nets side by side on a GPU, as those with convolutions are.\n\n"
    "Sites that train on a GPU have threads of which one is at work at a time. On 2026-11-20 rounds of 50 steps of "
    "FedCT in TF32 took 22.7, 54.4 and 220.7 ms with 5, 20 and 100 sites where Linux chose among 16 cores, and 18.8, "
    "45.0 and 179.2 ms with the whole process on one, in the same call. Since then these threads share one core; the "
    "rows of that day are with that, and with each ReLU in the kernel of the product before it where dense nets "
    "answer.\n\n"
    "FedKT's row is of an earlier version, which trained its LeNets in one computation. Since then they are trained "
    "side by side: on the same machine, runs of 3 and 10 epochs took 3.7 and 5.7 s so, 3.1 and 5.7 s in one "
    "computation with groups, and 3.9 and 7.4 s as products of patches and kernels, which was not kept.\n\n"
    "Rows that say CPU were measured on two quiet cores. "
    'With "auto" nets on the CPU are trained in turns, as with "off": the difference between '
    'these two is chance. LeNet has convolutions, and is trained in turns on a CPU with "on", too.'
)
_SAME = ("what", "sites", "precision", "unit")
"""What rows of the same thing have in common."""


def report(
    only: str = "", device: str = "cpu", data: str = "", out: str = "", tiny: int = 0, measure: int = 1, into: str = "",
    sites: str = "", precisions: str = "",
) -> Report:  # fmt: skip
    """Take the measures one after the other."""
    if tiny and into:
        raise SystemExit("Rows of tiny measures say nothing about speed: leave out --into.")
    names = only.split(",") if only else list(MEASURES)
    if unknown := sorted(set(names) - set(MEASURES)):
        raise SystemExit(f"There is no measure {', '.join(unknown)}; there are {', '.join(MEASURES)}.")
    file = Path(out) if out else None
    if measure:
        needed = [name for name in names if name in NEEDS_DATA]
        folder = Path(data) if data or not needed else data_folder()
        only_these: dict[str, Any] = {"sites": [int(each) for each in sites.split(",")]} if sites else {}
        only_these |= {"precisions": precisions.split(",")} if precisions else {}
        rows = list(_measured(names, Place(device, folder), bool(tiny), only_these, file))
    elif file is None:
        raise SystemExit("measure 0 makes the table of what a file has: name it with --out.")
    else:
        rows = [json.loads(line) for line in file.read_text().splitlines()]
    if into:
        rows = merged(Path(into), rows)
    title = "Nets together" if into else f"Nets together, {device}"
    return Report(title, COLUMNS, rows, NOTES, machine=machines(rows))


def merged(file: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All rows of this file, with these in the place of those of the same thing; the file has them, too."""
    before = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    found = {tuple(row.get(name) for name in _SAME): row for row in [*before, *rows]}
    order = {name: place for place, name in enumerate(MEASURES)}
    every = sorted(found.values(), key=lambda row: order[row["measure"]])
    file.write_text("".join(json.dumps(row) + "\n" for row in every))
    return every


def _measured(
    names: list[str], place: Place, tiny: bool, only_these: dict[str, Any], out: Path | None
) -> Iterator[dict[str, Any]]:
    """The rows of all measures as they are found; one that fails is told of, and the others go on."""
    where, failed = in_words(), []
    for name in names:
        begun = time.perf_counter()
        try:
            takes = inspect.signature(MEASURES[name]).parameters
            chosen = {each: value for each, value in only_these.items() if each in takes}
            for found in MEASURES[name](place, **((TINY[name] if tiny else {}) | chosen)):
                row = found | {"measure": name, "machine": where, "date": date.today().isoformat()}
                print(json.dumps(found), flush=True)
                if out is not None:
                    with out.open("a") as file:
                        file.write(json.dumps(row) + "\n")
                yield row
        except Exception as error:
            traceback.print_exc()
            failed.append(error)
        print(f"{name}: {time.perf_counter() - begun:.0f} s", file=sys.stderr, flush=True)
        _free(place.device)
    if failed:
        raise failed[0]


def _free(device: str) -> None:
    """Give back the GPU's memory that the last measure's nets had."""
    gc.collect()
    if device.startswith("cuda"):
        import torch

        torch.cuda.empty_cache()


if __name__ == "__main__":
    print_with_options(report, __doc__)
