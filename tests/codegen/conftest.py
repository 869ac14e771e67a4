"""Programs in processes of their own, which are forked from one that has loaded femops."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from subprocess import PIPE, Popen
from typing import NamedTuple

import pytest

SERVER = """
import atexit, json, os, signal, sys, tempfile, traceback, warnings
import numpy as np, femops
from femops_kernels.codegen import ahead, cache, native, notice, specialize
from femops_kernels.cpu import sweep
from femops_kernels.cpu.machine import set_threads
text = specialize._HEADER + "@function\\ndef run(n) -> int: return n"
native.loaded("first", native.compiled("first", text, ""))  # wakes the compiler, without a cache
for line in sys.stdin:
    code, environment = json.loads(line)
    pipes = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for stream, (_, end) in enumerate(pipes, 1):
            os.dup2(end, stream)
            os.close(end)
        os.environ.clear()
        os.environ.update(environment)
        signal.alarm(300)  # ends what hangs
        tempfile.tempdir = None  # as TMPDIR says now
        warnings.simplefilter("always")
        break
    for _, end in pipes:
        os.close(end)
    printed = [os.fdopen(begin).read() for begin, _ in pipes]
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(json.dumps([code, *printed]), flush=True)
else:
    sys.exit()
status = 0
try:
    exec(compile(code, "program", "exec"))
except SystemExit as stop:
    status = stop.code
except BaseException:
    traceback.print_exc()
    status = 1
atexit._run_exitfuncs()
sys.stdout.flush()
os._exit(status)
"""
"""The child leaves the loop and runs its program. It ends as Python does, but removes no module."""


class Ended(NamedTuple):
    """Exit code and texts of a program that has ended."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def output(self) -> str:
        """What a program printed that ended well."""
        assert self.returncode == 0, self.stderr
        return self.stdout


@pytest.fixture(scope="package")
def program() -> Iterator[Callable[..., Ended]]:
    """Run the text of a program, with environment variables: no others of femops."""
    command = [sys.executable, "-c", SERVER]
    with Popen(command, text=True, stdin=PIPE, stdout=PIPE) as server:

        def run(text: str, **given: str) -> Ended:
            own = ("FEMOPS", "XDG_")
            kept = {name: v for name, v in os.environ.items() if not name.startswith(own)}
            print(json.dumps([text, kept | given]), file=server.stdin, flush=True)
            return Ended(*json.loads(server.stdout.readline()))

        yield run
        server.stdin.close()
