"""SimCLR: learning features from unlabeled images.

Chen et al., "A Simple Framework for Contrastive Learning of Visual Representations" (ICML 2020), in the settings of
FedAUX (Sec. 4): Adam, learning rate 1e-3, batches of 512. Two random views of an image should have similar projections,
different from those of all other images in the batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from math import inf, isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from sklearn.base import clone

from collegium.errors import ConfigError, MissingExtra

try:
    import torch
except ModuleNotFoundError as missing:
    raise MissingExtra("torch", "SimCLR") from missing

from torch import nn
from torch.nn import functional

from collegium.core.settings import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Settings, TwoOrMore
from collegium.learners.torch import weights as named
from collegium.learners.torch.classifier import TorchClassifier
from collegium.learners.torch.cuda_graphs import Recorder, can_record, on_side_stream, turn
from collegium.learners.torch.devices import CPU, RandomStream, find_device
from collegium.learners.torch.hands import Deck
from collegium.learners.torch.images import Augmentation, Images
from collegium.learners.torch.optimizers import Adam

__all__ = ["Augmentation", "SimCLR", "contrastive_loss"]


@dataclass(frozen=True)
class SimCLR(Settings):
    """Self-supervised pre-training of the features of a `TorchClassifier`'s net.

    ``weights = SimCLR(epochs=100).pretrain(net, public)``, then ``net.set_weights(weights, "features")``.
    """

    epochs: PositiveInt = 100
    batch_size: TwoOrMore = 512
    lr: PositiveFloat = 1e-3
    temperature: PositiveFloat = 0.5
    projection: PositiveInt = 128
    """The size of the projections that are compared: a layer after the features, discarded at the end."""
    weight_decay: NonNegativeFloat = 1e-6
    augmentation: Callable[[torch.Tensor], torch.Tensor] = field(default_factory=Augmentation)
    device: str | None = None
    """None: CUDA if available, else the CPU, with a logged warning."""
    seed: NonNegativeInt = 0
    progress: bool = True
    """Whether to show a progress bar on standard error, if that is a terminal."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.augmentation, type):
            raise ConfigError(
                f"SimCLR: augmentation must be a function that makes a random view of each image, such as "
                f"Augmentation(), not {self.augmentation!r}."
            )

    def pretrain(
        self, learner: TorchClassifier, X: Any, *, on_epoch: Callable[[int, float], None] | None = None
    ) -> dict[str, NDArray[np.float32]]:
        """The weights of the features after pre-training on X; the learner itself is not modified.

        Training starts from the learner's current weights, or from new ones (with the learner's seed, else SimCLR's) if
        it has none. X holds images (n, channels, height, width), (n, height, width, channels), (n, height, width), or
        flat rows if the learner has an `image_shape`. Values may have any scale; the net is trained for that scale.
        `on_epoch` is called with the epoch's number and its mean loss.
        """
        device = self._device()
        images = Images(X, learner.image_shape)
        net, head = _net_of(learner, images.shape, self.seed)
        stream = RandomStream(self.seed)
        with stream.playing(CPU):
            _put(net, head, _projection(named.head_of(net, head).in_features, self.projection))
        if device.type == "cuda":
            net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        net = net.to(device).train()
        fused = True if device.type == "cuda" else None
        optimizer = Adam(net.parameters(), lr=self.lr, weight_decay=self.weight_decay, fused=fused)
        deck = Deck(len(images), np.random.default_rng(self.seed))
        images.stay_on(device)
        sweeps = _Sweeps(self, net, images, optimizer, stream, device)
        with self._progress_bar(device) as advance:
            for epoch in range(self.epochs):
                loss = sweeps.take(deck)
                if not isfinite(loss):
                    raise ConfigError(f"SimCLR diverged in epoch {epoch + 1}: use a learning rate below lr={self.lr}.")
                advance(loss)
                if on_epoch is not None:
                    on_epoch(epoch, loss)
        return named.read(net.cpu(), "features", head)

    def _device(self) -> torch.device:
        if self.device is not None:
            return find_device(self.device)
        if not torch.cuda.is_available():
            logging.getLogger(__name__).warning("SimCLR runs on the CPU: torch finds no CUDA device here.")
        return find_device("cuda", quietly=True)

    @contextmanager
    def _progress_bar(self, device: torch.device) -> Iterator[Callable[[float], None]]:
        console = Console(stderr=True)
        name = f"SimCLR on {torch.cuda.get_device_name(device) if device.type == 'cuda' else 'the CPU'}"
        with Progress(console=console, transient=True, disable=not (self.progress and console.is_terminal)) as bar:
            task = bar.add_task(name, total=self.epochs)
            yield lambda loss: bar.update(task, advance=1, description=f"{name}, loss {loss:.3f}")


class _Sweeps:
    """The steps of a pre-training. On a GPU they are recorded: Python would take longer to launch them than they do."""

    def __init__(
        self,
        settings: SimCLR,
        net: nn.Module,
        images: Images,
        optimizer: torch.optim.Optimizer,
        stream: RandomStream,
        device: torch.device,
    ) -> None:
        self._settings, self._net, self._images = settings, net, images
        self._optimizer, self._stream, self._device = optimizer, stream, device
        self._size = min(settings.batch_size, len(images))
        self._batch = torch.empty((self._size, *images.shape), device=device)
        self._total = torch.zeros((), device=device)
        # A view of the user's own may draw random numbers elsewhere, or look at values.
        self._recorder = Recorder(can_record(device) and type(settings.augmentation) is Augmentation)

    def take(self, deck: Deck) -> float:
        """One sweep in full batches, and its mean loss; leftover rows come first in the next one."""
        steps = len(self._images) // self._size
        with turn(self._device), on_side_stream(self._device), _fastest_convolutions(self._device):
            self._total.zero_()
            for _ in range(steps):
                self._batch.copy_(self._images.take(deck.deal(self._size), self._device))
                recorded = self._recorder.knows(None)
                with nullcontext() if recorded else self._stream.playing(self._device):
                    self._recorder(None, self._step, self._optimizer)
            return float(self._total) / steps

    def _step(self) -> None:
        views = self._images.as_given(self._settings.augmentation(torch.cat([self._batch, self._batch])))
        # bfloat16 has float32's range, so no gradient is scaled; the loss itself is taken in float32.
        with torch.autocast("cuda", torch.bfloat16, enabled=self._device.type == "cuda"):
            answers = self._net(views)
        loss = contrastive_loss(answers.float(), self._settings.temperature)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._total += loss.detach()


def _fastest_convolutions(device: torch.device) -> AbstractContextManager[None]:
    """Found by trying them: all batches have one size."""
    if device.type != "cuda":
        return nullcontext()
    flags: AbstractContextManager[None] = torch.backends.cudnn.flags(enabled=True, benchmark=True, allow_tf32=True)
    return flags


def contrastive_loss(answers: torch.Tensor, temperature: float) -> torch.Tensor:
    """NT-Xent: rows i and n + i of the 2n answers are two views of one image. One matrix product has all pairs."""
    n = len(answers) // 2
    directions = functional.normalize(answers, dim=1)
    similarities = directions @ directions.T / temperature
    similarities.fill_diagonal_(-inf)
    partner = torch.arange(2 * n, device=answers.device).roll(n)
    return functional.cross_entropy(similarities, partner)


def _net_of(learner: TorchClassifier, shape: tuple[int, int, int], seed: int) -> tuple[nn.Module, str]:
    """A copy of the learner's net, and the name of its head."""
    if not learner.__sklearn_is_fitted__():
        if isinstance(learner.net, nn.Module):
            raise ConfigError(
                "This net is an nn.Module with its own classes: call learner.initialize(X, classes) first."
            )
        learner = clone(learner)
        if learner.random_state is None:
            learner.set_params(random_state=seed)
        learner.initialize(np.zeros((0, *shape), dtype=np.float32), classes=[0, 1])
    if learner.input_shape_ != shape:
        raise ConfigError(f"The images have the shape {shape}, but the learner's net takes {learner.input_shape_}.")
    if not learner.get_weights("features"):
        raise ConfigError(
            "This net has no features to pre-train: it is one linear layer, or stands on a frozen backbone. Use "
            "another net, or train='all'."
        )
    net = learner.to_module()
    head = named.find_head(net, shape)
    return net, head


def _projection(features: int, size: int) -> nn.Module:
    return nn.Sequential(
        nn.Linear(features, features, bias=False), nn.BatchNorm1d(features), nn.ReLU(), nn.Linear(features, size)
    )


def _put(net: nn.Module, name: str, layer: nn.Module) -> None:
    """Replace the layer of this name."""
    parent, _, own = name.rpartition(".")
    setattr(net.get_submodule(parent), own, layer)
