"""What the papers' nets for images compute where they only answer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

import collegium as cg
from collegium.learners.nets import images
from collegium.learners.torch import answers


def convolved(x: Any, weight: Any, bias: Any, *how: Any) -> torch.Tensor:
    return functional.conv2d(x, weight, bias, *how).relu()


def convolved_and_added(x: Any, weight: Any, added: Any, scale: float, bias: Any, *how: Any) -> torch.Tensor:
    return (functional.conv2d(x, weight, bias, *how) + scale * added).relu()


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("channels", [1, 3, 9])
def test_a_resnet_that_only_answers_has_its_norms_in_its_convolutions(
    channels: int, precision: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU, with what its library computes in one pass written out."""
    torch.manual_seed(0)
    net = images.resnet8((channels, 16, 16), 5)
    for norm in net.modules():
        if isinstance(norm, nn.BatchNorm2d):
            for values in (norm.running_mean, norm.running_var, norm.weight.data, norm.bias.data):
                assert values is not None
                values.uniform_(0.5, 1.5)
    x, folded = torch.randn(6, channels, 16, 16), []
    expected = net.eval()(x).detach()

    def only_answers(given: torch.Tensor, norm: nn.Module) -> bool:
        folded.append(norm)
        return True

    monkeypatch.setattr(images, "_only_answers", only_answers)
    monkeypatch.setattr(images, "in_precision", lambda given: given.to(precision))
    monkeypatch.setattr(torch, "cudnn_convolution_relu", convolved)
    monkeypatch.setattr(torch, "cudnn_convolution_add_relu", convolved_and_added)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
        found = net(x).float()
    assert len(folded) == 5  # the first convolution, and four blocks
    spread = float(expected.std())
    torch.testing.assert_close(found, expected, atol=spread * (0.05 if precision == torch.bfloat16 else 1e-4), rtol=0)
    monkeypatch.undo()
    torch.testing.assert_close(net(x), expected)  # its weights are as they were


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_gpu_answers_as_a_cpu_does(precision: Any) -> None:
    learner = cg.TorchClassifier("resnet8", random_state=0).initialize(np.zeros((1, 3, 32, 32)), range(10))
    X = np.random.default_rng(0).normal(size=(300, 3, 32, 32)).astype(np.float32)
    expected = learner.predict_logits(X)
    there = learner.set_params(device="cuda", precision=precision)
    np.testing.assert_allclose(
        there.predict_logits(X), expected, atol=expected.std() * (0.05 if precision == "bfloat16" else 1e-3)
    )


def test_norms_are_put_into_convolutions_once_for_all_rows_of_a_question(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = cg.TorchClassifier("resnet8", random_state=0).initialize(np.zeros((1, 3, 16, 16)), [0, 1])
    X = np.random.default_rng(0).normal(size=(7, 3, 16, 16))
    expected = learner.predict_logits(X)
    folds: list[nn.Module] = []
    fold = images._fold
    monkeypatch.setattr(
        images, "_fold", lambda convolution, *others: folds.append(convolution) or fold(convolution, *others)
    )
    monkeypatch.setattr(images, "_only_answers", lambda given, norm: not norm.training)
    monkeypatch.setattr(torch, "cudnn_convolution_relu", convolved)
    monkeypatch.setattr(torch, "cudnn_convolution_add_relu", convolved_and_added)
    monkeypatch.setattr(answers, "AT_ONCE_ALONE", 2 * 3 * 16 * 16)  # two rows at a time
    np.testing.assert_allclose(learner.predict_logits(X), expected, atol=1e-4)
    assert len(folds) == len(set(folds)) == 12  # nine convolutions, and three shortcuts
    learner.set_weights({name: 2 * value for name, value in learner.get_weights().items()})
    changed = learner.predict_logits(X)
    assert len(folds) == 24
    monkeypatch.undo()
    np.testing.assert_allclose(changed, learner.predict_logits(X), rtol=1e-3, atol=1e-3)


def test_parts_of_a_resnet_are_sequences_of_layers() -> None:
    net, x = images.resnet8((3, 16, 16), 5).eval(), torch.randn(2, 3, 16, 16)
    assert net[:2](x).shape == (2, 64, 16, 16)
    assert net[-2:](torch.randn(2, 512, 1, 1)).shape == (2, 5)
