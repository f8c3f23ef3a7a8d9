from __future__ import annotations

import gzip
import io
import lzma
import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import collegium.data.files as files
from collegium.data.benchmarks import BENCHMARKS
from collegium.data.sources import EMBEDDED, Dataset, list_sources, load_source
from collegium.errors import ConfigError

CSV = "age,city,smokes,label\n31,Bonn,True,yes\n44,Ulm,False,no\n58,Ulm,True,yes\n"
FRAME = pd.read_csv(io.StringIO(CSV))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "cases.csv"
    path.write_text(CSV)
    return path


def write(path: Path, text: str | bytes) -> str:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return str(path)


def refusal(source: object, target: str | None = "label", **options: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load_source(str(source), target=target, **options)
    return str(caught.value)


def same_as_frame(data: Dataset) -> bool:
    return data.y.tolist() == ["yes", "no", "yes"] and data.X.equals(FRAME.drop(columns="label"))


class TestEmbedded:
    @pytest.mark.parametrize("name", EMBEDDED)
    def test_sizes_are_those_that_are_listed(self, name: str) -> None:
        data, (rows, features, about) = load_source(name), EMBEDDED[name]
        assert (len(data.X), np.prod(data.X.shape[1:])) == (rows, features)
        assert data.y.shape == (rows,)
        assert (data.name, data.test, data.about) == (name, None, about)

    def test_class_names(self) -> None:
        assert set(load_source("breast_cancer").y) == {"malignant", "benign"}
        assert set(load_source("iris").y) == {"setosa", "versicolor", "virginica"}
        assert set(load_source("wine").y) == {"class_0", "class_1", "class_2"}

    def test_breast_cancer_names_are_on_the_right_rows(self) -> None:
        assert (load_source("breast_cancer").y == "malignant").sum() == 212

    def test_tables_have_column_names(self) -> None:
        X = load_source("breast_cancer").X
        assert isinstance(X, pd.DataFrame)
        assert "mean radius" in X.columns

    def test_digits_are_numbers(self) -> None:
        data = load_source("digits")
        assert isinstance(data.X, np.ndarray)
        assert data.y.dtype.kind == "i"

    def test_patterns_are_images_that_can_be_told_apart(self) -> None:
        data = load_source("patterns")
        assert (data.X.shape, data.X.dtype) == ((2000, 3, 16, 16), np.uint8)
        np.testing.assert_array_equal(data.X, load_source("patterns").X)
        colors = np.array([data.X[data.y == label].mean(axis=(0, 2, 3)) for label in range(10)])
        assert min(np.abs(a - b).sum() for i, a in enumerate(colors) for b in colors[:i]) > 3

    def test_target_is_refused(self) -> None:
        assert "brings its own labels; leave out target = 'class'" in refusal("iris", "class")


class TestNames:
    def test_unknown_name_is_answered_with_the_nearest(self) -> None:
        text = refusal("brest_cancer", None)
        assert "no source 'brest_cancer'. Did you mean 'breast_cancer'?" in text
        assert "ends in .csv, .csv.gz, .csv.xz, .parquet, .npz" in text

    @pytest.mark.parametrize("source", ["cases.txt", "", "folder/cases"])
    def test_unknown_kind_of_file(self, source: str) -> None:
        assert f"no source {source!r}" in refusal(source)

    def test_list(self, tmp_path: Path) -> None:
        rows = {row.name: row for row in list_sources(tmp_path)}
        assert list(rows) == [*EMBEDDED, *BENCHMARKS]
        assert all(rows[name].available for name in EMBEDDED)
        assert not any(rows[name].available for name in BENCHMARKS)
        assert rows["adult"][:4] == ("adult", "table", 32561, 14)

    def test_list_makes_a_data_frame(self, tmp_path: Path) -> None:
        frame = pd.DataFrame(list_sources(tmp_path))
        assert list(frame.columns) == ["name", "kind", "rows", "features", "available", "about"]
        assert not frame["about"].str.contains("\n").any()

    def test_repr_is_short(self, table: Path) -> None:
        assert repr(load_source(str(table), target="label")) == "Dataset(cases.csv: 3 rows)"

    def test_import_is_light(self) -> None:
        code = "import sys, collegium.data.sources; print(sorted({'PIL', 'torch', 'matplotlib'} & set(sys.modules)))"
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.strip() == "[]"


class TestPaths:
    def test_relative_path_starts_at_the_study(self, table: Path) -> None:
        assert same_as_frame(load_source("cases.csv", target="label", base=table.parent))

    def test_relative_path_without_a_study(self, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(table.parent)
        assert same_as_frame(load_source("cases.csv", target="label"))

    def test_absolute_path(self, table: Path) -> None:
        assert same_as_frame(load_source(str(table), target="label", base=Path("elsewhere")))

    def test_home(self, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HOME", str(table.parent))
        monkeypatch.setenv("USERPROFILE", str(table.parent))
        assert same_as_frame(load_source("~/cases.csv", target="label"))

    def test_missing_file(self, table: Path) -> None:
        text = refusal("case.csv", base=table.parent)
        assert f"There is no file {table.parent / 'case.csv'}. Did you mean 'cases.csv'?" in text

    def test_missing_folder(self, tmp_path: Path) -> None:
        assert "There is no file" in refusal(tmp_path / "no" / "cases.csv")

    def test_folder(self, tmp_path: Path) -> None:
        (tmp_path / "a.csv").mkdir()
        assert "is a folder" in refusal(tmp_path / "a.csv")

    def test_file_that_may_not_be_read(self, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def denied(*args: object, **options: object) -> None:
            raise PermissionError

        monkeypatch.setattr(pd, "read_csv", denied)
        assert "cannot be read (PermissionError)" in refusal(table)

    def test_file_in_a_folder_that_may_not_be_read(self, table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def denied(self: Path) -> bool:
            raise PermissionError

        monkeypatch.setattr(Path, "is_dir", denied)
        assert "cannot be read (PermissionError)" in refusal(table)

    @pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.npz"])
    def test_empty_file(self, tmp_path: Path, name: str) -> None:
        assert "the file is empty" in refusal(write(tmp_path / name, ""))


class TestCsv:
    def test_values_are_kept_as_they_are_read(self, table: Path) -> None:
        data = load_source(str(table), target="label")
        assert same_as_frame(data)
        assert data.X["smokes"].dtype == bool
        assert data.X["age"].dtype == np.int64
        assert not isinstance(data.X["city"].dtype, pd.CategoricalDtype)
        assert data.test is None
        assert data.about == "Your file cases.csv; labels from 'label'."

    @pytest.mark.parametrize(("name", "pack"), [("a.csv.gz", gzip.compress), ("a.CSV.XZ", lzma.compress)])
    def test_compressed(self, tmp_path: Path, name: str, pack: Callable[[bytes], bytes]) -> None:
        assert same_as_frame(load_source(write(tmp_path / name, pack(CSV.encode())), target="label"))

    def test_byte_order_mark_is_no_part_of_a_name(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.csv", "\ufefflabel,age\nyes,3\nno,4\n")
        assert list(load_source(path, target="label").X.columns) == ["age"]

    @pytest.mark.parametrize(("cells", "kind"), [("1 0", "i"), ("True False", "b"), ("0.5 1.5", "f"), ("a b", "O")])
    def test_labels_keep_their_type(self, tmp_path: Path, cells: str, kind: str) -> None:
        rows = "".join(f"{cell},1\n" for cell in cells.split())
        assert load_source(write(tmp_path / "a.csv", f"label,x\n{rows}"), target="label").y.dtype.kind == kind

    def test_target_is_needed(self, table: Path) -> None:
        text = refusal(table, None)
        assert "which column has the labels? Set target to one of 'age', 'city', 'smokes', 'label'." in text

    def test_wrong_target(self, table: Path) -> None:
        assert "no column 'lable' for target. Did you mean 'label'?" in refusal(table, "lable")

    def test_wrong_target_far_from_any_name(self, tmp_path: Path) -> None:
        header = ",".join(f"c{number}" for number in range(20))
        text = refusal(write(tmp_path / "a.csv", f"{header}\n{header}\n"), "zzz")
        assert "one of 'c0', 'c1'," in text
        assert "and 8 more" in text

    def test_unknown_separator(self, tmp_path: Path) -> None:
        text = refusal(write(tmp_path / "a.csv", CSV.replace(",", "|")))
        assert "only one column: what separates its cells?" in text

    @pytest.mark.parametrize("separator", [";", "\t"])
    def test_separators_of_spreadsheets(self, tmp_path: Path, separator: str) -> None:
        assert same_as_frame(load_source(write(tmp_path / "a.csv", CSV.replace(",", separator)), target="label"))

    def test_decimal_commas(self, tmp_path: Path) -> None:
        text = "lactate;note;label\n1,5;a,b;yes\n-0,25;c;no\n3;1.000 ml;yes\n"
        data = load_source(write(tmp_path / "a.csv", text), target="label")
        assert data.X["lactate"].tolist() == [1.5, -0.25, 3.0]
        assert data.X["note"].tolist() == ["a,b", "c", "1.000 ml"]
        points = load_source(write(tmp_path / "b.csv", "x;label\n1.5;a\n2.5;b\n"), target="label")
        assert points.X["x"].tolist() == [1.5, 2.5]

    def test_nothing_but_the_target(self, tmp_path: Path) -> None:
        assert "no columns besides the target" in refusal(write(tmp_path / "a.csv", "label\na\nb\n"))

    @pytest.mark.parametrize("missing", ["", "NA", "None"])
    def test_missing_labels(self, tmp_path: Path, missing: str) -> None:
        text = refusal(write(tmp_path / "a.csv", f"x,label\n1,a\n2,{missing}\n3,b\n4,{missing}\n"))
        assert "target 'label': 2 of 4 rows have no label" in text
        assert "drop these rows" in text

    def test_one_class(self, tmp_path: Path) -> None:
        text = refusal(write(tmp_path / "a.csv", "x,label\n1,secret\n2,secret\n"))
        assert "all rows have the same label" in text
        assert "secret" not in text

    @pytest.mark.parametrize("text", ["x,label\n", "\n\n"])
    def test_no_rows(self, tmp_path: Path, text: str) -> None:
        assert "no rows" in (said := refusal(write(tmp_path / "a.csv", text))) or "is empty" in said

    def test_rows_of_different_lengths(self, tmp_path: Path) -> None:
        text = refusal(write(tmp_path / "a.csv", "x,label\n1,a\n2,b,c,d\n"))
        assert "not a table in CSV" in text
        assert "line 3" in text

    @pytest.mark.parametrize("first", ["0 1", "1 3", "a b"])
    def test_rows_with_more_cells_than_names(self, tmp_path: Path, first: str) -> None:
        rows = "".join(f"{cell},{number},{number}\n" for number, cell in enumerate(first.split()))
        assert "more cells than the header" in refusal(write(tmp_path / "a.csv", f"x,label\n{rows}"))

    def test_comma_at_the_end_of_every_row(self, tmp_path: Path) -> None:
        data = load_source(write(tmp_path / "a.csv", "x,label\n1,a,\n2,b,\n"), target="label")
        assert data.X["x"].tolist() == [1, 2]
        assert data.y.tolist() == ["a", "b"]

    def test_two_columns_of_one_name(self, tmp_path: Path) -> None:
        text = refusal(write(tmp_path / "a.csv", "x,label,label\n1,a,a\n2,b,b\n"))
        assert "several columns are called 'label'" in text

    def test_columns_without_a_name(self, tmp_path: Path) -> None:
        path = write(tmp_path / "a.csv", ",,label\n1,2,a\n3,4,b\n")
        assert load_source(path, target="label").X.shape == (2, 2)

    def test_not_utf8(self, tmp_path: Path) -> None:
        assert "not UTF-8" in refusal(write(tmp_path / "a.csv", "x,label\nMünchen,a\nUlm,b\n".encode("latin-1")))

    @pytest.mark.parametrize(("name", "pack"), [("a.csv.gz", gzip.compress), ("a.csv.xz", lzma.compress)])
    def test_truncated(self, tmp_path: Path, name: str, pack: Callable[[bytes], bytes]) -> None:
        noise = np.random.default_rng(0).random(5000).astype(str)
        packed = pack(("x,label\n" + "".join(f"{cell},a\n" for cell in noise)).encode())
        assert "cannot be read" in refusal(write(tmp_path / name, packed[: len(packed) // 2]))

    @pytest.mark.parametrize("name", ["a.csv.gz", "a.csv.xz"])
    def test_not_compressed_at_all(self, tmp_path: Path, name: str) -> None:
        assert "cannot be read" in refusal(write(tmp_path / name, CSV))


class TestParquet:
    def test_values(self, tmp_path: Path) -> None:
        FRAME.to_parquet(tmp_path / "a.parquet")
        assert same_as_frame(load_source("a.parquet", target="label", base=tmp_path))

    def test_labels_from_other_column_types(self, tmp_path: Path) -> None:
        frame = pd.DataFrame({"x": [1, 2], "c": pd.Categorical(["b", "a"]), "i": pd.array([1, 2], dtype="Int64")})
        frame.to_parquet(tmp_path / "a.parquet")
        assert load_source("a.parquet", target="c", base=tmp_path).y.tolist() == ["b", "a"]
        assert load_source("a.parquet", target="i", base=tmp_path).y.tolist() == [1, 2]
        assert isinstance(load_source("a.parquet", target="i", base=tmp_path).X["c"].dtype, pd.CategoricalDtype)

    def test_row_labels_are_dropped(self, tmp_path: Path) -> None:
        FRAME.set_axis([7, 8, 9]).to_parquet(tmp_path / "a.parquet")
        assert same_as_frame(load_source("a.parquet", target="label", base=tmp_path))

    def test_wrong_target(self, tmp_path: Path) -> None:
        FRAME.to_parquet(tmp_path / "a.parquet")
        assert "Did you mean 'label'?" in refusal("a.parquet", "Label", base=tmp_path)

    def test_missing_labels(self, tmp_path: Path) -> None:
        pd.DataFrame({"x": [1, 2, 3], "label": ["a", None, "b"]}).to_parquet(tmp_path / "a.parquet")
        assert "1 of 3 rows have no label" in refusal("a.parquet", base=tmp_path)

    def test_no_rows(self, tmp_path: Path) -> None:
        FRAME.iloc[:0].to_parquet(tmp_path / "a.parquet")
        assert "has no rows" in refusal("a.parquet", base=tmp_path)

    def test_lists_as_labels(self, tmp_path: Path) -> None:
        pd.DataFrame({"x": [1, 2], "label": [[1], [2]]}).to_parquet(tmp_path / "a.parquet")
        assert "the labels are lists" in refusal("a.parquet", base=tmp_path)

    def test_damaged(self, tmp_path: Path) -> None:
        FRAME.to_parquet(tmp_path / "a.parquet")
        whole = (tmp_path / "a.parquet").read_bytes()
        assert "cannot be read" in refusal(write(tmp_path / "b.parquet", whole[:-20]))
        assert "cannot be read" in refusal(write(tmp_path / "c.parquet", CSV))


class TestNpz:
    def test_images(self, tmp_path: Path) -> None:
        X, y = np.arange(32, dtype=np.uint8).reshape(2, 4, 4), np.array([3, 5])
        np.savez(tmp_path / "a.npz", X=X, y=y)
        data = load_source("a.npz", base=tmp_path)
        assert np.array_equal(data.X, X)
        assert np.array_equal(data.y, y)
        assert data.about == "Your file a.npz; labels from 'y'."

    def test_target_names_the_labels(self, tmp_path: Path) -> None:
        np.savez_compressed(tmp_path / "a.npz", X=np.zeros((2, 3)), y=np.zeros(2), site=np.array(["a", "b"]))
        assert load_source("a.npz", target="site", base=tmp_path).y.tolist() == ["a", "b"]

    def test_missing_array(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", X=np.zeros((2, 3)), label=np.arange(2))
        np.savez(tmp_path / "b.npz", x=np.zeros((2, 3)), y=np.arange(2))
        assert "no array 'y'. It holds 'X', 'label'." in refusal("a.npz", None, base=tmp_path)
        assert "no array 'labels'. Did you mean 'label'?" in refusal("a.npz", "labels", base=tmp_path)
        assert "no array 'X'." in refusal("b.npz", None, base=tmp_path)

    @pytest.mark.parametrize("name", ["X", "y"])
    def test_objects_are_not_loaded(self, tmp_path: Path, name: str) -> None:
        arrays = {"X": np.zeros((2, 2)), "y": np.arange(2)} | {name: np.array([{}, {}], dtype=object)}
        np.savez(tmp_path / "a.npz", **arrays)  # type: ignore[arg-type]
        assert "holds Python objects" in refusal("a.npz", None, base=tmp_path)

    @pytest.mark.parametrize(
        ("shape", "labels", "said"),
        [
            ((4,), np.arange(4), "give a row of 'X' and one label per case"),
            ((4, 2), np.zeros((4, 1)), "give a row of 'X' and one label per case"),
            ((4, 2), np.arange(3), "one label per row"),
            ((0, 2), np.arange(0), "no rows"),
            ((4, 2), np.zeros(4), "same label"),
            ((4, 2), np.array([0, 1, np.nan, np.nan]), "array 'y': 2 of 4 rows have no label"),
        ],
    )
    def test_arrays_that_do_not_fit(
        self, tmp_path: Path, shape: tuple[int, ...], labels: np.ndarray, said: str
    ) -> None:
        np.savez(tmp_path / "a.npz", X=np.zeros(shape), y=labels)
        assert said in refusal("a.npz", None, base=tmp_path)

    def test_damaged(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", X=np.zeros((20, 3)), y=np.arange(20))
        whole = bytearray((tmp_path / "a.npz").read_bytes())
        assert "not a complete npz file" in refusal(write(tmp_path / "b.npz", bytes(whole[:-50])), None)
        whole[300] ^= 255
        assert "cannot be read (BadZipFile)" in refusal(write(tmp_path / "c.npz", bytes(whole)), None)
        np.save(tmp_path / "d.npy", np.zeros(3))
        (tmp_path / "d.npy").rename(tmp_path / "d.npz")
        assert "not a complete npz file" in refusal(tmp_path / "d.npz", None)

    def test_zip_with_something_else(self, tmp_path: Path) -> None:
        with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
            archive.writestr("X", "no array")
            archive.writestr("y", "no array")
        assert "has shape ()" in refusal("a.npz", None, base=tmp_path)


class TestChecksum:
    def test_read_once_while_unchanged(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        reads = []
        digest = files.hashlib.file_digest
        monkeypatch.setattr(files.hashlib, "file_digest", lambda *args: reads.append(1) or digest(*args))
        path = tmp_path / "a"
        path.write_bytes(b"one")
        first = files.sha256_of(path)
        assert files.sha256_of(path) == first
        assert len(reads) == 1
        path.write_bytes(b"other")
        assert files.sha256_of(path) != first
        os.utime(path, ns=(0, 0))
        files.sha256_of(path)
        assert len(reads) == 3

    def test_missing_file(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="cannot be read"):
            files.sha256_of(tmp_path / "no")
