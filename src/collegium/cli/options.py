"""Arguments and options that more than one command takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

StudyFile = Annotated[Path, typer.Argument(help="A study file (TOML).", metavar="STUDY.toml")]
Changes = Annotated[
    list[str] | None, typer.Option("--set", help="Replace a setting: algorithm.rounds=3", metavar="PATH=VALUE")
]
RunFolder = Annotated[Path | None, typer.Option(help="Folder for the run (default: runs/NAME).")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in the folder.")]
Force = Annotated[bool, typer.Option("--force", "--overwrite", help="Replace an earlier run in that folder.")]
CohortMode = Annotated[
    str | None, typer.Option("--cohort", help="Train alike nets in one computation: auto (on a GPU), on or off.")
]
Device = Annotated[str | None, typer.Option(help="Where all nets compute: cpu, cuda or cuda:1.")]
NetPrecision = Annotated[
    str | None, typer.Option("--precision", help="How precisely all nets compute: float32, tf32 or bfloat16.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object at the end, for programs.")]
KitFolder = Annotated[Path, typer.Argument(help="The folder that came from `collegium provision`.", metavar="KIT")]
LogJson = Annotated[bool, typer.Option("--log-json", help="Print messages as JSON, one object per line.")]
AtDelta = Annotated[float | None, typer.Option(help="Compute epsilon at this delta (default: the budget's).")]
Reason = Annotated[str, typer.Option(help="Why: kept here with the decision, signed.")]
By = Annotated[str | None, typer.Option(help="Who decides (default: the name of this user).")]
