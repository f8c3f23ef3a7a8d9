from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from collegium.auditing.evidence import Evidence, Targets, nearest_rows
from collegium.core.labels import Labels
from collegium.core.releases import ApprovalBits, Count, HardLabels, RawRecords, VoteCounts, VoteSum
from collegium.core.weights import SoftLabels, SomeSoftLabels, Weights
from collegium.errors import ConfigError
from collegium.wire import tables

X = np.arange(12.0).reshape(4, 3)
CODES = np.array([0, 1, 2, 1])
ROWS = np.array([[0, 4], [1, 4], [2, 5], [3, 5]])


def targets(**settings) -> Targets:
    return Targets(X, CODES, 4, ROWS, **settings)


def test_labels_agree_or_do_not_and_an_abstention_says_nothing() -> None:
    said = Labels(np.array([0, 0, 2, -1, 1, 1]), 3)
    for value in (said, HardLabels(said)):
        reading = targets().look(value, {})
        assert reading.hard
        assert reading.values.tolist() == [[1, 0], [0, 1], [1, 0], [0.5, 1]]


def test_approvals_are_read_class_by_class() -> None:
    bits = np.zeros((6, 3), dtype=bool)
    bits[1, 1] = bits[4] = True
    assert targets().look(ApprovalBits.from_bits(bits), {}).values.tolist() == [[0, 1], [1, 1], [0, 0], [0, 0]]


def test_counts_are_read_as_shares() -> None:
    counts = np.array([[3, 1, 0]] * 6)
    assert targets().look(VoteCounts(counts), {}).values[:, 0].tolist() == [0.75, 0.25, 0, 0.25]
    total = VoteSum(4)
    for _ in range(3):
        total.add_release(HardLabels(Labels(np.array([0, 1, 0, 0, 0, 0]), 3)))
    assert targets().look(total, {}).values[:, 0].tolist() == [1, 1, 0, 0]


def test_soft_labels_are_probabilities_also_before_the_softmax() -> None:
    values = np.tile(np.array([0.2, 0.3, 0.5], np.float32), (6, 1))
    assert targets().look(SoftLabels(values), {}).values[:, 0] == pytest.approx([0.2, 0.3, 0.5, 0.3])
    logits = np.log(values) + 7
    assert targets().look(SoftLabels(logits), {}).values[:, 0] == pytest.approx([0.2, 0.3, 0.5, 0.3])


def test_soft_labels_of_named_rows_are_read_where_they_belong() -> None:
    values = np.array([[0.9, 0.05, 0.05], [0.1, 0.8, 0.1]], np.float32)
    reading = targets().look(SomeSoftLabels(values), {"rows": np.array([4, 1])})
    assert reading.values[:, 0] == pytest.approx([0.5, 0.8, 0.5, 0.5])
    assert reading.values[0, 1] == pytest.approx(0.9)


class Net:
    """Gives class 1 a probability that its only weight says."""

    def __init__(self, weights) -> None:
        if set(weights) != {"w"}:
            raise ConfigError("These weights are of another net.")
        self._one = float(weights["w"][0])

    def predict_proba(self, X):
        return np.tile([0.0, self._one, 1 - self._one], (len(X), 1))


def test_weights_are_put_into_a_net_that_is_asked_about_the_records() -> None:
    looking = targets(net=lambda like, weights: Net(weights))
    assert looking.look(Weights({"w": np.array([0.25], np.float32)}, 5), {}).values[:, 0].tolist() == [
        0,
        0.25,
        0.75,
        0.25,
    ]
    assert looking.look({"other": np.zeros(1)}, {}) is None


def test_several_nets_in_one_are_read_each_and_summed() -> None:
    looking = targets(net=lambda like, weights: Net(weights))
    reading = looking.look({"psi: w": np.array([0.25]), "sigma: w": np.array([0.5])}, {})
    assert reading.values[1].tolist() == [0.25, 0.5, 0.75]


@pytest.mark.parametrize("as_table", [np.asarray, pd.DataFrame, sparse.csr_matrix])
def test_records_that_were_handed_over_are_found(as_table) -> None:
    header, columns = tables.to_arrays(tables.as_table(as_table(X[[2, 1]]), "X"))
    looking = Targets(tables.as_table(as_table(X), "X"), CODES, 4, ROWS)
    reading = looking.look(RawRecords(header, columns, np.array([2, 0])), {})
    assert reading.values[:, 0].tolist() == [0, 0, 1, 0]  # the second has another label


def test_what_cannot_be_read_is_counted() -> None:
    evidence = Evidence()
    for value in (Count(3), Count(4)):
        evidence.add("a/b/0", value, targets().look(value, {}))
    assert evidence.unread == {"Count": 2}
    assert not evidence.readings


def test_the_same_thing_twice_in_a_round_is_kept_twice() -> None:
    evidence, said = Evidence(), Labels(np.zeros(6, np.int64), 3)
    for _ in range(2):
        evidence.add("a/b/0", said, targets().look(said, {}))
    assert list(evidence.readings) == ["a/b/0#0", "a/b/0#1"]


def test_nearest_rows_begin_with_a_canarys_own_if_it_was_forged_in() -> None:
    public = np.vstack([X, X + 0.01, X + 5])
    rows = nearest_rows(public, X, own_row=True)
    assert rows[:, 0].tolist() == [0, 1, 2, 3]
    assert rows[:, 1].tolist() == [4, 5, 6, 7]
    assert nearest_rows(public[4:], X, own_row=False)[:, 0].tolist() == [0, 1, 2, 3]


def test_rows_that_are_no_numbers_have_no_neighbours() -> None:
    words = np.array([["a"], ["b"]], dtype=object)
    assert nearest_rows(words, words, own_row=True).tolist() == [[0], [1]]
    assert nearest_rows(None, X, own_row=False).shape == (4, 0)
    frame = pd.DataFrame({"a": ["x", "y", "x"], "b": [1.0, np.nan, 3.0]})
    assert nearest_rows(frame, frame, own_row=False)[:, 0].tolist() == [0, 1, 2]
