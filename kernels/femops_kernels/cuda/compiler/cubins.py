"""Cache of compiled GPU kernels on disk. Each kernel is compiled once for an architecture."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from femops_kernels.codegen import cache as kernel_cache
from femops_kernels.codegen.cache import read_private
from femops_kernels.cuda.compiler import nvrtc
from femops_kernels.cuda.compiler.report import Report, report


class Cubin(NamedTuple):
    """A compiled kernel."""

    code: bytes  # machine code that a driver loads
    report: Report  # registers and memory that the kernel needs
    path: Path  # file with the source


def cubin(source: str, arch: str) -> Cubin:
    """Compile a kernel from its source, or read it from the cache folder.

    The source stays in the folder, to be read and debugged, also if the compiler refuses it.
    """
    parts = [source, arch, *map(str, nvrtc.version()), *nvrtc.OPTIONS]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
    return kernel_cache.keep(
        lambda folder: _cubin_at(folder / f"cuda_{arch}_{key}.cu", source, arch)
    )


def _cubin_at(path: Path, source: str, arch: str) -> Cubin:
    code, log = path.with_suffix(".cubin"), path.with_suffix(".log")
    with kernel_cache.locked(path.with_suffix(".lock")):
        kernel_cache.write_once(path, source)
        if not kernel_cache.usable(path):
            compiled, told = nvrtc.compile_cubin(source, arch, str(path))
            report(told)
            kernel_cache.write_whole(code, compiled)
            kernel_cache.write_whole(log, told.encode())
            kernel_cache.seal(path)
        text = read_private(log).decode()
        return Cubin(read_private(code), report(text), path)
