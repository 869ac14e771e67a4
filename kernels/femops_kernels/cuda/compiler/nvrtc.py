"""Direct calls of NVRTC, the compiler of CUDA C++. They need no driver and no GPU."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from femops_kernels.errors import CompileError, DeviceError

OPTIONS = ("--std=c++17", "--ptxas-options=-v")
"""Options of every compilation; the second makes the log report registers and spills."""

# From this version on NVRTC has a cache of its own if there is a driver. A kernel from that cache
# has no report, because the assembler did not run.
_CACHES_SINCE, _NO_CACHE = (12, 9), "-no-cache"

_MAJORS = (13, 12)
_WINDOWS = sys.platform == "win32"
_BUILTINS = "nvrtc-builtins64_*.dll" if _WINDOWS else "libnvrtc-builtins.so.*"


def _install(major: int) -> str:
    """Name of the pip package with CuPy and the compiler for a major version of CUDA."""
    return f'"cupy-cuda{major}x[ctk]"'


INSTALL = f"pip install {_install(13)}, or {_install(12)} for drivers before 580"
"""Command that installs CuPy and the compiler."""


class _Library(NamedTuple):
    handle: Any
    version: tuple[int, int]


def version() -> tuple[int, int]:
    """Version of NVRTC."""
    return _library().version


@cache
def archs() -> tuple[str, ...]:
    """Architectures that NVRTC compiles for, such as ``"sm_90"``; raises as `version`."""
    handle, count = _library().handle, ctypes.c_int()
    _check(handle.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    numbers = (ctypes.c_int * count.value)()
    _check(handle.nvrtcGetSupportedArchs(numbers))
    return tuple(f"sm_{number}" for number in numbers)


def compile_cubin(source: str, arch: str, name: str = "kernel.cu") -> tuple[bytes, str]:
    """Compile CUDA C++ for an architecture."""
    if arch not in archs():
        raise DeviceError(
            f"NVRTC {_dotted(version())} does not compile for {arch}, only for "
            f"{', '.join(archs())}: {_for_arch(arch)}"
        )
    handle, program = _library().handle, ctypes.c_void_p()
    text = (source.encode(), name.encode())
    _check(handle.nvrtcCreateProgram(ctypes.byref(program), *text, 0, None, None))
    try:
        flags = [f"--gpu-architecture={arch}", *OPTIONS]
        if version() >= _CACHES_SINCE:
            flags.append(_NO_CACHE)
        array = (ctypes.c_char_p * len(flags))(*(flag.encode() for flag in flags))
        failure = handle.nvrtcCompileProgram(program, len(flags), array)
        log = _output(program, "ProgramLog").rstrip(b"\0").decode(errors="replace")
        if failure:
            raise _compile_error(failure, log, arch)
        return _output(program, "CUBIN"), log
    finally:
        handle.nvrtcDestroyProgram(ctypes.byref(program))


def _for_arch(arch: str) -> str:
    """Advice for an architecture that the compiler does not know."""
    if _number(arch) > _number(archs()[0]):
        return f"the GPU is newer, pip install --upgrade {_install(13)}"
    return (
        "the GPU is older, CUDA 12 knows it: pip uninstall cupy-cuda13x nvidia-cuda-nvrtc and "
        f"pip install {_install(12)}"
    )


def _number(arch: str) -> int:
    return int(arch.removeprefix("sm_"))


def _compile_error(failure: int, log: str, arch: str) -> CompileError:
    lines = [line.strip() for line in log.splitlines() if "error" in line.lower()]
    reason = lines[0] if lines else _reason(failure)
    error = CompileError(f"NVRTC {_dotted(version())} refuses a kernel for {arch}: {reason}")
    error.add_note(log)
    return error


def _output(program: ctypes.c_void_p, what: str) -> bytes:
    handle, size = _library().handle, ctypes.c_size_t()
    _check(handle[f"nvrtcGet{what}Size"](program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _check(handle[f"nvrtcGet{what}"](program, buffer))
    return buffer.raw


def _reason(failure: int) -> str:
    text = _library().handle.nvrtcGetErrorString
    text.restype = ctypes.c_char_p
    return str(text(failure).decode())


def _check(failure: int) -> None:
    if failure:
        raise CompileError(f"NVRTC {_dotted(version())} failed: {_reason(failure)}")


def _dotted(numbers: tuple[int, int]) -> str:
    return f"{numbers[0]}.{numbers[1]}"


@cache
def _library() -> _Library:
    """The newest library whose kernels the driver accepts, or the newest without a driver."""
    newest, refused = driver_version(), ""
    for path in _paths():
        handle = _opened(path)
        if handle is None:
            continue
        major, minor = ctypes.c_int(), ctypes.c_int()
        handle.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        numbers = (major.value, minor.value)
        if newest is None or numbers[0] <= newest[0]:
            return _Library(handle, numbers)
        refused = refused or _dotted(numbers)
    if refused and newest:
        raise DeviceError(f"NVRTC {refused} is too new: {for_driver(newest)}")
    raise DeviceError(f"NVRTC, the compiler of GPU kernels, is not installed: {INSTALL}")


def driver_version() -> tuple[int, int] | None:
    """Newest version of CUDA that the driver supports; None without a driver."""
    number = ctypes.c_int()
    try:
        driver = ctypes.CDLL("nvcuda.dll" if _WINDOWS else "libcuda.so.1")
    except OSError:
        return None
    if driver.cuDriverGetVersion(ctypes.byref(number)) or not number.value:
        return None
    return number.value // 1000, number.value % 1000 // 10


def for_driver(newest: tuple[int, int]) -> str:
    """Advice if all installed versions of NVRTC are newer than the driver supports."""
    driver = f"the NVIDIA driver takes CUDA {_dotted(newest)} and older: update it"
    newer = [f"cupy-cuda{major}x" for major in _MAJORS if major > newest[0]]
    if newest[0] not in _MAJORS or not newer:
        return driver
    # CuPy's packages for several versions spoil each other
    command = f"pip install {_install(newest[0])}"
    return f"{driver}, or pip uninstall {' '.join(newer)} and {command}"


def _name(major: int) -> str:
    return f"nvrtc64_{major}0_0.dll" if _WINDOWS else f"libnvrtc.so.{major}"


def _paths() -> Iterator[Path]:
    """Paths where NVRTC may be: first in Python packages, then in the machine's CUDA."""
    for major in _MAJORS:
        for folder in _wheel_folders(major):
            yield folder / _name(major)
    with suppress(ImportError):
        yield from _pathfinder()
    roots = [os.environ.get(name) for name in ("CUDA_PATH", "CUDA_HOME")]
    for root in [*filter(None, roots), "/usr/local/cuda"]:
        for major in _MAJORS:
            for place in ("bin/x64", "bin") if _WINDOWS else ("lib64", "lib"):
                yield Path(root) / place / _name(major)
    for major in _MAJORS:
        yield Path(_name(major))  # in the system's own search path


def _wheel_folders(major: int) -> Iterator[Path]:
    spec = importlib.util.find_spec("nvidia")
    for root in (spec and spec.submodule_search_locations) or []:
        package = Path(root) / ("cuda_nvrtc" if major < 13 else f"cu{major}")
        yield from (package / "bin" / "x86_64", package / "bin") if _WINDOWS else (package / "lib",)


def _pathfinder() -> Iterator[Path]:
    """Path of NVRTC that NVIDIA's own search finds, for instance in conda's folders."""
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    with suppress(DynamicLibNotFoundError):
        path = load_nvidia_dynamic_lib("nvrtc").abs_path
        if path is not None:
            yield Path(path)


def _opened(path: Path) -> Any:
    """Load NVRTC's builtins from the folder, then NVRTC, which needs them. None if that fails."""
    if path.is_absolute():
        if not path.exists():
            return None
        for builtins in path.parent.glob(_BUILTINS):
            with suppress(OSError):
                ctypes.CDLL(str(builtins))
    try:
        return ctypes.CDLL(str(path))
    except OSError:
        return None
