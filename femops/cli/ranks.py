"""Commands under mpiexec: only rank 0 prints, and commands for one process are refused."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path

from femops.launchers import launched

SHARED = ("solve", "hydro", "remap", "info")
"""Commands that ranks run together."""


@contextmanager
def one_voice(arguments: Sequence[str]) -> Iterator[None]:
    """Let only rank 0 print inside the block. Errors that leave the block are printed later.

    Raise if ranks have different arguments, or if there are several processes, but no MPI.
    """
    if launched()[0] == 1:
        yield
        return
    from femops.parallel import world
    from femops.parallel.comm import check_same

    comm = world()
    check_same(comm, "the command", {"its arguments": list(arguments)})
    with ExitStack() as stack:
        if comm.rank > 0:
            nowhere = stack.enter_context(Path(os.devnull).open("w", encoding="utf-8"))
            stack.enter_context(redirect_stdout(nowhere))
            stack.enter_context(redirect_stderr(nowhere))
        yield


def refuse_ranks(command: str) -> None:
    """Raise if a launcher has started several processes for a command of one process."""
    count, name = launched()
    if count > 1 and command not in SHARED:
        from femops.errors import CommunicatorError

        *most, last = [f"'femops {other}'" for other in SHARED]
        several = f"{', '.join(most)} and {last}"
        raise CommunicatorError(
            f"'femops {command}' is for one process, and {count} were started ({name}): run it "
            f"without mpiexec; {several} are for several"
        )
