from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from collegium.errors import ConfigError
from collegium.together.columns import read_column, read_columns, template_of

INTEGER, REAL, TEXT = np.dtype("int64"), np.dtype("float64"), np.dtype(object)


@pytest.mark.parametrize(
    ("said", "dtype", "kind"),
    [
        ((17, 90), INTEGER, "integer"),
        ((17, 90), REAL, "real"),
        ([17, 90], None, "integer"),
        ([17.0, 90.0], None, "real"),
        (["F", "M"], TEXT, "category"),
        ([1, 2, 3], INTEGER, "category"),
        ({"categories": [0, 1]}, INTEGER, "category"),
        (None, REAL, "real"),
        (None, np.dtype(bool), "category"),
        (None, TEXT, "category"),
        ("category", None, "category"),
        ("integer", None, "integer"),
        ({"missing": True}, pd.CategoricalDtype(["a", "b"]), "category"),
        (None, pd.CategoricalDtype(["a", "b"]), "category"),
    ],
)
def test_what_is_said_of_a_column_makes_its_kind(said: Any, dtype: Any, kind: str) -> None:
    assert read_column("x", said, dtype).kind == kind


@pytest.mark.parametrize(
    ("said", "dtype", "words"),
    [
        ("words", TEXT, "its kind"),
        (["F", "F"], TEXT, "each once"),
        ([str(n) for n in range(65)], TEXT, "too many categories: 65"),
        ((90, 17), REAL, "must begin below its end"),
        ({"low": 1}, REAL, "both ends"),
        ({"low": 1, "hihg": 2}, REAL, "Did you mean 'high'"),
        ({"bins": [1, 1, 2]}, REAL, "must be finite and increase"),
        ({"low": 0, "high": 1, "bins": 1000}, REAL, "1 to 64 bins"),
        ({"low": 0, "high": float("nan")}, REAL, "high"),
        (7, REAL, "declare its range"),
        (None, np.dtype("datetime64[ns]"), "turn it into numbers or categories"),
    ],
)
def test_what_cannot_be_a_column_is_an_error_that_names_it(said: Any, dtype: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as error:
        read_column("dose", said, dtype)
    assert "dose" in str(error.value) or "Column" in str(error.value)


def test_a_column_that_is_not_there_is_an_error_with_the_nearest_one() -> None:
    with pytest.raises(ConfigError, match=r"no column 'agee'\. Did you mean 'age'"):
        read_columns({"agee": (1, 2)}, pd.DataFrame({"age": [1]}))


def test_images_get_an_honest_answer() -> None:
    with pytest.raises(ConfigError, match=r"not for rows of shape \(28, 28\).*pre-trained network"):
        template_of(np.zeros((5, 28, 28)), "X")
