"""Where torch is not installed."""

from __future__ import annotations

import os
import subprocess
import sys

_FORBID = """
import sys
class NoTorch:
    def find_spec(self, name, *_):
        if name == 'torch': raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoTorch())
"""


def said_without_torch(program: str) -> str:
    """What a program prints there."""
    answer = subprocess.run(
        [sys.executable, "-c", _FORBID + program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    return answer.stdout.strip()
