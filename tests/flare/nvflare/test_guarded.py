"""Jobs end with the process that started them, whenever that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from tests.waiting import until

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells who ended")
JOB = "import time\nwhile True: time.sleep(1)\n"
PARENT = """
import os, sys, time
os.environ["COLLEGIUM_PARENT"] = str(os.getpid())
command = [sys.executable, "-m", "collegium.flare.nvflare.guarded", "job", "endless", sys.argv[1]]
os.posix_spawn(sys.executable, command, os.environ)
print("started", flush=True)
time.sleep(600)
"""


def jobs(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if command[-1:] == [mark] and "endless" in command:
            found.append(process)
    return found


def test_a_parent_that_is_killed_at_any_moment_leaves_no_job(tmp_path: Path) -> None:
    pytest.importorskip("nvflare")
    (tmp_path / "endless.py").write_text(JOB)
    paths = os.pathsep.join([str(tmp_path), *(str(Path(path).resolve()) for path in sys.path)])
    for delay in (0.0, 0.01, 0.03, 0.1, 0.3, 1.0):
        mark = str(tmp_path / f"job-{delay}")
        parent = subprocess.Popen(
            [sys.executable, "-c", PARENT, mark],
            env=os.environ | {"PYTHONPATH": paths},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"started\n"
        time.sleep(delay)
        assert jobs(mark), "it runs while its parent does"
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        parent.stdout.close()
        until(lambda mark=mark: not jobs(mark), 10)
