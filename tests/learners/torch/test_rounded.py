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
        patched.setattr(descent, "rounded", lambda net, losses: None)
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


def linear_nets() -> tuple[nn.Linear, nn.Sequential]:
    first = nn.Linear(4, 4)
    return first, nn.Sequential(first, nn.ReLU(), nn.Linear(4, 3))


def test_what_is_rounded() -> None:
    normed = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4, 2))
    assert set(rounded_by_autocast(normed)) == {"0.weight", "3.weight", "3.bias"}
    assert set(rounded_by_autocast(nn.Linear(4, 3))) == {"weight", "bias"}


def test_weights_that_others_may_see_stay_as_they_are() -> None:
    tied = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    assert set(rounded_by_autocast(tied)) == {"1.bias"}
    first, net = linear_nets()
    assert set(rounded_by_autocast(nn.Sequential(net, first))) == {"0.2.weight", "0.2.bias"}  # it serves twice
    assert not rounded_by_autocast(Halving())
    assert not rounded_by_autocast(nn.Sequential(Halving()))
    assert not rounded_by_autocast(nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)))
    assert not rounded_by_autocast(nn.Linear(4, 3).double())
    assert not rounded_by_autocast(torch.jit.script(net))
    assert not rounded_by_autocast(torch.fx.symbolic_trace(net))
    assert not rounded_by_autocast(nn.DataParallel(net))


def test_hooks_see_the_weights_themselves() -> None:
    first, net = linear_nets()
    first.weight.register_hook(lambda gradient: gradient * 0)
    first.bias.register_post_accumulate_grad_hook(lambda parameter: None)
    assert set(rounded_by_autocast(net)) == {"2.weight", "2.bias"}
    for hook in ("register_forward_pre_hook", "register_forward_hook", "register_full_backward_hook"):
        first, net = linear_nets()
        getattr(first, hook)(lambda *given: None)
        assert not rounded_by_autocast(net)
    first, net = linear_nets()
    vars(first)["forward"] = lambda X: X
    assert not rounded_by_autocast(net)


def shared(shape: Any, n_classes: int) -> nn.Module:
    twice = nn.Linear(768, 768)
    return nn.Sequential(nn.Flatten(), twice, nn.ReLU(), twice, nn.Linear(768, n_classes))


def scripted(shape: Any, n_classes: int) -> nn.Module:
    net: nn.Module = torch.jit.script(nn.Sequential(nn.Flatten(), nn.Linear(768, n_classes)))
    return net


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
@pytest.mark.parametrize("net", [shared, scripted])
def test_nets_that_are_not_rounded_learn_as_before(net: Any) -> None:
    before = TorchClassifier(net, random_state=0).initialize(IMAGES[:1], [0, 1, 2]).get_weights()
    for name, value in weights_after(net, "cpu").items():
        assert value.dtype == np.float32
        assert not np.array_equal(before[name], value), name


def test_nothing_of_a_step_is_kept_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []
    give = Rounded.give_gradients

    def watched(self: Rounded) -> None:
        made.extend(self._rounded.values())
        give(self)
        assert not self._rounded
        assert all(each.grad is None for each in made)

    monkeypatch.setattr(Rounded, "give_gradients", watched)
    weights_after("lenet", "cpu")
    assert len(made) == 4 * 8


def test_a_step_that_is_out_of_memory_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, torch.Tensor]] = []
    forget = Rounded.forget

    def watched(self: Rounded) -> None:
        forget(self)
        seen.append(dict(self._rounded))

    def out_of_memory(self: Any, batch: Any) -> torch.Tensor:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(Rounded, "forget", watched)
    monkeypatch.setattr(descent.Descent, "_loss", out_of_memory)
    with pytest.raises(torch.OutOfMemoryError):
        weights_after("lenet", "cpu")
    assert seen
    assert not any(seen)


def test_a_loss_that_looks_at_the_net_sees_its_own_weights() -> None:
    class Own(LocalLoss):
        def loss(self, batch: Any, logits: torch.Tensor) -> torch.Tensor:
            return logits.mean()

    class Later(LocalLoss):
        def add_to_gradients(self) -> None:
            pass

    net = nn.Linear(4, 3)
    make: Any = torch.optim.SGD
    assert may_round([])
    assert may_round(
        [SoftTargetsLoss(SoftTargets(IMAGES, TARGETS), net, make), ProximalLoss(Proximal(mu=1.0), net, make)]
    )
    assert not may_round([Own(None, net, make)])
    assert not may_round([Later(None, net, make)])  # whoever wrote it may look at any time
    disjoint = lookup("local_loss", Disjoint.loss)
    assert not may_round([disjoint.__new__(disjoint)])


def test_a_weight_without_a_gradient_gets_none() -> None:
    first, second = nn.Linear(4, 3), nn.Linear(3, 2)
    first.requires_grad_(False)
    net = nn.Sequential(first, second)
    rounded = Rounded(net, rounded_by_autocast(net))
    rounded.round()
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        rounded(torch.ones(2, 4)).float().sum().backward()  # type: ignore[no-untyped-call]
    rounded.give_gradients()
    assert first.weight.grad is None
    assert second.weight.grad is not None
    assert second.weight.grad.dtype == torch.float32
