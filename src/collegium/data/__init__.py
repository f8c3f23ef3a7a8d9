"""Making federated data from one data set, for studies and tests."""

from collegium.data.partition import (
    BalancedDirichlet,
    ByColumn,
    Dirichlet,
    Iid,
    MixedDirichlet,
    Partition,
    Pathological,
    Shard,
)
from collegium.data.public import Split, split

__all__ = [
    "split",
    "Split",
    "Partition",
    "Iid",
    "Dirichlet",
    "BalancedDirichlet",
    "MixedDirichlet",
    "Shard",
    "Pathological",
    "ByColumn",
]
