"""FedSem: labels first; then what the net of the first phase made of the other points, and no more than that."""

from __future__ import annotations

import numpy as np
from tests.algorithms.few_labels import run

import collegium as cg


def course(result: cg.Run) -> list[float]:
    return result.metrics.query("metric == 'global_accuracy'")["value"].tolist()


def test_half_of_the_rounds_are_fedavg_on_labels() -> None:
    assert cg.FedSem(rounds=9).warm_up == 4
    assert cg.FedSem(rounds=9, warm_up=2).warm_up == 2
    both = run(cg.FedSem(rounds=6, local_steps=5)), run(cg.FedAvg(rounds=6, local_steps=5, weighting="equal"))
    assert course(both[0])[:3] == course(both[1])[:3]
    assert course(both[0])[3:] != course(both[1])[3:]


def test_points_are_labelled_once_by_the_net_of_the_first_phase() -> None:
    phase = run(cg.FedAvg(rounds=2, local_steps=5, weighting="equal")).global_model
    short, long = (run(cg.FedSem(rounds=rounds, warm_up=2, local_steps=5)) for rounds in (3, 6))
    for party, labels in short.labels.items():
        assert np.array_equal(labels, long.labels[party])
    again = run(cg.FedAvgPseudo(rounds=1, local_steps=1, start=phase))
    assert all(np.array_equal(short.labels[p], again.labels[p]) for p in "abcd")


def test_sites_that_do_not_take_part_in_a_round_label_their_points_too() -> None:
    assert run(cg.FedSem(rounds=3, participation=0.5, local_steps=2)).labels.keys() == set("abcd")
