"""A federation whose parts run elsewhere: as another user, or in networks of their own.

    python -m tests.flare.elsewhere FOLDER [PREFIX OF THE SITE'S COMMAND ...]

Runs a study of a server and a site in FOLDER, and prints what came out as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.flare.faults import FaultyFederation
from tests.flare.offices import write_data, write_site

from collegium.flare.nvflare.session import NvflareHost
from collegium.flare.supervise.children import members
from collegium.flare.supervise.loopback import LEAD
from collegium.study.study import Study

STUDY = """
name = "elsewhere"
seed = 3
[data]
source = "public.csv"
[algorithm]
name = "fedct"
rounds = 3
[federation]
classes = ["benign", "malignant"]
"""


class Elsewhere(FaultyFederation):
    """One whose site is started behind a prefix."""

    prefix: Sequence[str] = ()

    def python(self, name: str) -> Sequence[str]:
        return [*(self.prefix if name == "site-1" else ()), sys.executable]


def main(folder: Path, prefix: Sequence[str]) -> None:
    federation = Elsewhere(folder, ("site-1",), host=os.environ.get("SERVER", "localhost"))
    federation.prefix = prefix
    write_data(federation.kits, federation.sites)
    kit = federation.site_kit("site-1")
    write_site(kit, "site-1")
    study = federation.kits / "study.toml"
    study.write_text(STUDY)
    with federation:
        from collegium.flare.coordinator.coordinate import coordinate

        host = NvflareHost(federation.server_kit, federation.lead_kit, LEAD)
        try:
            run = coordinate(Study.from_toml(study), host, base=federation.kits, out=folder / "out", progress=False)
        finally:
            host.close()
        dial = f"import socket; socket.create_connection(('localhost', {federation.port}), 5)"
        by_loopback = subprocess.run([*prefix, sys.executable, "-c", dial], stderr=subprocess.DEVNULL, check=False)
        processes = [(process.uids().real, _rights(process.pid)) for process in members(kit)]
    found = {"rounds": len(run.metrics["round"].unique()), "refusals": len(run.refusals), "processes": processes}
    print(json.dumps(found | {"by loopback": by_loopback.returncode == 0, "left": len(members(kit))}))


def _rights(pid: int) -> str:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith("CapEff")).lstrip("0")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
