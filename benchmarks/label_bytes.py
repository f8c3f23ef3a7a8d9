"""Bytes of a site's labels and time to pack them: the first round, converged rounds, and what they are compared with.

python -m benchmarks.label_bytes [--samples 50_000] [--classes 10]
"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Column, Report, print_with_options
from collegium import wire
from collegium.core.labels import Labels

MLP_PARAMETERS = 669_706
CHANGED = (0.0, 0.001, 0.01, 0.05, 0.2)
FLOATS = 1_250_000
REPEAT = 30
SMALL = {"samples": 5_000}


def measure(samples: int = 50_000, n_classes: int = 10) -> list[dict[str, Any]]:
    """One row per way to send labels: bytes, and where there is one, the theory, the limit and the ratio."""
    rng = np.random.default_rng(0)
    before = Labels(rng.integers(0, n_classes, samples, dtype=np.int16), n_classes)
    rows = [_labels_row("first round", before, None, samples * math.log2(n_classes) / 8, 1.05)]
    for share in CHANGED:
        at = rng.choice(samples, round(share * samples), replace=False)
        codes = before.codes.copy()
        codes[at] = (before.codes[at] + rng.integers(1, n_classes, at.size)) % n_classes
        theory = _entropy_bytes(codes, before.codes, n_classes)
        rows.append(_labels_row(f"{share:.1%} of labels changed", Labels(codes, n_classes), before, theory, 1.3))
    others = {
        "one-hot bits": samples * n_classes / 8,
        "int64 codes": samples * 8,
        f"FedAvg: {MLP_PARAMETERS:,} weights in float32": MLP_PARAMETERS * 4,
    }
    rows += [{"what": what, "bytes": math.ceil(size)} for what, size in others.items()]
    rows = [row | {"to_first": row["bytes"] / rows[0]["bytes"]} for row in rows]
    return rows + _array_rows(rng.random(FLOATS))


def _labels_row(what: str, labels: Labels, reference: Labels | None, theory: float, limit: float) -> dict[str, Any]:
    known = wire.KnownLabels()
    if reference is not None:
        known.remember(reference)
    packed = wire.pack({"labels": labels}, reference)
    size = packed.content_bytes
    return {
        "what": what,
        "bytes": size,
        "message_bytes": len(packed.data),
        "theory_bytes": theory,
        "limit": limit,
        "ratio": size / theory if theory else math.nan,
        "within": size <= limit * theory + (1 if limit < 1.3 else 2),
        "pack": _milliseconds(lambda: wire.pack({"labels": labels}, reference)),
        "unpack": _milliseconds(lambda: wire.unpack(packed.data, known)),
    }


def _array_rows(values: NDArray[np.float64]) -> list[dict[str, Any]]:
    """An array as it is sent, and for comparison as numpy's own npz."""
    packed, archive = wire.pack(values), _npz(values)
    row = {"what": f"{values.size:,} weights in float64", "bytes": packed.content_bytes}
    return [
        row
        | {
            "message_bytes": len(packed.data),
            "pack": _milliseconds(lambda: wire.pack(values)),
            "unpack": _milliseconds(lambda: wire.unpack(packed.data)),
        },
        row
        | {
            "what": "the same as npz",
            "message_bytes": len(archive),
            "pack": _milliseconds(lambda: _npz(values)),
            "unpack": _milliseconds(lambda: np.load(io.BytesIO(archive), allow_pickle=False)["values"]),
        },
    ]


def _npz(values: NDArray[np.float64]) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, values=values)
    return buffer.getvalue()


def _milliseconds(work: Callable[[], object]) -> float:
    """Of processor time, the median of a few."""
    spent = []
    for _ in range(REPEAT):
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return 1000 * median(spent)


def _entropy_bytes(labels: NDArray[Any], reference: NDArray[Any], n_classes: int) -> float:
    share = np.bincount((labels - reference) % n_classes) / labels.size
    share = share[share > 0]
    return abs(float(labels.size * (share @ np.log2(share)) / 8))


def report(samples: int = 50_000, classes: int = 10) -> Report:
    """The table."""
    return Report(
        f"Labels of {samples:,} samples, C = {classes}",
        {
            "what": Column("what"),
            "content bytes": Column("bytes", ","),
            "whole message": Column("message_bytes", ","),
            "entropy bytes": Column("theory_bytes", ",.1f"),
            "ratio": Column("ratio", ".4f"),
            "limit": Column("limit"),
            "within": Column("within"),
            "to first round": Column("to_first", ",.4f"),
            "ms to pack": Column("pack", ".3f"),
            "ms to unpack": Column("unpack", ".3f"),
        },
        measure(samples, classes),
        f"Milliseconds are of processor time, the median of {REPEAT}.",
    )


if __name__ == "__main__":
    print_with_options(report, __doc__)
