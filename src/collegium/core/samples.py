"""Rows with labels, and the mixture of private and pseudo-labelled rows that co-training learns from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from collegium.core import tables
from collegium.core.labels import Codes


@dataclass(frozen=True, eq=False)
class LabelledData:
    """Rows with class codes."""

    X: Any
    codes: Codes

    def __len__(self) -> int:
        return len(self.codes)

    def __add__(self, pseudo: LabelledData) -> Mixture:
        return Mixture(self, pseudo)


@dataclass(frozen=True, eq=False)
class Mixture:
    """Private rows, and pseudo-labelled public rows beside them (the papers' D_i u P)."""

    private: LabelledData
    pseudo: LabelledData

    def joined(self) -> LabelledData:
        """Both as one table, for learners that do not tell them apart."""
        if not len(self.pseudo):
            return self.private
        X = tables.stack([self.private.X, self.pseudo.X])
        return LabelledData(X, np.concatenate([self.private.codes, self.pseudo.codes]))
