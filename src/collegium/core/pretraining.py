"""What a way to learn features from rows without labels has to be, for a study to name it."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


@runtime_checkable
class Pretraining(Protocol):
    """Anything with this method, such as `SimCLR`. Other packages add theirs to the registry of kind "pretraining"."""

    def pretrain(self, learner: Any, X: Any) -> dict[str, NDArray[np.float32]]:
        """The weights of the features of a learner's net, by name, after pre-training on X."""
        ...
