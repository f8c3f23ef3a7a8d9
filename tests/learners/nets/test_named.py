"""The papers' networks: layers, parameter counts, and what they say of inputs they cannot take."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from collegium.errors import ConfigError
from collegium.learners.nets.named import NETS, build

CIFAR10 = (3, 32, 32)


def layers(net: nn.Module) -> list[Any]:
    return list(net.children())


def layer_names(net: nn.Module) -> list[str]:
    return [type(layer).__name__ for layer in net.children()]


def parameter_counts(net: nn.Module) -> list[int]:
    """Trainable parameters of each layer that has any, in order."""
    counts = (sum(parameter.numel() for parameter in layer.parameters()) for layer in net.children())
    return [count for count in counts if count]


def keras_counts(net: nn.Module) -> list[int]:
    """As Keras counts: batch norm's running mean and variance too."""
    counts = []
    for layer in layers(net):
        trained = sum(parameter.numel() for parameter in layer.parameters())
        running = 2 * layer.num_features if isinstance(layer, nn.modules.batchnorm._BatchNorm) else 0
        counts += [trained + running] if trained else []
    return counts


@pytest.mark.parametrize("name", NETS)
def test_every_net_gives_one_logit_per_class(name: str) -> None:
    net = build(name, CIFAR10, 7).eval()
    assert net(torch.rand(2, *CIFAR10)).shape == (2, 7)


@pytest.mark.parametrize("name", [name for name in NETS if name.startswith("cnn")])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 37, 18), (2, 10, 11)])
def test_cnns_take_any_image_size(name: str, shape: tuple[int, ...]) -> None:
    assert build(name, shape, 3).eval()(torch.rand(2, *shape)).shape == (2, 3)


def test_logits_are_not_normalised() -> None:
    for name in NETS:
        logits = build(name, CIFAR10, 5).eval()(torch.rand(4, *CIFAR10))
        assert not torch.allclose(logits.sum(dim=1), torch.ones(4), atol=1e-3), name
        assert isinstance(layers(build(name, CIFAR10, 5))[-1], nn.Linear)


def test_mlp_is_table_13() -> None:
    net = build("mlp", (784,), 10)
    assert layer_names(net) == ["Flatten", "Linear", "ReLU", "Linear", "ReLU", "Linear"]
    assert parameter_counts(net) == [401_920, 262_656, 5_130]
    assert sum(parameter_counts(net)) == 669_706
    assert parameter_counts(build("mlp", (1, 28, 28), 10)) == parameter_counts(net)


def test_cifar10_is_table_12() -> None:
    net = build("cnn_cifar10", CIFAR10, 10)
    block = ["Conv2d", "ReLU", "BatchNorm2d", "Conv2d", "ReLU", "BatchNorm2d", "MaxPool2d", "Dropout"]
    assert layer_names(net) == block * 3 + ["Flatten", "Linear", "ReLU", "BatchNorm1d", "Dropout", "Linear"]
    assert keras_counts(net) == [
        *(896, 128, 9248, 128),
        *(18496, 256, 36928, 256),
        *(73856, 512, 147584, 512),
        *(262272, 512, 1290),
    ]
    assert parameter_counts(net)[1] == 64  # of Keras' 128, the scale and the shift are trained
    assert [layer.p for layer in layers(net) if isinstance(layer, nn.Dropout)] == [0.2, 0.3, 0.4, 0.5]


@pytest.mark.parametrize(("name", "side"), [("cnn_pneumonia", 224), ("cnn_mri", 150)])
def test_pneumonia_and_mri_are_tables_14_and_15(name: str, side: int) -> None:
    net = build(name, (3, side, side), 2)
    assert [layer for layer in layer_names(net) if layer != "ReLU"] == [
        *("Conv2d", "BatchNorm2d", "Conv2d", "BatchNorm2d", "MaxPool2d"),
        *("Conv2d", "BatchNorm2d", "MaxPool2d", "Flatten", "Linear"),
    ]
    # 18,464 is printed for the second convolution, but 32 -> 64 channels make 18,496, as in Tab. 12.
    assert parameter_counts(net)[:-1] == [896, 64, 18_496, 128, 36_928, 128]
    assert layers(net)[-1].in_features == 64 * (side // 4) ** 2


def test_the_32_pixel_shapes_of_table_14_give_its_flatten_row() -> None:
    assert layers(build("cnn_pneumonia", CIFAR10, 2))[-1].in_features == 4096


def test_svhn_is_table_16() -> None:
    net = build("cnn_svhn", CIFAR10, 10)
    block = ["Conv2d", "ReLU", "BatchNorm2d", "Conv2d", "ReLU", "MaxPool2d", "Dropout2d"]
    assert layer_names(net) == block * 3 + ["Flatten", "Linear", "ReLU", "Dropout", "Linear"]
    assert parameter_counts(net) == [
        *(896, 64, 9_248),
        *(18_496, 128, 36_928),  # printed: 18,464
        *(73_856, 256, 147_584),
        *(262_272, 1_290),
    ]


def test_aimhi_is_its_table_1() -> None:
    net = build("cnn_aimhi", CIFAR10, 10)
    assert layer_names(net) == [
        *("Conv2d", "ReLU", "MaxPool2d", "Conv2d", "ReLU", "MaxPool2d"),
        *("Flatten", "Linear", "ReLU", "Linear"),
    ]
    assert parameter_counts(net) == [896, 18_496, 64 * (6 * 6 * 64 + 1), 650]
    assert layers(net)[0].padding == (0, 0)


def test_the_net_of_xclp_has_13_layers_with_weights() -> None:
    net = build("cnn13", CIFAR10, 10)
    weighted = [layer for layer in layers(net) if isinstance(layer, nn.Conv2d | nn.Linear)]
    assert len(weighted) == 10  # nine convolutions and the head: the paper counts three poolings, too
    assert [layer.out_channels for layer in weighted[:-1]] == [128] * 3 + [256] * 3 + [512, 256, 128]
    assert [layer.p for layer in layers(net) if isinstance(layer, nn.Dropout)] == [0.5, 0.5]
    assert sum(each.numel() for each in net.parameters()) == 3_121_812


@pytest.mark.parametrize("name", ["cnn13", "cnn_normed"])
def test_features_of_length_1_come_before_a_weight_normed_head(name: str) -> None:
    net = build(name, CIFAR10, 10).eval()
    features, head = net[:-1], net[-1]
    seen = features(torch.rand(4, *CIFAR10))
    torch.testing.assert_close(seen.norm(dim=1), torch.ones(4))
    first = head(seen)
    torch.testing.assert_close(first, nn.functional.linear(seen, head.weight, head.bias))  # at first a plain layer
    with torch.no_grad():
        head.weight.mul_(3)
    torch.testing.assert_close(head(seen), first)  # their length says nothing,
    with torch.no_grad():
        head.scale.mul_(2)
    torch.testing.assert_close(head(seen) - head.bias, 2 * (first - head.bias))  # the scale does


def test_lenet_has_lenets_layers() -> None:
    counts = [6 * 25 + 6, 16 * 6 * 25 + 16, 256 * 120 + 120, 120 * 84 + 84, 84 * 10 + 10]
    assert parameter_counts(build("lenet", (1, 28, 28), 10)) == counts


def test_linear_is_one_layer() -> None:
    assert parameter_counts(build("linear", (3, 4), 5)) == [12 * 5 + 5]


def test_an_unknown_net_is_answered_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"no net 'cnn_cifar'.*Did you mean 'cnn_cifar10'\?"):
        build("cnn_cifar", CIFAR10, 10)


@pytest.mark.parametrize("name", [name for name in NETS if name.startswith("cnn")])
def test_flat_features_into_a_cnn_ask_for_an_image_shape(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"{name}.*image_shape=\(channels, height, width\)"):
        build(name, (784,), 10)


@pytest.mark.parametrize(
    ("name", "side"),
    [
        ("cnn_cifar10", 7),
        ("cnn_svhn", 7),
        ("cnn_mri", 3),
        ("cnn_pneumonia", 3),
        ("cnn_aimhi", 9),
        ("lenet", 15),
        ("cnn13", 8),
    ],
)
def test_too_small_images_are_refused_and_the_smallest_pass(name: str, side: int) -> None:
    with pytest.raises(ConfigError, match="at least"):
        build(name, (1, side, 32), 2)
    smallest = (1, side + 1, side + 1)
    assert build(name, smallest, 2).eval()(torch.rand(1, *smallest)).shape == (1, 2)


FEDAUX = {"resnet8": 512, "mobilenetv2": 1280, "mobilenetv2_half": 640, "shufflenet": 800}


@pytest.mark.parametrize(
    ("name", "colour", "grey"),
    [
        ("resnet8", 4_903_242, 4_902_090),
        ("mobilenetv2", 2_236_682, 2_236_106),
        ("mobilenetv2_half", 587_946, 587_370),
        ("shufflenet", 940_858, 940_426),
    ],
)
@pytest.mark.parametrize("norm", ["batch", "group"])
def test_fedaux_nets_have_the_parameters_documented(name: str, colour: int, grey: int, norm: str) -> None:
    assert sum(parameter_counts(build(name, CIFAR10, 10, norm))) == colour
    assert sum(parameter_counts(build(name, (1, 28, 28), 10, norm))) == grey
    assert layers(build(name, CIFAR10, 10, norm))[-1].in_features == FEDAUX[name]


def test_resnet8_has_the_bytes_that_fedaux_prints() -> None:
    """19.79 MB with 100 classes, at 4 bytes each."""
    assert int(sum(parameter_counts(build("resnet8", CIFAR10, 100))) * 4 / 1e4) == 1979


@pytest.mark.parametrize("name", FEDAUX)
@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 8, 9)])
def test_fedaux_nets_take_small_images(name: str, norm: str, shape: tuple[int, ...]) -> None:
    net = build(name, shape, 3, norm).train()
    net(torch.rand(4, *shape)).sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())
    with pytest.raises(ConfigError, match="at least 8x8"):
        build(name, (1, 7, 28), 3)


@pytest.mark.parametrize("name", FEDAUX)
def test_images_of_28_and_32_pixels_are_pooled_from_4x4(name: str) -> None:
    for side in (28, 32):
        net = build(name, (1, side, side), 2).eval()
        pooling = next(place for place, layer in enumerate(layers(net)) if isinstance(layer, nn.AdaptiveAvgPool2d))
        assert isinstance(net, nn.Sequential)
        assert net[:pooling](torch.rand(1, 1, side, side)).shape[2:] == (4, 4)


@pytest.mark.parametrize("name", NETS)
def test_group_norm_takes_the_place_of_every_batch_norm(name: str) -> None:
    torch.manual_seed(0)
    net = build(name, CIFAR10, 3, "group").eval()
    assert not any(isinstance(layer, nn.modules.batchnorm._BatchNorm) for layer in net.modules())
    assert list(net.buffers()) == []
    rows = torch.rand(3, *CIFAR10)
    torch.testing.assert_close(net(rows)[:1], net(rows[:1]), atol=1e-4, rtol=1e-4)
    torch.manual_seed(0)
    batch = build(name, CIFAR10, 3)
    assert all(torch.equal(a, b) for a, b in zip(batch.parameters(), net.parameters(), strict=True))


def test_another_norm_is_refused() -> None:
    with pytest.raises(ConfigError, match="'batch' or 'group', got 'layer'"):
        build("resnet8", CIFAR10, 3, "layer")
