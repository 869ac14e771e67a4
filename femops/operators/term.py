"""One term of an operator: a pointwise program, a rule and the data stored at its points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.abstract_space import Space
from femops.basis import Quadrature1D
from femops.errors import OperatorError
from femops.geometry import Geometry, GeometryBlock, element_blocks
from femops.pointwise import Program, fuse
from femops.restriction import FLOAT_TYPES
from femops_kernels.kernel import Kernel
from femops_kernels.machine import lane_width
from femops_kernels.plan import Plan, make_plan
from femops_kernels.sweep import Sweep, aligned_array, element_values, store_interleaved
from femops_meshes.interpolation import lagrange_derivative_matrix, tensor_apply

_plans: WeakKeyDictionary[Space, dict[tuple[int, int], Plan]] = WeakKeyDictionary()
Data = Callable[[GeometryBlock], NDArray[Any]]


@final
@dataclass(frozen=True, eq=False)
class Term:
    """A bilinear form on one space, partially assembled.

    Attributes
    ----------
    name : str
    space : Space
    quadrature : Quadrature1D
    program : Program
    qdata : (nbatch, q1d**dim, nqdata, width) array
        Stored numbers, element ``batch * width + slot``; its type is that of the vectors.
    """

    name: str
    space: Space
    quadrature: Quadrature1D
    program: Program
    qdata: NDArray[Any]

    @staticmethod
    def make(
        name: str,
        space: Space,
        quadrature: Quadrature1D,
        program: Program,
        data: Data,
        dtype: DTypeLike,
        lanes: int | None,
    ) -> Term:
        """Compute and store the quadrature data, block by block.

        Raises
        ------
        OperatorError
            A type that is not float64 or float32.
        """
        kind = np.dtype(dtype)
        if kind not in FLOAT_TYPES:
            raise OperatorError(
                f"an operator of type {kind} was asked for: take float64 or float32"
            )
        width = lane_width(kind, lanes)
        ne, points = space.mesh.num_elements, quadrature.q1d**space.dim
        qdata = aligned_array((-(-ne // width), points, program.nqdata, width), kind)
        for block in Geometry(space.mesh, quadrature):
            store_interleaved(qdata, data(block), block.start)
        return Term(name, space, quadrature, program, qdata)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of vectors, data and arithmetic."""
        return self.qdata.dtype

    @property
    def width(self) -> int:
        """SIMD slots."""
        return int(self.qdata.shape[-1])

    def fusible(self, other: Term) -> bool:
        """Whether one kernel can do both."""
        same = self.quadrature is other.quadrature or (
            np.array_equal(self.quadrature.points, other.quadrature.points)
        )
        return (
            same and self.space is other.space and self.qdata.shape[::3] == other.qdata.shape[::3]
        )

    def plan(self) -> Plan:
        """The chunks of elements in which a sweep goes; shared by all operators of a space."""
        space, itemsize = self.space, self.dtype.itemsize
        plans = _plans.setdefault(space, {})
        key = (self.width, itemsize)
        if key not in plans:
            indices = space.restriction.indices
            plans[key] = make_plan(indices, space.ndofs, self.width, space.ncomp, itemsize)
        return plans[key]

    def kernel(self) -> Kernel:
        """The kernel that applies this term."""
        points = self.quadrature.points
        return Kernel(
            self.space.dim,
            self.space.ncomp,
            self.space.basis.interpolation(points),
            lagrange_derivative_matrix(points, points),
            self.program.step,
            self.dtype,
            self.width,
            self.plan().indices.dtype.itemsize,
        )

    def sweep(self, constrained: NDArray[np.int64], keep: float) -> Sweep:
        """The kernel bound to plan and data; constrained rows give ``keep`` times x."""
        return Sweep(self.kernel(), self.plan(), self.qdata, constrained, keep)

    def element_blocks(self, numbers: int) -> list[tuple[int, int]]:
        """Ranges of elements for NumPy work with ``numbers`` numbers an element."""
        return list(element_blocks(self.space.mesh.num_elements, numbers))

    def dense_d(self, start: int, stop: int) -> NDArray[np.float64]:
        """D of some elements, (slots, ncomp, slots, ncomp, n, points)."""
        width = self.width
        part = self.qdata[start // width : -(-stop // width)]
        first = start // width * width
        values = element_values(part, stop - first)[start - first :].astype(np.float64)
        return self.program.matrix(values)

    def one_dimensional(self) -> list[list[NDArray[np.float64]]]:
        """1-D matrices (x first) that give each slot of the pointwise program from element dofs."""
        basis, points, dim = self.space.basis, self.quadrature.points, self.space.dim
        b, g = basis.interpolation(points), basis.gradient(points)
        slots = [[b] * dim] if self.program.value else []
        if self.program.gradient:
            slots += [[g if d == k else b for d in range(dim)] for k in range(dim)]
        return slots

    def diagonal(self) -> NDArray[np.float64]:
        """Diagonal of the term, (size,), by squared (multiplied) 1-D matrices."""
        space, slots = self.space, self.one_dimensional()
        e_vec = np.empty((space.mesh.num_elements, space.p1d**space.dim, space.ncomp))
        numbers = self.program.nqdata * self.quadrature.q1d**space.dim
        for start, stop in self.element_blocks(numbers):
            d = self.dense_d(start, stop)
            for c in range(space.ncomp):
                total: Any = 0.0
                for i, j in np.ndindex(len(slots), len(slots)):
                    if np.any(d[i, c, j, c]):
                        products = [(a * b).T for a, b in zip(slots[i], slots[j], strict=True)]
                        total = total + tensor_apply(products, d[i, c, j, c])
                e_vec[start:stop, :, c] = total
        return np.ascontiguousarray(space.restriction.scatter_add(e_vec)).reshape(-1)

    def element_matrices(self, start: int, stop: int) -> NDArray[np.float64]:
        """Dense B^T D B of some elements, (n, nodes, ncomp, nodes, ncomp)."""
        dense = []
        for matrices in self.one_dimensional():
            full: NDArray[Any] = np.ones((1, 1))
            for m in matrices:
                full = np.kron(m, full)  # x fastest
            dense.append(full)
        basis = np.stack(dense)  # (slots, points, nodes)
        d = self.dense_d(start, stop)
        nodes, ncomp = basis.shape[2], self.space.ncomp
        out = np.zeros((stop - start, nodes, ncomp, nodes, ncomp))
        for i, j in np.ndindex(len(basis), len(basis)):
            for a, b in np.ndindex(ncomp, ncomp):
                weights = d[i, a, j, b]
                if np.any(weights):
                    out[:, :, a, :, b] += basis[i].T @ (weights[:, :, np.newaxis] * basis[j])
        return out


def fused(terms: Sequence[tuple[float, Term]]) -> Term:
    """One term for the sum of fusible terms with factors."""
    programs = fuse([term.program for _, term in terms])
    first = terms[0][1]
    qdata = aligned_array((*first.qdata.shape[:2], programs.nqdata, first.width), first.dtype)
    at = 0
    for factor, term in terms:
        np.multiply(
            term.qdata, factor, out=qdata[:, :, at : at + term.program.nqdata], casting="same_kind"
        )
        at += term.program.nqdata
    name = " + ".join(term.name for _, term in terms)
    return Term(name, first.space, first.quadrature, programs, qdata)
