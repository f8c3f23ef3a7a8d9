from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import collegium as cg

SOURCE = Path(cg.__file__)


def test_every_public_name_is_there():
    for name in cg._HOME_OF:
        assert getattr(cg, name) is not None
    assert set(cg._HOME_OF) <= set(dir(cg))


def test_what_type_checkers_see_is_what_there_is():
    block = next(node for node in ast.parse(SOURCE.read_text()).body if isinstance(node, ast.If))
    seen = {alias.name: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == cg._HOME_OF | {name: home.rpartition(".")[0] for name, home in cg._MODULES.items()}


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
