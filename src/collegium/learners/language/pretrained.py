"""A language model in memory: read once from its folder, and shared by all learners of a process that use it."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from torch import nn

from collegium.errors import ConfigError
from collegium.learners.language.folders import Found
from collegium.learners.language.recent import Recent

MOST_KEPT: Final = 2
"""Models that stay in memory for the next learner."""


@dataclass(frozen=True, eq=False)
class Pretrained:
    """The layers of a folder's model, without what it predicts words with, and its tokenizer.

    The layers are shared: nobody trains them or moves them to another device.
    """

    found: Found
    body: nn.Module
    tokenizer: Any

    @cached_property
    def width(self) -> int:
        """How many features a token has: as it is, for configurations have several names for it, or another width."""
        with torch.no_grad():
            return int(_hidden(self.body, torch.zeros((1, 1), dtype=torch.long)).shape[-1])

    @property
    def most_tokens(self) -> int | None:
        """The longest text that it can read; None where its configuration does not say."""
        most = getattr(self.body.config, "max_position_embeddings", None)
        # RoBERTa has positions that it does not use for tokens.
        positions = getattr(getattr(self.body, "embeddings", None), "position_embeddings", None)
        unused = getattr(positions, "padding_idx", None)
        if most is None or int(most) <= 0:  # XLNet has -1 for no limit
            return None
        return int(most) - (0 if unused is None else int(unused) + 1)

    def on(self, device: torch.device) -> nn.Module:
        """The layers on a device: on a GPU, a copy for all who use it there."""
        if device.type == "cpu":
            return self.body
        return _elsewhere.get((self.found.sha256, device), lambda: copy.deepcopy(self.body).to(device))

    @cached_property
    def reads_both_ways(self) -> bool:
        """Whether a token's features depend on the tokens after it, as BERT's do and GPT's do not."""
        with torch.no_grad():
            first = [_hidden(self.body, torch.tensor([[1, last]]))[0, 0] for last in (0, 2)]
        return not torch.equal(*first)


def _hidden(body: nn.Module, ids: torch.Tensor) -> torch.Tensor:
    hidden: torch.Tensor = body(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    return hidden


_kept: Recent[Pretrained] = Recent(MOST_KEPT)
_elsewhere: Recent[nn.Module] = Recent(MOST_KEPT)


def pretrained(found: Found) -> Pretrained:
    """The model of this folder."""
    return _kept.get(found.sha256, lambda: _read(found))


def _read(found: Found) -> Pretrained:
    """Weights from safetensors only, without code from the folder and without a look at the network."""
    place: Any = {"pretrained_model_name_or_path": found.folder, "local_files_only": True, "trust_remote_code": False}
    with _quietly():
        try:
            tokenizer = transformers.AutoTokenizer.from_pretrained(**place)
        except Exception as error:  # whatever its files may hold
            raise _unusable(found.folder, "tokenizer", error) from error
        try:
            model, loading = transformers.AutoModel.from_pretrained(
                **place, use_safetensors=True, dtype=torch.float32, output_loading_info=True
            )
        except Exception as error:
            raise _unusable(found.folder, "model", error) from error
    config = model.config
    # A folder of T5's encoder alone says that it has no decoder, and the model has one all the same.
    has_decoder = config.is_encoder_decoder or (hasattr(model, "encoder") and hasattr(model, "decoder"))
    body: nn.Module = model.get_encoder() if has_decoder else model
    config.use_cache = False
    _drop_pooler(body)
    _check_whole(found.folder, model, body, set(loading["missing_keys"]))
    _check_vocabulary(found.folder, body, tokenizer)
    return Pretrained(found, body.eval().requires_grad_(False), tokenizer)


def _check_whole(folder: Path, model: nn.Module, body: nn.Module, missing: set[str]) -> None:
    """A ConfigError for layers that no file has weights for, which would be random, or whose weights are no numbers."""
    read = {id(each) for each in body.parameters()}
    for name, each in model.named_parameters(remove_duplicate=False):
        if id(each) not in read or "pooler" in name:
            continue
        if name in missing:
            raise ConfigError(
                f"The weights in {folder} are incomplete: there are none for {name}. Get all of the model's "
                "*.safetensors, and the config.json that belongs to them."
            )
        if not bool(each.isfinite().all()):
            raise ConfigError(f"The weights in {folder} are NaN or infinite ({name}): get the files again.")


def _check_vocabulary(folder: Path, body: Any, tokenizer: Any) -> None:
    """A ConfigError for a tokenizer of another model, whose tokens this one does not know."""
    known, words = len(body.get_input_embeddings().weight), int(tokenizer.vocab_size)
    if words > known:
        raise ConfigError(
            f"The tokenizer in {folder} has {words} tokens, and the model {known}: they do not belong together. Put "
            "the files of the model's own tokenizer there."
        )


def _drop_pooler(body: nn.Module) -> None:
    """BERT has one more layer for its first token. Nothing here reads it, so it would be averaged for nothing."""
    pooler = getattr(body, "pooler", None)
    if not isinstance(pooler, nn.Module):
        return
    body.pooler = None  # type: ignore[assignment]
    try:
        with torch.no_grad():
            _hidden(body, torch.zeros((1, 1), dtype=torch.long))
    except Exception:  # a model that cannot do without it
        body.pooler = pooler


def _unusable(folder: Path, what: str, error: Exception) -> ConfigError:
    """Only the first line of what is said: transformers may go on to advise running the folder's code."""
    first, _, _ = str(error).strip().partition("\n")
    return ConfigError(
        f"The {what} in {folder} cannot be read ({type(error).__name__}: {first[:300]}). Its files may be incomplete "
        "or of a kind that this version of transformers does not know. Code that comes with a model is never run."
    )


@contextmanager
def _quietly() -> Iterator[None]:
    """Without progress bars and advice on what is missing in a checkpoint: heads are made anew on purpose."""
    logging: Any = transformers.utils.logging
    before, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()
