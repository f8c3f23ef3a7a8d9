"""What every kind of release must do."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest

import collegium.core  # noqa: F401 - brings all kinds
from collegium import registry, wire
from collegium.core.labels import Labels
from collegium.core.releases import (
    KINDS,
    AnswerCounts,
    ApprovalBits,
    BlindedSpellings,
    Count,
    Counts,
    HardLabels,
    NoisyCounts,
    Nothing,
    Numbers,
    RawRecords,
    Release,
    SharedModels,
    Spellings,
    VoteCounts,
)
from collegium.core.scores import Measures, Scores
from collegium.core.weights import SoftLabels, SomeSoftLabels, TrainedWeights, Weights
from collegium.errors import WireError
from collegium.secure.messages import (
    DistanceShares,
    Greeting,
    Letters,
    MaskedCounts,
    MaskedRows,
    MaskedVotes,
    MaskedWords,
    MaskShares,
    Met,
    Neighbourhood,
    OpenPoints,
)

registry.install_steps()
OURS = sorted(kind for kind, cls in KINDS.items() if cls.__module__.startswith("collegium."))
every_kind = pytest.mark.parametrize("kind", OURS)

EXAMPLES: dict[str, list[Release]] = {
    "Nothing": [Nothing()],
    "Count": [Count(0), Count(12345)],
    "Scores": [Scores(0.0, 1), Scores(0.875, 40)],
    "Measures": [Measures(np.array([0.5, 12.0])), Measures(np.zeros(0))],
    "HardLabels": [
        HardLabels(Labels(np.array([0, 2, -1, 1]), 3)),
        HardLabels(Labels(np.zeros(0, dtype=int), 2)),
        HardLabels(Labels(np.arange(500) % 300, 300)),
    ],
    "ApprovalBits": [
        ApprovalBits.from_bits(np.arange(21).reshape(7, 3) % 2 == 0),
        ApprovalBits.from_bits(np.zeros((0, 2), dtype=bool)),
        ApprovalBits.from_bits(np.ones((4, 300), dtype=bool)),
    ],
    "VoteCounts": [VoteCounts(np.array([[3, 2], [0, 5]])), VoteCounts(np.zeros((0, 2)))],
    "AnswerCounts": [AnswerCounts(np.array([[3, 0], [1, 2]])), AnswerCounts(np.zeros((3, 3), dtype=np.int64))],
    "Numbers": [Numbers(np.array([0.5, -2.0])), Numbers(np.zeros((2, 0))), Numbers(np.array(3.0))],
    "Counts": [Counts(np.array([0, 7])), Counts(np.zeros(0, dtype=np.int64))],
    "NoisyCounts": [NoisyCounts(np.array([-3, 7]), 4)],
    "Spellings": [Spellings(np.ones((2, 3), np.uint64), np.array([[0, 4], [1, 3]]), 5)],
    "BlindedSpellings": [BlindedSpellings(np.full(4, 2**63, np.uint64))],
    "Weights": [Weights({"0.weight": np.ones((2, 3), np.float32), "0.bias": np.zeros(2, np.float32)}, 7)],
    "TrainedWeights": [TrainedWeights({"0.bias": np.zeros(2, np.float32)}, 7, 0.25)],
    "SoftLabels": [SoftLabels(np.full((4, 3), 1 / 3, np.float32))],
    "SomeSoftLabels": [SomeSoftLabels(np.full((2, 3), 1 / 3, np.float32))],
    "SharedModels": [
        SharedModels("constant", [{"codes": np.array([1], np.int8), "parts": {}}]),
        SharedModels("xgboost", [{"codes": np.array([0, 2]), "parts": {"text": np.frombuffer(b"{}", np.uint8)}}] * 2),
    ],
    "Greeting": [Greeting("0a" * 32, "ff" * 64)],
    "Met": [Met([]), Met(["ukb"])],
    "Letters": [Letters({}, []), Letters({"ukb": np.arange(9, dtype=np.uint8)}, ["tum"])],
    "Neighbourhood": [
        Neighbourhood(1, np.array([[1], [0]]), np.array([[3], [3]], np.uint16)),
        Neighbourhood(0, np.zeros((1, 0), np.int64), np.zeros((1, 0), np.uint16)),
    ],
    "DistanceShares": [
        DistanceShares({}),
        DistanceShares({"ukb": np.eye(2, dtype=np.uint16), "tum": {"numbers": np.arange(3, dtype=np.uint8)}}),
    ],
    "MaskedRows": [MaskedRows({}), MaskedRows({"ukb": np.full((2, 3), 2**63, np.uint64)})],
    "MaskedCounts": [
        MaskedCounts(
            np.arange(6, dtype=np.uint32), {"ukb": np.arange(9, dtype=np.uint8)}, {"ukb": "1b" * 32}, "2c" * 32
        )
    ],
    "MaskedWords": [
        MaskedWords(np.arange(6, dtype=np.uint64), {"ukb": np.arange(9, dtype=np.uint8)}, {"ukb": "1b" * 32}, "2c" * 32)
    ],
    "MaskedVotes": [
        MaskedVotes(
            np.arange(6, dtype=np.uint8).reshape(2, 3),
            {"ukb": np.arange(9, dtype=np.uint8)},
            {"tum": "0a" * 32, "ukb": "1b" * 32},
            "2c" * 32,
        )
    ],
    "MaskShares": [MaskShares({}, ["tum"]), MaskShares({"ukb": np.arange(66, dtype=np.uint8)}, [])],
    "OpenPoints": [OpenPoints(1, np.eye(2)), OpenPoints(0, np.eye(2, dtype=np.uint8))],
    "RawRecords": [RawRecords({"table": "array"}, {"values": np.eye(3)}, np.array([0, 1, 0], dtype=np.int8))],
}


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(equal, a, b))
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and np.array_equal(a, b)
    return type(a) is type(b) and bool(a == b)


@every_kind
def test_there_is_an_example_of_it_here(kind: str) -> None:
    assert kind in EXAMPLES, f"add an example of {kind} to EXAMPLES"


@every_kind
def test_it_is_a_frozen_dataclass_known_by_its_name(kind: str) -> None:
    cls = KINDS[kind]
    assert issubclass(cls, Release)
    assert cls.kind == cls.__name__ == kind
    assert is_dataclass(cls)
    assert cls.__dataclass_params__.frozen
    assert cls.__doc__


@every_kind
def test_it_goes_over_the_wire_and_back(kind: str) -> None:
    for release in EXAMPLES.get(kind, []):
        packed = wire.pack(release.to_plain())
        back = KINDS[kind].from_plain(wire.unpack(packed.data))
        assert type(back) is type(release)
        assert equal(back.to_plain(), release.to_plain())


@every_kind
def test_it_is_the_same_bytes_each_time(kind: str) -> None:
    for release in EXAMPLES.get(kind, []):
        assert wire.pack(release.to_plain()).data == wire.pack(release.to_plain()).data


@every_kind
def test_other_fields_are_refused(kind: str) -> None:
    for release in EXAMPLES.get(kind, []):
        plain = release.to_plain()
        with pytest.raises(WireError, match=kind):
            KINDS[kind].from_plain(plain | {"secret": 1})
        for field in fields(release):
            with pytest.raises(WireError, match=kind):
                KINDS[kind].from_plain({name: value for name, value in plain.items() if name != field.name})


@every_kind
def test_it_can_be_summed_or_says_that_it_cannot(kind: str) -> None:
    for release in EXAMPLES.get(kind, []):
        try:
            total = type(release).empty_sum(2)
        except WireError as refusal:
            assert kind in str(refusal)  # noqa: PT017 - either is right
        else:
            total.add_release(release)
            total.add_release(release)
            with pytest.raises(ValueError, match="no room"):
                total.add_release(release)


def test_only_records_and_points_themselves_are_kept_to_simulations() -> None:
    assert [kind for kind in OURS if KINDS[kind].simulation_only] == ["OpenPoints", "RawRecords"]
