"""Commands as a user types them: in a process of their own, or in this one, which starts in no time."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from collegium.cli import main

WIDTH = {"COLUMNS": "160"}


def program(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The whole program, as it is installed."""
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | WIDTH
    command = [sys.executable, "-m", "collegium", *args]
    return subprocess.run(command, capture_output=True, text=True, env=env, cwd=cwd, timeout=600)


def collegium(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The same command in this process."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        patched.setattr(sys, "argv", ["collegium", *args])
        patched.setenv("COLUMNS", WIDTH["COLUMNS"])
        patched.chdir(cwd or Path.cwd())
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        except Exception:  # what the interpreter does
            traceback.print_exc()
            code = 1
    return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())
