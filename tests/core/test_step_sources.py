"""What a step's digest covers, and what it does not."""

from __future__ import annotations

import ast
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import collegium
from collegium.core.step_sources import Sources
from collegium.core.steps import INSTALLED

PACKAGE = Path(collegium.__file__).parent
MODULES = ["fedct", "fedkt", "xclp", "local"]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The sources of the package, to be changed."""
    ignored = shutil.ignore_patterns("__pycache__", "*.so")
    return Path(shutil.copytree(PACKAGE, tmp_path / "collegium", ignore=ignored))


def digests(folder: Path) -> dict[str, str | None]:
    sources = Sources({"collegium": folder})
    return {name: sources.digest(f"collegium.algorithms.{name}") for name in MODULES}


def changed(copy: Path, file: str) -> set[str]:
    """The methods whose steps have another digest once this file is another one."""
    before = digests(copy)
    with (copy / file).open("a", encoding="utf-8") as source:
        source.write("# changed\n")
    after = digests(copy)
    return {name for name in MODULES if before[name] != after[name]}


@pytest.mark.parametrize(
    ("file", "methods"),
    [
        ("core/site.py", set(MODULES)),
        ("core/releases.py", set(MODULES)),
        ("wire/tables.py", set(MODULES)),
        ("algorithms/fedct.py", {"fedct"}),
        ("algorithms/_teachers.py", {"fedkt"}),
        ("privacy/hindsight.py", {"fedkt"}),  # imported inside a function
        ("graphs/propagation.py", {"xclp"}),
        ("protocols/hamming/ot.py", {"xclp"}),
        ("secure/sketches.py", {"xclp"}),
        ("consensus/familiar.py", {"fedct", "fedkt"}),
    ],
)
def test_what_a_step_uses_changes_its_digest(copy: Path, file: str, methods: set[str]) -> None:
    assert changed(copy, file) == methods


@pytest.mark.parametrize("file", ["cli/main.py", "reports/html.py", "flare/agreement/plan.py", "runs/runner.py"])
def test_what_no_step_uses_does_not(copy: Path, file: str) -> None:
    assert changed(copy, file) == set()


def test_it_is_the_same_on_every_machine(copy: Path) -> None:
    for file in copy.rglob("*.py"):
        file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    there, here = Sources({"collegium": copy}), Sources()
    for name in reversed(MODULES):
        assert there.digest(f"collegium.algorithms.{name}") == here.digest(f"collegium.algorithms.{name}")


def test_a_plug_in_covers_its_own_package(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    (plugin / "deep").mkdir(parents=True)
    (plugin / "__init__.py").write_text("")
    (plugin / "method.py").write_text(
        'import numpy as np, plugin.direct as direct\nfrom . import (\n    near,  # "helper"\n)\n\n'
        "def step():\n    from .deep.inner import x as y\n"
    )
    for file in ("near", "direct", "deep/__init__", "deep/inner", "unused"):
        (plugin / f"{file}.py").write_text("x = 1\n")
    imports = Sources({"plugin": plugin}).imports("plugin.method")
    assert imports == {"plugin.near", "plugin.direct", "plugin.deep.inner"}
    before = Sources({"plugin": plugin}).digest("plugin.method")
    (plugin / "unused.py").write_text("x = 2\n")
    assert Sources({"plugin": plugin}).digest("plugin.method") == before
    (plugin / "deep" / "inner.py").write_text("x = 2\n")
    assert Sources({"plugin": plugin}).digest("plugin.method") != before
    assert Sources({"plugin": plugin, "collegium": tmp_path}).digest("plugin.missing") is None


def test_the_imports_found_in_the_text_are_those_that_a_parser_finds() -> None:
    sources = Sources()
    for file in PACKAGE.rglob("*.py"):
        parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        named = {name for name in _parsed(file) if name.startswith("collegium.")}
        modules = {name for name in named if (PACKAGE.parent / f"{name.replace('.', '/')}.py").is_file()}
        assert modules <= sources.imports(module), module


def _parsed(file: Path) -> Iterator[str]:
    for node in _running(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield str(node.module)
            yield from (f"{node.module}.{each.name}" for each in node.names)


def _running(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those that only a type checker looks at."""
    yield node
    if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"):
        for child in ast.iter_child_nodes(node):
            yield from _running(child)


def test_an_installed_steps_digest_is_that_of_its_sources() -> None:
    from collegium.algorithms import fedct

    whole = Sources().digest("collegium.algorithms.fedct")
    assert whole is not None
    assert INSTALLED["fedct.train"].digest == fedct.label.digest == whole[:16]
