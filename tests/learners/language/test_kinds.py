"""Models of other kinds than BERT and GPT, as far as their folders differ in what is asked of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.learners.language.tiny_models import reviews

import collegium as cg

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.xdist_group("language models")
TEXTS, LABELS = reviews(24)
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


@pytest.fixture
def make(models: dict[str, str], tmp_path: Path) -> Any:
    """Writes the folder of a model of this class, with the tokenizer of the tiny BERT."""

    def made(kind: str, **settings: Any) -> cg.TextClassifier:
        folder = Path(shutil.copytree(models["bert"], tmp_path / kind))
        words = len(transformers.AutoTokenizer.from_pretrained(folder))
        model = getattr(transformers, kind)
        (folder / "model.safetensors").unlink()
        model(model.config_class(vocab_size=words, **settings)).save_pretrained(folder)
        return cg.TextClassifier(str(folder), max_length=16, random_state=0)

    return made


def test_a_model_may_have_no_limit(make: Any) -> None:
    """XLNet's is -1."""
    learner = make("XLNetModel", d_model=32, n_layer=2, n_head=2, d_inner=64).set_params(train="embed")
    assert learner.fit(TEXTS, LABELS).predict(TEXTS).shape == (24,)


def test_features_may_be_fewer_than_the_layers_have(make: Any) -> None:
    """As OPT's with 350 million weights."""
    learner = make("OPTModel", **SIZES, ffn_dim=64, word_embed_proj_dim=16, max_position_embeddings=64)
    assert learner.fit(TEXTS, LABELS).get_weights("head")["head.weight"].shape == (2, 16)


def test_an_encoder_is_read_without_its_decoder(make: Any) -> None:
    """T5's encoder may be all that a folder has; the random decoder beside it is of no use."""
    learner = make("T5EncoderModel", d_model=32, num_layers=2, num_heads=2, d_ff=64, d_kv=16)
    learner.fit(TEXTS, LABELS)
    assert not any("decoder" in name for name in learner.get_weights())


@pytest.mark.parametrize("peft", [None, "lora"])
def test_words_may_be_narrower_than_features(peft: Any, make: Any) -> None:
    """As ALBERT's and ELECTRA's: they are predicted all the same, and alike each time."""
    learner = make("ElectraModel", **SIZES, embedding_size=16, intermediate_size=64).set_params(peft=peft)
    learner.initialize(TEXTS, [0, 1])
    first, second = (cg.NextWord(steps=3, lr=1e-2).pretrain(learner, TEXTS) for _ in range(2))
    assert set(first) == set(learner.get_weights("features"))
    np.testing.assert_equal(first, second)


def test_a_model_without_adapters_is_an_error_before_the_run(make: Any) -> None:
    learner = make("MambaModel", hidden_size=32, num_hidden_layers=2, state_size=4).set_params(peft="lora")
    with pytest.raises(cg.ConfigError, match=r"peft knows no adapters for the model in .* Leave peft out"):
        learner.check_rows(TEXTS)
