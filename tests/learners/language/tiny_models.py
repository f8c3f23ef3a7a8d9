"""Tiny language models with random weights and tokenizers of a few words, made where tests need them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

WORDS = {
    "good": ["lovely", "great", "moving", "warm", "clever", "fine"],
    "bad": ["awful", "boring", "weak", "cold", "stupid", "dull"],
}
OTHERS = ["the", "film", "was", "a", "story", "actors", "and", "in", "scene", "music"]


def reviews(rows: int, seed: int = 0) -> tuple[list[str], np.ndarray[Any, np.dtype[np.str_]]]:
    """Made-up reviews, three telling words in each."""
    rng = np.random.default_rng(seed)
    y = rng.choice(sorted(WORDS), rows)
    texts = [" ".join(rng.permutation([*rng.choice(WORDS[label], 3), *rng.choice(OTHERS, 5)])) for label in y]
    return texts, y


def tiny_bert(folder: Path, seed: int = 0, width: int = 32, words: Sequence[str] = ()) -> Path:
    """A BERT of two layers, with a WordPiece tokenizer that knows these words (default: the reviews')."""
    from tokenizers import BertWordPieceTokenizer
    from transformers import BertConfig, BertModel, BertTokenizerFast

    trained = BertWordPieceTokenizer(lowercase=True)
    trained.train_from_iterator(
        words or reviews(300)[0], vocab_size=200, min_frequency=1, show_progress=False, wordpieces_prefix="##"
    )
    tokenizer = BertTokenizerFast(vocab=trained.get_vocab())
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=width, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=2 * width, max_position_embeddings=64,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,  # steps can be compared
    )  # fmt: skip
    return _saved(folder, tokenizer, BertModel, config, seed)


def tiny_gpt(folder: Path, seed: int = 0, width: int = 32) -> Path:
    """A GPT-2 of two layers, with a BPE tokenizer that knows no padding."""
    from transformers import GPT2Config, GPT2Model

    tokenizer = _bpe()
    marks = {"bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=width, n_layer=2, n_head=2, n_positions=64, **marks)
    return _saved(folder, tokenizer, GPT2Model, config, seed)


def tiny_llama(folder: Path, seed: int = 0, width: int = 32) -> Path:
    """A Llama of two layers, SmolLM2's kind, with GPT's tokenizer."""
    from transformers import LlamaConfig, LlamaModel

    tokenizer = _bpe()
    config = LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=width, intermediate_size=2 * width, num_hidden_layers=2,
        num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
    )  # fmt: skip
    return _saved(folder, tokenizer, LlamaModel, config, seed)


def _bpe() -> Any:
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(reviews(300)[0], vocab_size=300, min_frequency=1, show_progress=False)
    return PreTrainedTokenizerFast(tokenizer_object=trained._tokenizer)


def _saved(folder: Path, tokenizer: Any, kind: Any, config: Any, seed: int) -> Path:
    import torch
    from transformers.utils import logging

    logging.disable_progress_bar()
    folder.mkdir(parents=True, exist_ok=True)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        kind(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
