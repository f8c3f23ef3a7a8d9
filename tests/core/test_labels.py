from __future__ import annotations

import numpy as np
import pytest

from collegium.core.labels import Labels, code_dtype
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
