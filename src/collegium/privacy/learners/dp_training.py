"""DP-SGD: Poisson samples, the gradient of every record clipped, Gaussian noise on their sum (by opacus)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from math import prod
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.errors import ConfigError, MissingExtra

try:
    import torch
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer
    from opacus.validators import ModuleValidator
except ModuleNotFoundError as missing:
    raise MissingExtra("opacus", "PrivateTorch") from missing
from torch import nn
from torch.nn import functional

from collegium.learners.torch.batches import Floats, Labelled, Rows
from collegium.learners.torch.devices import RandomStream
from collegium.learners.torch.hands import Indices
from collegium.learners.torch.optimizers import OPTIMIZERS
from collegium.learners.torch.training import has_layer
from collegium.privacy.events import SampledGaussian
from collegium.privacy.noise import Noise
from collegium.privacy.row_by_row import row_by_row

LARGEST: Final = 2.0**30
"""Rows are clipped to this on either side, so that a net can compute with them."""
VALUES_AT_ONCE: Final = 2**26
"""Gradients of single records are as large as the net: so many of their numbers are in memory at a time."""
_COLUMNS: Final = 2**13
_ROUNDING: Final = 2.0**-10
"""Gradients are clipped a little below the bound: lengths of so many columns are known to half of that."""


class CleanRows(Rows):
    """Private rows, none of which is an error: NaN and text count as 0, large numbers as `LARGEST`."""

    def __init__(self, X: Any, image_shape: Sequence[int] | None = None) -> None:
        super().__init__(_as_numbers(X), image_shape)
        self._void = np.zeros(len(self), dtype=np.bool_)

    def take(self, rows: Indices | slice) -> Floats:
        """These rows as a new array."""
        block = np.clip(np.nan_to_num(self.block(rows), nan=0.0), -LARGEST, LARGEST)
        block[self._void[rows]] = 0
        return block

    def clear_where_it_fails(self, net: nn.Module) -> None:
        """Set rows on which the net fails to zeros, which it takes: that was checked when it was made."""

        def works(rows: NDArray[np.intp]) -> NDArray[np.bool_]:
            net(torch.from_numpy(self.take(rows[:, 0])))
            return np.ones((len(rows), 1), dtype=np.bool_)

        net.cpu().eval()
        with torch.no_grad():
            for chunk in self.chunks():
                rows = np.arange(chunk.start, chunk.stop)[:, None]
                self._void[chunk] = ~row_by_row(works, rows, np.zeros((1, 1), dtype=np.bool_))[:, 0]


def _as_numbers(X: Any) -> Any:
    """The same with numbers in place of text; what is none is NaN. One such cell makes a whole column text."""
    if isinstance(X, pd.DataFrame):
        return X.apply(lambda column: pd.to_numeric(column, errors="coerce") if column.dtype == object else column)
    if isinstance(X, np.ndarray) and X.dtype.kind in "OUS":
        return np.asarray(pd.to_numeric(X.ravel(), errors="coerce"), dtype=np.float64).reshape(X.shape)
    return X


class NoisyOptimizer(DPOptimizer):  # type: ignore[misc]
    """Opacus' optimizer with our source of noise: the operating system, except in simulations."""

    def __init__(self, optimizer: torch.optim.Optimizer, noise: Noise, **settings: Any) -> None:
        super().__init__(optimizer, **settings)
        self._noise = noise

    def clip_and_accumulate(self) -> None:
        """Add up clipped gradients in double precision: one record then moves the sum by the clipped length only.

        NaN and infinite gradients count as zero: clipping would not bound them.
        """
        for p in self.params:
            if not p.grad_sample.sum().isfinite():
                p.grad_sample.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
        every = [pieces(p.grad_sample, 1) for p in self.params]
        squares = sum(piece.norm(dim=1).double().square() for own in every for piece in own)
        shares = clipped_shares(squares, self.max_grad_norm)
        for p, own in zip(self.params, every, strict=True):
            total = torch.cat([shares @ piece.double() for piece in own])
            p.summed_grad = total if p.summed_grad is None else p.summed_grad + total

    def add_noise(self) -> None:
        """Add noise to the sum of clipped gradients, all parameters at once."""
        total = torch.cat([p.summed_grad for p in self.params]).cpu().numpy()
        noisy = self._noise.add_normal(total, self.noise_multiplier * self.max_grad_norm, self.max_grad_norm)
        parts = torch.split(torch.from_numpy(noisy), [p.numel() for p in self.params])
        for p, part in zip(self.params, parts, strict=True):
            p.grad = part.reshape(p.shape).to(dtype=p.dtype, device=p.device)


def train_privately(
    net: nn.Module,
    data: Labelled,
    event: SampledGaussian,
    noise: Noise,
    stream: RandomStream,
    *,
    optimizer: str,
    lr: float,
    weight_decay: float,
    max_grad_norm: float,
    size: int,
    device: torch.device,
    deterministic: bool,
) -> None:
    """Train the net in place: as many noisy mini-batch steps as the event counts, each on a Poisson sample."""
    wrapped = GradSampleModule(check_net(net).to(device).train())
    inner = OPTIMIZERS[optimizer](net.parameters())
    for group in inner.param_groups:
        group.update(lr=lr, weight_decay=weight_decay)
    noisy = NoisyOptimizer(
        inner,
        noise,
        noise_multiplier=event.noise_multiplier,
        max_grad_norm=max_grad_norm,
        expected_batch_size=event.sampling * size,
    )
    is_random = not deterministic or has_layer(net, nn.modules.dropout._DropoutNd)
    at_once = max(1, VALUES_AT_ONCE // max(1, sum(p.numel() for p in net.parameters())))
    for _ in range(event.count):
        drawn = np.flatnonzero(noise.happens(event.sampling, len(data)))
        parts = [drawn[start : start + at_once] for start in range(0, max(1, len(drawn)), at_once)]
        with stream.playing(device) if is_random else nullcontext():
            for number, part in enumerate(parts, start=1):
                noisy.zero_grad()
                _find_gradients(wrapped, noisy, data, part, device)
                noisy.signal_skip_step(number < len(parts))
                noisy.step()
    noisy.zero_grad(set_to_none=True)  # no sum without noise stays with the net
    wrapped.to_standard_module()


def _find_gradients(
    wrapped: Any, noisy: NoisyOptimizer, data: Labelled, rows: NDArray[np.intp], device: torch.device
) -> None:
    """The gradient of each of these records, where opacus looks for it."""
    if len(rows):
        X, y = (torch.from_numpy(values).to(device) for values in (data.rows.take(rows), data.codes(rows)))
        # torch warns of opacus' hooks where inputs want no gradient; a clone may still be changed in place.
        functional.cross_entropy(wrapped(X.requires_grad_().clone()), y).backward()  # type: ignore[no-untyped-call]
    else:  # nobody was drawn: the step is noise alone
        for p in noisy.params:
            p.grad_sample = p.new_zeros((0, *p.shape))


def pieces(gradients: torch.Tensor, records: int) -> tuple[torch.Tensor, ...]:
    """Gradients by record, a few columns at a time: all of them would be too large in double precision.

    The first `records` dimensions say whose gradient it is.
    """
    width = prod(gradients.shape[records:])
    return torch.split(gradients.reshape(*gradients.shape[:records], width), _COLUMNS, dim=-1)


def clipped_shares(squares: Any, max_grad_norm: float) -> Any:
    """What is left of gradients whose squared lengths are these, when none is longer than `max_grad_norm`."""
    bound = max_grad_norm * (1 - _ROUNDING)
    return bound / squares.sqrt().clamp(min=bound)


def check_net(net: nn.Module) -> nn.Module:
    """The net, or a ConfigError if it has no per-record gradients."""
    net.train()
    mixes = has_layer(net, nn.modules.batchnorm._BatchNorm)
    problems = [*ModuleValidator.validate(net), *GradSampleModule.validate(net)]
    if mixes or problems:
        what = "it has batch norm, which mixes the records of a batch" if mixes else str(problems[0]).strip()
        raise ConfigError(
            f"PrivateTorch cannot train this net: {what}. Replace such layers by nn.GroupNorm "
            "(opacus.validators.ModuleValidator.fix(net) does), or use a named net."
        )
    return net
