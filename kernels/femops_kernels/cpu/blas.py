"""The BLAS that compiled code calls: Intel's MKL where it is installed, else SciPy's."""

from __future__ import annotations

import ctypes
import sys
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike

_MKL = ("libmkl_rt.so.2", "libmkl_rt.so.1", "mkl_rt.2.dll", "libmkl_rt.2.dylib")


@cache
def gemm_address(kind: DTypeLike) -> tuple[str, int]:
    """Name of the BLAS library, and the address of its ``dgemm`` or ``sgemm``."""
    name = {8: "dgemm", 4: "sgemm"}[np.dtype(kind).itemsize]
    for library in _MKL:
        for path in (Path(sys.prefix) / "lib" / library, Path(library)):
            try:
                mkl = ctypes.CDLL(str(path))
            except OSError:
                continue
            return "MKL", int(ctypes.cast(getattr(mkl, f"{name}_"), ctypes.c_void_p).value or 0)
    return "SciPy", _scipy_address(name)


def _scipy_address(name: str) -> int:
    """Address of a function of SciPy's BLAS, which SciPy keeps for programs in Cython."""
    capsule = import_module("scipy.linalg.cython_blas").__pyx_capi__[name]
    read_name = ctypes.pythonapi.PyCapsule_GetName
    read_name.restype, read_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    read = ctypes.pythonapi.PyCapsule_GetPointer
    read.restype, read.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(read(capsule, read_name(capsule)) or 0)
