"""Secure Hamming distances: every backend's work and traffic for one pair of sites, on one core.

    python -m benchmarks.hamming [--points 500] [--bits 4096] [--backends "ot masked"]

Both sites and the server run one after the other in this process; the time of each is its processor time, so that
other programs on the machine do not count. Distances are compared with those in the clear.
"""

from __future__ import annotations

import itertools
import secrets
import time
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.machine import limited_to
from benchmarks.report import Column, Report, print_with_options, watched
from benchmarks.two_sites import Transcript, pairwise
from collegium.protocols.hamming import BACKENDS, masked, plain

SITES = 5
TARGETS = {
    "ot": {"target_seconds": 12.0, "target_bytes": 1.7e9},
    "paillier": {"target_seconds": 180.0, "target_bytes": 11e6},
    "masked": {"target_site_seconds": 0.2},
}
"""For 500 points at each site and sketches of 4096 bits."""
SMALL: dict[str, Any] = {"points": 20, "bits": 256, "backends": "ot masked plain"}


def measure(points: int = 500, bits: int = 4096, backends: str = "") -> list[dict[str, Any]]:
    """One row per backend, and one for all pairs of five sites with `masked`."""
    rng = np.random.default_rng(0)
    sketches = [rng.integers(0, 2, (points, bits), dtype=np.uint8) for _ in range(SITES)]
    chosen = backends.split() or list(BACKENDS)
    with limited_to(cores=1), threadpool_limits(1):
        pairwise(sketches[0][:2], sketches[1][:2], "masked")  # the first use loads libraries
        rows = [_one_pair(name, sketches[0], sketches[1]) for name in watched(chosen, "backends", len(chosen))]
        rows.append(_all_pairs(sketches))
    for row in rows:
        row |= TARGETS.get(row["backend"], {}) if (points, bits) == (500, 4096) else {}
    return rows


def _one_pair(name: str, a: Any, b: Any) -> dict[str, Any]:
    transcript = Transcript()
    found = pairwise(a, b, name, transcript)
    return {
        "backend": name,
        "a_seconds": transcript.seconds.get("a", 0.0),
        "b_seconds": transcript.seconds.get("b", 0.0),
        "server_seconds": transcript.seconds.get("server", 0.0),
        "seconds": sum(transcript.seconds.values()),
        "bytes": transcript.bytes,
        "exact": bool(np.array_equal(found, plain.distances(a, b))),
    }


def _all_pairs(sketches: list[Any]) -> dict[str, Any]:
    """Five sites with `masked`, every pair."""
    points = {str(i): len(each) for i, each in enumerate(sketches)}
    key, transcript, exact = secrets.token_bytes(32), Transcript(), True
    start = time.process_time()
    sites = {name: masked.Site(sketches[int(name)], name, key, "benchmark", points) for name in points}
    server = masked.Server(sketches[0].shape[1])
    for name, site in sites.items():
        server.add(name, points[name], transcript.send(name, "server", site.sketches()))
    found = {}
    for a, b in itertools.combinations(points, 2):
        shares = [transcript.send(one, "server", sites[one].share(other)) for one, other in ((a, b), (b, a))]
        found[a, b] = server.distances(a, shares[0], b, shares[1])
    seconds = time.process_time() - start
    for (a, b), distances in found.items():
        exact &= np.array_equal(distances, plain.distances(sketches[int(a)], sketches[int(b)]))
    return {
        "backend": f"masked, all pairs of {SITES} sites",
        "seconds": seconds,
        "bytes": transcript.bytes,
        "exact": exact,
        "target_seconds": 5.0 if sketches[0].shape == (500, 4096) else None,
    }


def report(points: int = 500, bits: int = 4096, backends: str = "") -> Report:
    """The table."""
    return Report(
        f"Hamming distances of {points} x {points} sketches of {bits} bits, one pair of sites, on one core",
        {
            "backend": Column("backend"),
            "site a s": Column("a_seconds", ".2f"),
            "site b s": Column("b_seconds", ".2f"),
            "target per site": Column("target_site_seconds", ".1f"),
            "server s": Column("server_seconds", ".2f"),
            "all s": Column("seconds", ".2f"),
            "target s": Column("target_seconds", ".0f"),
            "MB": Column("bytes", ",.1f", per=1e6),
            "target MB": Column("target_bytes", ",.0f", per=1e6),
            "exact": Column("exact"),
        },
        measure(points, bits, backends),
        notes="Processor time. paillier: 3072-bit keys, key generation included.",
    )


if __name__ == "__main__":
    print_with_options(report, __doc__)
