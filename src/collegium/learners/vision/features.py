"""Features of images by a backbone: computed once in a process, and kept by the hash of each image.

Sites of one process share them, so that the public set is computed once, whatever rows of it a round takes. With the
environment variable COLLEGIUM_FEATURES, which names a folder, they are kept there for other processes as well: protect
it like the images, since features can tell a lot about them.
"""

from __future__ import annotations

import copy
import hashlib
import logging
import threading
import warnings
import weakref
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from collegium.core.terms import Precision
from collegium.errors import CollegiumWarning, ConfigError
from collegium.learners.on_disk import FeatureFiles
from collegium.learners.torch.cuda_graphs import turn
from collegium.learners.torch.devices import CPU, computing, passing
from collegium.learners.vision.backbones import Backbone, check_channels
from collegium.learners.vision.pictures import Pictures, as_tensor

Floats = NDArray[np.float32]
MOST_VALUES: Final = 2**28
"""Numbers that are kept of one backbone in memory: a gigabyte, or 200,000 images with 1,280 features."""
AT_ONCE: Final = 1
"""Images that a CPU computes at a time: a row then has the same bits whatever stands beside it, in any process."""
AT_ONCE_ON_GPU: Final = 256
_MANY: Final = 200
"""Images that take long enough to say so."""
_KEY_BYTES: Final = 16
_log = logging.getLogger(__name__)


class Features:
    """The features that one backbone gives of images of one size, on one device."""

    def __init__(self, backbone: Backbone, size: int | None, device: torch.device, precision: Precision) -> None:
        self._backbone, self._device, self._precision = backbone, device, precision
        self._width = backbone.features(size)
        layers = backbone.layers if device == CPU else copy.deepcopy(backbone.layers)
        self._layers: nn.Module = nn.Sequential(backbone.preparation(size), layers).eval()
        shape = "x".join(map(str, backbone.at(size)))
        self._files = FeatureFiles.at_hand(f"{backbone.reference} {shape} {precision}", self._width)
        self._kept: OrderedDict[int, Floats] = OrderedDict()
        self._places: dict[bytes, tuple[int, int]] = {}
        self._next = 0
        self._of_arrays: dict[int, Floats] = {}
        self._lock = threading.RLock()
        self._batch = AT_ONCE if device == CPU else AT_ONCE_ON_GPU

    def of(self, pictures: Pictures, name: str = "X") -> Floats:
        """A row of features for each image. For the same read-only array, it is the same one."""
        check_channels(pictures.shape[0], self._backbone, name)
        given = pictures.given
        fixed = type(given) is np.ndarray and not given.flags.writeable
        with self._lock:  # who comes second waits for what the first computes
            if fixed and id(given) in self._of_arrays:
                return self._of_arrays[id(given)]
            found = self._look_up(pictures)
            if fixed:
                self._of_arrays[id(given)] = found
                weakref.finalize(given, self._of_arrays.pop, id(given), None)
            return found

    def _look_up(self, pictures: Pictures) -> Floats:
        keys = _keys(pictures)
        missing = self._unknown(keys)
        if missing and self._files is not None:
            self._keep(*self._files.read(missing))
            missing = self._unknown(missing)
        if missing:
            rows = np.array(sorted(missing.values()))
            computed = self._compute(pictures, rows)
            self._keep([keys[row] for row in rows], computed)
            if self._files is not None:
                self._files.write([keys[row] for row in rows], computed)
            if len(rows) == len(keys):
                return computed  # one array serves all sites
        found = np.empty((len(keys), self._width), dtype=np.float32)
        for row, key in enumerate(keys):
            block, place = self._places[key]
            found[row] = self._kept[block][place]
        self._drop_oldest()
        found.setflags(write=False)
        return found

    def _unknown(self, keys: Sequence[bytes] | dict[bytes, int]) -> dict[bytes, int]:
        """Those that are not kept, with the row where each is first."""
        rows = keys.items() if isinstance(keys, dict) else ((key, row) for row, key in enumerate(keys))
        unknown: dict[bytes, int] = {}
        for key, row in rows:
            if key not in self._places:
                unknown.setdefault(key, row)
        return unknown

    def _keep(self, keys: Sequence[bytes], features: Floats) -> None:
        if not len(keys):
            return
        features.setflags(write=False)
        self._kept[self._next] = features
        self._places.update({key: (self._next, place) for place, key in enumerate(keys)})
        self._next += 1

    def _drop_oldest(self) -> None:
        while len(self._kept) > 1 and sum(block.size for block in self._kept.values()) > MOST_VALUES:
            dropped, _ = self._kept.popitem(last=False)
            self._places = {key: place for key, place in self._places.items() if place[0] != dropped}

    def _compute(self, pictures: Pictures, rows: NDArray[np.intp]) -> Floats:
        if len(rows) >= _MANY:
            _log.info("computing features of %d images with %s", len(rows), self._backbone.name)
        found = np.empty((len(rows), self._width), dtype=np.float32)
        done = 0
        while done < len(rows):
            end = min(done + self._batch, len(rows))
            try:
                found[done:end] = self._answers(pictures, rows[done:end])
                done = end
            except (RuntimeError, MemoryError) as error:
                self._take_fewer(error)
        if not np.isfinite(found).all():
            raise ConfigError(f"The backbone {self._backbone.name!r} gives features that are NaN or infinite.")
        return found

    def _answers(self, pictures: Pictures, rows: NDArray[np.intp]) -> Floats:
        device, precision = self._device, self._precision
        with turn(device), torch.inference_mode(), computing(device, precision), passing(device, precision):
            self._layers.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
            features: Floats = self._layers(as_tensor(pictures, rows, device)).float().cpu().numpy()
            return features

    def _take_fewer(self, error: Exception) -> None:
        """Half as many images at a time, where memory was what lacked; else the error is raised."""
        if not is_out_of_memory(error) or self._batch == 1:
            raise error
        if self._device != CPU:
            torch.cuda.empty_cache()
        half = self._batch // 2
        text = (
            f"{self._batch} images do not fit into memory with {self._backbone.name!r}: {half} are computed at a time."
        )
        warnings.warn(text, CollegiumWarning, stacklevel=2)
        self._batch = half


def is_out_of_memory(error: Exception) -> bool:
    """Whether torch, on a GPU or on the CPU, or Python had too little memory."""
    if isinstance(error, MemoryError | torch.cuda.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and "can't allocate memory" in str(error)


def features_by(backbone: Backbone, size: int | None, device: torch.device, precision: Precision) -> Features:
    """Those of this process."""
    key = backbone.digest, size, device, precision
    with _lock:
        if key not in _every:
            _every[key] = Features(backbone, size, device, precision)
        return _every[key]


def _keys(pictures: Pictures) -> list[bytes]:
    kind = pictures.kind.encode()
    start = hashlib.blake2b(kind, digest_size=_KEY_BYTES)
    found = []
    for row in range(len(pictures)):
        digest = start.copy()
        digest.update(pictures.raw(row))
        found.append(digest.digest())
    return found


_every: dict[Hashable, Features] = {}
_lock = threading.Lock()
