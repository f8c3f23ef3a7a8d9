"""Public benchmark sets, read from a folder of files that the user has put there.

A file is read only if its checksum is a known one, so that a truncated download or a changed file is
found before it becomes a result. Licences are named as far as they are known: check them at the source.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from collegium.data import readers
from collegium.data.files import sha256_of
from collegium.data.readers import A9A_FEATURES, CIFAR10_TRAIN_ROWS, Content
from collegium.errors import ConfigError

FOLDER_VARIABLE: Final = "COLLEGIUM_DATA"


@dataclass(frozen=True)
class Benchmark:
    """A data set that lies in the data folder.

    `files` has, per file, the forms that are read: path in the folder -> sha256. `rows` and `features`
    are those of the training rows.
    """

    kind: str
    rows: int
    features: int
    files: tuple[Mapping[str, str], ...]
    read: Callable[..., Content]
    how: str
    about: str


def data_folder(folder: Path | None = None) -> Path:
    """Where benchmark files are looked up: `folder`, or what COLLEGIUM_DATA says, or a cache folder of the user."""
    if folder is not None:
        return Path(folder)
    if named := os.environ.get(FOLDER_VARIABLE):
        return Path(named).expanduser()
    if sys.platform == "win32":
        cache = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    else:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "collegium"


def is_available(entry: Benchmark, folder: Path | None = None) -> bool:
    """Whether all files are there; their checksums are looked at when they are read."""
    return all(_find(forms, data_folder(folder)) for forms in entry.files)


def read_benchmark(name: str, folder: Path | None = None) -> Content:
    """Features, labels and, where there is one, the test split of the set with this name."""
    entry, place = BENCHMARKS[name], data_folder(folder)
    found = [_find(forms, place) for forms in entry.files]
    missing = [" or ".join(forms) for forms, form in zip(entry.files, found, strict=True) if form is None]
    if missing:
        raise ConfigError(
            f"data: {name} needs {', and '.join(missing)} in the data folder {place}, and it is not there. {entry.how} "
            f"Put it into that folder, or set the environment variable {FOLDER_VARIABLE} to the folder that has it."
        )
    return entry.read(*(_verified(place, *form) for form in found if form is not None))


def _find(forms: Mapping[str, str], folder: Path) -> tuple[str, str] | None:
    return next(((path, sha256) for path, sha256 in forms.items() if (folder / path).is_file()), None)


def _verified(folder: Path, path: str, sha256: str) -> Path:
    found = sha256_of(folder / path)
    if found != sha256:
        raise ConfigError(
            f"{folder / path}: this is not the file it should be: its sha256 begins with {found[:12]}, expected is "
            f"{sha256[:12]}. It may be incomplete or another version; download it again."
        )
    return folder / path


def _idx_files(folder: str, *sha256: str) -> tuple[Mapping[str, str], ...]:
    names = ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1")
    return tuple({f"{folder}/{name}-ubyte.gz": digest} for name, digest in zip(names, sha256, strict=True))


OWN_FILE: Final = "If you have the official data, save them as an npz (arrays X and y) or CSV file and give its path."
WINE_FILES: Final = (
    {
        "wine_quality/winequality-red.csv.xz": "bf9af3087ae02ad9759f98e4e619aeb1af2a8ca6d5121b9a3bebfe6f392fce05",
        "wine_quality/winequality-red.csv": "4a402cf041b025d4566d954c3b9ba8635a3a8a01e039005d97d6a710278cf05e",
    },
    {
        "wine_quality/winequality-white.csv.xz": "c017981db12ed7023dd7c34770633b6d865e239ca5503defde8af0c0054b9ca3",
        "wine_quality/winequality-white.csv": "76c3f809815c17c07212622f776311faeb31e87610d52c26d87d6e361b169836",
    },
)
WINE_HOW: Final = (
    "It comes from the UCI Machine Learning Repository, data set Wine Quality, "
    "files winequality-red.csv and winequality-white.csv."
)

BENCHMARKS: Final[dict[str, Benchmark]] = {
    "fashion_mnist": Benchmark(
        kind="images",
        rows=60_000,
        features=784,
        files=_idx_files(
            "fashion_mnist",
            "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
            "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
            "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
            "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
        ),
        read=readers.read_mnist,
        how="It comes from the GitHub repository zalandoresearch/fashion-mnist: the four .gz files of data/fashion.",
        about="Fashion-MNIST: articles of clothing, 28x28 grey, 10 classes. MIT licence; cite Xiao et al. 2017.",
    ),
    "mnist": Benchmark(
        kind="images",
        rows=60_000,
        features=784,
        files=_idx_files(
            "mnist",
            "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
            "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
            "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
            "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
        ),
        read=readers.read_mnist,
        how="It comes from the MNIST page of LeCun, Cortes and Burges, and its mirrors: the four original .gz files.",
        about="MNIST: handwritten digits, 28x28 grey, 10 classes. CC BY-SA 3.0; cite LeCun et al. 1998.",
    ),
    "cifar10": Benchmark(
        kind="images",
        rows=CIFAR10_TRAIN_ROWS,
        features=3 * 32 * 32,
        files=(
            {
                "cifar10/cifar10_all60000_jpeg_q95_lossy.npz": (
                    "56e0858be9f8a4797f134810dad0e82c4f8b0ae55046d090e0cdbb0cae561ab2"
                )
            },
        ),
        read=readers.read_cifar10,
        how=(
            "The official file is cifar-10-python.tar.gz, from the CIFAR page at the University of Toronto; "
            f"read here is a copy of it in JPEG of quality 95. {OWN_FILE}"
        ),
        about=(
            "CIFAR-10, LOSSY: small photographs, 32x32 RGB, 10 classes, stored as JPEG of quality 95 (about 40 dB). "
            "No licence stated; cite Krizhevsky 2009."
        ),
    ),
    "adult": Benchmark(
        kind="table",
        rows=32_561,
        features=14,
        files=(
            {
                "adult/adult.data.xz": "03c5722d4eaeaa2962f81284344def3c5150dadc6ddf841fcbb57f233371445c",
                "adult/adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            },
            {
                "adult/adult.test.xz": "45248f451a46bace9a234ece542aeadb66ea52e3c078f136d4b2c069cb38b1cd",
                "adult/adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
            },
        ),
        read=readers.read_adult,
        how="It comes from the UCI Machine Learning Repository, data set Adult, files adult.data and adult.test.",
        about="Adult: income above 50K or not, from a census. UCI, CC BY 4.0; cite Becker and Kohavi 1996.",
    ),
    "wine_type": Benchmark(
        kind="table",
        rows=5_320,
        features=11,
        files=WINE_FILES,
        read=readers.read_wine_type,
        how=WINE_HOW,
        about="Wine Quality, red or white, duplicates dropped. UCI, CC BY 4.0; cite Cortez et al. 2009.",
    ),
    "wine_quality": Benchmark(
        kind="table",
        rows=6_497,
        features=11,
        files=WINE_FILES,
        read=readers.read_wine_quality,
        how=WINE_HOW,
        about="Wine Quality, the tasters' score from 3 to 9. UCI, CC BY 4.0; cite Cortez et al. 2009.",
    ),
    "mushroom": Benchmark(
        kind="table",
        rows=8_124,
        features=22,
        files=(
            {
                "mushroom/agaricus-lepiota.data.xz": "41ea63583aa2145049e3de3039b265beb56bd29779012c1b73a4aaa3f2fba125",
                "mushroom/agaricus-lepiota.data": "e65d082030501a3ebcbcd7c9f7c71aa9d28fdfff463bf4cf4716a3fe13ac360e",
            },
        ),
        read=readers.read_mushroom,
        how="It comes from the UCI Machine Learning Repository, data set Mushroom, file agaricus-lepiota.data.",
        about="Mushroom: edible (e) or poisonous (p), 22 categorical features. UCI, CC BY 4.0.",
    ),
    "a9a": Benchmark(
        kind="sparse",
        rows=32_561,
        features=A9A_FEATURES,
        files=(
            {
                "a9a/a9a.xz": "cea7c541c650d123ac692cb8e2244d1c2e82f67c75cbfeccdb25a4b6fc88ef72",
                "a9a/a9a": "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906",
            },
            {
                "a9a/a9a.t.xz": "11dcdf09d2c3502c1e972986b8d8022b5adf895311e41e37e06e26ebc1ef45f3",
                "a9a/a9a.t": "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9",
            },
        ),
        read=readers.read_a9a,
        how="It comes from LIBSVM Data (binary classification), files a9a and a9a.t.",
        about="a9a: Adult as 123 binary features. LIBSVM Data, no licence stated; derived from UCI's Adult.",
    ),
    "cod_rna": Benchmark(
        kind="table",
        rows=59_535,
        features=8,
        files=({"cod_rna/cod-rna.train.csv.xz": "2f6dd9398413a83a06288f0422f4f60a2ddc00c9ff25130bfd779168c4adef7e"},),
        read=readers.read_cod_rna,
        how=(
            "The official file is cod-rna of LIBSVM Data (binary classification), in svmlight format; "
            f"read here is a CSV copy of it. {OWN_FILE}"
        ),
        about="cod-rna, training rows only: non-coding RNA or not. LIBSVM Data, no licence stated; Uzilov et al. 2006.",
    ),
    "covertype": Benchmark(
        kind="table",
        rows=92_962,
        features=54,
        files=(
            {
                "covtype_subset/covtype_libsvm_val_92962.data.xz": (
                    "cad9fb060b5e753a37ba021c922bd72441278890617c5e46e0d5a52e69930a6c"
                )
            },
        ),
        read=readers.read_covertype,
        how=(
            "The official file is covtype.data.gz of the UCI Machine Learning Repository, data set Covertype; "
            f"read here is a subset of 92,962 of its rows. {OWN_FILE}"
        ),
        about=(
            "Covertype, SUBSET of 92,962 of 581,012 rows: forest cover type, 7 classes. "
            "UCI, CC BY 4.0; cite Blackard and Dean 1999."
        ),
    ),
    "brain_mri": Benchmark(
        kind="images",
        rows=253,
        features=3 * 150 * 150,
        files=(
            {
                "brain_mri/brain_mri_150x150_rgb.npz": (
                    "4c57e3adfec189bae35ccbc95698224b87ea7eda324fff2335057de732747be1"
                )
            },
        ),
        read=readers.read_brain_mri,
        how=(
            "The official images are those of Kaggle's Brain MRI Images for Brain Tumor Detection (navoneel); "
            f"read here is a copy of them at 150x150 pixels. {OWN_FILE}"
        ),
        about=(
            "Brain MRI slices, tumour (yes) or not (no), RESIZED to 150x150 RGB; some images occur twice. "
            "Kaggle, licence unclear."
        ),
    ),
    "imdb": Benchmark(
        kind="text",
        rows=25_000,
        features=1,
        files=({"imdb/imdb_50k.csv.xz": "b0c579bb9e999c72b88760a6daf21c957acd5669d9e3ee57e52feebd006fd869"},),
        read=readers.read_imdb,
        how=(
            "The official file is aclImdb_v1.tar.gz, the Large Movie Review Dataset of Stanford; "
            f"read here is a CSV copy of it. {OWN_FILE}"
        ),
        about="IMDB film reviews, negative (neg) or positive (pos). No licence stated; cite Maas et al. 2011.",
    ),
    "ag_news": Benchmark(
        kind="text",
        rows=7_600,
        features=2,
        files=(
            {
                "ag_news/test.csv.xz": "b797f846079c25565eab8e6f9e407ee94f385662d04fd9d0c3b9f6008d0d022a",
                "ag_news/test.csv": "521465c2428ed7f02f8d6db6ffdd4b5447c1c701962353eb2c40d548c3c85699",
            },
        ),
        read=readers.read_ag_news,
        how="It comes from the AG News topic classification data set of Zhang, Zhao and LeCun: its file test.csv.",
        about=(
            "AG News, the 7,600 texts of its TEST file only: title and description, 4 topics. "
            "Research, non-commercial; cite Zhang et al. 2015."
        ),
    ),
}
