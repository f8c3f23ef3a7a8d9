from __future__ import annotations

import ast
import importlib.metadata
import subprocess
import sys
from pathlib import Path

import pytest

import collegium as cg
import collegium.core
import collegium.privacy


@pytest.mark.parametrize("package", [cg, cg.core, cg.privacy], ids=lambda package: package.__name__)
def test_every_name_of_the_stub_is_there_and_named_once(package):
    stub = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text())
    named = [alias for node in stub.body if isinstance(node, ast.ImportFrom) for alias in node.names]
    assert all(alias.asname == alias.name for alias in named)
    assert sorted(alias.name for alias in named) == package.__all__ == dir(package)
    for alias in named:
        assert getattr(package, alias.name) is not None


def test_some_names_are_where_users_look_for_them():
    from collegium.core import site
    from collegium.privacy import events, mechanisms, theory

    assert cg.Site is site.Site
    assert cg.theory is theory
    assert cg.Gaussian is mechanisms.gaussian.Gaussian
    assert cg.privacy.Gaussian is events.Gaussian


def test_the_version_is_that_of_the_package():
    assert cg.__version__ == importlib.metadata.version("collegium")


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="FedZZ"):
        _ = cg.FedZZ


def test_importing_is_light():
    program = (
        "import sys, collegium; print([m for m in ('torch', 'sklearn', 'pandas', 'matplotlib') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=_env())
    assert result.stdout.strip() == "[]"


def _env() -> dict[str, str]:
    import os

    return os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
