"""Consensus rules: how the sites' labels of the public set become one labelling."""

from collegium.consensus.base import Consensus, Voters
from collegium.consensus.dawid_skene import DawidSkene
from collegium.consensus.familiar import Familiar
from collegium.consensus.guarded import Guarded
from collegium.consensus.informed import Informed
from collegium.consensus.majority import Majority, QualifiedMajority
from collegium.consensus.weighted import WeightedMajority

__all__ = [
    "Consensus",
    "DawidSkene",
    "Familiar",
    "Guarded",
    "Informed",
    "Majority",
    "QualifiedMajority",
    "Voters",
    "WeightedMajority",
]
