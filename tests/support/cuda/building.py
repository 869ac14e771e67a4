"""Kernels built by the host's C++ compiler: once for all processes, kept beside the CPU's."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from femops_kernels.codegen import cache as kernel_cache
from femops_kernels.errors import CompileError

HERE = Path(__file__).parent
OPTIONS = ("-std=c++20", "-O0", "-w", "-pthread")
"""Most kernels are compiled for a few short launches: with ``-O1`` that takes a third longer."""
# Some systems have longjmp checked, which ends a program that changes stacks by it.
_UNCHECKED = "-U_FORTIFY_SOURCE"
# What is not set is a huge number, not whatever there was; compilers of before 2022 can't.
_UNSET = "-ftrivial-auto-var-init=pattern"


@cache
def compiler() -> str | None:
    """The host's C++ compiler; None if there is none, or if this is not Linux."""
    if not sys.platform.startswith("linux"):
        return None
    return shutil.which("g++") or shutil.which("c++")


@cache
def _options() -> tuple[str, ...]:
    return (*OPTIONS, _UNCHECKED, *([_UNSET] if _accepts(_UNSET) else []))


def _accepts(option: str) -> bool:
    command = [compiler() or "", option, "-x", "c++", "-fsyntax-only", os.devnull]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@cache
def _toolchain() -> str:
    command = [compiler() or "", "--version"]
    version = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    headers = [path.read_text(encoding="utf-8") for path in sorted(HERE.glob("*.hpp"))]
    return "\0".join([version, *headers])


def build(source: str, *options: str, tail: str = "") -> Path:
    """The file that a kernel is compiled to.

    Parameters
    ----------
    source : str
        CUDA C++; what kernels find is put before it, and it stands in a namespace, so that its
        names can't be those of the C library.
    *options : str
        To the compiler.
    tail : str
        What comes after it.

    Raises
    ------
    CompileError
        With what the compiler says.
    """
    if compiler() is None:
        raise CompileError("no C++ compiler (g++, c++): kernels can't be built for the host")
    head = '#include "host.hpp"\nnamespace kernel {\n#line 1 "kernel.cu"\n'
    text = f"{head}{source}\n}}  // namespace kernel\n{tail}"
    every = [*_options(), *options]  # no path of the checkout: others share what is built
    key = hashlib.sha256("\0".join([text, *every, _toolchain()]).encode()).hexdigest()[:24]
    folder = _folder()
    built = folder / key
    with kernel_cache.locked(folder / f"{key}.lock"):
        if not built.exists():
            kernel_cache.write_once(folder / f"{key}.cpp", text)
            _compile(folder / f"{key}.cpp", built, [f"-I{_header(tuple(every))}", *every])
    return built


def _folder() -> Path:
    folder = kernel_cache.cache_folder() / "host"
    folder.mkdir(exist_ok=True)
    return folder


@cache
def _header(options: tuple[str, ...]) -> Path:
    """A folder with the headers; ``host.hpp`` is compiled, as reading it takes most of the time."""
    key = hashlib.sha256("\0".join([*options, _toolchain()]).encode()).hexdigest()[:24]
    folder = _folder() / f"header-{key}"
    folder.mkdir(exist_ok=True)
    with kernel_cache.locked(folder / "lock"):
        compiled = folder / "host.hpp.gch"
        if not compiled.exists():
            for path in HERE.glob("*.hpp"):
                kernel_cache.write_once(folder / path.name, path.read_text(encoding="utf-8"))
            _compile(folder / "host.hpp", compiled, ["-x", "c++-header", *options])
    return folder


def _compile(file: Path, target: Path, options: Sequence[str]) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        made = Path(folder) / "made"
        command = [compiler() or "", *options, str(file), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise CompileError(f"{' '.join(command)}\n{done.stderr}")
        os.replace(made, target)
