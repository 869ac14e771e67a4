"""libCEED's operators, through its Python package."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.bench.peers.interface import PeerOperator, functions
from femops.bench.problems import Problem
from femops.errors import OperatorError
from femops.geometry.jacobians import Geometry
from femops.spaces.h1_l2 import H1
from femops_kernels.codegen.ahead import same_imports

BACKENDS = ("/cpu/self/xsmm/blocked", "/cpu/self/avx/blocked", "/cpu/self/opt/blocked")
"""libCEED's backends, fastest first."""

_ENTRIES = ((0, 0), (1, 1), (2, 2), (1, 2), (0, 2), (0, 1))
"""Rows and columns of the numbers that libCEED stores for diffusion, in its order."""

# A missing backend may end the process, or be replaced by another.
_TRY = "import sys, libceed; sys.exit(libceed.Ceed(sys.argv[1]).get_resource() != sys.argv[1])"


def backend() -> str:
    """Return the first of `BACKENDS` that this build has; each is tried in its own process."""
    for name in BACKENDS:
        command = [sys.executable, "-c", _TRY, name]
        done = subprocess.run(
            command, env=os.environ | same_imports(), capture_output=True, check=False
        )
        if done.returncode == 0:
            return name
    raise OperatorError(f"libceed has none of the backends {', '.join(BACKENDS)}")


def operator(problem: Problem, _kind: str, space: H1) -> PeerOperator:
    """Mass or diffusion with numbers stored at every point, dofs in the order of femops."""
    import libceed

    chosen, build = backend(), version("libceed")
    ceed = libceed.Ceed(chosen)
    (x, v), y = functions(space), np.zeros(space.size)
    vectors = [ceed.Vector(space.size) for _ in range(2)]
    for vector, array in zip(vectors, (x, y), strict=True):
        vector.set_array(array, cmode=libceed.USE_POINTER)
    form = _form(ceed, problem, space)

    def apply() -> Any:
        form.apply(*vectors)
        return y

    # a local version, as 1.0.1+native, is that of an own build
    origin = "" if "+" in build else " (PyPI build, AVX in contractions only)"
    label = f"libceed {build} {chosen.removeprefix('/cpu/self/')}{origin}"
    return PeerOperator(label, apply, x, v)


def _form(ceed: Any, problem: Problem, space: H1) -> Any:
    import libceed

    mass = problem.form == "mass"
    ne, q1d = space.mesh.num_elements, problem.rule(space.order).q1d
    indices = np.ascontiguousarray(space.restriction.indices, dtype=np.int32).reshape(-1)
    nodes = space.element.size
    restriction = ceed.ElemRestriction(ne, nodes, 1, 1, space.size, indices)
    basis = ceed.BasisTensorH1Lagrange(space.dim, 1, space.p1d, q1d, libceed.GAUSS)
    data = _data(problem, space)
    points, count = q1d**space.dim, data.shape[1]
    strides = np.array([1, points, points * count], dtype=np.int32)
    strided = ceed.StridedElemRestriction(ne, points, count, data.size, strides)
    stored = ceed.Vector(data.size)
    stored.set_array(data.reshape(-1))
    operator = ceed.Operator(ceed.QFunctionByName("MassApply" if mass else "Poisson3DApply"))
    operator.set_field("u" if mass else "du", restriction, basis, libceed.VECTOR_ACTIVE)
    operator.set_field("qdata", strided, libceed.BASIS_NONE, stored)
    operator.set_field("v" if mass else "dv", restriction, basis, libceed.VECTOR_ACTIVE)
    return operator


def _data(problem: Problem, space: H1) -> NDArray[np.float64]:
    """Numbers (ne, n, points) at the points of the elements.

    Mass has n = 1: w det J.  Diffusion has n = 6: entries 11, 22, 33, 23, 13, 12 of
    w det J J^-1 J^-T.
    """
    rule, ne = problem.rule(space.order), space.mesh.num_elements
    n = 1 if problem.form == "mass" else len(_ENTRIES)
    data = np.empty((ne, n, rule.q1d**space.dim))
    begin = 0
    for block in Geometry(space.mesh, rule):
        end = begin + len(block.weighted_det)
        if n == 1:
            data[begin:end, 0] = block.weighted_det
        else:
            inverse = block.inverse
            for k, (i, j) in enumerate(_ENTRIES):
                product = np.einsum("eqd,eqd->eq", inverse[..., i, :], inverse[..., j, :])
                # libCEED's derivatives are those on [-1, 1], half as large as on [0, 1]
                data[begin:end, k] = 4.0 * block.weighted_det * product
        begin = end
    return data
