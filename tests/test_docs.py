"""Every Python block of the README and the docs runs as it stands; every link leads somewhere; every page is shown."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import collegium
from collegium import core
from collegium.study.study import Study

HAS_ONNX = all(importlib.util.find_spec(name) for name in ("onnx", "skl2onnx", "onnxruntime"))
ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINKING = [*sorted({*PAGES, *ROOT.glob("*.md"), *(ROOT / ".github").rglob("*.md")}), ROOT / "benchmarks" / "RESULTS.md"]
BLOCKS = [
    pytest.param(
        block,
        id=f"{page.relative_to(ROOT)}-{number}",
        marks=[
            *([pytest.mark.xdist_group("trackers")] if "Tracker" in block else []),
            *([pytest.mark.xdist_group("language models")] if "TextClassifier" in block else []),
            *([pytest.mark.skipif(not HAS_ONNX, reason="needs the extra onnx")] if "onnx" in block else []),
        ],
    )
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_the_example_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "example", "exec"), {"__name__": "example"})


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    for target, anchor in re.findall(r"\]\((?!\w+:)([^)#\s]*)#?([^)\s]*)\)", _prose(page)):
        to = page.parent / target if target else page
        assert to.exists(), target
        assert not anchor or anchor in _anchors(to), f"{target}#{anchor}"


def test_the_link_check_sees_anchors(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("# What `fed.ask` shows\n\n```\n# no heading\n```\n\n## Twice\n\n## Twice\n")
    assert _anchors(page) == {"what-fedask-shows", "twice", "twice-1"}


def test_every_page_is_in_the_navigation_once():
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    shown = sorted(_leaves(site["nav"]))
    wanted = {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/RESULTS.md"}
    docs = [path for kind in ("*.md", "*.ipynb") for path in (ROOT / "docs").rglob(kind)]
    wanted |= {path.relative_to(ROOT).as_posix() for path in docs}
    assert shown == sorted(wanted)


@pytest.mark.parametrize("package", [collegium, core], ids=lambda package: package.__name__)
def test_every_public_name_and_method_has_a_docstring(package):
    names = [name for name in dir(package) if not name.startswith("_")]
    public = {name: getattr(package, name) for name in names}
    ours = {name: it for name, it in public.items() if getattr(it, "__module__", "").startswith("collegium.")}
    assert len(ours) > 20
    assert [name for name, it in ours.items() if not it.__doc__ or it.__doc__.startswith(f"{name}(")] == []
    methods = {f"{name}.{method}": it for name, it in ours.items() for method in vars(it) if _is_method(it, method)}
    assert [name for name, it in methods.items() if not inspect.getdoc(getattr(it, name.partition(".")[2]))] == []


def _is_method(owner: object, name: str) -> bool:
    """Whether it is a method that the class itself defines."""
    return inspect.isclass(owner) and not name.startswith("_") and inspect.isroutine(getattr(owner, name, None))


def _prose(page: Path) -> str:
    return re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)


def _anchors(page: Path) -> set[str]:
    """As forges make them of headings: lower case, hyphens for spaces, a number where a heading comes again."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ +(.+?) *$", _prose(page), re.MULTILINE):
        plain = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        again = (plain if not n else f"{plain}-{n}" for n in itertools.count())
        found.add(next(anchor for anchor in again if anchor not in found))
    return found


def _leaves(tree: Any) -> Iterator[str]:
    if isinstance(tree, str):
        yield tree
    else:
        for branch in tree.values() if isinstance(tree, dict) else tree:
            yield from _leaves(branch)


@pytest.mark.parametrize("notebook", sorted((ROOT / "docs").rglob("*.ipynb")), ids=lambda path: path.name)
def test_the_notebook_runs_from_top_to_bottom(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = json.loads(notebook.read_text())["cells"]
    space: dict[str, object] = {"__name__": "notebook"}
    for cell in cells:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec(compile("".join(cell["source"]), notebook.name, "exec"), space)
    assert space["accuracy"]["familiar only"] > space["accuracy"]["everybody votes"]


@pytest.mark.parametrize("file", sorted((ROOT / "studies").glob("*.toml")), ids=lambda path: path.name)
def test_every_study_of_the_folder_is_valid(file):
    Study.from_toml(file)


def test_the_studies_of_the_docs_are_valid():
    text = (ROOT / "docs" / "studies.md").read_text()
    simulated, of_files, federated = (
        Study.from_dict(tomllib.loads(block)) for block in re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    )
    assert simulated.federation.classes is None
    assert [site.name for site in of_files.sites] == ["north", "east", "south"]
    assert len(of_files.cells()) == 9
    assert federated.federation.classes == ["benign", "malignant"]


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "howto").glob("*.md")), ids=lambda page: page.name)
def test_parts_of_studies_on_how_to_pages_are_valid(page):
    for block in re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL):
        study = Study.from_dict({"algorithm": "fedct", "data": {}} | tomllib.loads(block))
        assert all(site.data for site in study.sites)
