"""Kernels of the host, rendered from specifications: sizes, matrices and q-functions."""

from __future__ import annotations

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
from femops_kernels.simd.addresses import PLACE_BYTES
from femops_kernels.simd.lanes import Lane
from femops_kernels.simd.matrix import Matrix1D, Tiles
from femops_kernels.simd.runs import DofRuns
from femops_kernels.simd.sides import ElementSide
from femops_kernels.spec import (
    Factors,
    KernelSpec,
    MatrixSpec,
    PointSpec,
    SeparableSpec,
    Side,
    slopes_of,
)
from femops_kernels.tuning.database import TuningKey, find

PREFETCH_BYTES = 2**14
"""Bytes by which qdata are prefetched ahead, unless the tuning database has another number."""
ROWS_AHEAD = 1000
"""Rows by which a vector is prefetched ahead, unless the tuning database has another number."""
_AROUND = "table", "copies", "ahead", "weights", "geometry", "pieces"
_AROUND_TABLES = "table", "copies", "weights", "geometry", "map_table", "pieces"
_MODES_AHEAD = 2**12  # bytes by which modes of maps are prefetched ahead
_PAGE = 4096  # bytes after which addresses share a set of the first-level cache


@final
@dataclass(frozen=True, eq=False)
class PlannedSide:
    """Field or test function of a kernel, with the layout of its dofs in a plan."""

    given: Side
    index_bytes: int  # bytes of a chunk-local dof number in the plan, 2 or 4
    runs: DofRuns  # runs of consecutive dofs of the plan

    @property
    def end(self) -> NDArray[np.float64] | None:
        """Values and derivatives (2, layers that the plan reads) at the end where faces lie."""
        end = self.given.end
        return None if end is None else end[:, : self.runs.layers or None]


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
        # 0 if the fields, or the test functions, have different numbers of components
        "NCOMP_IN": ncomps_in[0] if len({*ncomps_in}) == 1 else 0,
        "NCOMP_OUT": ncomps_out[0] if len({*ncomps_out}) == 1 else 0,
        "SIGNED": signed,
    }
    return ("table", "copies", "chunk"), constants, ""


def _counts(shape: Sequence[int]) -> str:
    """Sizes of all directions in words, or a single size if all are equal."""
    return " ".join(map(str, shape if len({*shape}) > 1 else shape[:1]))


@dataclass(frozen=True, eq=False)
class SweepKernel(ABC):
    """Compiled work on the batches of a `femops_kernels.cpu.sweep.Sweep`.

    The code of a chunk, ``skeletons/chunk/chunk.py``, calls it.
    """

    spec: KernelSpec
    # sources and targets: the fields, and the test functions.  A field and a test function with
    # one plan are one object.
    sources: tuple[PlannedSide, ...]
    targets: tuple[PlannedSide, ...]
    width: int  # slots of a lane

    @property
    @abstractmethod
    def parts(self) -> Parts:
        """Parts of the code that is compiled for the batches."""

    @cached_property
    def module(self) -> CompiledKernel:
        """Compiled module of the batches. The first use compiles it or reads it from the cache."""
        return specialize(*self.parts)

    def skeletons(self, *names: str) -> tuple[str, ...]:
        """Names of all skeletons of the batches; the last argument names the work on one batch."""
        before, batch = names[:-1], names[-1]
        return (*before, *["by_element"] * self.spec.any_width, batch, *self.around)

    @property
    def around(self) -> tuple[str, ...]:
        """Names of the skeletons around the work on one batch."""
        return (*["entities", "hanging"] * self.spec.hanging, "batches")

    def chunk(self, signed: bool) -> CompiledKernel:
        """Compiled module of the code around the batches of a chunk, see `chunk_parts`."""
        spec = self.spec
        ncomps = ([side.ncomp for side in sides] for sides in (spec.sources, spec.targets))
        return specialize(*chunk_parts(self.width, spec.dtype, *ncomps, signed=signed))

    def sizes(self) -> dict[str, object]:
        """Values of the names of ``skeletons/chunk/defaults.py`` that every kernel sets."""
        spec, runs = self.spec, (self.targets or self.sources)[0].runs
        lane = Lane(self.width, self.spec.dtype, strict=self.spec.any_width)
        return {
            "LANE": lane,
            "LANE_WIDTH": self.width,
            "LANE_BYTES": lane.nbytes,
            "PAGE": _PAGE // lane.nbytes,
            "REAL_BYTES": self.spec.dtype.itemsize,
            "DIM": self.spec.dim,
            "NCOMP_IN": sum(side.ncomp for side in spec.sources),
            "NCOMP_OUT": sum(side.ncomp for side in spec.targets),
            "P_IN": spec.source.shape[0],
            "P_OUT": spec.target.shape[0],
            "NODES_IN": spec.source.num_nodes,
            "NODES_OUT": spec.target.num_nodes,
            "RUNS_IN": self.sources[0].runs,
            "RUNS_OUT": runs,
            "SOURCES": _element_sides(range(len(self.sources)), self.sources),
            "TARGETS": _element_sides(self.spec.blocks, self.targets),
            "ALIKE": all(
                target is self.sources[k]
                for k, target in zip(self.spec.blocks, self.targets, strict=True)
            ),
            "HANGING": spec.hanging,
            **_hanging(spec.sources, "IN"),
            **_hanging(spec.targets, "OUT"),
            "MINIMA": (),
            "SUMS": (),
            "BY_CHUNK": True,
            "BY_ELEMENT": self.spec.any_width,
        }

    def work_bytes(self, sizes_in: Sequence[int], sizes_out: Sequence[int]) -> int:
        """Bytes of work space per thread, for copies of chunks."""
        numbers = int(self.module.WORK_LANES) * self.width
        runs = 0
        for sides, sizes in ((self.sources, sizes_in), (self.targets, sizes_out)):
            numbers += sum(side.given.ncomp * size for side, size in zip(sides, sizes, strict=True))
            runs += sum(len(side.runs.nodes) for side in sides)
        return numbers * self.spec.dtype.itemsize + runs * self.width * PLACE_BYTES


def _hanging(sides: Sequence[Side], way: str) -> dict[str, object]:
    """Constants ``HALVES`` and ``MASKED`` of fields or test functions."""
    halves = [None if s.halves is None else Matrix1D(np.concatenate(s.halves)) for s in sides]
    return {f"HALVES_{way}": tuple(halves), f"MASKED_{way}": tuple(s.masked for s in sides)}


def _element_sides(blocks: Sequence[int], sides: Sequence[PlannedSide]) -> tuple[ElementSide, ...]:
    """Sizes of each field or test function, and its first component and run among those of all."""
    element_sides, first, run = [], 0, 0
    for block, side in zip(blocks, sides, strict=True):
        ncomp = side.given.ncomp
        element_sides.append(ElementSide(block, first, ncomp, run, side.index_bytes, side.runs))
        first, run = first + ncomp, run + len(side.runs.nodes)
    return tuple(element_sides)


@dataclass(frozen=True, eq=False)
class OperatorKernel(SweepKernel, ABC):
    """Kernel of an operator, for one vector and for many."""

    @property
    @abstractmethod
    def multivector(self) -> CompiledKernel:
        """Compiled work on a chunk of elements for many vectors; see ``skeletons/multivector``."""

    @property
    def words(self) -> str:
        """Name of the kernel in the tuning database: its sizes and types in words."""
        kind, spec = type(self).__name__, self.spec
        return f"{kind}; {spec.dim}-D; {'; '.join(self._words)}; {spec.dtype} x {self.width}"

    @property
    def _words(self) -> tuple[str, str]:
        """Sizes of the fields, and of the test functions, in words."""
        source, target = (
            " + ".join(f"{side.ncomp} x {_counts(side.shape)} nodes" for side in sides)
            for sides in (self.spec.sources, self.spec.targets)
        )
        return source, target

    def vector_module(
        self, batch: Sequence[str], constants: dict[str, object], program: str = ""
    ) -> CompiledKernel:
        """Compile the work on a chunk for many vectors around the skeletons of one batch."""
        settings = find(vector_key(self))
        before = "vector_table", "weights", "broadcast", "rows_ahead"
        rows = {"ROWS_AHEAD": settings.get("rows_ahead", ROWS_AHEAD)}
        hanging = ["entities", "vector_hanging"] * self.spec.hanging
        skeletons = *before, *batch, "vector_groups", "vector_rows", *hanging, "multivector"
        return specialize(skeletons, constants | rows, program)

    def vector_sums(self) -> CompiledKernel:
        """Compiled sum of the chunks' contributions to each other's dofs, for many vectors."""
        lane = Lane(self.width, self.spec.dtype, strict=self.spec.any_width)
        skeletons = "vector_table", "vector_groups", "vector_sums"
        return specialize(skeletons, {"LANE": lane, "LANE_WIDTH": self.width})


def stored_sizes(width: int, data_dtype: np.dtype[Any], *, reproducible: bool) -> dict[str, object]:
    """Values of the names in ``skeletons/chunk/defaults.py`` for the type of the stored qdata."""
    stored = Lane(width, data_dtype, strict=reproducible)
    return {"STORED": stored, "STORED_BYTES": stored.nbytes}


def vector_key(kernel: OperatorKernel) -> TuningKey:
    """Key in the tuning database of a kernel's work on many vectors."""
    return tuning_key(f"many vectors: {kernel.words}")


@final
@dataclass(frozen=True, eq=False)
class Kernel(OperatorKernel):
    """Kernel of a `PointSpec` whose functions are products, by sum factorisation."""

    spec: PointSpec

    @property
    def parts(self) -> Parts:
        return self.skeletons(*_AROUND, *self._batch), self.constants(), self.spec.qfunction.text

    @cached_property
    def multivector(self) -> CompiledKernel:
        """See `OperatorKernel.multivector`. The q-function must not need the geometry."""
        renamed = {"face_nodes": "face_nodes_gathered"}
        batch = [renamed.get(name, name) for name in self._batch]
        return self.vector_module(batch, self.constants(), self.spec.qfunction.text)

    @property
    def words(self) -> str:
        spec = self.spec
        types = f"{spec.dtype} x {self.width}, stored {spec.stored}"
        points = f"{spec.q1d} points{' of faces' * spec.has_end}"
        return f"{spec.dim}-D, {points}; {spec.qfunction.words(*self._words)}; {types}"

    @property
    def _batch(self) -> tuple[str, ...]:
        """Names of the skeletons of the work on a batch."""
        if self.spec.has_end:
            return "face_nodes", "batch", "batch_face"
        qfunction = self.spec.qfunction
        # Jacobians are long chains of operations: consecutive lines of points overlap better
        whole = qfunction.gradient_in or qfunction.gradient_out or qfunction.numbers.mapped
        return ("batch",) if whole or self.spec.several else ("batch_values",)

    def constants(self) -> dict[str, object]:
        """Values of the names in ``skeletons/chunk/defaults.py``."""
        tested = sum(side.ncomp for side in self.spec.targets)
        spec, qfunction = self.spec, self.spec.qfunction
        ends = tested + spec.minima, tested + spec.functionals
        return self.sizes() | {
            "NCOMP_OUT": ends[1],
            "MINIMA": tuple(range(tested, ends[0])),
            "SUMS": tuple(range(*ends)),
            "SLOPES_IN": slopes_of(spec.sources, qfunction.slopes_in, qfunction.values_in),
            "SLOPES_OUT": slopes_of(spec.targets, qfunction.slopes_out, qfunction.values_out),
            "Q1D": spec.q1d,
            "POINTS": spec.q1d ** (spec.dim - spec.has_end),
            **self._numbers(),
            **(self._ends() if spec.has_end else {}),
            "SHORT": qfunction.short,
            "VALUE_IN": qfunction.value_in,
            "VALUE_OUT": qfunction.value_out,
            "GRAD_IN": qfunction.gradient_in,
            "GRAD_OUT": qfunction.gradient_out,
            "PREFETCH": True,
            "FAR": find(tuning_key(self.words)).get("prefetch_bytes", PREFETCH_BYTES),
            # measured: work by chunks is faster if a kernel reads much at the points
            "BY_CHUNK": spec.several or qfunction.numbers.point > (1 if spec.q1d > 6 else 0),
            "BASES": tuple(tuple(Matrix1D(b) for b in side.bases) for side in spec.sources),
            "TRANSPOSED": tuple(tuple(Matrix1D(b.T) for b in side.bases) for side in spec.targets),
            "D": Matrix1D(spec.d1d),
            "DT": Matrix1D(spec.d1d.T),
        }

    def _ends(self) -> dict[str, object]:
        """Matrices ``ENDS_IN`` and ``ENDS_OUT`` of faces with derivatives."""
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
        spec, given = self.spec, self.spec.qfunction.numbers
        named: dict[str, object] = {
            **given.named(),
            "G1D": 1,
            "WEIGHTS": Matrix1D([[1.0]]),
            **stored_sizes(self.width, spec.stored, reproducible=self.spec.any_width),
        }
        if given.weight:
            named["WEIGHTS"] = Matrix1D([spec.weights])
        if spec.geometry is not None:
            value, slope = spec.geometry.value, spec.geometry.slope
            named |= {"G1D": spec.geometry.g1d, "MODE": Matrix1D(value), "SLOPE": Matrix1D(slope)}
        return named


@final
@dataclass(frozen=True, eq=False)
class FillKernel(SweepKernel):
    """Kernel that evaluates a field and stores numbers at the quadrature points.

    Its source is ``skeletons/batch/batch_fill.py``, or ``batch_table_fill.py`` by tables.
    """

    spec: PointSpec  # its q-function returns the numbers instead of factors of test functions
    numbers: int  # count of numbers at a point
    stored: np.dtype[Any]  # their type, which may be narrower than that of the kernel

    @property
    def parts(self) -> Parts:
        lane = Lane(self.width, self.stored.name)
        filled = {"FILLED": self.numbers, "FILLED_LANE": lane, "FILLED_BYTES": lane.nbytes}
        given = self.spec, self.sources, self.targets, self.width
        if self.spec.tabulated:
            kernel = TableKernel(*given)
            constants = kernel.constants() | {"TABLES_OUT": (), "CHAINS_OUT": ()}
            if self.spec.factored:
                constants |= {"NODES_OUT": (), "LINES_OUT": (), "FACTORS_OUT": ()}
            names = *_AROUND_TABLES, *kernel.batch, "batch_table_fill"
        else:
            constants = Kernel(*given).constants()
            names = *_AROUND, "batch", "batch_fill"
        constants |= filled | {"BY_ELEMENT": False}
        return (*names, *self.around), constants, self.spec.qfunction.text


@final
@dataclass(frozen=True, eq=False)
class SeparableKernel(OperatorKernel):
    """Kernel of a `SeparableSpec`; see ``skeletons/batch/batch_separable.py``."""

    spec: SeparableSpec

    @property
    def parts(self) -> Parts:
        around = ("table", "copies", "ahead", "stored", "pieces")
        return self.skeletons(*around, "batch_separable"), self._constants(), ""

    @cached_property
    def multivector(self) -> CompiledKernel:
        none = {"NELEMENT": 0, "NWEIGHT": 0, "NCONSTANT": 0, "WEIGHTS": Matrix1D([[1.0]])}
        none |= {"POINTS": 1, "NQDATA": 0}
        stored = stored_sizes(self.width, self.spec.dtype, reproducible=self.spec.any_width)
        constants = none | self._constants() | stored
        return self.vector_module(("batch_separable",), constants)

    def _constants(self) -> dict[str, object]:
        spec = self.spec
        factors = spec.source.ncomp * (spec.value + spec.dim * spec.gradient)
        return self.sizes() | {
            "NELEMENT": factors,
            "VALUE_IN": spec.value,
            "GRAD_IN": spec.gradient,
            "MASS": tuple(Matrix1D(matrix) for matrix in spec.mass),
            "STIFF": tuple(Matrix1D(matrix) for matrix in spec.stiffness),
            "BY_CHUNK": spec.source.shape[0] <= 3,
        }


@final
@dataclass(frozen=True, eq=False)
class TableKernel(OperatorKernel):
    """Kernel of a `PointSpec` by tables; its source is ``skeletons/batch/batch_table.py``.

    Where tables have factors, those of ``batch_factors.py`` take their place.
    """

    spec: PointSpec

    @property
    def parts(self) -> Parts:
        skeletons = self.skeletons(*_AROUND_TABLES, *self.batch)
        return skeletons, self.constants(), self.spec.qfunction.text

    @cached_property
    def multivector(self) -> CompiledKernel:
        return self.vector_module(self.batch, self.constants(), self.spec.qfunction.text)

    @property
    def batch(self) -> tuple[str, ...]:
        """Names of the skeletons of the work on a batch."""
        return ("batch_table", *["batch_factors"] * self.spec.factored)

    def constants(self) -> dict[str, object]:
        """Values of the names in ``skeletons/chunk/defaults.py``."""
        spec, code = self.spec, self.spec.qfunction
        tested = sum(side.ncomp for side in spec.targets)
        ends = tested + spec.minima, tested + spec.functionals
        return self.sizes() | {
            "NCOMP_OUT": ends[1],
            "MINIMA": tuple(range(tested, ends[0])),
            "SUMS": tuple(range(*ends)),
            "Q1D": 1,
            "POINTS": len(spec.weights),
            **code.numbers.named(),
            "G1D": 1,
            "MODE": Matrix1D([[1.0]] if spec.geometry is None else spec.geometry.value),
            "SLOPE": Matrix1D([[1.0]] if spec.geometry is None else spec.geometry.slope),
            **stored_sizes(self.width, spec.stored, reproducible=self.spec.any_width),
            "WEIGHTS": Matrix1D([spec.weights if code.numbers.weight else [1.0]]),
            "VALUE_IN": code.value_in,
            "VALUE_OUT": code.value_out,
            "GRAD_IN": code.gradient_in,
            "GRAD_OUT": code.gradient_out,
            "PREFETCH": code.numbers.mapped,
            "FAR": _MODES_AHEAD,
            **({"LAYERS": spec.source.factors.line.shape[1]} if spec.source.factors else {}),
            **self._tables("IN", spec.sources, code.value_in, code.gradient_in),
            **self._tables("OUT", spec.targets, code.value_out, code.gradient_out),
        }

    def _tables(
        self, way: str, sides: Sequence[Side], valued: bool, sloped: bool
    ) -> dict[str, object]:
        """Tables of fields ("IN"), or of test functions, and of their factors."""
        if not self.spec.factored:
            return _tiled(way, sides, valued, sloped)
        factored = [side.factors for side in sides if side.factors is not None]
        return {
            f"TABLES_{way}": (Tiles((), 1),) * len(sides),
            f"CHAINS_{way}": (None,) * len(sides),
            **_in_factors(way, factored, valued, sloped),
        }


def _tiled(way: str, sides: Sequence[Side], valued: bool, sloped: bool) -> dict[str, object]:
    """Tables and chains of fields ("IN"), or of test functions, in tiles; see ``multiply``."""
    tables: list[Tiles] = []
    chains: list[tuple[Tiles, Tiles] | None] = []
    for side in sides:
        table, factors = side.table, side.slopes if sloped else None
        assert table is not None
        direct = sloped and factors is None
        tables.append(_in_tiles(table[0 if valued else 1 : None if direct else 1], way))
        chains.append(factors and (_in_tiles(factors[1], way), _in_tiles(factors[0], way)))
    return {f"TABLES_{way}": tuple(tables), f"CHAINS_{way}": tuple(chains)}


def _in_factors(
    way: str, sides: Sequence[Factors], valued: bool, sloped: bool
) -> dict[str, object]:
    """Factors of the tables of fields ("IN"), or of test functions; see ``batch_factors.py``."""
    lines, tables = [], []
    for factors in sides:
        pair = (matrix if way == "IN" else matrix.T for matrix in factors.lines)
        lines.append(tuple(Matrix1D(matrix) for matrix in pair))
        found = factors.tables(valued=valued, sloped=sloped)
        tables.append(tuple((_in_tiles(table, way), turned) for table, turned in found))
    return {
        f"NODES_{way}": tuple(factors.nodes for factors in sides),
        f"LINES_{way}": tuple(lines),
        f"FACTORS_{way}": tuple(tables),
    }


def _in_tiles(table: NDArray[np.float64], way: str) -> Tiles:
    """A table (..., columns), or its transpose, column by column."""
    rows = table.reshape(-1, table.shape[-1])
    rows = rows if way == "IN" else rows.T
    return Tiles.of(rows, _rows_of_tile(len(rows)))


def _rows_of_tile(rows: int) -> int:
    """Rows of each tile of a table: few tiles, and few rows of zeros."""
    return min(range(1, _MOST_ROWS + 1), key=lambda n: (-(-rows // n) * (n + 2), -n))


_MOST_ROWS = 12  # of a tile: more sums than this, and a number, do not fit into 16 registers


@final
@dataclass(frozen=True, eq=False)
class ElementKernel(OperatorKernel):
    """Kernel of a `MatrixSpec`; its source is ``skeletons/batch/batch_element.py``.

    The data of its sweep have the shape (nbatch, rows, columns, width).
    """

    spec: MatrixSpec

    @property
    def parts(self) -> Parts:
        rows, columns = self.spec.shape
        constants = self.sizes() | {"POINTS": rows, "NQDATA": columns}
        return self.skeletons("table", "copies", "batch_element"), constants, ""

    @cached_property
    def multivector(self) -> CompiledKernel:
        """See `OperatorKernel.multivector`. BLAS multiplies the element matrices."""
        constants = self.sizes() | {"GEMM_BYTES": self.spec.dtype.itemsize}
        skeletons = "vector_table", "vector_groups", "vector_rows", "cell_matrix"
        return specialize(skeletons, constants)


@final
@dataclass(frozen=True, eq=False)
class DiagonalKernel(SweepKernel):
    """Kernel that sums the diagonals of element matrices; ``skeletons/batch/batch_diagonal.py``."""

    # specification of the square operator whose diagonal is summed. The operator has one field, or
    # both sides of a field on faces between elements. Blocks that couple the sides are left out.
    spec: PointSpec
    # for each direction (points, nodes): derivatives of the basis functions at the points
    slopes: tuple[NDArray[np.float64], ...]

    @property
    def parts(self) -> Parts:
        target = (self.targets or self.sources)[0]
        end = target.end
        pairs = [*zip(target.given.bases, self.slopes, strict=True)]
        if end is not None:
            pairs[-1] = end[:1], end[1:]
        squares = {"SQUARES": tuple(_squares(*pair) for pair in pairs), "ON_FACES": end is not None}
        kernel = Kernel(self.spec, self.sources, self.targets, self.width)
        around = ("table", "copies", "ahead", "weights", "geometry", "pieces", "face_nodes")
        constants = kernel.constants() | squares
        return self.skeletons(*around, "batch_diagonal"), constants, self.spec.qfunction.text


def _squares(values: NDArray[np.float64], slopes: NDArray[np.float64]) -> tuple[Matrix1D, ...]:
    """Products at points of two values, of a value and a derivative, and of two derivatives.

    ``values`` and ``slopes`` are those of the basis functions, (points, nodes).
    """
    pairs = (values, values), (values, slopes), (slopes, slopes)
    return tuple(Matrix1D((a * b).T) for a, b in pairs)
