"""Tiny files in the format of each benchmark set and, where COLLEGIUM_DATA leads to them, the real ones."""

from __future__ import annotations

import gzip
import hashlib
import io
import lzma
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from collegium.data import readers
from collegium.data.benchmarks import BENCHMARKS, data_folder
from collegium.data.sources import Dataset, list_sources, load_source
from collegium.errors import ConfigError

Fake = Callable[..., Dataset]

ADULT = """\
39, State-gov, 77516, Bachelors, 13, Never-married, Adm-clerical, Not-in-family, White, Male, 2174, 0, 40, Cuba, <=50K
50, ?, 83311, Bachelors, 13, Divorced, ?, Husband, White, Male, 0, 0, 13, United-States, >50K

"""
ADULT_TEST = "|1x3 Cross validator\n" + ADULT.replace("50K\n", "50K.\n")
RED = '"fixed acidity";"pH";"quality"\n7.4;3.5;5\n7.4;3.5;5\n7.4;3.5;6\n7.8;3.2;6\n'
WHITE = '"fixed acidity";"pH";"quality"\n7.4;3.5;8\n'
MUSHROOM = "p,x,s,n,t,p,f,c,n,k,e,e,s,s,w,w,p,w,o,p,k,s,u\ne,x,s,y,t,a,f,c,b,k,e,?,s,s,w,w,p,w,o,p,n,n,g\n"
IMDB = 'split,label,rating,id,text\ntrain,neg,3,0,"Dull, ""so"" dull"\ntrain,pos,9,0,NA\ntest,pos,8,0,Fine\n'
AG_NEWS = '"3","Pension","Talks, and talks"\n"4","null"," Rockets"\n'


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """Loads a set from files of this content, instead of the real ones."""

    def load(name: str, *contents: bytes | str, form: int = 0) -> Dataset:
        files = []
        for forms, content in zip(BENCHMARKS[name].files, contents, strict=True):
            relative = list(forms)[form]
            data = pack(relative, content.encode() if isinstance(content, str) else content)
            (tmp_path / relative).parent.mkdir(exist_ok=True)
            (tmp_path / relative).write_bytes(data)
            files.append(dict(forms) | {relative: hashlib.sha256(data).hexdigest()})
        monkeypatch.setitem(BENCHMARKS, name, replace(BENCHMARKS[name], files=tuple(files)))
        return load_source(name, folder=tmp_path)

    return load


def pack(path: str, content: bytes) -> bytes:
    packers: dict[str, Callable[[bytes], bytes]] = {".xz": lzma.compress, ".gz": gzip.compress}
    return packers.get(Path(path).suffix, bytes)(content)


def idx(array: np.ndarray) -> bytes:
    shape = np.array(array.shape, dtype=">u4").tobytes()
    return bytes([0, 0, 8, array.ndim]) + shape + array.astype(np.uint8).tobytes()


def npz(**arrays: np.ndarray) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()


def counts(y: np.ndarray) -> dict[object, int]:
    return {label: int(count) for label, count in zip(*np.unique(y, return_counts=True), strict=True)}


class TestFormats:
    @pytest.mark.parametrize("name", ["mnist", "fashion_mnist"])
    def test_idx(self, fake: Fake, name: str) -> None:
        X, y = np.arange(3 * 28 * 28).reshape(3, 28, 28) % 256, np.array([5, 0, 9])
        data = fake(name, idx(X), idx(y), idx(X[:2]), idx(y[:2]))
        assert np.array_equal(data.X, X)
        assert data.y.tolist() == [5, 0, 9]
        assert data.test is not None
        assert np.array_equal(data.test[0], X[:2])
        assert data.test[1].tolist() == [5, 0]
        assert (data.X.dtype, data.y.dtype) == (np.uint8, np.int64)
        assert data.X.flags.writeable

    def test_cifar10(self, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
        colours = np.array([[250, 5, 5], [5, 250, 5], [5, 5, 250], [250, 250, 5], [5, 5, 5]], dtype=np.uint8)
        images = np.broadcast_to(colours[:, None, None, :], (5, 32, 32, 3))
        strips = [jpeg(images[:2]), jpeg(images[2:])]
        monkeypatch.setattr(readers, "CIFAR10_TRAIN_ROWS", 3)
        data = fake(
            "cifar10",
            npz(
                jpeg=np.frombuffer(b"".join(strips), np.uint8),
                offsets=np.cumsum([0, *map(len, strips)]),
                labels=np.arange(5, dtype=np.uint8),
            ),
        )
        assert data.test is not None
        assert data.X.shape == (3, 3, 32, 32)
        assert data.test[0].shape == (2, 3, 32, 32)
        assert (data.y.tolist(), data.test[1].tolist()) == ([0, 1, 2], [3, 4])
        both = np.concatenate([data.X, data.test[0]]).astype(int)
        assert np.abs(both - images.transpose(0, 3, 1, 2)).max() < 20
        assert data.X.dtype == np.uint8

    def test_cifar10_without_pillow(self, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "PIL", None)
        with pytest.raises(ConfigError, match="pip install pillow"):
            fake("cifar10", b"any")

    def test_brain_mri(self, fake: Fake) -> None:
        images = np.arange(2 * 150 * 150 * 3).reshape(2, 150, 150, 3).astype(np.uint8)
        labels = np.array([1, 0], dtype=np.uint8)
        data = fake("brain_mri", npz(images=images, labels=labels, class_names=np.array(["no", "yes"])))
        assert np.array_equal(data.X, images.transpose(0, 3, 1, 2))
        assert data.y.tolist() == ["yes", "no"]

    @pytest.mark.parametrize("form", [0, 1])
    def test_adult(self, fake: Fake, form: int) -> None:
        data = fake("adult", ADULT, ADULT_TEST, form=form)
        assert data.test is not None
        for X, y in [(data.X, data.y), data.test]:
            assert X.shape == (2, 14)
            assert y.tolist() == ["<=50K", ">50K"]
            assert X["age"].tolist() == [39, 50]
            assert X["native-country"].tolist() == ["Cuba", "United-States"]
            assert X.columns[X.isna().any()].tolist() == ["workclass", "occupation"]

    @pytest.mark.parametrize("form", [0, 1])
    def test_wine_type(self, fake: Fake, form: int) -> None:
        data = fake("wine_type", RED, WHITE, form=form)
        assert data.y.tolist() == ["red", "red", "white"]
        assert data.X.to_dict("list") == {"fixed acidity": [7.4, 7.8, 7.4], "pH": [3.5, 3.2, 3.5]}
        assert data.X.index.tolist() == [0, 1, 2]

    def test_wine_quality(self, fake: Fake) -> None:
        data = fake("wine_quality", RED, WHITE)
        assert data.y.tolist() == [5, 5, 6, 6, 8]
        assert list(data.X.columns) == ["fixed acidity", "pH"]

    @pytest.mark.parametrize("form", [0, 1])
    def test_mushroom(self, fake: Fake, form: int) -> None:
        data = fake("mushroom", MUSHROOM, form=form)
        assert data.X.shape == (2, 22)
        assert data.y.tolist() == ["p", "e"]
        assert data.X["odor"].tolist() == ["p", "a"]
        assert data.X["habitat"].tolist() == ["u", "g"]
        assert data.X.columns[data.X.isna().any()].tolist() == ["stalk-root"]

    @pytest.mark.parametrize("form", [0, 1])
    def test_a9a(self, fake: Fake, form: int) -> None:
        data = fake("a9a", "-1 3:1 123:1 \n+1 1:1 \n", "+1 2:1 \n", form=form)
        assert data.test is not None
        assert sparse.issparse(data.X)
        assert data.X.format == "csr"
        assert data.X.shape == (2, 123)
        assert [cell.tolist() for cell in data.X.nonzero()] == [[0, 0, 1], [2, 122, 0]]
        assert data.test[0].shape == (1, 123)
        assert (data.y.tolist(), data.test[1].tolist()) == ([-1, 1], [1])
        assert data.y.dtype == np.int64

    def test_cod_rna(self, fake: Fake) -> None:
        data = fake("cod_rna", "-1, -766, 128, 0.1, 0.3, 0.2, 0.1, 0.3, 0.4\n1, -7, 76, 0.2, 0.2, 0.2, 0.2, 0.2, 0.5\n")
        assert data.y.tolist() == [-1, 1]
        assert data.X["length"].tolist() == [128, 76]
        assert data.X["C2"].tolist() == [0.4, 0.5]

    def test_covertype(self, fake: Fake) -> None:
        row = ",".join(str(number) for number in range(1, 55))
        data = fake("covertype", f"{row},7\n{row},2\n")
        assert data.y.tolist() == [7, 2]
        assert data.X.columns.is_unique
        assert data.X.loc[0, ["Elevation", "Wilderness_Area1", "Soil_Type1", "Soil_Type40"]].tolist() == [1, 11, 15, 54]

    def test_imdb(self, fake: Fake) -> None:
        data = fake("imdb", IMDB)
        assert data.test is not None
        assert data.X.to_dict("list") == {"text": ['Dull, "so" dull', "NA"]}
        assert data.y.tolist() == ["neg", "pos"]
        assert data.test[0].to_dict("list") == {"text": ["Fine"]}
        assert data.test[1].tolist() == ["pos"]

    @pytest.mark.parametrize("form", [0, 1])
    def test_ag_news(self, fake: Fake, form: int) -> None:
        data = fake("ag_news", AG_NEWS, form=form)
        assert data.y.tolist() == ["Business", "Sci/Tech"]
        assert data.X.to_dict("list") == {
            "title": ["Pension", "null"],
            "description": ["Talks, and talks", " Rockets"],
        }

    def test_ag_news_words(self, fake: Fake) -> None:
        stream = io.BytesIO()
        words = np.frombuffer(b"the\n\nrockets", dtype=np.uint8)
        parts = {"ids": np.array([2, 0, 1]), "offsets": np.array([0, 1, 3]), "labels": np.array([3, 0])}
        rows = {f"{part}_{name}": value for part in ("train", "test") for name, value in parts.items()}
        np.savez(stream, vocab_utf8=words, **rows)
        data = fake("ag_news_words", stream.getvalue())
        assert data.X.to_dict("list") == {"text": ["rockets", "the word1"]}
        assert data.y.tolist() == ["Sci/Tech", "World"]
        assert data.test is not None
        assert data.test[0].shape == (2, 1)


def jpeg(images: np.ndarray) -> bytes:
    """Images one below the other, as JPEG."""
    from PIL import Image

    stream = io.BytesIO()
    Image.fromarray(np.concatenate(images)).save(stream, "JPEG", quality=95, subsampling=0)
    return stream.getvalue()


class TestFiles:
    @pytest.mark.parametrize("name", BENCHMARKS)
    def test_missing_file(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(ConfigError) as caught:
            load_source(name, folder=tmp_path)
        text = str(caught.value)
        assert str(tmp_path) in text
        assert all(path in text for forms in BENCHMARKS[name].files for path in forms)
        assert BENCHMARKS[name].how in text
        assert "COLLEGIUM_DATA" in text

    def test_only_what_is_missing_is_named(self, fake: Fake, tmp_path: Path) -> None:
        fake("adult", ADULT, ADULT_TEST)
        (tmp_path / "adult" / "adult.test.xz").unlink()
        with pytest.raises(ConfigError, match=r"needs adult/adult\.test\.xz or adult/adult\.test in the data folder"):
            load_source("adult", folder=tmp_path)

    def test_truncated_file_is_found_before_it_is_read(self, fake: Fake, tmp_path: Path) -> None:
        fake("mushroom", MUSHROOM)
        path = tmp_path / "mushroom" / "agaricus-lepiota.data.xz"
        whole = path.read_bytes()
        path.write_bytes(whole[:-9])
        with pytest.raises(ConfigError) as caught:
            load_source("mushroom", folder=tmp_path)
        text = str(caught.value)
        assert str(path) in text
        assert hashlib.sha256(whole).hexdigest()[:12] in text
        assert hashlib.sha256(whole[:-9]).hexdigest()[:12] in text
        assert "download it again" in text

    def test_target_is_refused(self) -> None:
        with pytest.raises(ConfigError, match="brings its own labels"):
            load_source("adult", target="income")

    def test_listed_as_available(self, fake: Fake, tmp_path: Path) -> None:
        fake("wine_type", RED, WHITE)
        assert {row.name for row in list_sources(tmp_path) if row.available} >= {"wine_type", "wine_quality"}
        (tmp_path / "wine_quality" / "winequality-red.csv.xz").unlink()
        assert not {row.name for row in list_sources(tmp_path) if row.available} & {"wine_type", "wine_quality"}

    def test_entries_are_well_formed(self) -> None:
        for entry in BENCHMARKS.values():
            for forms in entry.files:
                assert all(len(sha256) == 64 and int(sha256, 16) for sha256 in forms.values())
                assert not any(Path(path).is_absolute() for path in forms)
            assert "\n" not in entry.about + entry.how

    def test_sets_that_are_not_the_original_say_so(self) -> None:
        assert "SUBSET" in BENCHMARKS["covertype"].about
        assert "LOSSY" in BENCHMARKS["cifar10"].about


class TestFolder:
    def test_argument_first(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLLEGIUM_DATA", "elsewhere")
        assert data_folder(tmp_path) == tmp_path

    def test_variable_next(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COLLEGIUM_DATA", str(tmp_path))
        assert data_folder() == tmp_path

    @pytest.mark.parametrize(
        ("platform", "variable", "home"),
        [("linux", "XDG_CACHE_HOME", ".cache"), ("win32", "LOCALAPPDATA", "AppData/Local")],
    )
    def test_cache_of_the_user(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, variable: str, home: str
    ) -> None:
        monkeypatch.setattr(sys, "platform", platform)
        monkeypatch.setenv("COLLEGIUM_DATA", "")
        monkeypatch.setenv(variable, str(tmp_path))
        assert data_folder() == tmp_path / "collegium"
        monkeypatch.delenv(variable)
        assert data_folder() == Path.home() / home / "collegium"


TEN = dict.fromkeys(range(10), 6000)
ROWS_AND_CLASSES: dict[str, tuple[dict[object, int], dict[object, int] | None]] = {
    "fashion_mnist": (TEN, dict.fromkeys(range(10), 1000)),
    "cifar10": (dict.fromkeys(range(10), 5000), dict.fromkeys(range(10), 1000)),
    "cifar100": ({"unlabeled": 60000}, None),
    "adult": ({"<=50K": 24720, ">50K": 7841}, {"<=50K": 12435, ">50K": 3846}),
    "wine_type": ({"red": 1359, "white": 3961}, None),
    "mushroom": ({"e": 4208, "p": 3916}, None),
    "a9a": ({-1: 24720, 1: 7841}, {-1: 12435, 1: 3846}),
    "cod_rna": ({-1: 39690, 1: 19845}, None),
    "covertype": ({1: 33894, 2: 45328, 3: 5721, 4: 439, 5: 1519, 6: 2779, 7: 3282}, None),
    "brain_mri": ({"no": 98, "yes": 155}, None),
    "imdb": ({"neg": 12500, "pos": 12500}, {"neg": 12500, "pos": 12500}),
    "ag_news": (dict.fromkeys(["Business", "Sci/Tech", "Sports", "World"], 1900), None),
    "ag_news_words": (
        dict.fromkeys(["Business", "Sci/Tech", "Sports", "World"], 30000),
        dict.fromkeys(["Business", "Sci/Tech", "Sports", "World"], 1900),
    ),
}


@pytest.mark.skipif(not os.environ.get("COLLEGIUM_DATA"), reason="COLLEGIUM_DATA does not name a data folder")
class TestRealFiles:
    @pytest.mark.parametrize("name", BENCHMARKS)
    def test_rows_and_features(self, name: str) -> None:
        data, entry = load_real(name), BENCHMARKS[name]
        assert len(data.y) == data.X.shape[0] == entry.rows
        assert np.prod(data.X.shape[1:]) == entry.features

    @pytest.mark.parametrize("name", ROWS_AND_CLASSES)
    def test_classes(self, name: str) -> None:
        data = load_real(name)
        train, test = ROWS_AND_CLASSES[name]
        assert counts(data.y) == train
        assert (data.test and counts(data.test[1])) == test

    def test_mnist(self) -> None:
        data = load_real("mnist")
        assert data.test is not None
        assert data.test[0].shape == (10000, 28, 28)
        assert sorted(counts(data.y)) == list(range(10))

    def test_wine_scores(self) -> None:
        assert sorted(counts(load_real("wine_quality").y)) == list(range(3, 10))

    def test_missing_cells(self) -> None:
        adult = load_real("adult")
        assert adult.test is not None
        assert [int(X.isna().any(axis=1).sum()) for X in (adult.X, adult.test[0])] == [2399, 1221]
        assert int(load_real("mushroom").X["stalk-root"].isna().sum()) == 2480

    def test_cifar10_colours(self) -> None:
        means = load_real("cifar10").X.mean(axis=(0, 2, 3))
        assert means == pytest.approx([125.307, 122.950, 113.865], abs=0.5)

    def test_texts(self) -> None:
        X = load_real("imdb").X
        assert isinstance(X, pd.DataFrame)
        assert X["text"].str.len().min() > 0


def load_real(name: str) -> Dataset:
    if not next(row.available for row in list_sources() if row.name == name):
        pytest.skip(f"{name} is not in the data folder")
    return load_source(name)
