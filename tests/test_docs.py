"""Every Python block of the README and the docs runs as it stands."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from collegium.study.study import Study

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCKS = [
    pytest.param(
        block,
        id=f"{page.relative_to(ROOT)}-{number}",
        marks=pytest.mark.xdist_group("trackers") if "Tracker" in block else (),
    )
    for page in PAGES
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
]


@pytest.mark.parametrize("block", BLOCKS)
def test_the_example_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "example", "exec"), {"__name__": "example"})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), target


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
    simulated, federated = (
        Study.from_dict(tomllib.loads(block)) for block in re.findall(r"```toml\n(.*?)```", text, re.DOTALL)
    )
    assert simulated.federation.classes is None
    assert federated.federation.classes == ["benign", "malignant"]
