"""Pre-training of a language model on texts without labels, as FedAUX does with public ones.

Sattler et al., "FedAUX" (2021), Sec. 4 and App. G, pre-train by predicting words. A model that reads from left to right
predicts the next word of a text. One that reads both ways, such as BERT, would see it: there, words are hidden, and
those are predicted (Devlin et al. 2019).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from collegium.errors import ConfigError, MissingExtra

try:
    import torch
    import transformers  # noqa: F401
except ModuleNotFoundError as missing:
    raise MissingExtra("text", "NextWord") from missing

from torch import nn
from torch.nn import functional

from collegium.core.settings import NonNegativeInt, OpenProbability, PositiveFloat, PositiveInt, Settings
from collegium.learners.language.classifier import TextClassifier
from collegium.learners.language.features import cut
from collegium.learners.language.net import TextNet
from collegium.learners.language.pretrained import pretrained
from collegium.learners.language.reading import NOTHING
from collegium.learners.torch import weights as named
from collegium.learners.torch.devices import RandomStream, computing, find_device, passing
from collegium.learners.torch.hands import Deck
from collegium.learners.torch.optimizers import AdamW


@dataclass(frozen=True)
class NextWord(Settings):
    """Self-supervised pre-training of a `TextClassifier` by predicting words.

    ``weights = NextWord(epochs=1).pretrain(learner, texts)``, then ``learner.set_weights(weights, "features")``. With
    ``peft="lora"`` the adapters learn, else the whole model; one of which only a head is trained has nothing to learn.
    """

    epochs: PositiveInt = 1
    steps: PositiveInt | None = None
    """Mini-batches instead of epochs."""
    batch_size: PositiveInt = 32
    lr: PositiveFloat = 5e-5
    hidden: OpenProbability = 0.15
    """The share of the words that are hidden from a model that reads both ways."""
    device: str | None = None
    """None: the learner's own."""
    seed: NonNegativeInt = 0

    def pretrain(self, learner: TextClassifier, X: Any) -> dict[str, NDArray[np.float32]]:
        """The weights of the features after pre-training on the texts X; the learner itself is not modified."""
        if learner.train != "all":
            raise ConfigError(f"NextWord: a learner with train={learner.train!r} has no features to pre-train.")
        if not learner.__sklearn_is_fitted__():
            raise ConfigError("NextWord: call learner.initialize(X, classes) first.")
        net: TextNet = learner.to_module()
        ids = learner.token_ids(X)
        device = find_device(self.device or learner.device)
        precision = learner.computes_in
        net.to(device).train()
        learned = [each for each in net.body.parameters() if each.requires_grad]
        deck, stream = Deck(len(ids), np.random.default_rng(self.seed)), RandomStream(self.seed)
        with stream.playing(device):
            task = _Task(net, self.hidden)
        optimizer = AdamW([*learned, *task.bridge.parameters()], lr=self.lr)
        size = min(self.batch_size, len(ids))
        for _ in range(self.steps or self.epochs * -(-len(ids) // size)):
            batch = torch.from_numpy(ids[deck.deal(size)]).long().to(device)
            with stream.playing(device), computing(device, precision):
                with passing(device, precision):
                    loss = task.loss(cut(batch))
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                optimizer.step()
            if not isfinite(float(loss.detach())):
                raise ConfigError(f"NextWord diverged: use a learning rate below lr={self.lr}.")
        return named.read(net.cpu(), "features", "head")


class _Task:
    """Which words are predicted, and how well."""

    def __init__(self, net: TextNet, hidden: float) -> None:
        model = pretrained(net.form.found)
        tokenizer, body = model.tokenizer, net.body
        self._body, self._hidden = body, hidden
        self._words: torch.Tensor = body.get_input_embeddings().weight  # type: ignore[operator]
        wide, narrow = model.width, self._words.shape[1]
        # ALBERT and ELECTRA have words of fewer numbers than features; their own layer in between is not in a folder.
        self.bridge = nn.Identity() if wide == narrow else nn.Linear(wide, narrow, device=self._words.device)
        self._mask = None
        if model.reads_both_ways:
            marks = (tokenizer.mask_token_id, tokenizer.unk_token_id, tokenizer.eos_token_id, 0)
            self._mask = int(next(each for each in marks if each is not None))

    def loss(self, ids: torch.Tensor) -> torch.Tensor:
        """The cross-entropy of the words that are predicted; 0 where a batch has none."""
        there = ids != NOTHING
        if self._mask is None:
            seen = ids
            wanted = torch.cat([ids[:, 1:], torch.full_like(ids[:, :1], NOTHING)], dim=1)
            asked = wanted != NOTHING
        else:
            asked = there & (torch.rand(ids.shape, device=ids.device) < self._hidden)
            seen, wanted = ids.masked_fill(asked, self._mask), ids
        hidden: torch.Tensor = self._body(input_ids=seen.clamp(min=0), attention_mask=there.long()).last_hidden_state
        scores = functional.linear(self.bridge(hidden[asked]), self._words).float()
        if not len(scores):
            return hidden.sum() * 0.0
        return functional.cross_entropy(scores, wanted[asked])
