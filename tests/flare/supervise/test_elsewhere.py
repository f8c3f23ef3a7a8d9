"""A server, a site and a study as an ordinary user, and over a network that is not loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import seconds

pytest.importorskip("nvflare")
pytestmark = [
    pytest.mark.xdist_group("many processes"),
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="namespaces are Linux's"),
]
ROOT = Path(__file__).resolve().parents[3]
STUDY = [sys.executable, "-m", "tests.flare.elsewhere"]
NOBODY = ["unshare", "--user", "--map-user=1000", "--map-group=1000"]
OWN_NETWORK = ["unshare", "--user", "--map-root-user", "--net", "--mount"]
# Two networks with a cable between them; the site's has neither the server's loopback nor any way out.
TWO_NETWORKS = """
set -e
printf '127.0.0.1 localhost\n10.77.0.1 server.test\n' > "$1/hosts"
mount --bind "$1/hosts" /etc/hosts
unshare --net sleep 600 &
site=$!
trap 'kill $site' EXIT
until [ "$(readlink /proc/$site/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
ip link add to-site type veth peer name to-server netns $site
ip address add 10.77.0.1/24 dev to-site
ip link set lo up
ip link set to-site up
nsenter --target $site --net ip address add 10.77.0.2/24 dev to-server
nsenter --target $site --net ip link set lo up
nsenter --target $site --net ip link set to-server up
SERVER=server.test "$2" -m tests.flare.elsewhere "$1" nsenter --target $site --net
"""


def run(command: Sequence[str]) -> dict[str, Any]:
    paths = os.pathsep.join([str(ROOT), *sys.path])
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": paths}, cwd=ROOT, capture_output=True, text=True, check=False,
        timeout=seconds(180),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def skip_unless(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(str(error))
    if done.returncode:
        pytest.skip(f"this machine allows no namespaces here: {done.stderr.strip()}")


@pytest.mark.slow
def test_everything_runs_as_an_ordinary_user(tmp_path: Path) -> None:
    prefix = NOBODY if os.getuid() == 0 else []
    if prefix:
        skip_unless([*prefix, "true"])
    found = run([*prefix, *STUDY, str(tmp_path)])
    assert (found["rounds"], found["refusals"], found["left"]) == (3, 0, 0)
    assert len(found["processes"]) >= 2
    for user, rights in found["processes"]:
        assert (user != 0, rights) == (True, ""), "not root, and none of root's rights"


@pytest.mark.slow
def test_a_site_in_a_network_of_its_own(tmp_path: Path) -> None:
    skip_unless([*OWN_NETWORK, "ip", "link", "add", "type", "veth"])
    found = run([*OWN_NETWORK, "sh", "-c", TWO_NETWORKS, "sh", str(tmp_path), sys.executable])
    assert (found["rounds"], found["refusals"], found["left"]) == (3, 0, 0)
    assert not found["by loopback"], "the site had the server's loopback"
