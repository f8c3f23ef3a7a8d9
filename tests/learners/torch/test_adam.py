"""Adam's step of many nets at once is Adam's step."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from collegium.learners.torch import adam
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


def launch_here(w: Any, g: Any, mean: Any, square: Any, corrections: Any, group: dict[str, Any]) -> None:
    """What the kernel computes, in words for any device."""
    beta1, beta2 = group["betas"]
    g = g + group["weight_decay"] * w
    mean += (g - mean) * (1 - beta1)
    square.copy_(beta2 * square + (1 - beta2) * g * g)
    first, second = corrections[0].float(), corrections[1].sqrt().float()
    w -= (group["lr"] / first) * mean / (square.sqrt() / second + group["eps"])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("counts", [[0, 0, 0], [38, 2, 14], [0, 700, 3]])
def test_each_parameter_has_its_own_number_of_steps(
    device: str, counts: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of sites have that took more steps than others in their last update."""
    if device == "cpu":
        monkeypatch.setattr(adam, "_can_launch", lambda optimizer: True)
        monkeypatch.setattr(adam, "_kernel", lambda: SimpleNamespace(launch=launch_here))
    torch.manual_seed(0)
    start = [torch.randn(5, 4, device=device) for _ in counts]
    both = [[nn.Parameter(each.clone()) for each in start] for _ in range(2)]
    fused = {"fused": True} if device == "cuda" else {}
    own, fast = (torch.optim.Adam(parameters, lr=0.01, **fused) for parameters in both)  # type: ignore[arg-type]
    for optimizer in (own, fast):
        for each, taken in zip(optimizer.param_groups[0]["params"], counts, strict=True):
            optimizer.state[each] = {
                "step": torch.tensor(float(taken), device=device),
                "exp_avg": torch.zeros_like(each),
                "exp_avg_sq": torch.zeros_like(each),
            }
    for _ in range(3):
        for one, other in zip(*both, strict=True):
            one.grad = torch.randn_like(one)
            other.grad = one.grad.clone()
        own.step()
        take_step(fast, even=len(set(counts)) == 1)
    for one, other in zip(*both, strict=True):
        torch.testing.assert_close(other, one, atol=1e-6, rtol=1e-5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_on_a_gpu_it_is_taken_by_the_kernel() -> None:
    parameter = nn.Parameter(torch.ones(4, device="cuda"))
    parameter.grad = torch.ones(4, device="cuda")
    optimizer = torch.optim.Adam([parameter], fused=True)
    optimizer.step()
    optimizer.step = None  # type: ignore[assignment]
    take_step(optimizer)
    assert float(optimizer.state[parameter]["step"]) == 2
