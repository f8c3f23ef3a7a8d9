"""Readers of public benchmark files: features, labels and, if there is one, the test split."""

from __future__ import annotations

import gzip
import io
import lzma
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from collegium.errors import ConfigError
from collegium.wire.tables import Table

CIFAR10_TRAIN_ROWS: Final = 50_000
UNLABELED: Final = "unlabeled"
"""The label of rows whose labels nobody has."""
A9A_FEATURES: Final = 123

Labelled: TypeAlias = tuple[Table, NDArray[Any]]
Content: TypeAlias = tuple[Table, NDArray[Any], Labelled | None]

ADULT_COLUMNS: Final = (
    "age workclass fnlwgt education education-num marital-status occupation relationship race sex "
    "capital-gain capital-loss hours-per-week native-country"
)
MUSHROOM_COLUMNS: Final = (
    "cap-shape cap-surface cap-color bruises odor gill-attachment gill-spacing gill-size gill-color stalk-shape "
    "stalk-root stalk-surface-above-ring stalk-surface-below-ring stalk-color-above-ring stalk-color-below-ring "
    "veil-type veil-color ring-number ring-type spore-print-color population habitat"
)
COVERTYPE_COLUMNS: Final = (
    "Elevation Aspect Slope Horizontal_Distance_To_Hydrology Vertical_Distance_To_Hydrology "
    "Horizontal_Distance_To_Roadways Hillshade_9am Hillshade_Noon Hillshade_3pm Horizontal_Distance_To_Fire_Points "
    + " ".join([f"Wilderness_Area{n}" for n in range(1, 5)] + [f"Soil_Type{n}" for n in range(1, 41)])
)
# A1 is the share of A in the first of two sequences, and so on.
COD_RNA_COLUMNS: Final = "energy length A1 U1 C1 A2 U2 C2"
AG_NEWS_CLASSES: Final = {1: "World", 2: "Sports", 3: "Business", 4: "Sci/Tech"}


def read_mnist(train_images: Path, train_labels: Path, test_images: Path, test_labels: Path) -> Content:
    test = _idx(test_images), _idx(test_labels).astype(np.int64)
    return _idx(train_images), _idx(train_labels).astype(np.int64), test


read_fashion_mnist = read_mnist


def _idx(path: Path) -> NDArray[np.uint8]:
    with gzip.open(path) as stream:
        data = stream.read()
    dimensions = data[3]
    shape = np.frombuffer(data, ">u4", count=dimensions, offset=4)
    # A copy, because an array on top of bytes is read-only.
    return np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions).reshape(shape).copy()


def read_cifar10(path: Path) -> Content:
    X = _jpeg_strips("cifar10", path)
    with np.load(path, allow_pickle=False) as archive:
        y = archive["labels"].astype(np.int64)
    n = CIFAR10_TRAIN_ROWS
    return X[:n], y[:n], (X[n:], y[n:])


def read_cifar100(path: Path) -> Content:
    X = _jpeg_strips("cifar100", path)
    return X, np.full(len(X), UNLABELED), None


def _jpeg_strips(name: str, path: Path) -> NDArray[np.uint8]:
    """Images of 32x32 pixels, stacked in strips, each a JPEG."""
    try:
        from PIL import Image
    except ImportError:
        raise ConfigError(f"data: {name} is stored as JPEG and needs Pillow: pip install pillow") from None

    with np.load(path, allow_pickle=False) as archive:
        jpeg, offsets = archive["jpeg"], archive["offsets"]
    strips = []
    for part in np.split(jpeg, offsets[1:-1]):
        with Image.open(io.BytesIO(part.tobytes())) as strip:
            strips.append(np.asarray(strip.convert("RGB")).reshape(-1, 32, 32, 3))
    return _channels_first(np.concatenate(strips))


def read_brain_mri(path: Path) -> Content:
    with np.load(path, allow_pickle=False) as archive:
        return _channels_first(archive["images"]), archive["class_names"][archive["labels"]], None


def _channels_first(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def read_adult(train: Path, test: Path) -> Content:
    X, y = _adult(train)
    return X, y, _adult(test)


def _adult(path: Path) -> Labelled:
    # The test file begins with a line that starts with "|", and its labels end in a dot.
    frame = _read_columns(path, f"{ADULT_COLUMNS} income", na_values="?", comment="|")
    return frame, frame.pop("income").str.rstrip(".").to_numpy()


def read_mushroom(path: Path) -> Content:
    frame = _read_columns(path, f"class {MUSHROOM_COLUMNS}", na_values="?")
    return frame, frame.pop("class").to_numpy(), None


def read_covertype(path: Path) -> Content:
    frame = _read_columns(path, f"{COVERTYPE_COLUMNS} class")
    return frame, frame.pop("class").to_numpy(), None


def read_cod_rna(path: Path) -> Content:
    frame = _read_columns(path, f"class {COD_RNA_COLUMNS}")
    return frame, frame.pop("class").to_numpy(), None


def read_ag_news(path: Path) -> Content:
    frame = _read_columns(path, "class title description")
    return frame, frame.pop("class").map(AG_NEWS_CLASSES).to_numpy(), None


def read_ag_news_words(path: Path) -> Content:
    """Words that nobody has a spelling of have the number of their token."""
    with np.load(path, allow_pickle=False) as archive:
        spelled = archive["vocab_utf8"].tobytes().decode().split("\n")
        words = np.array([word or f"word{number}" for number, word in enumerate(spelled)], dtype=object)
        names = np.array(list(AG_NEWS_CLASSES.values()))

        def part(name: str) -> Labelled:
            ids, offsets = archive[f"{name}_ids"], archive[f"{name}_offsets"]
            texts = [" ".join(words[ids[start:end]]) for start, end in pairwise(offsets)]
            return pd.DataFrame({"text": texts}, dtype=object), names[archive[f"{name}_labels"]]

        X, y = part("train")
        return X, y, part("test")


def _read_columns(path: Path, names: str, **options: Any) -> pd.DataFrame:
    """A CSV file without a header, in which only `na_values` count as missing."""
    frame: pd.DataFrame = pd.read_csv(
        path, header=None, names=names.split(), skipinitialspace=True, keep_default_na=False, **options
    )
    return frame


def read_imdb(path: Path) -> Content:
    frame = pd.read_csv(path, usecols=["split", "label", "text"], keep_default_na=False)

    def part(name: str) -> Labelled:
        rows = frame[frame["split"] == name].reset_index(drop=True)
        return rows[["text"]], rows["label"].to_numpy()

    X, y = part("train")
    return X, y, part("test")


def read_wine_type(red: Path, white: Path) -> Content:
    frame = _wine(red, white).drop(columns="quality").drop_duplicates(ignore_index=True)
    return frame, frame.pop("type").to_numpy(), None


def read_wine_quality(red: Path, white: Path) -> Content:
    frame = _wine(red, white).drop(columns="type")
    return frame, frame.pop("quality").to_numpy(), None


def _wine(red: Path, white: Path) -> pd.DataFrame:
    parts = {"red": pd.read_csv(red, sep=";"), "white": pd.read_csv(white, sep=";")}
    return pd.concat([part.assign(type=name) for name, part in parts.items()], ignore_index=True)


def read_a9a(train: Path, test: Path) -> Content:
    X, y = _svmlight(train)
    return X, y, _svmlight(test)


def _svmlight(path: Path) -> Labelled:
    from sklearn.datasets import load_svmlight_file

    with lzma.open(path) if path.suffix == ".xz" else path.open("rb") as stream:
        X, y = load_svmlight_file(stream, n_features=A9A_FEATURES)
    return X, y.astype(np.int64)
