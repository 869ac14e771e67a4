"""Launches written down with all that they work on, and run again in a program of their own.

Sanitizers want the whole program; there each array has memory of exactly its size.
"""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, final

import numpy as np
import pytest
from numpy.typing import NDArray

from femops_kernels.errors import CompileError, DeviceError
from support.cuda.building import build, compiler

ADDRESS, THREAD = "address,undefined", "thread"
"""Sanitizers: of wrong addresses and what has no meaning in C++, and of races."""

Pointer = tuple[int, NDArray[Any], int]
"""Of a pointer among the arguments: its place there, the array, the offset in it, in bytes."""

_SETTINGS = {
    "ASAN_OPTIONS": "detect_leaks=0",  # asks for rights that containers don't give
    "UBSAN_OPTIONS": "print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1",
}

_OPTIONS, _TAIL = ("-DHOST_THREADS", "-g1"), '#include "replay.hpp"\n'

_RANDOMISED = "unexpected memory mapping"


class SanitizerError(AssertionError):
    """What a sanitizer found."""


def pointers_of(arguments: NDArray[Any], arrays: Mapping[int, NDArray[Any]]) -> list[Pointer]:
    """The pointers in a structure of arguments: its unsigned fields of 8 bytes.

    Parameters
    ----------
    arguments : array, shape ()
    arrays : mapping
        Those that there are, by where they begin.

    Raises
    ------
    DeviceError
        If a pointer is neither null nor in one of these.
    """
    found, words = [], arguments.tobytes()
    for name, place in _places(arguments.dtype):
        value = int.from_bytes(words[place : place + 8], sys.byteorder)
        if value:
            array = _holder(value, arrays)
            if array is None:
                raise DeviceError(f"argument {name} is no address of an array that still lives")
            found.append((place, array, value - array.ctypes.data))
    return found


@cache
def _places(structure: np.dtype[Any]) -> list[tuple[str, int]]:
    """Names and places of pointers."""
    fields = (structure.fields or {}).items()
    return [(name, place) for name, (kind, place, *_) in fields if kind == np.uint64]


def _holder(address: int, arrays: Mapping[int, NDArray[Any]]) -> NDArray[Any] | None:
    """The array in whose memory an address is; most addresses are where one begins."""
    if (array := arrays.get(address)) is not None:
        return array
    inside = (a for start, a in arrays.items() if start < address < start + a.nbytes)
    return next(inside, None)


@final
@dataclass(frozen=True, eq=False)
class Launch:
    """What `Function.launch` was given, and the arrays as they were before.

    Attributes
    ----------
    source : str
    shape : tuple of int
        Blocks, threads of each, bytes of shared memory.
    arguments : bytes
    arrays : list of arrays
    places : list of tuples
        Of each pointer: its place in the arguments, which array, offset in it.
    """

    source: str
    shape: tuple[int, int, int]
    arguments: bytes
    arrays: list[NDArray[Any]]
    places: list[tuple[int, int, int]]

    @staticmethod
    def of(
        source: str, shape: tuple[int, int, int], arguments: NDArray[Any], pointers: list[Pointer]
    ) -> Launch:
        """With copies of the arrays."""
        whole = {id(array): array for _, array, _ in pointers}
        if not all(array.flags.c_contiguous for array in whole.values()):
            raise DeviceError("an array is not stored by rows: it can't be written down")
        order = {key: k for k, key in enumerate(whole)}
        places = [(place, order[id(array)], offset) for place, array, offset in pointers]
        return Launch(
            source, shape, arguments.tobytes(), [a.copy() for a in whole.values()], places
        )

    def text(self) -> bytes:
        """As ``replay.hpp`` reads it."""
        parts = [_words(*self.shape, len(self.arguments)), self.arguments, _words(len(self.arrays))]
        for array in self.arrays:
            parts += [_words(array.nbytes), array.tobytes()]
        parts += [_words(len(self.places)), *(_words(*place) for place in self.places)]
        return b"".join(parts)


def _words(*values: int) -> bytes:
    return np.array(values, np.uint64).tobytes()


@cache
def missing(sanitizer: str) -> str | None:
    """Why there is no such sanitizer here; None if there is."""
    source = "struct A { int* x; };\nENTRY(32, 1, A) { a.x[threadIdx.x] = 1; }\n"
    numbers = np.zeros(32, np.int32)
    launch = Launch(source, (1, 32, 0), bytes(8), [numbers], [(0, 0, 0)])
    try:
        (result,) = replay(launch, sanitizer)
    except CompileError as error:
        build(source, *_OPTIONS, tail=_TAIL)  # or is it not for lack of a sanitizer
        return f"the compiler has no sanitizer for {sanitizer}: {error}"
    except SanitizerError as error:
        if _RANDOMISED in str(error):
            return f"no sanitizer for {sanitizer} in this address space: {error}"
        raise
    assert result.all()
    return None


def require(sanitizer: str) -> None:
    """Skip a test where there is no compiler, or no such sanitizer."""
    if compiler() is None:
        pytest.skip("no C++ compiler (g++, c++): kernels were not run under sanitizers")
    reason = missing(sanitizer)
    if reason is not None:
        pytest.skip(reason)


def replay(launch: Launch, sanitizer: str) -> list[NDArray[Any]]:
    """Run a launch under a sanitizer.

    Parameters
    ----------
    launch : Launch
    sanitizer : str
        `ADDRESS` or `THREAD`.

    Returns
    -------
    list of arrays
        Those of the launch, as they are afterwards.

    Raises
    ------
    SanitizerError
        With its report, or with what else made the launch fail.
    """
    options = [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all", *_OPTIONS]
    program = build(launch.source, *options, tail=_TAIL)
    with tempfile.TemporaryDirectory() as folder:
        given, result = Path(folder) / "launch", Path(folder) / "arrays"
        given.write_bytes(launch.text())
        done = _run([str(program), str(given), str(result)])
        if done.returncode != 0:
            raise SanitizerError(done.stderr)
        data = result.read_bytes()
    ends = np.cumsum([0, *(array.nbytes for array in launch.arrays)])
    return [
        np.frombuffer(data[start:end], array.dtype).reshape(array.shape)
        for array, start, end in zip(launch.arrays, ends[:-1], ends[1:], strict=True)
    ]


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **_SETTINGS}
    for prefix in ([], ["setarch", platform.machine(), "-R"]):
        done = subprocess.run(
            [*prefix, *command],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
            timeout=300,
        )
        if _RANDOMISED not in done.stderr:
            break
    return done
