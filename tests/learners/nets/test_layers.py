"""Convolutions and batch norms that are one pass on a GPU compute what they compute one by one."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from importlib import import_module
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.learners.nets.stand_in import StandIn
from torch import nn
from torch.nn import functional

from collegium.learners.nets import images, layers
from collegium.learners.nets.layers import Block, Layers
from collegium.learners.nets.named import NETS

NAMES = ["cnn_cifar10", "cnn_pneumonia", "cnn_svhn", "resnet8", "cnn13"]
GPU = torch.cuda.is_available()


@pytest.fixture
def standing_in(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """Kernels are there, as far as nets can tell, and count how often they are called."""
    kernels = StandIn()
    monkeypatch.setattr(layers, "is_quick", lambda x: True)
    monkeypatch.setattr("collegium.learners.nets.images.is_quick", lambda x: True)
    monkeypatch.setattr(layers, "_kernels", lambda: kernels)
    return kernels


def made(name: str) -> nn.Module:
    torch.manual_seed(1)
    net = NETS[name]((3, 32, 32), 4)
    with torch.no_grad():
        for layer in net.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.weight.uniform_(0.5, 1.5)
                layer.bias.normal_()
            if isinstance(layer, nn.Dropout | nn.Dropout2d):
                layer.p = 0.0
    return net.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]


def step_of(net: nn.Module, x: torch.Tensor) -> dict[str, torch.Tensor]:
    """What a step sees: logits, gradients, and what norms keep."""
    logits = net(x)
    functional.cross_entropy(logits, torch.arange(len(x)) % 4).backward()
    gradients = {name: each.grad for name, each in net.named_parameters() if each.grad is not None}
    return {"logits": logits.detach(), **gradients, **dict(net.named_buffers())}


@pytest.mark.parametrize("name", NAMES)
def test_a_net_is_the_same_in_fewer_passes(name: str, standing_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    quick, x = made(name), torch.randn(4, 3, 32, 32)
    plain = copy.deepcopy(quick)
    found = step_of(quick, x)
    norms = sum(isinstance(each, nn.BatchNorm2d) for each in plain.modules())
    assert standing_in.forwards == standing_in.backwards == norms
    monkeypatch.undo()
    expected = step_of(plain, x)
    assert found.keys() == expected.keys()
    for part, value in expected.items():
        torch.testing.assert_close(
            found[part], value, rtol=2e-3, atol=2e-4, msg=lambda text, part=part: f"{part}: {text}"
        )


def test_a_net_that_does_not_learn_from_its_batches_goes_layer_by_layer(standing_in: StandIn) -> None:
    for name in NAMES:
        made(name).eval()(torch.randn(2, 3, 32, 32))
    assert standing_in.forwards == 0


@pytest.mark.parametrize(
    "norm",
    [
        nn.BatchNorm2d(4, affine=False),
        nn.BatchNorm2d(4, track_running_stats=False),
        nn.BatchNorm2d(4, momentum=None),
        nn.GroupNorm(2, 4),
    ],
)
def test_other_norms_go_layer_by_layer(norm: nn.Module, standing_in: StandIn) -> None:
    net, x = Layers(nn.Conv2d(3, 4, 3), norm, nn.ReLU()), torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(net(x), copy.deepcopy(norm)(net[0](x)).relu())
    assert standing_in.forwards == 0


def test_a_single_pixel_is_refused_as_before(standing_in: StandIn) -> None:
    net = Layers(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4))
    with pytest.raises(ValueError, match="more than 1 value"):
        net(torch.randn(1, 3, 3, 3))


def test_parts_of_a_net_are_nets(standing_in: StandIn) -> None:
    net = made("cnn_cifar10")
    assert type(net[:8]) is Layers  # type: ignore[index]
    x = torch.randn(2, 3, 32, 32)
    torch.testing.assert_close(net[8:](net[:8](x)), copy.deepcopy(net)(x), rtol=1e-4, atol=1e-4)  # type: ignore[index]


@pytest.mark.parametrize(
    ("on_gpu", "precision", "quick"),
    [(True, torch.bfloat16, True), (True, torch.float16, False), (True, None, False), (False, torch.bfloat16, False)],
)
def test_kernels_serve_on_a_gpu_in_bfloat16_alone(
    on_gpu: bool, precision: torch.dtype | None, quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(layers, "_kernels", StandIn)
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda device: precision is not None)
    monkeypatch.setattr(torch, "get_autocast_dtype", lambda device: precision)
    assert layers.is_quick(SimpleNamespace(is_cuda=on_gpu)) is quick  # type: ignore[arg-type]


def unusual(change: str) -> Layers:
    torch.manual_seed(0)
    convolution = nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular" if change == "padding" else "zeros")
    net = Layers(convolution, nn.BatchNorm2d(4), nn.ReLU())
    if change.startswith("hook"):
        net[int(change[-1])].register_forward_hook(lambda layer, given, answer: answer + 1)
    return net


@pytest.mark.parametrize("change", ["padding", "hook on 0", "hook on 1", "hook on 2"])
def test_layers_that_were_changed_do_what_they_do_one_by_one(change: str, standing_in: StandIn) -> None:
    x = torch.randn(2, 3, 8, 8)
    torch.testing.assert_close(unusual(change)(x), nn.Sequential(*unusual(change))(x))


@pytest.mark.parametrize("part", ["body.4", "shortcut.1"])
def test_a_block_with_a_norm_that_does_not_learn_goes_layer_by_layer(part: str, standing_in: StandIn) -> None:
    block = images.ResidualBlock(3, 8, 2)
    norm = block.get_submodule(part).eval()
    block(torch.randn(2, 3, 8, 8))
    assert standing_in.forwards == 0
    assert norm.num_batches_tracked == 0


FORMS = [*product([True, False], [(True, None), (False, 0.0), (False, 0.1), (False, None)], [True, False])]


@pytest.mark.parametrize(("channels", "side", "n"), [(5, 9, 3), (64, 8, 40), (70, 6, 5)])
@pytest.mark.parametrize(("has_bias", "around", "has_added"), FORMS)
def test_the_kernels_compute_a_batch_norm(
    channels: int,
    side: int,
    n: int,
    has_bias: bool,
    around: tuple[bool, float | None],
    has_added: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("triton")
    kernels: Any = import_module("collegium.learners.nets.norm_kernels")
    monkeypatch.setattr(layers, "_kernels", lambda: kernels)
    interpreted = hasattr(kernels._norm, "rewrite")  # TRITON_INTERPRET=1: by Python, on the CPU
    if not GPU and not interpreted:
        pytest.skip("there is no GPU")
    device, dtype = ("cuda", torch.bfloat16) if GPU else ("cpu", torch.float32)
    torch.manual_seed(0)
    (cut, slope), shape = around, (n, channels, side, side)
    x, added, dy = (torch.randn(shape, device=device) * 2 + mean for mean in (3, 0, 0))
    x[:, ::2] -= 3
    bias, weight, shift = (torch.randn(channels, device=device) + 1 for _ in range(3))
    norm = nn.BatchNorm2d(channels).to(device)
    with torch.no_grad():
        norm.weight.copy_(weight)
        norm.bias.copy_(shift)
    given = [
        None if each is None else each.requires_grad_()
        for each in (
            x.to(dtype).contiguous(memory_format=torch.channels_last),
            bias if has_bias else None,
            norm.weight,
            norm.bias,
            added.to(dtype) if has_added else None,
        )
    ]
    reference = nn.BatchNorm2d(channels).to(device).double()
    reference.load_state_dict(norm.state_dict())
    exact = [None if each is None else each.detach().double().requires_grad_() for each in given]
    u = exact[0] if exact[1] is None else exact[0] + exact[1].view(-1, 1, 1)  # type: ignore[operator]
    assert u is not None
    reference.weight, reference.bias = nn.Parameter(exact[2]), nn.Parameter(exact[3])  # type: ignore[arg-type]
    z = reference(u.relu() if cut else u)
    z = z if exact[4] is None else z + exact[4]
    expected = z if slope is None else functional.leaky_relu(z, slope)
    found = layers._Normed.apply(*given, Block(nn.Conv2d(1, channels, 1), norm, cut, slope))  # type: ignore[no-untyped-call]
    dy = dy.to(dtype)
    found.backward(dy)
    expected.backward(dy.double())
    exact[2], exact[3] = reference.weight, reference.bias
    close = {"rtol": 0.03, "atol": 0.05} if dtype == torch.bfloat16 else {"rtol": 1e-3, "atol": 1e-4}
    torch.testing.assert_close(found.double(), expected, **close)
    size = float(n * side * side) ** 0.5
    for own, its, of_all in zip(given, exact, (False, True, True, True, False), strict=True):
        if own is not None and its is not None:
            assert own.grad is not None
            assert its.grad is not None
            scaled = close | {"atol": close["atol"] * (size if of_all else 1)}
            torch.testing.assert_close(own.grad.double(), its.grad, **scaled)
    for name, value in reference.named_buffers():
        torch.testing.assert_close(getattr(norm, name).double(), value.double(), rtol=1e-3, atol=1e-4)


@pytest.mark.skipif(not GPU, reason="there is no GPU")
@pytest.mark.parametrize("name", NAMES)
def test_on_a_gpu_kernels_serve_and_steps_are_those_of_layers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    kernels, real = layers._kernels(), layers._kernels().forward
    monkeypatch.setattr(kernels, "forward", lambda *given: calls.append(1) or real(*given))
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    nets = [made(name).cuda() for _ in range(3)]
    x, y = torch.randn(64, 3, 32, 32, device="cuda"), torch.arange(64, device="cuda") % 4
    found = []
    # In bfloat16 they serve by themselves. That has 8 bits, which tell little of a whole net: so once more in float32.
    for net, serve, precision in zip(nets, (None, True, False), (torch.bfloat16, None, None), strict=True):
        if serve is not None:
            for place in (layers, images):
                monkeypatch.setattr(place, "is_quick", lambda x, serve=serve: serve)
        calls.clear()
        with torch.autocast("cuda", precision, enabled=precision is not None):
            logits = net(x)
        functional.cross_entropy(logits.float(), y).backward()
        norms = sum(isinstance(each, nn.BatchNorm2d) for each in net.modules())
        assert len(calls) == (0 if serve is False else norms)
        found.append(torch.cat([each.grad.flatten() for each in net.parameters() if each.grad is not None]))
    assert float(functional.cosine_similarity(*found[1:], dim=0)) > 0.9999
    for kept in zip(*(net.named_buffers() for net in nets), strict=True):
        (part, coarse), (_, own), (_, its) = kept
        torch.testing.assert_close(
            own.double(), its.double(), rtol=1e-3, atol=1e-4, msg=lambda text, part=part: f"{part}: {text}"
        )
        torch.testing.assert_close(
            coarse.double(), its.double(), rtol=0.1, atol=0.05, msg=lambda text, part=part: f"{part}: {text}"
        )
