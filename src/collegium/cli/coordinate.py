"""``collegium coordinate`` and ``federation demo``."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.console import Console

from collegium.cli.demo import clear_demo, split_patients
from collegium.cli.endings import continued_by, ended_by
from collegium.cli.options import AsJson, Changes, Force, LogJson, Resume, RunFolder, StudyFile
from collegium.cli.studies import carry_out, end_with, folder_for
from collegium.errors import ConfigError, MissingExtra, QuorumLost
from collegium.flare.supervise.speaking import speaker
from collegium.reports.refusals import CODES, UNKNOWN
from collegium.reports.tables import frame_table
from collegium.runs.results import Run
from collegium.study.study import Study

if TYPE_CHECKING:
    from collegium.flare.supervise.loopback import LoopbackFederation

_HOSPITALS: Final = {"north": "decision_tree", "east": "random_forest", "south": "logistic_regression"}
_DEMO: Final = """\
name = "federation-demo"
seed = 0
[data]
source = "public.csv"
[algorithm]
name = "fedct"
rounds = 5
[federation]
classes = ["benign", "malignant"]
at_least = 3
"""
_SITE: Final = """\
name = "{name}"
learner = {{ name = "{learner}" }}
[data]
source = "patients.csv"
target = "diagnosis"
held_out = 0.3
[policy]
algorithms = ["fedct"]
unprotected = ["HardLabels", "Scores"]
approval = "auto"
"""


def coordinate(
    file: StudyFile,
    kits: Annotated[Path | None, typer.Option(help="The folder with the server's and the lead's kit.")] = None,
    server: Annotated[Path | None, typer.Option(help="The server's kit, on this machine.")] = None,
    lead: Annotated[Path | None, typer.Option(help="The lead's kit.")] = None,
    changes: Changes = None,
    out: RunFolder = None,
    resume: Resume = False,
    force: Force = False,
    as_json: AsJson = False,
    log_json: LogJson = False,
) -> None:
    """Run a study between organisations: over the sites that have joined the federation."""
    from collegium.flare.coordinator.register import registered

    study = Study.from_toml(file, changes or ())
    os.umask(0o077)  # labels, tables and the record are for the coordinator's eyes
    folder = folder_for(study, out, resume=resume, force=force)
    say = speaker("coordinator", as_json=log_json, stderr=True)
    own, lead_kit = _kits(kits, server, lead)
    again = ("coordinate", file, "--server", own, "--lead", lead_kit, "--out", folder, "--resume")
    with (
        continued_by(*again, changes=changes),
        _host(own, lead_kit) as host,
        registered(own, study.name, folder) as tell,
    ):
        make = partial(_coordinate, study, host, file.parent, folder, say, resume, tell)
        result = carry_out(study, folder, make, as_json=as_json)
    end_with(result)


def _coordinate(
    study: Study,
    host: Any,
    base: Path,
    folder: Path,
    say: Callable[[str], None],
    resume: bool = False,
    tell: Callable[[Any], None] = lambda progress: None,
) -> Run:
    from collegium.flare.coordinator.coordinate import coordinate

    try:
        return coordinate(study, host, base=base, out=folder, resume=resume, say=say, tell=tell)
    except KeyboardInterrupt:
        say(f"interrupted; to continue, add to the command: --out {folder} --resume")
        raise
    except QuorumLost as lost:
        for party, code in lost.refused.items():
            lost.add_note(f"{party}: {code}. {CODES.get(code, UNKNOWN)}")
        if lost.refused:
            lost.add_note(
                "Once their owners have seen to that (`collegium site check KIT STUDY.toml` shows what a site would "
                "refuse), go on with the same command and --resume."
            )
        raise


def _kits(kits: Path | None, server: Path | None, lead: Path | None) -> tuple[Path, Path]:
    if kits is not None:
        leads = sorted(path for path in kits.glob("*@*") if path.is_dir())
        server = server or kits / "server"
        lead = lead or (leads[0] if len(leads) == 1 else None)
        if lead is None:
            found = ", ".join(path.name for path in leads) or "none"
            raise ConfigError(f"{kits}: choose the lead's kit with --lead KIT (found: {found}).")
    if server is None or lead is None:
        raise ConfigError(
            "A coordinator needs two kits: pass --kits FOLDER, where `collegium provision` put them, or --server and "
            "--lead."
        )
    return server, lead


@contextlib.contextmanager
def _host(server: Path, lead: Path) -> Iterator[Any]:
    """The connection to the server; it is closed whatever happens, since it would keep the program from ending."""
    from collegium.flare.kits.kit import read_kit

    kits = read_kit(server, "server"), read_kit(lead, "lead")
    if kits[0].federation != kits[1].federation:
        raise ConfigError(f"{lead} is of the federation {kits[1].federation!r}, {server} of {kits[0].federation!r}.")
    try:
        from collegium.flare.nvflare.session import NvflareHost
    except ImportError:
        raise MissingExtra("flare", "A federation between organisations") from None
    # NVFlare logs every attempt to reach a server that is away; what matters is said by the link.
    logging.getLogger().addHandler(logging.NullHandler())
    host = NvflareHost(kits[0].folder, kits[1].folder, kits[1].name)
    with ended_by(signal.SIGTERM):
        try:
            yield host
        finally:
            host.close()


def federation_demo(
    out: Annotated[Path, typer.Option(help="Folder for kits, data and the run.")] = Path("runs/federation-demo"),
    force: Force = False,
    prepare: Annotated[
        bool, typer.Option("--prepare", help="Only write kits, data and study, to start everything by hand.")
    ] = False,
    host: Annotated[str, typer.Option(help="With --prepare: the server's name.")] = "localhost",
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="The server's port (default: a free one).")] = None,
) -> None:
    """A server and three hospitals as processes of their own on this machine, with real certificates: one study."""
    from collegium.flare.supervise.loopback import LEAD

    if host != "localhost" and not prepare:
        raise ConfigError("--host belongs to --prepare: the demo itself runs on this machine.")
    console = Console(highlight=False)
    start = time.perf_counter()
    federation, study = _prepare_demo(out, host, port, force=force)
    if prepare:
        console.print(f"Prepared in {out}: kits for {host}:{federation.port}, patients, and study.toml.", markup=False)
        return
    console.print(
        "[bold]Federation demo[/bold]: a server and three hospitals, each with processes, keys and data of its own, on "
        f"this machine (port {federation.port} of loopback, mTLS).\n"
    )
    with ended_by(signal.SIGTERM), federation:
        console.print(f"Server and hospitals are up after {time.perf_counter() - start:.1f} s.")
        with _host(federation.server_kit, federation.kits / LEAD) as host_of_lead:
            say = speaker("coordinator")
            make = partial(_coordinate, study, host_of_lead, out, out / "run", say)
            carry_out(study, out / "run", make, as_json=False)
    rows = [
        {"hospital": name, "report": str(report)}
        for name in _HOSPITALS
        for report in sorted((federation.site_kit(name) / "agent" / "runs").glob("*/report.html"))
    ]
    console.print(frame_table(rows, "What each hospital keeps for itself"))
    console.print(f"All processes have ended. Done in {time.perf_counter() - start:.1f} s.")


def _prepare_demo(out: Path, host: str, port: int | None, *, force: bool) -> tuple[LoopbackFederation, Study]:
    """Everything that is needed before anything is started."""
    from collegium.flare.supervise.loopback import LoopbackFederation

    clear_demo(out, "federation-demo", force=force)
    out.mkdir(parents=True, exist_ok=True)
    (out / "federation-demo").touch()
    federation = LoopbackFederation(out, sites=tuple(_HOSPITALS), port=port, host=host)
    _write_patients(out, federation.site_kit)
    for name, learner in _HOSPITALS.items():
        federation.write_site(name, _SITE.format(name=name, learner=learner))
    file = out / "study.toml"
    file.write_text(_DEMO, encoding="utf-8")
    return federation, Study.from_toml(file)


def _write_patients(out: Path, kit: Callable[[str], Path]) -> None:
    """The public cases beside the study; each hospital's patients into its kit."""
    split = split_patients(sites=len(_HOSPITALS), test=0)
    split.public.to_csv(out / "public.csv", index=False)
    for name, (X, y) in zip(_HOSPITALS, split.sites, strict=True):
        X.assign(diagnosis=y).to_csv(kit(name) / "patients.csv", index=False)
