"""Bytes of one site's labels: the first round, converged rounds, and what they are compared with.

python -m benchmarks.label_bytes [--samples 50_000] [--classes 10]
"""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.report import Column, Report, print_with_options
from collegium.wire.label_packing import encode

MLP_PARAMETERS = 669_706
CHANGED = (0.0, 0.001, 0.01, 0.05, 0.2)
SMALL = {"samples": 5_000}


def measure(samples: int = 50_000, n_classes: int = 10) -> list[dict[str, Any]]:
    """One row per way to send labels: bytes, and where there is one, the theory, the limit and the ratio."""
    rng = np.random.default_rng(0)
    before = rng.integers(0, n_classes, samples, dtype=np.int16)
    information = samples * math.log2(n_classes) / 8
    rows = [_row("first round", encode(before, n_classes), information, 1.05)]
    for share in CHANGED:
        at = rng.choice(samples, round(share * samples), replace=False)
        labels = before.copy()
        labels[at] = (before[at] + rng.integers(1, n_classes, at.size)) % n_classes
        coded = encode(labels, n_classes, before)
        rows.append(_row(f"{share:.1%} of labels changed", coded, _entropy_bytes(labels, before, n_classes), 1.3))
    others = {
        "one-hot bits": samples * n_classes / 8,
        "int64 codes": samples * 8,
        f"FedAvg: {MLP_PARAMETERS:,} weights in float32": MLP_PARAMETERS * 4,
    }
    rows += [{"what": what, "bytes": math.ceil(size)} for what, size in others.items()]
    return [row | {"to_first": row["bytes"] / rows[0]["bytes"]} for row in rows]


def _row(what: str, coded: tuple[dict[str, Any], NDArray[np.uint8]], theory: float, limit: float) -> dict[str, Any]:
    header, content = coded
    return {
        "what": what,
        "bytes": content.size,
        "header_bytes": len(json.dumps(header, separators=(",", ":"))),
        "theory_bytes": theory,
        "limit": limit,
        "ratio": content.size / theory if theory else math.nan,
        "within": content.size <= limit * theory + (1 if limit < 1.3 else 2),
    }


def _entropy_bytes(labels: NDArray[np.int16], reference: NDArray[np.int16], n_classes: int) -> float:
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
            "header bytes": Column("header_bytes"),
            "entropy bytes": Column("theory_bytes", ",.1f"),
            "ratio": Column("ratio", ".4f"),
            "limit": Column("limit"),
            "within": Column("within"),
            "to first round": Column("to_first", ",.4f"),
        },
        measure(samples, classes),
    )


if __name__ == "__main__":
    print_with_options(report, __doc__)
