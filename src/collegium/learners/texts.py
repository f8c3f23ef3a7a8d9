"""Texts as numbers: scikit-learn's vectorizers, for tables in which a text may be missing."""

from __future__ import annotations

from typing import Any

import pandas as pd
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer, TfidfVectorizer


class _BlankAware:
    """A missing text has no words; scikit-learn refuses it."""

    def decode(self, doc: Any) -> Any:
        """The text of a cell."""
        return "" if doc is None or doc is pd.NA or doc != doc else super().decode(doc)  # type: ignore[misc]


class Tfidf(_BlankAware, TfidfVectorizer):  # type: ignore[misc]
    """scikit-learn's TfidfVectorizer; a blank cell is a text without words."""


class WordCounts(_BlankAware, CountVectorizer):  # type: ignore[misc]
    """scikit-learn's CountVectorizer; a blank cell is a text without words."""


class HashedWords(_BlankAware, HashingVectorizer):  # type: ignore[misc]
    """scikit-learn's HashingVectorizer, which learns no words; a blank cell is a text without any."""
