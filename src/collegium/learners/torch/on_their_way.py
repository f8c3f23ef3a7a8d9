"""Numbers that a GPU computes while Python goes on."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray


class OnTheirWay:
    """A copy of these numbers in the computer's memory: who calls it waits until they are there."""

    def __init__(self, values: torch.Tensor) -> None:
        self._there: torch.cuda.Event | None = None
        if not values.is_cuda:
            self._here = values.clone()
            return
        self._here = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        self._here.copy_(values, non_blocking=True)
        self._there = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._there.record(torch.cuda.current_stream(values.device))

    def __call__(self) -> NDArray[Any]:
        self.wait()
        return self._here.numpy()

    def wait(self) -> None:
        """Until all is done that the GPU was given before."""
        if self._there is not None:
            self._there.synchronize()
