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
    def compiling(self, folder: Path) -> Iterator[None]:
        """Say so if what is compiled inside takes long."""
        if self.silent:
            yield
            return
        timer = threading.Timer(max(0.0, AFTER - self._spent), self._say, (folder,))
        timer.daemon = True
        begin = perf_counter()
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            self._spent += perf_counter() - begin

    def _say(self, folder: Path) -> None:
        self.silent = True
        logging.getLogger("femops").warning(
            "femops compiles kernels for this machine, and keeps them in %s for the next run",
            folder,
        )


NOTICE = Notice()
"""The one of this process."""
