from __future__ import annotations

import numpy as np
import pytest

from collegium.core.labels import Labels, code_dtype
from collegium.core.public_set import PublicSet
from collegium.errors import ConfigError


def test_codes_are_kept_in_the_smallest_type():
    assert Labels(np.array([0, -1, 2], dtype=np.int64), 3).codes.dtype == np.int8
    assert Labels(np.array([299]), 300).codes.dtype == np.int16
    assert code_dtype(40_000) is np.int32


@pytest.mark.parametrize("codes", [np.array([3]), np.array([-2]), np.array([0.5]), np.array([[0]])])
def test_codes_out_of_range_or_shape_are_refused(codes):
    with pytest.raises(ConfigError):
        Labels(codes, 3)


def test_the_digest_names_exactly_these_labels():
    labels = Labels(np.array([0, 1, -1]), 3)
    assert labels.digest == Labels(np.array([0, 1, -1], dtype=np.int64), 3).digest
    assert labels.digest != Labels(np.array([0, 1, 0]), 3).digest
    assert labels.digest != Labels(np.array([0, 1, -1]), 4).digest


def test_coverage_and_change():
    before, after = Labels(np.array([0, 1, -1, 2]), 3), Labels(np.array([0, 2, 1, -1]), 3)
    assert after.coverage == 0.75
    assert after.changed_from(before) == 3
    assert after.changed_from(None) == 3
    assert before == Labels(np.array([0, 1, -1, 2]), 3)
    assert before != after


def test_sites_share_the_rows_of_the_same_labels_and_their_values():
    public, classes = PublicSet(np.arange(8.0).reshape(4, 2)), np.array(["a", "b"])
    L = Labels(np.array([0, -1, 1, 0]), 2)
    first = public.labelled(L)
    assert public.labelled(L) is first
    assert first.values(classes) is first.values(classes)
    assert first.values(classes).tolist() == ["a", "b", "a"]
    assert first.values(np.array([5, 6])).tolist() == [5, 6, 5]
    other = public.labelled(Labels(np.array([1, 1, 1, -1]), 2))
    assert other.codes.tolist() == [1, 1, 1]
    assert other.X.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert public.labelled(L).codes.tolist() == [0, 1, 0]


def test_labels_cannot_be_changed_and_what_they_were_made_of_can():
    codes = np.zeros(3, dtype=np.int8)
    L = Labels(codes, 2)
    for array in (L.codes, L.known):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    codes[0] = 1


def test_labels_do_not_change_with_the_array_that_they_were_made_from() -> None:
    codes = np.zeros(5, dtype=code_dtype(3))
    labels = Labels(codes, 3)
    codes[:] = 2
    assert labels.codes.tolist() == [0] * 5
    assert Labels(labels.codes, 3).codes.base is not None  # what cannot be changed is not copied
