"""Child processes of other libraries and of ranks, which answer requests or run once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, final

from femops.errors import OperatorError
from femops_kernels.codegen.ahead import same_imports

_SHOWN = 300  # characters of the last output of a failed process


def run_once(command: Sequence[str], patience: float) -> tuple[str, str]:
    """Run a process to its end. Return its output, and a line with the reason if it failed."""
    try:
        done = subprocess.run(
            command,
            env=os.environ | same_imports(),
            capture_output=True,
            text=True,
            timeout=patience,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", f"nothing within {patience:g} s"
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"it ends with code {done.returncode}"]
        return "", lines[-1]
    return done.stdout, ""


@final
class Child:
    """A process that answers lines of JSON by lines of JSON, until it is closed."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        patience: float = 5.0,
    ) -> None:
        self._name, self._patience = name, patience
        # a file: a pipe that nobody reads would stop the process when it is full
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self._process = subprocess.Popen(
            command,
            env=os.environ | same_imports() | {**(environment or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests, self._answers = self._process.stdin, self._process.stdout

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request, and wait for the answer."""
        line = ""
        try:
            self._requests.write(json.dumps(request) + "\n")
            self._requests.flush()
            line = self._answers.readline()
            answer: dict[str, Any] = json.loads(line)
        except (BrokenPipeError, json.JSONDecodeError):
            code = self._end()
            self._errors.seek(0)
            said = " ".join((line + self._errors.read()).split())[-_SHOWN:]
            raise OperatorError(f"{self._name} {code}{said and f': {said}'}") from None
        return answer

    def close(self) -> None:
        """End the process, and close its files."""
        self._end()
        self._answers.close()
        self._errors.close()

    def _end(self) -> int:
        """Close the requests, so that the process ends, or stop it. Return its exit code."""
        # closing flushes again, which fails if the process has ended
        with suppress(BrokenPipeError):
            self._requests.close()
        for last in (None, "SIGTERM", "SIGKILL"):
            if last is not None:
                send(self._process, last)
            with suppress(subprocess.TimeoutExpired):
                return self._process.wait(self._patience)
        return self._process.wait()


def send(process: subprocess.Popen[Any], name: str) -> None:
    """Send a signal to a process and, if the system can do that, to its own children."""
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.Signals[name])
    else:
        process.kill()
