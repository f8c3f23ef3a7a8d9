"""Models of Hugging Face's and of timm's, where those packages are installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import collegium as cg
from collegium.errors import ConfigError
from collegium.learners.vision.backbones import find_backbone

pytestmark = pytest.mark.xdist_group("language models")  # who imports transformers already
IMAGES = np.random.default_rng(0).random((4, 3, 20, 20), dtype=np.float32)


@pytest.fixture
def vit(tmp_path: Path) -> Path:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=16, patch_size=8
    )
    transformers.AutoModelForImageClassification.from_config(config).save_pretrained(tmp_path / "vit")
    said = {"size": {"height": 16, "width": 16}, "image_mean": [0.5] * 3, "image_std": [0.25] * 3}
    (tmp_path / "vit" / "preprocessor_config.json").write_text(json.dumps(said))
    return tmp_path / "vit"


def test_a_vision_transformer(vit: Path) -> None:
    backbone = find_backbone(vit)
    assert (backbone.shape, backbone.features(None)) == ((3, 16, 16), 16)
    assert (list(backbone.mean), list(backbone.std)) == ([0.5] * 3, [0.25] * 3)
    assert backbone.reference.startswith("vit@")
    net = cg.VisionClassifier(str(vit), epochs=1, random_state=0).fit(IMAGES, [0, 1, 0, 1])
    assert net.predict_proba(IMAGES).shape == (4, 2)
    own = cg.VisionClassifier(str(vit), epochs=1, train="all", random_state=0).fit(IMAGES, [0, 1, 0, 1])
    assert own.predict(IMAGES).shape == (4,)
    with pytest.raises(ConfigError, match="leave size out"):
        cg.VisionClassifier(str(vit), size=24).embed(IMAGES)


def test_its_features_are_those_of_transformers_itself(vit: Path) -> None:
    import transformers

    model = transformers.AutoModelForImageClassification.from_pretrained(vit, local_files_only=True).eval()
    prepared = (torch.from_numpy(IMAGES[:, :, :16, :16].copy()) - 0.5) / 0.25
    with torch.no_grad():
        expected = model.vit(pixel_values=prepared).last_hidden_state[:, 0]
    found = cg.VisionClassifier(str(vit)).embed(IMAGES[:, :, :16, :16])
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_weights_that_are_missing_are_named(vit: Path) -> None:
    state = load_file(vit / "model.safetensors")
    name = next(each for each in state if "patch" in each and each.endswith("weight"))
    del state[name]
    save_file(state, vit / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ConfigError, match=r"of another net: missing .*patch"):
        find_backbone(vit)


def test_a_pickle_of_weights_is_refused(vit: Path) -> None:
    torch.save(load_file(vit / "model.safetensors"), vit / "pytorch_model.bin")
    (vit / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="is a pickle"):
        find_backbone(vit)


def test_code_beside_the_weights_is_not_run(vit: Path) -> None:
    config = json.loads((vit / "config.json").read_text()) | {"model_type": "own"}
    config["auto_map"] = {"AutoConfig": "own.Config", "AutoModel": "own.Model"}
    (vit / "config.json").write_text(json.dumps(config))
    (vit / "own.py").write_text(f"import pathlib\npathlib.Path({str(vit / 'sprung')!r}).touch()\n")
    with pytest.raises(ConfigError, match="no model that transformers can build"):
        find_backbone(vit)
    assert not (vit / "sprung").exists()


def test_a_model_of_texts_is_no_backbone(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=20, hidden_size=8, num_hidden_layers=1, num_attention_heads=1, intermediate_size=8
    )
    transformers.AutoModel.from_config(config).save_pretrained(tmp_path / "bert")
    with pytest.raises(ConfigError, match="no backbone for images"):
        cg.VisionClassifier(str(tmp_path / "bert")).embed(IMAGES)


def test_a_config_that_names_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(ConfigError, match="neither a model_type nor an architecture"):
        find_backbone(tmp_path)


def timm() -> Any:
    try:
        import timm
    except (ImportError, RuntimeError):  # where torchvision is of another build
        return None
    return timm


def test_timms_folder_says_what_it_takes(tmp_path: Path) -> None:
    config = {"architecture": "resnet10t", "pretrained_cfg": {"input_size": [3, 64, 64], "mean": [0.5] * 3}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    if timm() is None:
        with pytest.raises(ConfigError, match="torchvision, and that must be of the very build of your torch"):
            find_backbone(tmp_path)
        return
    net = timm().create_model("resnet10t", pretrained=False)
    save_file(net.state_dict(), tmp_path / "model.safetensors")
    backbone = find_backbone(tmp_path)
    assert (backbone.shape, backbone.features(None), backbone.mean[0]) == ((3, 64, 64), 512, 0.5)
    prepared = backbone.preparation(None)(torch.from_numpy(IMAGES))
    with torch.no_grad():
        expected = net.eval().forward_head(net.forward_features(prepared), pre_logits=True)
    np.testing.assert_allclose(cg.VisionClassifier(str(tmp_path)).embed(IMAGES), expected, atol=1e-4)
