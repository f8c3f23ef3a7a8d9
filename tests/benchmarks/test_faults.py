"""Faults are put in where they belong, one at a time, and taken out again."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.faults import ROOT, Tree, chosen
from benchmarks.faults_list import FAULTS


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    source = tmp_path / "source"
    for file, text in {"src/a.py": "x = 1\n", "src/b.py": "y = 1\ny = 1\n", "tests/new/test_a.py": ""}.items():
        (source / file).parent.mkdir(parents=True, exist_ok=True)
        (source / file).write_text(text)
    return Tree(source, tmp_path, {"tests/old/test_a.py": "tests/new/test_a.py"})


def test_every_fault_has_a_name_of_its_own_and_tests_that_are_there() -> None:
    assert len({fault.name for fault in FAULTS}) == len(FAULTS) > 41
    for fault in FAULTS:
        assert fault.old != fault.new
        assert all((ROOT / named.split(" -k ")[0]).is_file() for named in fault.tests), fault.name


def test_every_fault_has_its_place_in_the_source() -> None:
    texts = [file.read_text() for file in (ROOT / "src").rglob("*.py")]
    lost = [fault.name for fault in FAULTS if sum(text.count(fault.old) for text in texts) != 1]
    assert not lost


def test_a_fault_is_in_the_file_only_as_long_as_it_is_tried(tree: Tree) -> None:
    file = tree.file_with("x = 1")
    assert file == tree.root / "src" / "a.py"
    with tree.changed(file, "x = 1", "x = 2"):
        assert file.read_text() == "x = 2\n"
    assert file.read_text() == "x = 1\n"


@pytest.mark.parametrize("text", ["y = 1", "z = 1"])
def test_a_text_at_two_places_or_none_is_not_changed(text: str, tree: Tree) -> None:
    assert tree.file_with(text) is None


def test_tests_that_have_moved_are_found_where_they_were(tree: Tree) -> None:
    assert tree.tests("tests/new/test_a.py") == ["tests/new/test_a.py"]
    assert tree.tests("tests/old/test_a.py -k one or two") == ["tests/new/test_a.py", "-k", "one or two"]
    assert tree.tests("tests/none.py") is None


def test_faults_are_chosen_by_words() -> None:
    assert chosen("") == list(FAULTS)
    assert {fault.name.split(":")[0] for fault in chosen("ledger:,tables:")} == {"ledger", "tables"}
