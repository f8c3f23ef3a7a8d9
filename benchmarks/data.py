"""Data sets of the benchmarks, read from the folder that the environment variable COLLEGIUM_DATA names.

    adult/          adult.data.xz adult.test.xz                     the files of the UCI repository, compressed
    fashion_mnist/  train-images-idx3-ubyte.gz train-labels-idx1-ubyte.gz
                    t10k-images-idx3-ubyte.gz t10k-labels-idx1-ubyte.gz

A folder or file that is not there ends the program with status 2.
"""

from __future__ import annotations

import gzip
import os
import sys
from pathlib import Path
from typing import NoReturn

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Images = tuple[NDArray[np.uint8], NDArray[np.uint8]]

ADULT_COLUMNS = (
    "age", "workclass", "fnlwgt", "education", "education_num", "marital_status", "occupation", "relationship",
    "race", "sex", "capital_gain", "capital_loss", "hours_per_week", "native_country", "income",
)  # fmt: skip
IMAGE_SHAPE = (28, 28)


def data_folder() -> Path:
    """Where the data sets are."""
    name = os.environ.get("COLLEGIUM_DATA")
    if not name:
        _stop("COLLEGIUM_DATA is not set: let it name the folder with the data sets of the benchmarks.")
    return Path(name)


def adult(folder: Path) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    """Census records, all 48,842, words as codes; and whether the income is above 50,000."""
    records, above = _records(folder)
    words = records.select_dtypes(exclude="number").columns
    return records.assign(**{name: records[name].astype("category").cat.codes for name in words}), above


def adult_numbers(folder: Path) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """The same with a column for each word, of mean 0 and standard deviation 1; without weights and countries."""
    records, above = _records(folder)
    columns = pd.get_dummies(records.drop(columns=["fnlwgt", "native_country"])).astype(float)
    return ((columns - columns.mean()) / columns.std()).to_numpy(np.float32), above


def _records(folder: Path) -> tuple[pd.DataFrame, NDArray[np.int64]]:
    train, test = _files(folder, "adult/adult.data.xz", "adult/adult.test.xz")
    records = pd.concat([_read_adult(train, skip=0), _read_adult(test, skip=1)], ignore_index=True)
    above = records.pop("income").str.startswith(">").to_numpy().astype(np.int64)
    return records, above


def _read_adult(path: Path, skip: int) -> pd.DataFrame:
    return pd.read_csv(path, names=list(ADULT_COLUMNS), skiprows=skip, skipinitialspace=True)


def fashion_mnist(folder: Path) -> tuple[Images, Images]:
    """Images and labels of clothes: 60,000 to train with and 10,000 to test with."""
    names = [
        f"fashion_mnist/{part}-{what}-ubyte.gz" for part in ("train", "t10k") for what in ("images-idx3", "labels-idx1")
    ]
    contents = [gzip.decompress(path.read_bytes()) for path in _files(folder, *names)]
    train_images, train_labels, test_images, test_labels = contents
    return (_images(train_images), _labels(train_labels)), (_images(test_images), _labels(test_labels))


def _images(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(content, np.uint8, offset=16).reshape(-1, *IMAGE_SHAPE)


def _labels(content: bytes) -> NDArray[np.uint8]:
    return np.frombuffer(content, np.uint8, offset=8)


def _files(folder: Path, *names: str) -> list[Path]:
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        _stop(f"Missing in the folder that COLLEGIUM_DATA names: {', '.join(missing)}.")
    return [folder / name for name in names]


def _stop(why: str) -> NoReturn:
    print(why, file=sys.stderr)
    raise SystemExit(2)
