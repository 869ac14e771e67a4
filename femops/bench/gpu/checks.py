"""The kernels that are measured, beside the CPU's matrices."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import isfinite
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from femops.bench.gpu.setup import GpuCase
from femops.bench.problems import Problem, make_mesh
from femops.errors import OperatorError
from femops.spaces.h1_l2 import H1
from femops_kernels.cuda.device.device import Device
from femops_meshes import Mesh


def off_cpu(device: Device, case: GpuCase) -> float:
    """How far results of a case's kernel are from those of the matrix, assembled on the host.

    On a small mesh of the same kind; relative to the largest entry. The kernel is the very same.

    Raises
    ------
    OperatorError
        Results are not finite, or another kernel was made.
    """
    problem, order = case.problem, case.operator.space.order
    mesh = _small(case.mesh, order)
    space = H1(mesh, order, problem.ncomp, device=device)
    small = GpuCase.make(problem, case.mesh, case.level, space)
    if small.sweep.kernel.text != case.sweep.kernel.text:
        raise OperatorError("a small mesh has another kernel: nothing is compared")
    small.apply()
    # components of a vector are the same problem each
    expected: Any = _matrix(replace(problem, name="", ncomp=1), case.mesh, order) @ device.download(
        small.x
    )
    off = float(np.abs(device.download(small.y) - expected).max() / np.abs(expected).max())
    if not isfinite(off):
        raise OperatorError("results are not finite")
    return off


def _small(kind: str, order: int) -> Mesh:
    """Few elements, but at low orders more than a block has."""
    n = 3 if order < 5 else 2
    return make_mesh(kind, order, (n * order + 1.0) ** 3)


@lru_cache(maxsize=8)  # levels, and problems with the same form, follow each other
def _matrix(problem: Problem, kind: str, order: int) -> csr_array:
    return problem.operator(H1(_small(kind, order), order)).assemble()
