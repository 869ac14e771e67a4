"""Command line ``femops``. Before a command runs, only the parser is imported."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit."""
    try:
        # Here, so that an interrupt while it is imported is caught as well.
        from femops.cli.app import run

        run(arguments)
    except KeyboardInterrupt:
        from femops.cli.options import INTERRUPTED

        sys.stderr.write("femops: interrupted\n")
        sys.exit(INTERRUPTED)


__all__ = ["main"]
