"""SimCLR: the loss, that it learns, and what it says where it cannot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from tests.learners.no_torch import said_without_torch
from torch import nn

from collegium.errors import CollegiumWarning, ConfigError
from collegium.learners.simclr import Augmentation, SimCLR, contrastive_loss
from collegium.learners.torch.classifier import TorchClassifier

IMAGES, LABELS = load_digits(return_X_y=True)
IMAGES = (IMAGES * 255 / 16).astype(np.uint8).reshape(-1, 1, 8, 8)
FEW = IMAGES[:40]
torch.set_num_threads(1)


def small_net(shape: tuple[int, ...], n_classes: int) -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(shape[0], 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU()),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, n_classes)),
    )


def learner(**settings: Any) -> TorchClassifier:
    return TorchClassifier(small_net, random_state=0, **settings)


def quick(**settings: Any) -> SimCLR:
    return SimCLR(**{"epochs": 2, "batch_size": 16, "device": "cpu"} | settings)


def probe(model: TorchClassifier) -> float:
    """How well 100 labels do on the features."""
    features = model.embed(IMAGES)
    features = (features - features.mean(axis=0)) / (features.std(axis=0) + 1e-6)
    head = LogisticRegression(max_iter=2000).fit(features[1000:1100], LABELS[1000:1100])
    return float(head.score(features[1100:], LABELS[1100:]))


def test_the_loss_is_the_papers() -> None:
    z = np.random.default_rng(0).normal(size=(6, 4))
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    terms = []
    for i in range(6):
        scores = np.exp(unit @ unit[i] / 0.5)
        terms.append(-np.log(scores[(i + 3) % 6] / (scores.sum() - scores[i])))
    assert contrastive_loss(torch.from_numpy(z), 0.5).item() == pytest.approx(np.mean(terms))


def test_features_learned_without_labels_beat_random_ones() -> None:
    losses: list[float] = []
    simclr = SimCLR(
        epochs=8, batch_size=128, lr=5e-3, augmentation=Augmentation(smallest_crop=0.5, flip=False), device="cpu"
    )
    model = learner().initialize(IMAGES, range(10))
    random_features = probe(model)
    weights = simclr.pretrain(model, IMAGES[:1000], on_epoch=lambda epoch, loss: losses.append(loss))
    model.set_weights(weights, "features")
    assert len(losses) == 8
    assert losses[-1] < losses[0] - 0.5
    assert probe(model) > random_features + 0.05


def test_the_learner_stays_as_it_is_and_its_head_is_not_touched() -> None:
    model = learner().initialize(FEW, range(10))
    before = model.get_weights()
    weights = quick().pretrain(model, FEW)
    np.testing.assert_equal(model.get_weights(), before)
    assert weights.keys() == model.get_weights("features").keys()
    assert not np.array_equal(weights["0.weight"], before["0.weight"])
    assert not np.array_equal(weights["4.running_mean"], before["4.running_mean"])


def test_a_learner_without_a_net_gets_the_weights_its_sites_take() -> None:
    fresh = learner()
    weights = quick().pretrain(fresh, FEW)
    assert not hasattr(fresh, "classes_")
    np.testing.assert_equal(weights, quick().pretrain(learner().initialize(FEW, range(10)), FEW))
    learner().initialize(FEW, ["a", "b", "c"]).set_weights(weights, "features")


def test_same_seed_same_bits_and_torchs_generator_is_left_alone() -> None:
    unseeded = TorchClassifier(small_net)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    first = quick().pretrain(unseeded, FEW)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(4)
    np.testing.assert_equal(quick().pretrain(unseeded, FEW), first)
    assert not np.array_equal(quick(seed=1).pretrain(unseeded, FEW)["0.weight"], first["0.weight"])


def test_any_layout_gives_the_same_weights() -> None:
    wanted = quick().pretrain(learner(), FEW)
    np.testing.assert_equal(quick().pretrain(learner(), FEW.transpose(0, 2, 3, 1)), wanted)
    np.testing.assert_equal(quick().pretrain(learner(), FEW[:, 0]), wanted)
    np.testing.assert_equal(quick().pretrain(learner(image_shape=(1, 8, 8)), FEW.reshape(40, -1)), wanted)


def test_the_net_sees_the_images_on_their_own_scale() -> None:
    """Batch norm's means show it: a classifier that later sees bytes must find statistics of bytes."""

    def first_norm(shape: tuple[int, ...], n_classes: int) -> nn.Module:
        return nn.Sequential(nn.BatchNorm2d(1), nn.Flatten(), nn.Linear(64, n_classes))

    def mean(X: NDArray[Any]) -> float:
        return float(quick(epochs=40).pretrain(TorchClassifier(first_norm), X)["0.running_mean"][0])

    assert mean(FEW) == pytest.approx(FEW.mean(), rel=0.3)
    assert mean(FEW / 255) == pytest.approx(FEW.mean() / 255, rel=0.3)


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_named_nets_of_colour_images(norm: str) -> None:
    X = np.random.default_rng(0).integers(256, size=(6, 16, 16, 3), dtype=np.uint8)
    net = TorchClassifier("shufflenet", norm=norm, image_shape=(3, 16, 16))
    weights = quick(epochs=1, batch_size=4).pretrain(net, X)
    net.initialize(X.transpose(0, 3, 1, 2), range(10)).set_weights(weights, "features")


def test_where_there_is_no_cuda_the_cpu_is_used_and_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    wanted = quick(epochs=1).pretrain(learner(), FEW)
    np.testing.assert_equal(quick(epochs=1, device=None).pretrain(learner(), FEW), wanted)
    assert "SimCLR runs on the CPU" in caplog.text
    with pytest.warns(CollegiumWarning, match="the CPU is used"):
        np.testing.assert_equal(quick(epochs=1, device="cuda").pretrain(learner(), FEW), wanted)


def test_divergence_is_an_error_that_names_the_learning_rate() -> None:
    with pytest.raises(ConfigError, match=r"SimCLR diverged in epoch \d+: use a learning rate below lr=1e\+30"):
        quick(lr=1e30, epochs=5).pretrain(learner(), FEW)


def test_nets_that_have_no_features_or_another_shape() -> None:
    with pytest.raises(ConfigError, match="one linear layer"):
        quick().pretrain(TorchClassifier("linear"), FEW)
    with pytest.raises(ConfigError, match=r"shape \(1, 8, 8\), but the learner's net takes \(1, 9, 9\)"):
        quick().pretrain(learner().initialize(np.zeros((2, 1, 9, 9)), [0, 1]), FEW)
    module = small_net((1, 8, 8), 10)
    with pytest.raises(ConfigError, match=r"initialize\(X, classes\) first"):
        quick().pretrain(TorchClassifier(module), FEW)
    assert quick(epochs=1).pretrain(TorchClassifier(module).initialize(FEW, range(10)), FEW)


@pytest.mark.parametrize(
    "wrong",
    [
        {"epochs": 0}, {"batch_size": 1}, {"lr": 0}, {"lr": "a"}, {"temperature": -1}, {"temperature": "x"},
        {"projection": 1.5}, {"seed": -1}, {"weight_decay": -1}, {"weight_decay": "x"}, {"augmentation": None},
        {"augmentation": Augmentation},
    ],
)  # fmt: skip
def test_settings_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=f"SimCLR: {next(iter(wrong))}"):
        SimCLR(**wrong)


def test_any_function_may_make_the_views_and_numbers_may_be_numpys() -> None:
    simclr = quick(epochs=np.int64(1), seed=np.int64(0), lr=np.float32(1e-3), augmentation=lambda images: images)
    assert simclr.pretrain(learner(), FEW)
    assert SimCLR(weight_decay=0).weight_decay == 0


def test_without_torch_the_extra_is_named() -> None:
    said = said_without_torch(
        "from collegium.errors import MissingExtra\n"
        "import collegium.core.terms\n"
        "try: import collegium.learners.simclr\n"
        "except MissingExtra as missing: print(missing.extra)\n"
    )
    assert said == "torch"


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_learns_too() -> None:
    losses: list[float] = []
    model = learner().initialize(IMAGES, range(10))
    random_features = probe(model)
    simclr = SimCLR(epochs=8, batch_size=128, lr=5e-3, augmentation=Augmentation(smallest_crop=0.5, flip=False))
    weights = simclr.pretrain(model, IMAGES[:1000], on_epoch=lambda epoch, loss: losses.append(loss))
    assert losses[-1] < losses[0] - 0.5
    assert probe(model.set_weights(weights, "features")) > random_features + 0.05
