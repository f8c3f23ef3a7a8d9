"""``collegium server systemd`` and ``site systemd``: a unit with which a service manager runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from collegium.cli.options import KitFolder
from collegium.errors import StorageError

User = Annotated[str, typer.Option(help="The account that runs it and owns the kit, and does nothing else.")]
Out = Annotated[Path | None, typer.Option(help="Folder for the unit, such as /etc/systemd/system (default: print it).")]


def server_systemd(
    kit: KitFolder,
    user: User = "collegium",
    out: Out = None,
    metrics_port: Annotated[int | None, typer.Option(min=1, max=65535, help="As of `collegium server start`.")] = None,
) -> None:
    """Write a systemd unit that runs the server with few rights."""
    options = () if metrics_port is None else ("--metrics-port", str(metrics_port))
    _write(kit, "server", user, out, options)


def site_systemd(
    kit: KitFolder,
    user: User = "collegium",
    out: Out = None,
    gpu: Annotated[bool, typer.Option("--gpu", help="Let it use NVIDIA's devices.")] = False,
) -> None:
    """Write a systemd unit that runs the site with few rights."""
    _write(kit, "site", user, out, gpu=gpu)


def _write(
    folder: Path,
    kind: Literal["server", "site"],
    user: str,
    out: Path | None,
    options: tuple[str, ...] = (),
    *,
    gpu: bool = False,
) -> None:
    from collegium.flare.kits.kit import read_kit
    from collegium.flare.operations.units import unit, unit_name
    from collegium.site.ledger import storage_errors

    kit = read_kit(folder, kind)
    text = unit(kit, user=user, options=options, gpu=gpu)
    if out is None:
        typer.echo(text, nl=False)
        return
    file = out / unit_name(kit)
    with storage_errors(file, StorageError):
        file.write_text(text, encoding="utf-8")
    typer.echo(f"{file}: start it with `systemctl daemon-reload && systemctl enable --now {file.name}`")
