"""The command line ``femops``. Nothing but the parser is imported before a command runs."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit.

    Parameters
    ----------
    arguments : sequence of str, optional
        ``sys.argv[1:]`` if omitted.

    Raises
    ------
    SystemExit
        0 done, 1 an error that is explained in one line on stderr, 2 wrong usage, 130 interrupted.
    """
    try:
        # Here, so that an interrupt while it is imported is caught as well.
        from femops.cli.app import run

        run(arguments)
    except KeyboardInterrupt:
        from femops.cli.exit_codes import INTERRUPTED

        sys.stderr.write("femops: interrupted\n")
        sys.exit(INTERRUPTED)


__all__ = ["main"]
