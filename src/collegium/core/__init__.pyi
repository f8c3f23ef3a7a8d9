from .algorithm import Algorithm as Algorithm
from .federation import Federation as Federation
from .federation import Replies as Replies
from .labels import Labels as Labels
from .releases import (
    Count as Count,
)
from .releases import (
    HardLabels as HardLabels,
)
from .releases import (
    Nothing as Nothing,
)
from .releases import (
    RawRecords as RawRecords,
)
from .releases import (
    Release as Release,
)
from .releases import (
    SharedModels as SharedModels,
)
from .samples import LabelledData as LabelledData
from .samples import Mixture as Mixture
from .site import ActiveSite as ActiveSite
from .site import Site as Site
from .steps import Order as Order
from .steps import Step as Step
from .steps import Steps as Steps
from .steps import step as step
from .tally import Tally as Tally
from .weights import SoftLabels as SoftLabels
from .weights import TrainedWeights as TrainedWeights
from .weights import Weights as Weights
