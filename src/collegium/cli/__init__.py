"""The command line: ``collegium``."""

from collegium.cli.main import main

__all__ = ["main"]
