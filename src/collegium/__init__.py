"""Collegium: federated learning by sharing opinions on public cases.

Sites keep their data and their models; they share labels of a public, unlabelled set and learn from the consensus::

    import collegium as cg

    split = cg.split(X, y, sites=5, public=370, test=114, seed=0)
    sites = [cg.Site(f"site{i}", Xi, yi, learner=clf) for i, (Xi, yi) in enumerate(split.sites)]
    run = cg.run(cg.FedCT(rounds=5), sites=sites, public=split.public, test=split.test)
    print(run.summary())
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collegium import privacy as privacy
    from collegium.algorithms.aimhi import AIMHI as AIMHI
    from collegium.algorithms.centralized import Centralized as Centralized
    from collegium.algorithms.dd import DistributedDistillation as DistributedDistillation
    from collegium.algorithms.dp_fedavg import DPFedAvg as DPFedAvg
    from collegium.algorithms.fedaux import FedAUX as FedAUX
    from collegium.algorithms.fedavg import FedAvg as FedAvg
    from collegium.algorithms.fedavg_llp import FedAvgLLP as FedAvgLLP
    from collegium.algorithms.fedavg_pseudo import FedAvgPseudo as FedAvgPseudo
    from collegium.algorithms.fedavg_xclp import FedAvgXCLP as FedAvgXCLP
    from collegium.algorithms.fedbe import FedBE as FedBE
    from collegium.algorithms.fedct import FedCT as FedCT
    from collegium.algorithms.feddf import FedDF as FedDF
    from collegium.algorithms.fedkt import FedKT as FedKT
    from collegium.algorithms.fedmatch import FedMatch as FedMatch
    from collegium.algorithms.fedmd import FedMD as FedMD
    from collegium.algorithms.fedprox import FedProx as FedProx
    from collegium.algorithms.fedsem import FedSem as FedSem
    from collegium.algorithms.fedsiam import FedSiam as FedSiam
    from collegium.algorithms.local import Local as Local
    from collegium.algorithms.local_label_propagation import LocalLabelPropagation as LocalLabelPropagation
    from collegium.algorithms.pate import DPPate as DPPate
    from collegium.algorithms.pate import Pate as Pate
    from collegium.algorithms.scaffold import Scaffold as Scaffold
    from collegium.algorithms.xclp import XCLP as XCLP
    from collegium.consensus.base import Consensus as Consensus
    from collegium.consensus.base import Voters as Voters
    from collegium.consensus.dawid_skene import DawidSkene as DawidSkene
    from collegium.consensus.familiar import Familiar as Familiar
    from collegium.consensus.majority import Majority as Majority
    from collegium.consensus.majority import QualifiedMajority as QualifiedMajority
    from collegium.consensus.weighted import WeightedMajority as WeightedMajority
    from collegium.core.algorithm import Algorithm as Algorithm
    from collegium.core.site import Site as Site
    from collegium.data.partition import (
        BalancedDirichlet as BalancedDirichlet,
    )
    from collegium.data.partition import (
        ByColumn as ByColumn,
    )
    from collegium.data.partition import (
        Dirichlet as Dirichlet,
    )
    from collegium.data.partition import (
        Iid as Iid,
    )
    from collegium.data.partition import (
        MixedDirichlet as MixedDirichlet,
    )
    from collegium.data.partition import (
        Pathological as Pathological,
    )
    from collegium.data.partition import (
        Shard as Shard,
    )
    from collegium.data.public import Split as Split
    from collegium.data.public import split as split
    from collegium.errors import (
        CollegiumError as CollegiumError,
    )
    from collegium.errors import (
        CollegiumWarning as CollegiumWarning,
    )
    from collegium.errors import (
        ConfigError as ConfigError,
    )
    from collegium.errors import (
        QuorumLost as QuorumLost,
    )
    from collegium.errors import (
        SiteError as SiteError,
    )
    from collegium.errors import (
        StorageError as StorageError,
    )
    from collegium.learners.simclr import SimCLR as SimCLR
    from collegium.learners.torch.classifier import TorchClassifier as TorchClassifier
    from collegium.privacy import theory as theory
    from collegium.privacy.budget import Budget as Budget
    from collegium.privacy.claims import PrivacyClaim as PrivacyClaim
    from collegium.privacy.learners.sgd import PrivateTorch as PrivateTorch
    from collegium.privacy.learners.voting import PrivateVoting as PrivateVoting
    from collegium.privacy.mechanisms.gaussian import Gaussian as Gaussian
    from collegium.privacy.mechanisms.laplace import Laplace as Laplace
    from collegium.privacy.mechanisms.noisy_max import ConfidentNoisyMax as ConfidentNoisyMax
    from collegium.privacy.mechanisms.noisy_max import GaussianNoisyMax as GaussianNoisyMax
    from collegium.privacy.mechanisms.noisy_max import LaplaceNoisyMax as LaplaceNoisyMax
    from collegium.privacy.mechanisms.randomized_response import RandomizedResponse as RandomizedResponse
    from collegium.privacy.mechanisms.unary import UnaryEncoding as UnaryEncoding
    from collegium.privacy.mechanisms.xor import XorMechanism as XorMechanism
    from collegium.runs.callbacks import Callback as Callback
    from collegium.runs.callbacks import EarlyStopping as EarlyStopping
    from collegium.runs.results import Run as Run
    from collegium.runs.results import load as load
    from collegium.runs.runner import run as run
    from collegium.site.ledger import verify_ledger as verify_ledger
    from collegium.site.policy import Policy as Policy
    from collegium.study.study import Study as Study

__version__ = "0.1.0"

# Where each public name lives: imported when first used, so that `import collegium` is quick.
_HOMES = {
    "collegium.algorithms.aimhi": ["AIMHI"],
    "collegium.algorithms.centralized": ["Centralized"],
    "collegium.algorithms.dd": ["DistributedDistillation"],
    "collegium.algorithms.dp_fedavg": ["DPFedAvg"],
    "collegium.algorithms.fedaux": ["FedAUX"],
    "collegium.algorithms.fedavg": ["FedAvg"],
    "collegium.algorithms.fedavg_llp": ["FedAvgLLP"],
    "collegium.algorithms.fedavg_pseudo": ["FedAvgPseudo"],
    "collegium.algorithms.fedavg_xclp": ["FedAvgXCLP"],
    "collegium.algorithms.fedbe": ["FedBE"],
    "collegium.algorithms.fedct": ["FedCT"],
    "collegium.algorithms.feddf": ["FedDF"],
    "collegium.algorithms.fedkt": ["FedKT"],
    "collegium.algorithms.fedmatch": ["FedMatch"],
    "collegium.algorithms.fedmd": ["FedMD"],
    "collegium.algorithms.fedprox": ["FedProx"],
    "collegium.algorithms.fedsem": ["FedSem"],
    "collegium.algorithms.fedsiam": ["FedSiam"],
    "collegium.algorithms.local": ["Local"],
    "collegium.algorithms.local_label_propagation": ["LocalLabelPropagation"],
    "collegium.algorithms.pate": ["DPPate", "Pate"],
    "collegium.algorithms.scaffold": ["Scaffold"],
    "collegium.algorithms.xclp": ["XCLP"],
    "collegium.runs.callbacks": ["Callback", "EarlyStopping"],
    "collegium.consensus.base": ["Consensus", "Voters"],
    "collegium.consensus.dawid_skene": ["DawidSkene"],
    "collegium.consensus.familiar": ["Familiar"],
    "collegium.consensus.majority": ["Majority", "QualifiedMajority"],
    "collegium.consensus.weighted": ["WeightedMajority"],
    "collegium.core.algorithm": ["Algorithm"],
    "collegium.site.ledger": ["verify_ledger"],
    "collegium.site.policy": ["Policy"],
    "collegium.core.site": ["Site"],
    "collegium.data.partition": [
        "BalancedDirichlet",
        "ByColumn",
        "Dirichlet",
        "Iid",
        "MixedDirichlet",
        "Pathological",
        "Shard",
    ],
    "collegium.data.public": ["Split", "split"],
    "collegium.errors": [
        "CollegiumError",
        "CollegiumWarning",
        "ConfigError",
        "QuorumLost",
        "SiteError",
        "StorageError",
    ],
    "collegium.learners.simclr": ["SimCLR"],
    "collegium.learners.torch.classifier": ["TorchClassifier"],
    "collegium.privacy.budget": ["Budget"],
    "collegium.privacy.claims": ["PrivacyClaim"],
    "collegium.privacy.learners.sgd": ["PrivateTorch"],
    "collegium.privacy.learners.voting": ["PrivateVoting"],
    "collegium.privacy.mechanisms.gaussian": ["Gaussian"],
    "collegium.privacy.mechanisms.laplace": ["Laplace"],
    "collegium.privacy.mechanisms.noisy_max": ["ConfidentNoisyMax", "GaussianNoisyMax", "LaplaceNoisyMax"],
    "collegium.privacy.mechanisms.randomized_response": ["RandomizedResponse"],
    "collegium.privacy.mechanisms.unary": ["UnaryEncoding"],
    "collegium.privacy.mechanisms.xor": ["XorMechanism"],
    "collegium.runs.results": ["Run", "load"],
    "collegium.runs.runner": ["run"],
    "collegium.study.study": ["Study"],
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


_MODULES = {"privacy": "collegium.privacy", "theory": "collegium.privacy.theory"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name not in _HOME_OF:
        raise AttributeError(f"module 'collegium' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOME_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME_OF, *_MODULES})
