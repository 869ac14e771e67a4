"""The command line ``femops``. Nothing but the parser is imported before a command runs."""

from femops.cli.app import main as main

__all__ = ["main"]
