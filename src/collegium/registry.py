"""Name -> class, for everything a study file can name.

The tables hold import paths, not classes, so that looking up one learner does not import the others. A built-in method
is named in one place, the package's stub: ``from .algorithms.fedct import FedCT as FedCT`` registers it as "fedct".
Other packages add names through entry points of the group ``collegium.<kind>``::

    [project.entry-points."collegium.consensus"]
    trimmed = "my_package.trimmed:TrimmedMajority"
"""

from __future__ import annotations

import difflib
import functools
import importlib
import re
import warnings
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Final

from collegium.errors import CollegiumWarning, ConfigError, MissingExtra


def _methods() -> dict[str, str]:
    """The built-in methods: every one that the package's stub names, under the name of its file."""
    stub = Path(__file__).with_name("__init__.pyi").read_text(encoding="utf-8")
    found = re.findall(r"^from \.algorithms\.([a-z]\w*) import (\w+) as", stub, re.MULTILINE)
    return {file: f"collegium.algorithms.{file}:{cls}" for file, cls in found}


BUILT_IN: Final[dict[str, dict[str, str]]] = {
    "algorithm": _methods(),
    "consensus": {
        "majority": "collegium.consensus.majority:Majority",
        "qualified_majority": "collegium.consensus.majority:QualifiedMajority",
        "weighted_majority": "collegium.consensus.weighted:WeightedMajority",
        "dawid_skene": "collegium.consensus.dawid_skene:DawidSkene",
        "guarded": "collegium.consensus.guarded:Guarded",
        "informed": "collegium.consensus.informed:Informed",
    },
    "voters": {
        "familiar": "collegium.consensus.familiar:Familiar",
    },
    "pretraining": {
        "next_word": "collegium.learners.language.next_word:NextWord",
        "simclr": "collegium.learners.simclr:SimCLR",
        "pretrained": "collegium.learners.vision.pretrained:Pretrained",
    },
    "mechanism": {
        "randomized_response": "collegium.privacy.mechanisms.randomized_response:RandomizedResponse",
        "unary_encoding": "collegium.privacy.mechanisms.unary:UnaryEncoding",
        "xor": "collegium.privacy.mechanisms.xor:XorMechanism",
        "laplace": "collegium.privacy.mechanisms.laplace:Laplace",
        "gaussian": "collegium.privacy.mechanisms.gaussian:Gaussian",
        "distributed_gaussian": "collegium.privacy.mechanisms.distributed:DistributedGaussian",
        "blinding": "collegium.privacy.mechanisms.blinding:Blinding",
        "gaussian_noisy_max": "collegium.privacy.mechanisms.noisy_max:GaussianNoisyMax",
        "laplace_noisy_max": "collegium.privacy.mechanisms.noisy_max:LaplaceNoisyMax",
        "confident_noisy_max": "collegium.privacy.mechanisms.noisy_max:ConfidentNoisyMax",
    },
    "partition": {
        "iid": "collegium.data.partition:Iid",
        "dirichlet": "collegium.data.partition:Dirichlet",
        "balanced_dirichlet": "collegium.data.partition:BalancedDirichlet",
        "mixed_dirichlet": "collegium.data.partition:MixedDirichlet",
        "shard": "collegium.data.partition:Shard",
        "pathological": "collegium.data.partition:Pathological",
        "by_column": "collegium.data.partition:ByColumn",
    },
    "learner": {
        "decision_tree": "sklearn.tree:DecisionTreeClassifier",
        "random_forest": "sklearn.ensemble:RandomForestClassifier",
        "extra_trees": "sklearn.ensemble:ExtraTreesClassifier",
        "gradient_boosting": "sklearn.ensemble:HistGradientBoostingClassifier",
        "logistic_regression": "sklearn.linear_model:LogisticRegression",
        "sgd": "sklearn.linear_model:SGDClassifier",
        "svm": "sklearn.svm:SVC",
        "knn": "sklearn.neighbors:KNeighborsClassifier",
        "naive_bayes": "sklearn.naive_bayes:GaussianNB",
        "mlp": "sklearn.neural_network:MLPClassifier",
        "xgboost": "xgboost:XGBClassifier",
        "lightgbm": "lightgbm:LGBMClassifier",
        "rulefit": "collegium.learners.rulefit.classifier:RuleFit",
        "text": "collegium.learners.language.classifier:TextClassifier",
        "torch": "collegium.learners.torch.classifier:TorchClassifier",
        "vision": "collegium.learners.vision.classifier:VisionClassifier",
        "private_voting": "collegium.privacy.learners.voting:PrivateVoting",
        "private_torch": "collegium.privacy.learners.sgd:PrivateTorch",
    },
    "transformer": {
        "count_vectorizer": "collegium.learners.texts:WordCounts",
        "image_features": "collegium.learners.vision.transformer:ImageFeatures",
        "hashed_words": "collegium.learners.texts:HashedWords",
        "imputer": "sklearn.impute:SimpleImputer",
        "knn_imputer": "sklearn.impute:KNNImputer",
        "min_max_scaler": "sklearn.preprocessing:MinMaxScaler",
        "one_hot": "sklearn.preprocessing:OneHotEncoder",
        "ordinal": "sklearn.preprocessing:OrdinalEncoder",
        "pca": "sklearn.decomposition:PCA",
        "robust_scaler": "sklearn.preprocessing:RobustScaler",
        "scaler": "sklearn.preprocessing:StandardScaler",
        "select_k_best": "sklearn.feature_selection:SelectKBest",
        "svd": "sklearn.decomposition:TruncatedSVD",
        "tfidf": "collegium.learners.texts:Tfidf",
    },
    "masking": {
        "secret_votes": "collegium.secure.secret_votes:SecretVotes",
        "secret_counts": "collegium.secure.secret_counts:SecretCounts",
        "secret_words": "collegium.secure.secret_words:SecretWords",
    },
    "local_loss": {
        "soft_targets": "collegium.learners.torch.losses:SoftTargetsLoss",
        "proximal": "collegium.learners.torch.losses:ProximalLoss",
        "correction": "collegium.learners.torch.losses:CorrectionLoss",
        "siamese": "collegium.learners.torch.siamese:SiameseLoss",
        "disjoint": "collegium.learners.torch.disjoint:DisjointLoss",
    },
    "link": {
        "local": "collegium.links.local:LocalLink",
        "workers": "collegium.links.workers:WorkersLink",
        "ray": "collegium.links.ray:RayLink",
    },
}

OWN: Final[dict[tuple[str, str], Any]] = {}
"""Classes of the user's own files that a study has named, as "my_file:MyMethod": see `collegium.core.own_files`."""

# Which extra installs the package that a missing module belongs to.
EXTRA_OF_MODULE: Final = {
    "xgboost": "xgboost", "lightgbm": "lightgbm", "imodels": "rulefit", "torch": "torch", "opacus": "opacus",
    "cryptography": "crypto", "nacl": "crypto", "gmpy2": "crypto", "tenseal": "bfv", "mbi": "together",
    "transformers": "text", "peft": "text", "tokenizers": "text", "safetensors": "text",
}  # fmt: skip


@cache
def _table(kind: str) -> dict[str, str]:
    if kind not in BUILT_IN:
        raise ConfigError(f"Unknown kind {kind!r}.{nearest(kind, BUILT_IN)}")
    plugged = {point.name: point.value for point in entry_points(group=f"collegium.{kind}")}
    return plugged | BUILT_IN[kind]


def names(kind: str) -> list[str]:
    """All names registered for `kind`, plug-ins included."""
    return sorted(_table(kind))


def lookup(kind: str, name: str) -> Any:
    """The class registered as `name`; the error for an unknown name suggests the nearest one."""
    table = _table(kind)
    if (kind, name) in OWN:
        return OWN[kind, name]
    if name not in table:
        raise ConfigError(f"There is no {kind} {name!r}.{nearest(name, table)} Known: {', '.join(sorted(table))}.")
    module, _, attribute = table[name].partition(":")
    try:
        return functools.reduce(getattr, attribute.split("."), importlib.import_module(module))
    except ModuleNotFoundError as missing:
        extra = EXTRA_OF_MODULE.get((missing.name or "").partition(".")[0])
        if extra is None:
            raise
        raise MissingExtra(extra, f"{kind} {name!r}") from None


def class_name(kind: str, name: str) -> str:
    """The name of the class registered as `name`, without importing it."""
    return _table(kind)[name].rpartition(":")[2].rpartition(".")[2]


def install_steps() -> None:
    """Import everything that brings steps, so that a site can be asked for them."""
    importlib.import_module("collegium.core.scores")
    for kind in ("algorithm", "consensus", "voters"):
        for name in names(kind):
            try:
                lookup(kind, name)
            except Exception as error:
                if name in BUILT_IN[kind]:
                    raise
                warnings.warn(
                    f"Cannot import the plug-in for {kind} {name!r} ({type(error).__name__}): it is left out.",
                    CollegiumWarning,
                    stacklevel=2,
                )


def nearest(name: str, known: Any) -> str:
    """' Did you mean ...?' or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {close[0]!r}?" if close else ""
