"""Preprocessing that a learner needs for a given table, for users who do not want to write a Pipeline."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler
from sklearn.utils import get_tags

# Learners that compare or add up features of different units do badly without a common scale.
_SCALED: Final = {
    "LogisticRegression", "SGDClassifier", "SVC", "KNeighborsClassifier", "MLPClassifier", "TorchClassifier",
}  # fmt: skip
_IMAGES: Final = {"TorchClassifier"}


def with_preparation(learner: Any, X: Any) -> Any:
    """The learner with the preprocessing `X` needs: encode categories, impute, flatten images, scale features.

    A learner that needs nothing, or is already a Pipeline, is returned unchanged. Private learners prepare their parts:
    preprocessing in front of the whole would see the private rows without being accounted for.
    """
    if isinstance(learner, Pipeline):
        return learner
    if hasattr(learner, "with_preparation"):
        return learner.with_preparation(lambda part: with_preparation(part, X))
    steps = _table_steps(learner, X)
    return make_pipeline(*steps, learner) if steps else learner


def _table_steps(learner: Any, X: Any) -> list[Any]:
    if isinstance(X, pd.DataFrame):
        return _frame_steps(learner, X)
    if sparse.issparse(X):
        return []
    if X.ndim > 2:  # images, already in 0 .. 1
        return [] if type(learner).__name__ in _IMAGES else [FunctionTransformer(flatten)]
    return _number_steps(learner, X.dtype.kind == "f" and bool(np.isnan(X).any()))


def _frame_steps(learner: Any, X: pd.DataFrame) -> list[Any]:
    numbers = list(X.select_dtypes("number").columns)
    others = [column for column in X.columns if column not in numbers]
    numeric = _number_steps(learner, bool(X[numbers].isna().any(axis=None)))
    if not others and not numeric:
        return []
    parts: list[tuple[str, Any, list[Any]]] = []
    if numbers:
        parts.append(("numbers", make_pipeline(*numeric) if numeric else "passthrough", numbers))
    if others:
        # Rare and unseen categories are lumped together: sites do not see the same ones.
        encoder = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=50, sparse_output=False)
        parts.append(("categories", make_pipeline(FunctionTransformer(as_words), encoder), others))
    return [ColumnTransformer(parts, verbose_feature_names_out=False)]


def _number_steps(learner: Any, has_gaps: bool) -> list[Any]:
    fills = has_gaps and not takes_gaps(learner)
    filled = [SimpleImputer(strategy="median", keep_empty_features=True)] if fills else []
    return [*filled, StandardScaler()] if type(learner).__name__ in _SCALED else filled


def takes_gaps(learner: Any) -> bool:
    """Whether the learner handles missing values itself."""
    try:
        return bool(get_tags(learner).input_tags.allow_nan)
    except (AttributeError, TypeError):
        return False


def flatten(X: Any) -> Any:
    """Images as rows of numbers."""
    return np.asarray(X).reshape(len(X), -1)


def as_words(columns: pd.DataFrame) -> pd.DataFrame:
    """As text, with "?" for missing values."""
    return columns.astype(object).where(columns.notna(), "?").astype(str)
