"""Sweeps of forms on several fields of different spaces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.specialize import specialize
from femops_kernels.cpu.kernels.kernel import stored_sizes
from femops_kernels.cpu.sweep import HostLaunch, address_table
from femops_kernels.errors import KernelValueError
from femops_kernels.pointwise.qdata import Data, aligned_array
from femops_kernels.pointwise.qfunction import QFunctionCode
from femops_kernels.pointwise.sum_factorization import Map1D
from femops_kernels.simd.lanes import Lane
from femops_kernels.simd.matrix import Matrix1D
from femops_kernels.skeletons.chunk import table as layout
from femops_kernels.skeletons.fields import fields_table as more

Ints = NDArray[np.int64]

_SKELETONS = ("table", "ahead", "weights", "geometry", "batch", "fields_table")


@final
@dataclass(frozen=True, eq=False)
class FieldSide:
    """A field or a test function of a kernel.

    Attributes
    ----------
    ncomp : int
    b1d : (q1d, p1d) float64
        Interpolation to the quadrature points.
    entries : (ne, nodes) int64
        Where in the vector the first component of each node stands; the others follow.
    """

    ncomp: int
    b1d: NDArray[np.float64]
    entries: Ints

    @property
    def p1d(self) -> int:
        """Nodes per direction."""
        return int(self.b1d.shape[1])


@final
@dataclass(frozen=True, eq=False)
class FieldKernel:
    """Kernel of a form on several fields.

    Attributes
    ----------
    dim : int
    fields, tests : sequences of FieldSide
    minima, sums : int
        Functionals: these components come after those of the test functions.
    d1d : (q1d, q1d) float64
        Derivative at the quadrature points of the polynomial through them.
    qfunction : QFunctionCode
        Of the components of all fields, one after the other.
    dtype : numpy.dtype
    width : int
        Slots of a lane.
    weights : (q1d,) float64
    geometry : Map1D, optional
        Needed if the q-function is given Jacobians or positions.

    Raises
    ------
    KernelValueError
        More fields than a table has room for, or fewer quadrature points than nodes.
    """

    dim: int
    fields: Sequence[FieldSide]
    tests: Sequence[FieldSide]
    minima: int
    sums: int
    d1d: NDArray[np.float64]
    qfunction: QFunctionCode
    dtype: np.dtype[Any]
    width: int
    weights: NDArray[np.float64]
    geometry: Map1D | None = None

    def __post_init__(self) -> None:
        if len(self.fields) > more.MOST_FIELDS:
            raise KernelValueError(f"{len(self.fields)} fields: at most {more.MOST_FIELDS}")
        most = max(side.p1d for side in (*self.fields, *self.tests))
        if most > len(self.d1d):
            raise KernelValueError(f"{len(self.d1d)} points for {most} nodes: take more points")

    @cached_property
    def module(self) -> ModuleType:
        """The compiled sweep."""
        skeletons = (*_SKELETONS, "batch_fields", "chunk_fields")
        return specialize(skeletons, self.constants(), self.qfunction.text)

    @property
    def result_lanes(self) -> int:
        """Lanes of a batch's results."""
        return sum(test.ncomp * test.p1d**self.dim for test in self.tests)

    def constants(self) -> dict[str, object]:
        """Values of the names in ``skeletons/chunk/defaults.py`` and in ``batch_fields.py``."""
        lane, q1d, code = Lane(self.width, self.dtype), len(self.d1d), self.qfunction
        ncomp_in = sum(field.ncomp for field in self.fields)
        tested = sum(test.ncomp for test in self.tests)
        ends = tested + self.minima, tested + self.minima + self.sums
        named = code.numbers.named()
        maps: dict[str, object] = {"G1D": 1, "WEIGHTS": Matrix1D([self.weights])}
        if self.geometry is not None:
            value, slope = self.geometry.value, self.geometry.slope
            maps |= {"G1D": self.geometry.g1d, "MODE": Matrix1D(value), "SLOPE": Matrix1D(slope)}
        sizes = {
            "LANE": lane,
            "LANE_WIDTH": self.width,
            "LANE_BYTES": lane.nbytes,
            "REAL_BYTES": self.dtype.itemsize,
            "DIM": self.dim,
            "NCOMP_IN": ncomp_in,
            "NCOMP_OUT": ends[1],
            "P_IN": self.fields[0].p1d,
            "P_OUT": self.fields[0].p1d,
            "LONG_IN": False,  # dofs are gathered one by one
            "LONG_OUT": False,
            "Q1D": q1d,
            "POINTS": q1d**self.dim,
            "VALUE_IN": code.value_in,
            "VALUE_OUT": code.value_out,
            "GRAD_IN": code.gradient_in,
            "GRAD_OUT": code.gradient_out,
            "PREFETCH": False,
            "BY_CHUNK": True,
            "D": Matrix1D(self.d1d),
            "DT": Matrix1D(self.d1d.T),
            "MINIMA": tuple(range(tested, ends[0])),
            "SUMS": tuple(range(*ends)),
            "RESULT_LANES": self.result_lanes,
        }
        sides = {"FIELDS": self._sides(self.fields), "TESTS": self._sides(self.tests, tests=True)}
        return sizes | named | maps | stored_sizes(self.width, self.dtype) | sides

    def _sides(self, sides: Sequence[FieldSide], *, tests: bool = False) -> tuple[object, ...]:
        found, first, begin = [], 0, 0
        for k, side in enumerate(sides):
            matrix = Matrix1D(side.b1d.T if tests else side.b1d)
            found.append((begin if tests else k, first, side.ncomp, side.p1d, matrix))
            first += side.ncomp
            begin += side.ncomp * side.p1d**self.dim
        return tuple(found)


@final
class FieldSweep(HostLaunch):
    """A kernel of several fields bound to vectors and data.

    Parameters
    ----------
    kernel : FieldKernel
    data : Data
        Padding slots repeat the last element.
    first_batch : (nchunks + 1,) int64
    size : int
        Entries of the result.
    constrained : (n,) int64
        Positions of the result that are zero.
    effort : int
        See `HostLaunch`.

    Attributes
    ----------
    functionals : (nbatch, minima + sums, width) array
        Of each element, set by an application.
    """

    on_elements = True

    def __init__(
        self,
        kernel: FieldKernel,
        data: Data,
        first_batch: Ints,
        size: int,
        constrained: Ints,
        effort: int,
    ) -> None:
        nbatch, width = int(first_batch[-1]), kernel.width
        shape = nbatch, kernel.minima + kernel.sums, width
        self.functionals = aligned_array(shape, kernel.dtype)
        results = aligned_array((nbatch, kernel.result_lanes, width), kernel.dtype)
        self._kernel, self._results = kernel, results
        start, slots = _contributions(kernel, size, constrained)
        chunks = len(first_batch) - 1
        entries = dict.fromkeys(range(more.FIELD_WORDS), 0) | {
            layout.NCHUNKS: chunks,
            layout.FIRST_BATCH: first_batch,
            layout.QDATA: data.points,
            layout.ELEMENT: data.elements,
            layout.CONSTANTS: data.constants,
            layout.MODES: data.modes,
            more.RESULTS: results,
            more.FUNCTIONALS: self.functionals,
            more.ENTRY_CHUNK: np.linspace(0, size, chunks + 1).astype(np.int64),
            more.ENTRY_START: start,
            more.ENTRY_SLOT: slots,
        }
        for k, field in enumerate(kernel.fields):
            entries[more.NODES + k] = _by_lanes(field.entries, width).astype(np.int32)
        self._entries = entries  # keeps the arrays alive
        self.table, module = address_table(entries), kernel.module
        self.row = (module.sweep.address, module.combine.address, self.table.ctypes.data, chunks)
        self.work_bytes = int(module.FIELD_LANES) * width * kernel.dtype.itemsize
        self.effort = effort

    def element_results(self, test: int) -> NDArray[Any]:
        """Results of each element for a test function, (ne, nodes, ncomp), of an application."""
        sides, dim = self._kernel.tests, self._kernel.dim
        counts = [side.ncomp * side.p1d**dim for side in sides]
        begin, side = sum(counts[:test]), sides[test]
        lanes = self._results[:, begin : begin + counts[test]].swapaxes(1, 2)
        found = lanes.reshape(-1, side.ncomp, side.p1d**dim)[: len(side.entries)]
        return found.swapaxes(1, 2)


def _by_lanes(entries: Ints, width: int) -> Ints:
    """Entries by batch, node and slot; padding slots repeat the last element."""
    ne, nodes = entries.shape
    rows = np.minimum(np.arange(-(-ne // width) * width), ne - 1)
    return np.ascontiguousarray(entries[rows].reshape(-1, width, nodes).swapaxes(1, 2))


def _contributions(kernel: FieldKernel, size: int, constrained: Ints) -> tuple[Ints, Ints]:
    """Places of the contributions to each entry of the result, by ascending element."""
    width, begin = kernel.width, 0
    nothing = np.zeros(0, dtype=np.int64)
    found, where = [nothing], [nothing]
    for test in kernel.tests:
        ne, nodes = test.entries.shape
        e, n, c = np.ogrid[:ne, :nodes, : test.ncomp]
        lane = (e // width) * kernel.result_lanes + begin + c * nodes + n
        where.append((lane * width + e % width).reshape(-1))
        found.append((test.entries[:, :, None] + np.arange(test.ncomp)).reshape(-1))
        begin += test.ncomp * nodes
    entries, slots = np.concatenate(found), np.concatenate(where)
    free = ~np.isin(entries, constrained)
    entries, slots = entries[free], slots[free]
    order = np.argsort(entries, kind="stable")
    start = np.searchsorted(entries[order], np.arange(size + 1))
    return start.astype(np.int64), np.ascontiguousarray(slots[order], dtype=np.int64)
