"""The page "Run it for real", followed to the letter: a server and two hospitals in networks of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.flare.page import _PARTS
from tests.flare.supervise.test_elsewhere import OWN_NETWORK, skip_unless
from tests.waiting import seconds

pytest.importorskip("nvflare")
ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "federation" / "run_it_for_real.md"
# A network for the server, and one for each hospital with a cable to it: the two hospitals cannot reach each other.
THREE_NETWORKS = """
set -e
folder=$1 python=$2 page=$3
printf '127.0.0.1 localhost\n10.78.1.1 fl.example.org\n' > "$folder/hosts"
mount --bind "$folder/hosts" /etc/hosts
ip link set lo up
for site in north south; do
  unshare --net sleep 3000 &
  eval $site=$!
  eval pid=\\$$site
  until [ "$(readlink /proc/$pid/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.05; done
  number=$([ $site = north ] && echo 1 || echo 2)
  ip link add to-$site type veth peer name to-server netns $pid
  ip address add 10.78.$number.1/24 dev to-$site
  ip link set to-$site up
  nsenter --target $pid --net ip address add 10.78.$number.2/24 dev to-server
  nsenter --target $pid --net ip link set lo up
  nsenter --target $pid --net ip link set to-server up
  nsenter --target $pid --net ip route add 10.78.1.1/32 dev to-server 2>/dev/null || true
done
trap 'kill $north $south' EXIT
enter="nsenter --net --target"
"$python" -m tests.flare.page "$page" "$folder" "north=$enter $north" "south=$enter $south"
"""


def test_every_command_of_the_page_is_run_or_said_not_to_be() -> None:
    text = PAGE.read_text()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    followed = [block for *_, words, _, block in _PARTS.findall(text) if words]
    left_out = [block for _, block in blocks if block not in followed]
    assert [block.split()[0] for block in left_out] == ["docker"], "what needs an engine, and the page says so"
    assert len(followed) == len(blocks) - 1


@pytest.mark.slow
@pytest.mark.xdist_group("many processes")
def test_the_page_is_followed_over_networks(tmp_path: Path) -> None:
    skip_unless([*OWN_NETWORK, "ip", "link", "add", "type", "veth"])
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in (("collegium", "-m collegium"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (programs / name).chmod(0o755)
    environment = os.environ | {
        "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }
    done = subprocess.run(
        [*OWN_NETWORK, "sh", "-c", THREE_NETWORKS, "sh", str(tmp_path), sys.executable, str(PAGE)], cwd=ROOT,
        env=environment, capture_output=True, text=True, check=False, timeout=seconds(600),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "collegium_site_releases_total 6.0" in done.stdout, "three rounds of labels and scores"
    assert "ran " in done.stdout
    assert (tmp_path / "server" / "runs" / "first" / "report.html").is_file()
    assert "waiting: nobody has signed it" in (tmp_path / "north" / "plan.html").read_text()
