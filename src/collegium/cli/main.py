"""The commands, each a function of a module beside this one.

That module is imported when its command runs: ``collegium --help`` reads the first lines of the help off the source.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from collegium.errors import ConfigError, in_one_line


class _LazyGroup(TyperGroup):
    """Commands that stand in for the functions which they name, until one of them is called."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        place = getattr(command and command.callback, "place", None)
        if place is None:
            return name, command, rest
        module, function = place
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name)(getattr(importlib.import_module(f"collegium.cli.{module}"), function))
        return name, get_command(alone), rest


def _group(**commands: str) -> typer.Typer:
    """A group of commands, each as ``name="module"``, or ``name="module:function"`` if that has another name."""
    group = typer.Typer(
        cls=_LazyGroup,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
    )
    for name, place in commands.items():
        module, _, function = place.partition(":")
        group.command(name, hidden=name == "plan")(_stand_in(module, function or name))
    return group


def _stand_in(module: str, function: str) -> Callable[[], None]:
    """A function with the same help, and no more."""

    def stand_in() -> None: ...

    stand_in.__doc__ = _help_of(module)[function]
    stand_in.place = module, function  # type: ignore[attr-defined]
    return stand_in


@cache
def _help_of(module: str) -> dict[str, str | None]:
    source = Path(__file__).with_name(f"{module}.py").read_text(encoding="utf-8")
    return {node.name: ast.get_docstring(node) for node in ast.parse(source).body if isinstance(node, ast.FunctionDef)}


app = _group(
    demo="demo",
    init="init",
    run="studies",
    rehearse="studies",
    plan="studies:rehearse",  # its former name, which scripts may still use
    check="studies",
    report="studies",
    compare="studies",
    watch="watch",
    audit="audit",
    reproduce="reproduce",
    models="models",
    list="lists:list_names",
    schema="lists",
    provision="federation",
    coordinate="coordinate",
)


def _add(name: str, help: str, **commands: str) -> None:
    app.add_typer(_group(**commands), name=name, help=help)


_add(
    "ledger", "Look at a ledger: what has left a site.",
    show="ledger", verify="ledger", refusals="ledger", budget="ledger",
)  # fmt: skip
_add(
    "privacy", "What a study costs in privacy, before anything runs.",
    explain="privacy", calibrate="privacy",
)  # fmt: skip
_add("public", "Make a public set together, and see what it is like.", make="public", compare="public")
_add(
    "server", "Run a federation's server, see what it does, and say which sites may register.",
    start="federation", status="server_status", end="server_status", disable="federation", enable="federation",
    health="health:server_health", clean="clean:server_clean",
    confirm="trust", revoke="trust", reinstate="trust", renew="renew:server_renew",
    systemd="systemd:server_systemd",
)  # fmt: skip
_add(
    "site", "A hospital's side of a federation.",
    init="site", check="site", status="site_status", log="site_status", budget="site_status", approve="site_approve",
    audit="audit:site_audit", join="federation", clean="clean:site_clean", distrust="trust", trust="trust",
    end="site_status", health="health:site_health", renew="renew:site_renew", deny="site_approve",
    pause="site_approve", resume="site_approve", console="site_console", export="site_export",
    systemd="systemd:site_systemd", **{"verify-export": "site_export:verify", "export-plan": "site_plan:export"},
)  # fmt: skip
_add(
    "federation", "Rehearse a federation on one machine; renew the certificates of a real one.",
    demo="coordinate:federation_demo", renew="renew:federation_renew",
)  # fmt: skip


class _Debug:
    on = False


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"collegium {metadata.version('collegium')}")
        raise typer.Exit


@app.callback()
def collegium(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Federated learning by sharing opinions on public cases: any model, at any site.

    Exit codes: 0 done; 1 failed; 2 a mistake in the command, the study or the data; 3 an audit contradicts a claim; 4
    a study has results, but some sites did not answer all they were asked; 130 interrupted.
    """
    _Debug.on = debug


def main() -> None:
    """Run a command; a mistake or a failure ends with one line, not with a traceback (unless --debug)."""
    try:
        app()
    except Exception as error:
        if _Debug.on:
            raise
        typer.echo(f"collegium: {in_one_line(error)}", err=True)
        sys.exit(2 if isinstance(error, ConfigError) else 1)
