"""Operator kernels, compiled from sizes, 1-D matrices and a q-function."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.codegen.native import CompiledKernel
from femops_kernels.codegen.specialize import Parts, specialize
from femops_kernels.cpu.machine import tuning_key
from femops_kernels.pointwise.qfunction import QFunctionCode
from femops_kernels.pointwise.sum_factorization import (
    Map1D,
    check_points,
    contraction_flops,
    slopes_of,
)
from femops_kernels.simd.addresses import PLACE_BYTES
from femops_kernels.simd.lanes import Lane
from femops_kernels.simd.matrix import Matrix1D
from femops_kernels.simd.runs import DofRuns
from femops_kernels.simd.sides import ElementSide
from femops_kernels.tuning.database import TuningKey, find

PREFETCH_BYTES = 2**14
"""Bytes by which qdata are prefetched ahead, unless the tuning database has another number."""
ROWS_AHEAD = 1000
"""Rows by which a vector is prefetched ahead, unless the tuning database has another number."""
_PAGE = 4096  # bytes after which addresses share a set of the first-level cache


@final
@dataclass(frozen=True, eq=False)
class Side:
    """Field or test function of a kernel: components, and interpolation to quadrature points."""

    ncomp: int
    # for each direction, x first, (points, nodes): interpolation to the quadrature points. Empty
    # where a kernel interpolates by other matrices.
    bases: tuple[NDArray[np.float64], ...]
    index_bytes: int  # bytes of a chunk-local dof number in the plan, 2 or 4
    runs: DofRuns  # runs of consecutive dofs of the plan
    reproducible: bool = False  # True if results have the same bits for lanes of any width
    # (2, p1d): values and derivatives of the basis at the low end of a direction.  Only for faces
    # with derivatives, whose points lie at this end of the last direction.
    end: NDArray[np.float64] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Nodes along each direction, x first."""
        return self.runs.shape

    @property
    def num_nodes(self) -> int:
        """Number of nodes of an element."""
        return math.prod(self.shape)


def chunk_parts(
    width: int,
    dtype: np.dtype[Any],
    ncomps_in: Sequence[int],
    ncomps_out: Sequence[int],
    *,
    signed: bool,
) -> Parts:
    """Parts of the code around the batches of a chunk, which all kernels share."""
    if len(ncomps_in) > 1:  # each field has a block of the table, with or without a test function
        ncomps_in = ncomps_out = [*ncomps_in, *ncomps_out]
    constants = {
        "LANE": Lane(width, dtype),
        "LANE_WIDTH": width,
        "REAL_BYTES": dtype.itemsize,
        "NCOMP_IN": _if_equal(ncomps_in),
        "NCOMP_OUT": _if_equal(ncomps_out),
        "SIGNED": signed,
    }
    return ("table", "copies", "chunk"), constants, ""


def _counts(shape: Sequence[int]) -> str:
    """Numbers of each direction in words: one, if all are equal."""
    return " ".join(map(str, shape if len({*shape}) > 1 else shape[:1]))


def _if_equal(numbers: Sequence[int]) -> int:
    """The common value of the numbers; zero if they differ."""
    return numbers[0] if len(set(numbers)) == 1 else 0


class SweepKernel(ABC):
    """Compiled work on the batches of a `femops_kernels.cpu.sweep.Sweep`.

    The code of a chunk, ``skeletons/chunk/chunk.py``, calls it.
    """

    dim: int
    # sources and targets: the fields, and the test functions.  A field and a test function with
    # one plan are one object.
    sources: tuple[Side, ...]
    targets: tuple[Side, ...]
    dtype: np.dtype[Any]  # float64 or float32
    width: int  # slots of a lane
    # for each test function the number of the field that shares its block of the sweep's table
    blocks: tuple[int, ...] = (0,)

    @property
    @abstractmethod
    def parts(self) -> Parts:
        """Parts of the code that is compiled for the batches."""

    @property
    def source(self) -> Side:
        """The field, or the first one."""
        return self.sources[0]

    @property
    def target(self) -> Side:
        """The test function, or the first one; the first field if there is no test function."""
        return self.targets[0] if self.targets else self.source

    @property
    def on_faces(self) -> bool:
        """True if all points of an element lie at the low end of its last direction."""
        return self.source.end is not None

    @cached_property
    def module(self) -> CompiledKernel:
        """Compiled module of the batches. The first use compiles it or reads it from the cache."""
        return specialize(*self.parts)

    def skeletons(self, *names: str) -> tuple[str, ...]:
        """Names of all skeletons of the batches; the last argument names the work on one batch."""
        before, batch = names[:-1], names[-1]
        return (*before, *["by_element"] * self.reproducible, batch, "batches")

    def chunk(self, signed: bool) -> CompiledKernel:
        """Compiled module of the code around the batches of a chunk, see `chunk_parts`."""
        ncomps = ([side.ncomp for side in sides] for sides in (self.sources, self.targets))
        return specialize(*chunk_parts(self.width, self.dtype, *ncomps, signed=signed))

    @property
    def reproducible(self) -> bool:
        """True if results have the same bits for lanes of any width."""
        return self.target.reproducible

    @property
    def functionals(self) -> int:
        """Number of functionals that a sweep returns for each element besides its result."""
        return 0

    def sizes(self) -> dict[str, object]:
        """Values of the names of ``skeletons/chunk/defaults.py`` that every kernel sets."""
        source, target = self.source, self.target
        lane = Lane(self.width, self.dtype, strict=self.reproducible)
        return {
            "LANE": lane,
            "LANE_WIDTH": self.width,
            "LANE_BYTES": lane.nbytes,
            "PAGE": _PAGE // lane.nbytes,
            "REAL_BYTES": self.dtype.itemsize,
            "DIM": self.dim,
            "NCOMP_IN": sum(side.ncomp for side in self.sources),
            "NCOMP_OUT": sum(side.ncomp for side in self.targets),
            "P_IN": source.shape[0],
            "P_OUT": target.shape[0],
            "NODES_IN": source.num_nodes,
            "NODES_OUT": target.num_nodes,
            "RUNS_IN": source.runs,
            "RUNS_OUT": target.runs,
            "SOURCES": _element_sides(range(len(self.sources)), self.sources),
            "TARGETS": _element_sides(self.blocks, self.targets),
            "ALIKE": all(
                target is self.sources[k]
                for k, target in zip(self.blocks, self.targets, strict=True)
            ),
            "MINIMA": (),
            "SUMS": (),
            "BY_CHUNK": True,
            "BY_ELEMENT": self.reproducible,
        }

    def work_bytes(self, sizes_in: Sequence[int], sizes_out: Sequence[int]) -> int:
        """Bytes of work space per thread, for copies of chunks."""
        numbers = int(self.module.WORK_LANES) * self.width
        runs = 0
        for sides, sizes in ((self.sources, sizes_in), (self.targets, sizes_out)):
            numbers += sum(side.ncomp * size for side, size in zip(sides, sizes, strict=True))
            runs += sum(len(side.runs.nodes) for side in sides)
        return numbers * self.dtype.itemsize + runs * self.width * PLACE_BYTES


def _element_sides(blocks: Sequence[int], sides: Sequence[Side]) -> tuple[ElementSide, ...]:
    """For each field or test function its sizes, and its first component and run among all."""
    element_sides, first, run = [], 0, 0
    for block, side in zip(blocks, sides, strict=True):
        element_side = ElementSide(block, first, side.ncomp, run, side.index_bytes, side.runs)
        element_sides.append(element_side)
        first, run = first + side.ncomp, run + len(side.runs.nodes)
    return tuple(element_sides)


class OperatorKernel(SweepKernel, ABC):
    """Kernel of an operator, for one vector and for many."""

    @property
    @abstractmethod
    def multivector(self) -> CompiledKernel:
        """Compiled work on a chunk of elements for many vectors; see ``skeletons/multivector``."""

    @property
    def words(self) -> str:
        """Name of the kernel in the tuning database: its sizes and types in words."""
        kind = type(self).__name__
        return f"{kind}; {self.dim}-D; {'; '.join(self._words)}; {self.dtype} x {self.width}"

    @property
    def _words(self) -> tuple[str, str]:
        """Sizes of the fields, and of the test functions, in words."""
        source, target = (
            " + ".join(f"{side.ncomp} x {_counts(side.shape)} nodes" for side in sides)
            for sides in (self.sources, self.targets)
        )
        return source, target

    def vector_module(
        self, batch: Sequence[str], constants: dict[str, object], program: str = ""
    ) -> CompiledKernel:
        """Compile the work on a chunk for many vectors around the skeletons of one batch."""
        settings = find(vector_key(self))
        before = "vector_table", "weights", "broadcast", "rows_ahead"
        rows = {"ROWS_AHEAD": settings.get("rows_ahead", ROWS_AHEAD)}
        skeletons = *before, *batch, "vector_groups", "vector_rows", "multivector"
        return specialize(skeletons, constants | rows, program)

    def vector_sums(self) -> CompiledKernel:
        """Compiled sum of the chunks' contributions to each other's dofs, for many vectors."""
        constants = {
            "LANE": Lane(self.width, self.dtype, strict=self.reproducible),
            "LANE_WIDTH": self.width,
        }
        return specialize(("vector_table", "vector_groups", "vector_sums"), constants)

    @abstractmethod
    def contraction_flops(self) -> int:
        """Number of floating-point operations compiled for one element, without q-functions."""


def stored_sizes(width: int, data_dtype: np.dtype[Any], *, reproducible: bool) -> dict[str, object]:
    """Values of the names in ``skeletons/chunk/defaults.py`` for the type of the stored qdata."""
    stored = Lane(width, data_dtype, strict=reproducible)
    return {"STORED": stored, "STORED_BYTES": stored.nbytes}


def vector_key(kernel: OperatorKernel) -> TuningKey:
    """Key in the tuning database of a kernel's work on many vectors."""
    return tuning_key(f"many vectors: {kernel.words}")


def no_element_numbers() -> dict[str, object]:
    """Values of names in ``skeletons/chunk/defaults.py`` for elements without stored numbers."""
    none = {"NELEMENT": 0, "NWEIGHT": 0, "NCONSTANT": 0}
    return none | {"WEIGHTS": Matrix1D([[1.0]])}


@final
@dataclass(frozen=True, eq=False)
class Kernel(OperatorKernel):
    """Kernel of ``y_t = sum_e B_t^T D (B_1 x_1, B_2 x_2, ...)`` by sum factorisation.

    It has one field x and one test function, or several.  Elements are segments, quadrilaterals or
    hexahedra.
    """

    dim: int
    sources: tuple[Side, ...]
    targets: tuple[Side, ...]
    # (q1d, q1d): derivatives at the quadrature points of the Lagrange polynomials of these points
    d1d: NDArray[np.float64]
    qfunction: QFunctionCode
    dtype: np.dtype[Any]  # float64 or float32
    width: int  # slots of a lane
    weights: NDArray[np.float64]  # (q1d,): weights of the quadrature rule in one direction
    geometry: Map1D | None = None  # needed if the q-function takes Jacobians or positions
    # type of the qdata in memory.  Loads widen them to ``dtype``, which is the default.
    data_dtype: np.dtype[Any] | None = None
    blocks: tuple[int, ...] = (0,)
    # minima and sums: number of functionals that are minima over the points of an element, and of
    # sums over them
    minima: int = 0
    sums: int = 0

    def __post_init__(self) -> None:
        if self.dim > 1 or not self.on_faces:
            check_points(self.q1d, *(max(side.shape) for side in (*self.sources, *self.targets)))

    @property
    def q1d(self) -> int:
        """Quadrature points per direction."""
        return int(self.d1d.shape[0])

    @property
    def parts(self) -> Parts:
        return self.parts_around(*self._batch)

    def parts_around(self, *batch: str) -> Parts:
        """Parts of the code of the batches; ``batch`` names the skeletons for one batch."""
        around = ("table", "copies", "ahead", "weights", "geometry", "pieces")
        return self.skeletons(*around, *batch), self.constants(), self.qfunction.text

    @cached_property
    def multivector(self) -> CompiledKernel:
        """See `OperatorKernel.multivector`. The q-function must not need the geometry."""
        renamed = {"face_nodes": "face_nodes_gathered"}
        batch = [renamed.get(name, name) for name in self._batch]
        return self.vector_module(batch, self.constants(), self.qfunction.text)

    @property
    def words(self) -> str:
        types = f"{self.dtype} x {self.width}, stored {self.data_dtype or self.dtype}"
        points = f"{self.q1d} points{' of faces' * self.on_faces}"
        return f"{self.dim}-D, {points}; {self.qfunction.words(*self._words)}; {types}"

    @property
    def _batch(self) -> tuple[str, ...]:
        """Names of the skeletons of the work on a batch."""
        if self.on_faces:
            return "face_nodes", "batch", "batch_face"
        qfunction = self.qfunction
        # Jacobians are long chains of operations: consecutive lines of points overlap better
        whole = qfunction.gradient_in or qfunction.gradient_out or qfunction.numbers.mapped
        return ("batch",) if whole or self._several else ("batch_values",)

    @property
    def functionals(self) -> int:
        return self.minima + self.sums

    @property
    def _several(self) -> bool:
        """True if there are several fields, or functionals."""
        return len(self.sources) > 1 or self.functionals > 0

    def constants(self) -> dict[str, object]:
        """Values of the names in ``skeletons/chunk/defaults.py``."""
        tested = sum(side.ncomp for side in self.targets)
        ends = tested + self.minima, tested + self.minima + self.sums
        qfunction = self.qfunction
        return self.sizes() | {
            "NCOMP_OUT": ends[1],
            "MINIMA": tuple(range(tested, ends[0])),
            "SUMS": tuple(range(*ends)),
            "SLOPES_IN": slopes_of(self.sources, qfunction.slopes_in, qfunction.values_in),
            "SLOPES_OUT": slopes_of(self.targets, qfunction.slopes_out, qfunction.values_out),
            "Q1D": self.q1d,
            "POINTS": self.q1d ** (self.dim - self.on_faces),
            **self._numbers(),
            **self._ends(),
            "SHORT": qfunction.short,
            "VALUE_IN": self.qfunction.value_in,
            "VALUE_OUT": self.qfunction.value_out,
            "GRAD_IN": self.qfunction.gradient_in,
            "GRAD_OUT": self.qfunction.gradient_out,
            "PREFETCH": True,
            "FAR": find(tuning_key(self.words)).get("prefetch_bytes", PREFETCH_BYTES),
            # measured: work by chunks is faster if a kernel reads much at the points
            "BY_CHUNK": self._several or self.qfunction.numbers.point > (1 if self.q1d > 6 else 0),
            "BASES": tuple(tuple(Matrix1D(b) for b in side.bases) for side in self.sources),
            "TRANSPOSED": tuple(tuple(Matrix1D(b.T) for b in side.bases) for side in self.targets),
            "D": Matrix1D(self.d1d),
            "DT": Matrix1D(self.d1d.T),
        }

    def _ends(self) -> dict[str, object]:
        """Matrices ``ENDS_IN`` and ``ENDS_OUT`` of faces with derivatives, else no constants."""
        if not self.on_faces:
            return {}
        into, out = (
            [side.end for side in sides if side.end is not None]
            for sides in (self.sources, self.targets)
        )
        return {
            "ENDS_IN": tuple(Matrix1D(end) for end in into),
            "ENDS_OUT": tuple(Matrix1D(end.T) for end in out),
        }

    def _numbers(self) -> dict[str, object]:
        """Constants that describe the inputs of the q-function."""
        given = self.qfunction.numbers
        named: dict[str, object] = {
            **given.named(),
            "G1D": 1,
            "WEIGHTS": Matrix1D([[1.0]]),
            **stored_sizes(
                self.width, self.data_dtype or self.dtype, reproducible=self.reproducible
            ),
        }
        if given.weight:
            named["WEIGHTS"] = Matrix1D([self.weights])
        if self.geometry is not None:
            value, slope = self.geometry.value, self.geometry.slope
            named |= {"G1D": self.geometry.g1d, "MODE": Matrix1D(value), "SLOPE": Matrix1D(slope)}
        return named

    def contraction_flops(self) -> int:
        """Number of floating-point operations of all compiled contractions of one element."""
        return contraction_flops(self)


@final
@dataclass(frozen=True, eq=False)
class FillKernel(SweepKernel):
    """Kernel that evaluates a field and stores numbers at the quadrature points.

    Its source is ``skeletons/batch/batch_fill.py``.
    """

    # kernel with the same fields and test functions.  Its q-function returns the numbers instead
    # of factors of test functions.
    kernel: Kernel
    numbers: int  # count of numbers at a point
    stored: np.dtype[Any]  # their type, which may be narrower than that of the kernel

    def __post_init__(self) -> None:
        for name in ("dim", "sources", "targets", "dtype", "width"):
            object.__setattr__(self, name, getattr(self.kernel, name))

    @property
    def parts(self) -> Parts:
        lane = Lane(self.width, self.stored.name)
        filled = {"FILLED": self.numbers, "FILLED_LANE": lane, "FILLED_BYTES": lane.nbytes}
        constants = self.kernel.constants() | filled | {"BY_ELEMENT": False}
        names = ("table", "copies", "ahead", "weights", "geometry", "pieces", "batch", "batch_fill")
        return (*names, "batches"), constants, self.kernel.qfunction.text
