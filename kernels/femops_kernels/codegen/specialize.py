"""Specialisation: skeletons, constants and a program become one source file, compiled once.

The file stands in the cache folder, where it can be read and debugged.  Its name has a hash of all
that its compilation depends on: its text, the sources that write code, the versions of Python and
llvmlite, and the processor.  A change of these makes a new file.
"""

from __future__ import annotations

import gc
import hashlib
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from pathlib import Path

from femops_kernels.codegen import cache as kernel_cache
from femops_kernels.codegen.cache import read_private
from femops_kernels.codegen.native import SKELETON, CompiledKernel, compiled, loaded
from femops_kernels.codegen.notice import NOTICE
from femops_kernels.exclusive import held_in_forks

_PACKAGE = Path(__file__).parents[1]
_HEADER = """\
from math import inf, prod, sqrt

from femops_kernels.simd.blas import *
from femops_kernels.simd.blocks import *
from femops_kernels.simd.compiling import *
from femops_kernels.simd.lane_math import *
from femops_kernels.simd.lanes import *
from femops_kernels.simd.laws import *
from femops_kernels.simd.lines import *
from femops_kernels.simd.addresses import *
from femops_kernels.simd.pieces import *
from femops_kernels.simd.rows import *
from femops_kernels.simd.runs import *
from femops_kernels.simd.sides import *
from femops_kernels.simd.threads import *
"""

_SUFFIX = ".kernel"
"""Files of compiled kernels: constants and entry points, then machine code."""

Parts = tuple[Sequence[str], Mapping[str, object], str]
"""Skeletons, constants and q-function of a kernel: the arguments of `source`."""

_loaded: dict[str, CompiledKernel] = {}
_lock = threading.RLock()
held_in_forks(_lock)  # in the child a thread that compiles would keep LLVM's lock and the file's


@cache
def skeleton_text(name: str) -> str:
    """Source of a skeleton without its block of defaults."""
    (path,) = (_PACKAGE / "skeletons").rglob(f"{name}.py")
    text = path.read_text(encoding="utf-8")
    start, end = text.find("# <defaults>"), text.find("# </defaults>")
    return text if start < 0 else text[:start] + text[end + len("# </defaults>") :]


@cache
def _toolchain() -> str:
    """Hash of the sources that every kernel imports, of compiler versions and of the processor."""
    import llvmlite
    import llvmlite.binding as llvm

    parts = [
        llvmlite.__version__,
        sys.version,
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    ]
    sources = sorted((_PACKAGE / "simd").rglob("*.py"))
    sources.append(_PACKAGE / "laws" / "law.py")
    sources.append(_PACKAGE / "codegen" / "native.py")
    parts += [path.read_text(encoding="utf-8") for path in sources]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def source(skeletons: Sequence[str], constants: Mapping[str, object], program: str = "") -> str:
    """Text of a specialised kernel."""
    lines = [f"{name} = {value!r}" for name, value in constants.items()]
    own = [_HEADER, *lines, "\n", program, "\n"]
    pieces = ([SKELETON.format(name), skeleton_text(name)] for name in skeletons)
    return "\n".join([*own, *(line for piece in pieces for line in piece)])


def specialize(
    skeletons: Sequence[str], constants: Mapping[str, object], program: str = ""
) -> CompiledKernel:
    """Compile a kernel from skeletons, constants and a q-function, or load it from the cache."""
    return load(*named(skeletons, constants, program))


def named(
    skeletons: Sequence[str], constants: Mapping[str, object], program: str = ""
) -> tuple[str, str]:
    """Name and source text of a kernel, see `specialize`."""
    text = source(skeletons, constants, program)
    key = hashlib.sha256((text + _toolchain()).encode()).hexdigest()[:24]
    return f"{skeletons[-1]}_{key}", text


def load(name: str, text: str) -> CompiledKernel:
    """Compile a kernel from its source text, or load it from the cache; see `specialize`."""
    with _lock:
        if name not in _loaded:
            _loaded[name] = kernel_cache.keep(lambda folder: _load_in(folder, name, text))
        return _loaded[name]


def _load_in(folder: Path, name: str, text: str) -> CompiledKernel:
    path = folder / f"{name}.py"
    with kernel_cache.locked(folder / f"{name}.lock"):
        kernel_cache.write_once(path, text)
        if kernel_cache.usable(path):  # removes unusable files
            try:
                return loaded(name, read_private(path.with_suffix(_SUFFIX)))
            except (ValueError, LookupError, TypeError, RuntimeError):  # sealed, but no kernel
                kernel_cache.warn_damaged(path)
                kernel_cache.discard(path)
        with _notice(folder), _no_collection():
            content = compiled(name, text, str(path))
        kernel_cache.write_whole(path.with_suffix(_SUFFIX), content)
        kernel_cache.seal(path)
        return loaded(name, content)


def _notice(folder: Path) -> AbstractContextManager[None]:
    return NOTICE.compiling(folder, temporary=kernel_cache.is_temporary(folder))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Turn off garbage collection, which takes a tenth of a compilation and frees few objects."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
