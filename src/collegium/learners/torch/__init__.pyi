from .batches import Batch as Batch
from .classifier import TorchClassifier as TorchClassifier
from .losses import LocalLoss as LocalLoss
