"""Adam's step of many nets at once is Adam's step."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from collegium.learners.torch.adam import take_step

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD])
def test_it_is_the_optimizers_own(device: str, kind: type[torch.optim.Optimizer]) -> None:
    torch.manual_seed(0)
    shapes = [(3, 70, 41), (3, 70), (1,)]
    start = [torch.randn(shape, device=device) for shape in shapes]
    both = [[nn.Parameter(each.clone()) for each in start] for _ in range(2)]
    fused = {"fused": True} if device == "cuda" and kind is torch.optim.Adam else {}
    own, fast = (kind(parameters, lr=0.01, weight_decay=0.1, **fused) for parameters in both)  # type: ignore[call-arg]
    for _ in range(5):
        for one, other in zip(*both, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        own.step()
        take_step(fast)
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(other, one, atol=1e-6, rtol=1e-5)
        assert own.state[one].keys() == fast.state[other].keys()
        for name, value in own.state[one].items():
            torch.testing.assert_close(fast.state[other][name], value, atol=1e-6, rtol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_on_a_gpu_it_is_taken_by_the_kernel() -> None:
    parameter = nn.Parameter(torch.ones(4, device="cuda"))
    parameter.grad = torch.ones(4, device="cuda")
    optimizer = torch.optim.Adam([parameter], fused=True)
    optimizer.step()
    optimizer.step = None  # type: ignore[assignment]
    take_step(optimizer)
    assert float(optimizer.state[parameter]["step"]) == 2
