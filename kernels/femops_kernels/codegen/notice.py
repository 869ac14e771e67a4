"""One line that says why a program waits: kernels are compiled.

It goes to the logger ``femops`` as a warning, which Python writes to standard error unless the
program says otherwise: ``logging.getLogger("femops").setLevel("ERROR")``.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter
from typing import final

AFTER = 2.0
"""Seconds of compilation, of all kernels together, after which it is said."""


@final
class Notice:
    """Keeper of how long a process has compiled.

    Attributes
    ----------
    silent : bool
        Whether nothing is to be said any more: it has been said, or another process does.
    """

    def __init__(self) -> None:
        self._spent, self.silent = 0.0, False

    @contextmanager
    def compiling(self, folder: Path, *, temporary: bool) -> Iterator[None]:
        """Say that kernels are compiled, and how long the folder keeps them, if it takes long."""
        if self.silent:
            yield
            return
        timer = threading.Timer(max(0.0, AFTER - self._spent), self._say, (folder, temporary))
        timer.daemon = True
        begin = perf_counter()
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self._spent += perf_counter() - begin

    def _say(self, folder: Path, temporary: bool) -> None:
        self.silent = True
        how_long = "until this process ends" if temporary else "for the next run"
        message = "femops compiles kernels for this machine, and keeps them in %s %s"
        logging.getLogger("femops").warning(message, folder, how_long)


NOTICE = Notice()
"""The one of this process."""
