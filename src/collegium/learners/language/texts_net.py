"""A net of `TorchClassifier` whose rows are read off texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray
from torch import nn

from collegium.learners.language.net import Form
from collegium.learners.language.pretrained import Pretrained
from collegium.learners.language.reading import Memo, Tokens, texts_in
from collegium.learners.language.recent import Recent
from collegium.learners.torch.batches import Rows
from collegium.learners.torch.classifier import TorchClassifier


@dataclass(frozen=True)
class Reader:
    """Turns texts into the rows of numbers that a net takes."""

    memo: Memo
    columns: str | Sequence[str] | None

    def __call__(self, X: Any, name: str) -> NDArray[Any]:
        return self.memo(texts_in(X, self.columns, name=name))


class TextsNet(TorchClassifier):
    """A net whose rows are read off texts."""

    read: Reader

    def _rows(self, X: Any, expected: tuple[int, ...] | None, *, name: str = "X") -> Rows:
        return super()._rows(self.read(X, name), expected, name=name)

    def _new_net(self, input_shape: tuple[int, ...], n_classes: int) -> nn.Module:
        """Without an answer to see whether it fits, which takes a large model seconds: its form makes it fit."""
        if not isinstance(self.net, Form):
            return super()._new_net(input_shape, n_classes)
        return self.net(input_shape, n_classes).eval()

    def __getstate__(self) -> dict[str, Any]:
        """Without what was read: its owner knows where to read."""
        state: dict[str, Any] = super().__getstate__()
        return {name: value for name, value in state.items() if name != "read"}


_tokens: Recent[Memo] = Recent(4)


def token_memo(model: Pretrained, length: int) -> Memo:
    """The token ids of texts, for all learners of a process that read with this model's tokenizer."""
    return _tokens.get((model.found.sha256, length), lambda: Memo(Tokens(model.tokenizer, length)))
