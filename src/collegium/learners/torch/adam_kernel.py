"""Adam's step on a GPU, as one pass over a parameter, its gradient and what Adam keeps of it. Needs Triton."""

from __future__ import annotations

from typing import Any, Final

import torch
import triton
import triton.language as tl

BLOCK: Final = 1024


@triton.jit  # type: ignore[untyped-decorator]
def _step(weights, gradient, mean, square, corrections, n, lr, beta1, beta2, eps, decay, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    first = tl.load(corrections).to(tl.float32)
    second = tl.sqrt(tl.load(corrections + 1)).to(tl.float32)
    w = tl.load(weights + at, mask=inside)
    g = tl.load(gradient + at, mask=inside) + decay * w
    m = tl.load(mean + at, mask=inside)
    v = tl.load(square + at, mask=inside)
    m += (g - m) * (1 - beta1)
    v = beta2 * v + (1 - beta2) * g * g
    tl.store(mean + at, m, mask=inside)
    tl.store(square + at, v, mask=inside)
    tl.store(weights + at, w - (lr / first) * m / (tl.sqrt(v) / second + eps), mask=inside)


def launch(
    weights: torch.Tensor,
    gradient: torch.Tensor,
    mean: torch.Tensor,
    square: torch.Tensor,
    corrections: torch.Tensor,
    group: dict[str, Any],
) -> None:
    """Change weights, mean and square in their place; `corrections` are 1 - beta^t for both betas."""
    n, (beta1, beta2) = weights.numel(), group["betas"]
    numbers = (n, group["lr"], beta1, beta2, group["eps"], group["weight_decay"])
    _step[(triton.cdiv(n, BLOCK),)](weights, gradient, mean, square, corrections, *numbers, BLOCK=BLOCK, num_warps=4)


def try_out() -> None:
    """Compile and run it once."""
    one, corrections = torch.ones(1, device="cuda"), torch.ones(2, dtype=torch.float64, device="cuda")
    group = {"betas": (0.9, 0.999), "lr": 0.1, "eps": 1e-8, "weight_decay": 0.0}
    launch(one, one.clone(), one.clone(), one.clone(), corrections, group)
