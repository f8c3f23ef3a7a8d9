"""Preprocessing that a learner needs for a given table, for users who do not want to write a Pipeline."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from pandas.api.types import is_bool_dtype, is_extension_array_dtype, is_numeric_dtype
from scipy import sparse
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.utils import get_tags

from collegium.learners.base import takes_texts

# Learners that compare or add up features of different units do badly without a common scale.
_SCALED: Final = {
    "LogisticRegression", "SGDClassifier", "SVC", "KNeighborsClassifier", "MLPClassifier", "TorchClassifier",
}  # fmt: skip
_IMAGES: Final = {"TorchClassifier", "VisionClassifier"}
# They take missing values, but fail on a column that has nothing else.
_NEED_A_VALUE: Final = {"HistGradientBoostingClassifier"}


def with_preparation(learner: Any, X: Any, *others: Any) -> Any:
    """The learner with the preprocessing `X` needs: encode categories, impute, flatten images, scale features.

    `others` are tables that the learner will answer about: a blank cell may be in them alone. A learner that needs
    nothing, reads texts, or is already a Pipeline, is returned unchanged. Private learners prepare their parts:
    preprocessing in front of the whole would see the private rows without being accounted for. Whether those have blank
    cells must not show, so that their parts always fill them.
    """
    return _with_preparation(learner, [X, *(table for table in others if table is not None)], fills=False)


def _with_preparation(learner: Any, shown: list[Any], *, fills: bool) -> Any:
    if isinstance(learner, Pipeline) or takes_texts(learner):
        return learner
    if hasattr(learner, "with_preparation"):
        return learner.with_preparation(lambda part: _with_preparation(part, shown, fills=True))
    steps = _table_steps(learner, shown, fills)
    return make_pipeline(*steps, learner) if steps else learner


def _table_steps(learner: Any, shown: list[Any], fills: bool) -> list[Any]:
    X = shown[0]
    if isinstance(X, pd.DataFrame):
        return _frame_steps(learner, [table for table in shown if isinstance(table, pd.DataFrame)], fills)
    if sparse.issparse(X):
        return []
    if X.ndim > 2:  # images, already in 0 .. 1
        return [] if type(learner).__name__ in _IMAGES else [FunctionTransformer(flatten)]
    has_gaps = any(isinstance(each, np.ndarray) and each.dtype.kind == "f" and np.isnan(each).any() for each in shown)
    has_blank = X.dtype.kind == "f" and bool(np.isnan(X).all(axis=0).any())
    return _number_steps(learner, fills or has_gaps, has_blank)


def _frame_steps(learner: Any, shown: list[pd.DataFrame], fills: bool) -> list[Any]:
    columns = list(shown[0].columns)
    numbers = [column for column in columns if _is_number(column, shown)]
    others = [column for column in columns if column not in numbers]
    known = [table[[column for column in numbers if column in table]] for table in shown]
    gaps = [table[name] for table in known for name in table if table[name].isna().any()]
    has_blank = bool(known[0].isna().all().any())
    numeric = _number_steps(learner, fills or bool(gaps), has_blank)
    if any(not is_numeric_dtype(each) or is_extension_array_dtype(each) for each in gaps):
        numeric = [FunctionTransformer(as_numbers), *numeric]
    if not others and not numeric:
        return []
    from sklearn.compose import ColumnTransformer  # with all of the linear models: not for those who need none

    parts: list[tuple[str, Any, list[Any]]] = []
    if numbers:
        parts.append(("numbers", make_pipeline(*numeric) if numeric else "passthrough", numbers))
    if others:
        # Rare and unseen categories are lumped together: sites do not see the same ones.
        encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=50, sparse_output=False)
        parts.append(("categories", make_pipeline(FunctionTransformer(as_words), encoder), others))
    return [ColumnTransformer(parts, verbose_feature_names_out=False)]


def _is_number(column: Any, shown: list[pd.DataFrame]) -> bool:
    """Whether a column holds numbers. What is all blank in one table has the type that it has in another."""
    there = [table[column] for table in shown if column in table]
    telling = [values for values in there if not values.isna().all()] or there[:1]
    return all(is_numeric_dtype(values) and not is_bool_dtype(values) for values in telling)


def _number_steps(learner: Any, has_gaps: bool, has_blank: bool) -> list[Any]:
    copes = takes_gaps(learner) and not (has_blank and type(learner).__name__ in _NEED_A_VALUE)
    fills = has_gaps and not copes
    filled = [_imputer()] if fills else []
    return [*filled, StandardScaler()] if type(learner).__name__ in _SCALED else filled


def _imputer() -> Any:
    from sklearn.impute import SimpleImputer  # with all that finds neighbours

    return SimpleImputer(strategy="median", keep_empty_features=True)


def takes_gaps(learner: Any) -> bool:
    """Whether the learner handles missing values itself."""
    try:
        return bool(get_tags(learner).input_tags.allow_nan)
    except (AttributeError, TypeError):
        return False


def flatten(X: Any) -> Any:
    """Images as rows of numbers."""
    return np.asarray(X).reshape(len(X), -1)


def as_numbers(columns: pd.DataFrame) -> pd.DataFrame:
    """As numbers, with NaN for missing values; a column that is blank says nothing of its type."""
    numbers: pd.DataFrame = columns.apply(pd.to_numeric, errors="coerce").astype(float)
    return numbers


def as_words(columns: pd.DataFrame) -> pd.DataFrame:
    """As text, with "?" for missing values."""
    return columns.astype(object).where(columns.notna(), "?").astype(str)
