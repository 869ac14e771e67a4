"""Log message that tells a waiting user that kernels are being compiled.

It is a warning of the logger ``femops``, which Python writes to standard error.  A program turns
it off by ``logging.getLogger("femops").setLevel("ERROR")``.
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
"""Seconds of compilation, of all kernels together, after which the message is logged."""


@final
class Notice:
    """Counter of the time that a process has compiled, which logs the message once."""

    def __init__(self) -> None:
        self._spent, self.silent = 0.0, False

    @contextmanager
    def compiling(self, folder: Path, *, temporary: bool) -> Iterator[None]:
        """Log the message if the ``with`` block takes long. It tells how long kernels are kept."""
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
"""The counter of this process."""
