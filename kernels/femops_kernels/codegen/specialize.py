"""Specialisation: skeletons, constants and a program become one source file, compiled once.

The file stands in the cache folder, where it can be read and debugged.  Its name has a hash of all
that its compilation depends on: its text, the sources of ``simd``, the versions of Python and
numba, and the processor.  A change of these makes a new file.
"""

from __future__ import annotations

import gc
import hashlib
import importlib.util
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from femops_kernels.codegen import cache as kernel_cache
from femops_kernels.codegen.notice import NOTICE
from femops_kernels.errors import KernelError

_PACKAGE = Path(__file__).parents[1]
_HEADER = """\
from math import inf, sqrt

from femops_kernels.simd.blas import *
from femops_kernels.simd.compiling import *
from femops_kernels.simd.lane_math import *
from femops_kernels.simd.lanes import *
from femops_kernels.simd.line_math import *
from femops_kernels.simd.lines import *
from femops_kernels.simd.addresses import *
from femops_kernels.simd.pieces import *
from femops_kernels.simd.rows import *
from femops_kernels.simd.runs import *
from femops_kernels.simd.sides import *
from femops_kernels.simd.threads import *
from femops_kernels.simd.tracing import *
"""
_CACHE_SETTINGS = "CACHE_DIR", "CACHE_LOCATOR_CLASSES"
"""Numba's settings for the place of its compiled files."""

Parts = tuple[Sequence[str], Mapping[str, object], str]
"""Skeletons, constants and q-function of a kernel: the arguments of `source`."""

_loaded: dict[str, ModuleType] = {}
_lock = threading.RLock()


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
    import llvmlite.binding as llvm
    import numba

    parts = [
        numba.__version__,
        sys.version,
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    ]
    sources = sorted((_PACKAGE / "simd").rglob("*.py"))
    parts += [path.read_text(encoding="utf-8") for path in sources]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def source(skeletons: Sequence[str], constants: Mapping[str, object], program: str = "") -> str:
    """Text of a specialised kernel.

    Parameters
    ----------
    skeletons : sequence of str
        Names of files in ``skeletons/``, in the order in which they build on each other.
    constants : mapping
        Values of the names in ``skeletons/chunk/defaults.py``, written by ``repr``.
    program : str
        The q-function: a definition of ``pointwise``.
    """
    lines = [f"{name} = {value!r}" for name, value in constants.items()]
    body = "\n\n".join(skeleton_text(name) for name in skeletons)
    return "\n".join([_HEADER, *lines, "\n", program, "\n", body])


def specialize(
    skeletons: Sequence[str], constants: Mapping[str, object], program: str = ""
) -> ModuleType:
    """Compile a module from skeletons, constants and a q-function, or read it from the cache.

    Raises
    ------
    CacheError
        If no folder can be written, not even a temporary one, or other users can write it.
    KernelError
        If ``NUMBA_DISABLE_JIT`` is set.
    """
    return load(*named(skeletons, constants, program))


def named(
    skeletons: Sequence[str], constants: Mapping[str, object], program: str = ""
) -> tuple[str, str]:
    """Name and source text of a kernel, see `specialize`."""
    text = source(skeletons, constants, program)
    key = hashlib.sha256((text + _toolchain()).encode()).hexdigest()[:24]
    return f"{skeletons[-1]}_{key}", text


def load(name: str, text: str) -> ModuleType:
    """Compile a module from its source text, or read it from the cache; see `specialize`."""
    _check_compiler()
    with _lock:
        if name not in _loaded:
            _loaded[name] = _load(name, text)
        return _loaded[name]


@cache
def _check_compiler() -> None:
    import numba

    # numba creates the attributes of its settings at import: type checkers don't see them
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        raise KernelError(
            "NUMBA_DISABLE_JIT is set, kernels can't run uncompiled: unset it and start Python anew"
        )


def _load(name: str, text: str) -> ModuleType:
    return kernel_cache.keep(lambda folder: _load_in(folder, name, text))


def _load_in(folder: Path, name: str, text: str) -> ModuleType:
    path = folder / f"{name}.py"
    with kernel_cache.locked(folder / f"{name}.lock"):
        kernel_cache.write_once(path, text)
        compiled = kernel_cache.usable(path)  # removes unusable files
        watched = nullcontext() if compiled else _notice(folder)
        with watched, _no_collection(), _beside_the_source():
            module = _import(name, path)
        if not (compiled and kernel_cache.sealed(path)):
            kernel_cache.seal(path)
    return module


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


@contextmanager
def _beside_the_source() -> Iterator[None]:
    """Make Numba keep compiled files beside the source, whatever its own settings name.

    Those settings are for a user's own programs, and femops does not check who can write there.
    """
    import numba

    settings: Any = numba.config
    kept = {name: getattr(settings, name) for name in _CACHE_SETTINGS}
    vars(settings).update(dict.fromkeys(_CACHE_SETTINGS, ""))
    try:
        yield
    finally:
        vars(settings).update(kept)


def _import(name: str, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"femops_kernel_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # numba's cache refers to the module by name
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[spec.name]
        raise
    return module
