from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from collegium.learners.nets.named import build
from collegium.learners.torch import answers
from collegium.learners.torch.classifier import TorchClassifier
from collegium.learners.torch.dense_answers import _layers, products, quick

ROWS = torch.randn(50, 3, 4, generator=torch.Generator().manual_seed(0))


def named(name: str) -> Callable[[], nn.Module]:
    return lambda: build(name, (12,), 5)


DENSE = [
    named("mlp"),
    named("linear"),
    lambda: nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.Linear(4, 5), nn.ReLU()),
]


@pytest.mark.parametrize("make", DENSE)
def test_products_are_what_the_net_says(make: Callable[[], nn.Module]) -> None:
    net = make()
    layers = _layers(net)
    assert layers is not None
    with torch.inference_mode():
        torch.testing.assert_close(products(layers, ROWS.flatten(1)), net(ROWS))


def test_weights_that_were_set_since_count() -> None:
    net = named("mlp")()
    layers = _layers(net) or pytest.fail("it is dense")
    with torch.no_grad():
        for each in net.parameters():
            each.mul_(2)
    torch.testing.assert_close(products(layers, ROWS.flatten(1)), net(ROWS))


class Doubled(nn.Linear):
    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return 2 * super().forward(input)


def hooked(kind: str, place: int = 1) -> nn.Module:
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 5))
    getattr(net[place], kind)(lambda *_: None)
    return net


def changed() -> nn.Module:
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 5))
    net[1].forward = lambda X: X  # type: ignore[method-assign]
    return net


@pytest.mark.parametrize(
    "net",
    [
        nn.Linear(12, 5),
        nn.Sequential(),
        nn.Sequential(nn.Flatten()),
        nn.Sequential(nn.Linear(12, 5)),
        nn.Sequential(nn.Flatten(2), nn.Linear(12, 5)),
        nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Linear(12, 5)),
        nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.Dropout()),
        nn.Sequential(nn.Flatten(), nn.Linear(12, 5, bias=False)),
        nn.Sequential(nn.Flatten(), Doubled(12, 5)),
        nn.Sequential(nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(12, 5))),
        hooked("register_forward_hook"),
        hooked("register_forward_pre_hook"),
        hooked("register_forward_hook", 0),
        changed(),
    ],
)
def test_other_nets_are_computed_as_they_are(net: nn.Module) -> None:
    assert quick(net) is net


def test_only_classes_are_asked_for_in_fewer_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """In logits a NaN must stay one: it shows that a net has diverged."""
    asked: list[nn.Module] = []

    def noted(net: nn.Module) -> nn.Module:
        asked.append(net)
        return net

    model = TorchClassifier("mlp", random_state=0).initialize(ROWS.numpy(), range(5))
    monkeypatch.setattr(answers, "quick", noted)
    model.predict_logits(ROWS.numpy())
    model.predict_proba(ROWS.numpy())
    model.embed(ROWS.numpy())
    assert not asked
    model.predict(ROWS.numpy())
    assert len(asked) == 1


def test_who_watches_all_layers_sees_each() -> None:
    handle = nn.modules.module.register_module_forward_hook(lambda *_: None)
    try:
        net = named("mlp")()
        assert quick(net) is net
    finally:
        handle.remove()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
@pytest.mark.parametrize("make", DENSE)
def test_a_gpu_says_the_same(make: Callable[[], nn.Module]) -> None:
    net, rows = make().to("cuda"), ROWS.to("cuda")
    with torch.inference_mode():
        torch.testing.assert_close(quick(net)(rows), net(rows))
        with torch.autocast("cuda", torch.bfloat16):
            assert torch.equal(quick(net)(rows), net(rows))
