"""Compilation ahead of need, by another process on an idle core.

What it has compiled is found in the cache folder; what it is at work on is waited for, by the lock
of that kernel. Whatever keeps it from working, kernels are compiled where they are needed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from femops_kernels.codegen.cache import cache_folder
from femops_kernels.codegen.specialize import load

_begun: set[str] = set()
"""Names of kernels that a process was begun for."""


def compile_kernels_ahead(kernels: Sequence[tuple[str, str]], cores: int) -> None:
    """Begin to compile kernels that are not in the cache, if one of so many cores is idle.

    Parameters
    ----------
    kernels : sequence of (str, str)
        Names and texts, as `femops_kernels.codegen.specialize.named` gives them.
    cores : int
        Those that this process may use.
    """
    folder = cache_folder()
    missing = [
        (name, text)
        for name, text in kernels
        if name not in _begun and not (folder / f"{name}.sha256").exists()
    ]
    if not missing or not _can_help() or not _idle(cores):
        return
    _begun.update(name for name, _ in missing)
    # who waits for the process is a thread that nobody waits for
    threading.Thread(target=_run, args=(missing, folder), daemon=True).start()


def _can_help() -> bool:
    """True if this process knows how to start another Python."""
    return Path(sys.executable or "").name.startswith("python") and not hasattr(sys, "frozen")


def _idle(cores: int) -> bool:
    try:
        return os.getloadavg()[0] <= cores - 1
    except (AttributeError, OSError):  # a system that does not say
        return False


def _run(kernels: list[tuple[str, str]], folder: Path) -> None:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    work = json.dumps({"parent": os.getpid(), "kernels": kernels})
    with suppress(OSError):
        subprocess.run(
            [sys.executable, "-P", "-m", __name__],
            input=work,
            env=os.environ | {"PYTHONPATH": path, "FEMOPS_CACHE": str(folder)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
        )


def _main() -> None:
    """Compile what standard input names, as long as the process that asked for it is there."""
    work = json.load(sys.stdin)
    for name, text in work["kernels"]:
        if os.getppid() != work["parent"]:
            return
        load(name, text)


if __name__ == "__main__":
    _main()
