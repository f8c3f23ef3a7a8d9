"""Weights that are rounded to bfloat16 at once, beside those that autocast rounds one by one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from collegium.algorithms.fedmatch import Disjoint
from collegium.algorithms.fedprox import Proximal
from collegium.core.terms import LocalTerms, SoftTargets
from collegium.learners.torch import LocalLoss, TorchClassifier, descent
from collegium.learners.torch.losses import ProximalLoss, SoftTargetsLoss
from collegium.learners.torch.rounded import Rounded, may_round, rounded_by_autocast
from collegium.registry import lookup

torch.set_num_threads(1)
rng = np.random.default_rng(0)
DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
IMAGES, Y = rng.normal(size=(12, 3, 16, 16)).astype(np.float32), np.arange(12) % 3
TARGETS = rng.dirichlet(np.ones(3), size=12).astype(np.float32)


def weights_after(net: Any, device: str, **settings: Any) -> dict[str, np.ndarray]:
    learner = TorchClassifier(net, batch_size=4, precision="bfloat16", device=device, random_state=0)
    learner.update(IMAGES, Y, classes=[0, 1, 2], steps=4, **settings)
    return learner.get_weights()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("net", "settings"),
    [
        ("mlp", {}),
        ("lenet", {}),
        ("cnn_cifar10", {}),
        ("resnet8", {}),
        ("cnn13", {}),
        ("resnet8", {"terms": LocalTerms(train="head")}),
        ("lenet", {"terms": LocalTerms((Proximal(mu=0.5),))}),
        ("lenet", {"terms": LocalTerms((SoftTargets(IMAGES, TARGETS, weight=2.0),))}),
    ],
)
def test_they_are_the_same_bits(net: str, settings: Any, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = weights_after(net, device, **settings)
    with monkeypatch.context() as patched:
        patched.setattr(descent, "may_round", lambda losses: False)
        expected = weights_after(net, device, **settings)
    before = TorchClassifier(net, random_state=0).initialize(IMAGES[:1], [0, 1, 2]).get_weights()
    assert any(not np.array_equal(before[name], value) for name, value in expected.items())
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


def test_they_are_rounded_and_brought_back_in_one_operation_each(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    copy = torch._foreach_copy_

    def counted(places: Any, values: Any) -> None:
        copied.append(len(places))
        copy(places, values)

    monkeypatch.setattr(torch, "_foreach_copy_", counted)
    weights_after("lenet", "cpu")
    assert copied == [8] * 8  # four steps: five weights and the three biases of dense layers


class Halving(nn.Module):
    """It looks at a weight that a layer in it multiplies with."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        said: torch.Tensor = self.layer(x) + 0 * self.layer.weight.sum()
        return said


def test_weights_that_others_may_see_stay_as_they_are() -> None:
    tied = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    assert set(rounded_by_autocast(tied)) == {"1.bias"}
    assert not rounded_by_autocast(Halving())
    assert not rounded_by_autocast(nn.Sequential(Halving()))
    normed = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    assert set(rounded_by_autocast(normed)) == {"0.weight", "3.weight", "3.bias"}
    weighted = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    assert not rounded_by_autocast(weighted)
    assert set(rounded_by_autocast(nn.Linear(4, 3))) == {"weight", "bias"}
    assert not rounded_by_autocast(nn.Linear(4, 3).double())


def test_a_loss_that_looks_at_the_net_sees_its_own_weights() -> None:
    class Own(LocalLoss):
        def loss(self, batch: Any, logits: torch.Tensor) -> torch.Tensor:
            return logits.mean()

    net = nn.Linear(4, 3)
    make: Any = torch.optim.SGD
    assert may_round([])
    assert may_round(
        [SoftTargetsLoss(SoftTargets(IMAGES, TARGETS), net, make), ProximalLoss(Proximal(mu=1.0), net, make)]
    )
    assert not may_round([Own(None, net, make)])
    disjoint = lookup("local_loss", Disjoint.loss)
    assert not may_round([disjoint.__new__(disjoint)])


def test_a_weight_without_a_gradient_gets_none() -> None:
    first, second = nn.Linear(4, 3), nn.Linear(3, 2)
    first.requires_grad_(False)
    net = nn.Sequential(first, second)
    rounded = Rounded(net)
    rounded.round()
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        rounded(torch.ones(2, 4)).float().sum().backward()  # type: ignore[no-untyped-call]
    rounded.give_gradients()
    assert first.weight.grad is None
    assert second.weight.grad is not None
    assert second.weight.grad.dtype == torch.float32
