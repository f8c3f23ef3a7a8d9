"""Tiny models that the tests of language models share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.learners.language import tiny_models

pytest.importorskip("transformers")
MAKERS: dict[str, Callable[..., Path]] = {
    "bert": tiny_models.tiny_bert,
    "gpt": tiny_models.tiny_gpt,
    "llama": tiny_models.tiny_llama,
}


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """By name, the folders of tiny models; "other" is a BERT with other weights, "wide" one of another shape."""
    root = tmp_path_factory.mktemp("models")
    made = {name: make(root / name) for name, make in MAKERS.items()}
    made |= {
        "other": tiny_models.tiny_bert(root / "other", seed=1),
        "wide": tiny_models.tiny_bert(root / "wide", width=48),
    }
    return {name: str(folder) for name, folder in made.items()}
