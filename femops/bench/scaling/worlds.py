"""Ranks started by mpiexec, that do what they are told."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, final

from femops import launchers
from femops.errors import OperatorError
from femops.parallel import launch

_PROGRAM = "femops.bench.scaling.worker"
_LAST = 5  # seconds that ranks have to end
_SHOWN = 300  # characters of what a failed run has printed last

# Open MPI starts more ranks than cores only if told to.
_MORE_RANKS_THAN_CORES = {
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


@final
class World:
    """So many ranks, one thread each, pinned to its own core, which sleep until they are asked.

    Parameters
    ----------
    ranks : int

    Raises
    ------
    MissingExtraError
        mpi4py or mpiexec is missing.
    OperatorError
        This process is one of several ranks itself.
    """

    def __init__(self, ranks: int) -> None:
        self.ranks = ranks
        command = [launch.mpiexec(), "-n", str(ranks), sys.executable, "-m", _PROGRAM]
        check_alone()
        # a file: a pipe that nobody reads would stop the ranks when it is full
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            env=os.environ | _MORE_RANKS_THAN_CORES | {"FEMOPS_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Let all ranks do something (a method of `worker.Worker`), and wait for the answer.

        Raises
        ------
        OperatorError
            The ranks have ended instead: what they said last.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        line = ""
        try:
            self._process.stdin.write(json.dumps({"do": do} | arguments) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
            answer: dict[str, Any] = json.loads(line)
        except (BrokenPipeError, json.JSONDecodeError):
            raise OperatorError(self._failure(line)) from None
        return answer

    def _failure(self, line: str) -> str:
        self._end()
        self._errors.seek(0)
        said = " ".join((line + self._errors.read()).split())[-_SHOWN:]
        return f"{self.ranks} ranks failed, mpiexec ended with {self._process.returncode}: {said}"

    def close(self) -> None:
        """End the ranks, and forget what they said."""
        self._end()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._errors.close()

    def _end(self) -> None:
        """Ranks that wait for something to do end by themselves, others do not."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        for last in (None, signal.SIGTERM, signal.SIGKILL):
            if last is not None:
                os.killpg(self._process.pid, last)
            try:
                self._process.wait(_LAST)
                return
            except subprocess.TimeoutExpired:
                continue


def check_alone() -> None:
    """Check that this process is not a rank: ranks cannot start ranks everywhere.

    Raises
    ------
    OperatorError
        It is one of several.
    """
    count, name = launchers.launched()
    if count > 1:
        raise OperatorError(
            f"'bench scaling' starts its ranks itself, but is one of {count} ({name}): "
            "run it without mpiexec"
        )


@contextmanager
def started(ranks: int) -> Iterator[World]:
    """A world that ends with the block, and at once if the block fails."""
    world = World(ranks)
    try:
        yield world
    finally:
        world.close()
