"""A model that knows nothing, for trying things: two layers of random weights, made where they are wanted."""

from __future__ import annotations

import atexit
import shutil
import string
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, Final

from collegium.data.sources import OTHERS, TELLING

NAME: Final = "tiny"
ABOUT: Final = "Two layers with random weights, which know nothing: to try things. Comes with Collegium."


@cache
def folder() -> Path:
    """Its folder, which goes when this process ends. The same files are made every time."""
    place = Path(tempfile.mkdtemp(prefix="collegium-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    write(place)
    return place


def write(place: Path) -> None:
    """Write its files."""
    import torch
    from safetensors.torch import save_file
    from transformers import BertConfig, BertModel, BertTokenizer

    from collegium.learners.torch.devices import GLOBAL_GENERATOR

    marks = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = [*" ".join([*TELLING.values(), OTHERS]).split(), *string.ascii_lowercase, *string.digits]
    pieces = [f"##{letter}" for letter in string.ascii_lowercase + string.digits]
    vocabulary = {token: number for number, token in enumerate(dict.fromkeys([*marks, *words, *pieces]))}
    tokenizer: Any = BertTokenizer(vocab=vocabulary)
    tokenizer.save_pretrained(place)
    config: Any = BertConfig(
        vocab_size=len(vocabulary), hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=512,
    )  # fmt: skip
    with GLOBAL_GENERATOR, torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model: Any = BertModel(config)
    config.save_pretrained(place)
    save_file(dict(model.state_dict()), place / "model.safetensors", metadata={"format": "pt"})
