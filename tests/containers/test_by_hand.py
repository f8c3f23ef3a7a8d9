"""The compose file's commands, one process for each service, in a network of their own: no container engine is needed.

What an engine would add is not shown by this: the images themselves, their read-only roots and their volumes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.containers.files import ROOT, services
from tests.waiting import seconds

pytest.importorskip("nvflare")
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("many processes")]
OWN_NETWORK = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
ALONE = """
set -e
printf '127.0.0.1 localhost server\n' > "$1/hosts"
mount --bind "$1/hosts" /etc/hosts
ip link set lo up
exec "$2" -m tests.containers.test_by_hand "$1"
"""


def test_the_whole_demo_runs_by_the_commands_of_the_compose_file(tmp_path: Path) -> None:
    tried = subprocess.run([*OWN_NETWORK, "true"], capture_output=True, text=True, check=False)
    if tried.returncode:
        pytest.skip(f"this machine allows no namespaces here: {tried.stderr.strip()}")
    paths = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(
        [*OWN_NETWORK, "sh", "-c", ALONE, "sh", str(tmp_path), sys.executable], cwd=ROOT, capture_output=True,
        text=True, check=False, env=os.environ | {"PYTHONPATH": paths}, timeout=seconds(300),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert (tmp_path / "federation" / "run" / "report.html").is_file()
    for name in ("north", "east", "south"):
        assert [*(tmp_path / "federation" / "kits" / name / "agent" / "runs").glob("*/report.html")]


class Engine:
    """Starts services in the order in which they wait for each other, as an engine would."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._known = services()
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def up(self, last: str) -> int:
        """Start what is needed for one service, and that; its exit code."""
        try:
            self._start(last)
            return self._running[last].wait()
        finally:
            for process in reversed(self._running.values()):
                process.terminate()
            for process in self._running.values():
                process.wait()

    def _start(self, name: str) -> None:
        if name in self._running:
            return
        for other, how in self._known[name].get("depends_on", {}).items():
            self._start(other)
            self._wait(other, how["condition"])
        self._running[name] = self._program(self._known[name]["command"])

    def _wait(self, name: str, condition: str) -> None:
        if condition == "service_completed_successfully":
            assert self._running[name].wait() == 0, name
            return
        probe = self._known[name]["healthcheck"]["test"]
        assert probe[0] == "CMD"
        while self._program(probe[2:]).wait():
            assert self._running[name].poll() is None, f"{name} ended"
            time.sleep(0.5)

    def _program(self, command: list[str]) -> subprocess.Popen[bytes]:
        words = [str(word).replace("/demo", str(self._place)) for word in command]
        return subprocess.Popen([sys.executable, "-m", "collegium", *words])


if __name__ == "__main__":
    sys.exit(Engine(Path(sys.argv[1])).up("study"))
