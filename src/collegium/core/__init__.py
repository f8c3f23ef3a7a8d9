"""All that an algorithm may import: the seam between coordinator and sites."""

from collegium.core.algorithm import Algorithm
from collegium.core.federation import Federation, Replies
from collegium.core.labels import Labels
from collegium.core.policy import Policy
from collegium.core.releases import Count, HardLabels, Nothing, RawRecords, Release, SharedModels
from collegium.core.samples import LabelledData, Mixture
from collegium.core.site import ActiveSite, Site
from collegium.core.soft import SoftLabels, TrainedWeights, Weights
from collegium.core.steps import Order, Step, step
from collegium.core.tally import Tally

__all__ = [
    "ActiveSite",
    "Algorithm",
    "Count",
    "Federation",
    "HardLabels",
    "LabelledData",
    "Labels",
    "Mixture",
    "Nothing",
    "Order",
    "Policy",
    "RawRecords",
    "Release",
    "Replies",
    "SharedModels",
    "Site",
    "SoftLabels",
    "Step",
    "Tally",
    "TrainedWeights",
    "Weights",
    "step",
]
