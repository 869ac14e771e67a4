"""Kernel of one term of an operator in CUDA C++, from sizes, matrices and a q-function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from types import ModuleType
from typing import Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cuda.device.arguments import Layout
from femops_kernels.cuda.device.sources import TYPES, constants_text, source_of
from femops_kernels.cuda.operator.cg_state import STATE_CONSTANTS
from femops_kernels.cuda.operator.inputs import MARKS, layout_of
from femops_kernels.cuda.operator.shapes import MOST_THREADS, Shape, measured_shape
from femops_kernels.cuda.operator.sides import (
    columns,
    matrix_type,
    sides_text,
    squares,
    table,
    words_of,
)
from femops_kernels.device import Device
from femops_kernels.errors import KernelValueError
from femops_kernels.simd.matrix import Matrix1D
from femops_kernels.spec import MapMatrices, PointSpec, QFunctionCode, Side
from femops_kernels.tuning.database import TuningKey

ROW = 128
"""Bytes that shared memory reads or writes at a time, one word from each bank."""

_FREE = 48 * 1024  # bytes that a block can have on any device


@final
@dataclass(frozen=True)
class Strides:
    """Strides of a work array in shared memory, counted in numbers."""

    # x, y and z: distance of neighbours in each direction
    x: int
    y: int
    z: int
    more: int  # unused numbers between an element of the block and the next one


@final
@dataclass(frozen=True)
class Lines:
    """Lines of points that the threads of a block read and write; see ``element.cuh``."""

    # dim and q1d: number of directions, and of points in each direction
    dim: int
    q1d: int
    p1d: int  # nodes in each direction
    gradient: bool  # True if derivatives are computed
    arrays: int  # work arrays of an element
    elements: int  # number of elements of the block
    itemsize: int  # bytes of a number
    identity: bool = False  # True if the nodes are the points, so that nothing is interpolated

    def rows(self, *tried: Strides) -> NDArray[np.int64]:
        """Number of accesses, of `ROW` bytes each, that all lines need, for each of the strides."""
        q, p = self.q1d, self.p1d
        thread = np.arange(self.elements * q ** (self.dim - 1))
        slot, line = np.divmod(thread, q ** (self.dim - 1))
        second, first = np.divmod(line, q)
        x, y, z, more = np.array([(s.x, s.y, s.z, s.more) for s in tried]).T[..., np.newaxis]
        begin = slot * (self.arrays * q * x + more)
        along_x = begin + second * z + first * y
        along_y = begin + second * z + first * x
        along_z = begin + second * y + first * x
        few, fewest = first < p, (first < p) & (second < p)
        busy = 2 * p * self._busy(along_x, first >= 0)
        if self.dim == 3:
            busy += 2 * (p + q) * self._busy(along_y, few) * (not self.identity)
            busy += 2 * q * self._busy(along_z, fewest)
        else:
            busy += 2 * q * self._busy(along_y, few)
        if self.gradient:
            lines = [along_x, along_y, along_z][: self.dim]
            for along, times in zip(lines, (7 - self.identity, 4, 4), strict=False):
                busy += times * q * self._busy(along, first >= 0)
        return busy

    def _busy(self, begins: NDArray[Any], works: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Number of accesses to shared memory in which all lines read one number each.

        ``begins`` (strides, threads) holds where the line of each thread begins, ``works``
        (threads,) which threads read. An access serves one thread of each bank.
        """
        banks, (cases, threads) = self.banks, begins.shape
        groups = -(-threads // banks)
        at = begins % banks + np.arange(threads) // banks * banks
        at += np.arange(cases)[:, np.newaxis] * groups * banks
        counts = np.bincount(at[:, works].ravel(), minlength=cases * groups * banks)
        return np.asarray(counts.reshape(cases, groups, banks).max(axis=2).sum(axis=1))

    @property
    def banks(self) -> int:
        """Numbers that shared memory reads or writes at a time."""
        return ROW // self.itemsize

    @property
    def widths(self) -> range:
        """Strides of x to try: from no gaps to rows of odd length, or more if memory is free."""
        odd = self.q1d | 1
        plane, plain = (self.q1d**2, self.q1d * odd) if self.dim == 3 else (self.q1d, odd)
        spare = _FREE // (self.itemsize * self.arrays * self.q1d)
        return range(plane, min(plane + self.banks, max(plain, spare) + 1))

    @property
    def most(self) -> int:
        """Most numbers of shared memory that an element takes with any of the strides to try."""
        return self.arrays * self.q1d * self.widths[-1] + self.banks - 1


@lru_cache(maxsize=512)
def strides_for(lines: Lines) -> Strides:
    """Strides with which shared memory is busy for the shortest time.

    y is fastest, then z, which leaves the fewest conflicts at most orders.  The function tries all
    distances between planes of equal x, and between elements.
    """
    if lines.dim == 1:
        return Strides(1, 1, 1, 0)  # all is in registers
    gaps = range(lines.banks if lines.elements > 1 else 1)
    tried = [Strides(x, 1, lines.q1d, more) for x in lines.widths for more in gaps]
    return tried[int(np.argmin(lines.rows(*tried)))]  # the narrowest of the best


def face_strides(q1d: int) -> Strides:
    """Strides of the points of a face: rows have odd length, for few bank conflicts in columns."""
    return Strides(1, q1d | 1, 0, 0)


# Threads of a block, and of a multiprocessor; see `shape_for`.
_THREADS, _RESIDENT = 128, 768
_FACE_THREADS, _FACE_RESIDENT = 256, 1024
_RESERVED = 1024  # bytes of shared memory that CUDA takes for each block


@dataclass(frozen=True, eq=False)
class CudaKernel(ABC):
    """Kernel of ``y += alpha sum_e B_out^T D B_in x`` in CUDA C++."""

    spec: PointSpec
    shape: Shape
    # True if the kernel also updates vectors of conjugate gradients, see ``merged.cuh``
    merged: bool = False
    # work of the kernel.  "apply" applies the operator to x.  "apply_many" applies it to many
    # vectors, see ``apply_many.cuh``.  "diagonal" adds its diagonal to y, see ``diagonal.cuh``.
    # "fill" stores the q-function's results at points, as many as the target has components, see
    # ``fill.cuh`` and `filling`.
    entry: str = "apply"
    # number of vectors that a block works on.  Only a block of "apply_many" has more than one.
    vectors: int = 1
    reader: CudaKernel | None = None  # the kernel that reads the qdata which this one stores

    @abstractmethod
    def filling(
        self,
        device: Device,
        sources: tuple[Side, ...],
        qfunction: QFunctionCode,
        geometry: MapMatrices | None,
        numbers: int,
    ) -> CudaKernel:
        """Kernel that computes, in float64, the qdata which this one reads.

        It has the thread blocks of this kernel, or equal parts of them if its elements need more
        memory.
        """

    def _filling_spec(
        self,
        sources: tuple[Side, ...],
        qfunction: QFunctionCode,
        geometry: MapMatrices | None,
        numbers: int,
    ) -> PointSpec:
        return PointSpec(
            dim=self.spec.dim,
            sources=sources,
            targets=(replace(sources[0], ncomp=numbers),),
            dtype=np.dtype(np.float64),
            qfunction=qfunction,
            weights=self.spec.weights,
            d1d=self.spec.d1d,
            geometry=geometry,
        )

    @property
    @abstractmethod
    def lines(self) -> int:
        """Threads of an element."""

    @property
    @abstractmethod
    def points(self) -> int:
        """Quadrature points of an element."""

    @property
    @abstractmethod
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a block."""

    @cached_property
    @abstractmethod
    def text(self) -> str:
        """Source in CUDA C++, without ``device.cuh``, which the device adds."""

    @abstractmethod
    def stream_shape(self, numbers: int, blocks: int) -> tuple[int, ...]:
        """Shape of the array of ``numbers`` numbers at each point, in the order of the threads."""

    @abstractmethod
    def streamed(self, xp: ModuleType, values: Any) -> Any:
        """Numbers of whole blocks, (elements, points, n), in the shape `stream_shape`."""

    @abstractmethod
    def unstreamed(self, stream: Any, numbers: int) -> Any:
        """Inverse of `streamed`: (elements, points, n)."""

    def by_element(self, values: NDArray[Any]) -> NDArray[Any]:
        """Numbers of all elements, (elements, n), in the order in which the kernel reads them."""
        return values

    @property
    def staged(self) -> bool:
        """True if the qdata of a block are copied to shared memory first."""
        return False

    @property
    def persistent(self) -> bool:
        """True if a block works on one portion of the elements after the other."""
        return False

    @property
    def target(self) -> Side:
        """The test function, or the first one; the first field if there is no test function."""
        return self.spec.target

    @property
    def vector_threads(self) -> int:
        """Threads of a block that work on the same vector."""
        return self.shape.elements * self.lines

    @property
    def threads(self) -> int:
        """Threads per block."""
        return self.vector_threads * self.vectors

    @property
    def _ncomp(self) -> tuple[int, int]:
        """Components of all fields, and of all test functions."""
        spec = self.spec
        return sum(side.ncomp for side in spec.sources), sum(side.ncomp for side in spec.targets)

    @property
    def ordered(self) -> bool:
        """True if the order of a launch's elements may differ from their numbering."""
        if self.reader is not None:
            return self.reader.ordered
        return any(side.ghosts for side in (*self.spec.sources, *self.spec.targets))

    @cached_property
    def layout(self) -> Layout:
        """Layout of the arguments."""
        return layout_of(self.spec)

    @property
    def tables(self) -> NDArray[np.float64] | None:
        """Tables that the kernel reads from memory; None if its text has all of them."""
        return None

    def _head(self, numbers: Mapping[str, int], more: Mapping[str, bool]) -> str:
        """C++ text of types, sizes and switches, of which some are the kernel's own."""
        qfunction = self.spec.qfunction
        switches = {
            **more,
            "REPRODUCIBLE": self.spec.reproducible,
            "ORDERED": self.ordered,
            "VALUE_IN": qfunction.value_in,
            "VALUE_OUT": qfunction.value_out,
            "GRAD_IN": qfunction.gradient_in,
            "GRAD_OUT": qfunction.gradient_out,
            "MERGED": self.merged,
            "MANY": self.entry == "apply_many",
            "PERSISTENT": self.persistent,
        }
        arithmetic, stored = TYPES[self.spec.dtype.name], TYPES[self.spec.stored.name]
        types, reading = f"using T = {arithmetic};\nusing S = {stored};", ""
        if (reader := self.reader) is not None:  # the type and the elements per block of its qdata
            kind, group = TYPES[reader.spec.stored.name], reader.shape.elements
            reading = f"using F = {kind};\nconstexpr int GROUP = {group};"
        lines = [f"constexpr bool {name} = {str(b).lower()};" for name, b in switches.items()]
        return "\n".join([types, constants_text(numbers), *lines, reading, ""])


@final
@dataclass(frozen=True, eq=False)
class LineKernel(CudaKernel):
    """Kernel of ``y += alpha sum_e B_out^T D B_in x``; see ``element.cuh`` and ``face.cuh``.

    Elements have the same basis in all directions.
    """

    @staticmethod
    def fitting(device: Device, spec: PointSpec) -> LineKernel:
        """Kernel with a launch shape that suits a device; see `shape_for`."""
        single = LineKernel(spec, Shape(1))
        return replace(single, shape=shape_for(single, device))

    @property
    def identity(self) -> tuple[bool, bool]:
        """Two flags: the points are the nodes of the field, and of the test function."""
        source, target = self.spec.source, self.spec.target
        return Matrix1D(source.bases[0]).is_identity, Matrix1D(target.bases[0]).is_identity

    def filling(
        self,
        device: Device,
        sources: tuple[Side, ...],
        qfunction: QFunctionCode,
        geometry: MapMatrices | None,
        numbers: int,
    ) -> LineKernel:
        spec = self._filling_spec(sources, qfunction, geometry, numbers)
        made = LineKernel(spec, Shape(1), entry="fill", reader=self)
        most = shape_of(made, device, self.vector_threads, _RESIDENT).elements
        group = self.shape.elements
        elements = max(n for n in range(1, most + 1) if group % n == 0)
        shape = shape_of(made, device, elements * self.lines, _RESIDENT)
        return unspilled(replace(made, shape=shape), device)

    @property
    def lines(self) -> int:
        """Threads of an element. Each has a line of points, or on a face one point."""
        return int(self.spec.q1d ** (self.spec.dim - 1))

    @property
    def points(self) -> int:
        return self.lines * self.line_points

    @property
    def line_points(self) -> int:
        """Number of quadrature points that a thread works on: a line, or one on a face."""
        return 1 if self.spec.has_end else self.spec.q1d

    @property
    def ncomp(self) -> int:
        """Most components of values that are in shared memory at a time."""
        source, target = self._ncomp
        return source if self.entry == "fill" else max(source, target)

    @property
    def work_arrays(self) -> int:
        """Number of work arrays of an element, for all components together."""
        gradient = self.spec.qfunction.gradient_in or self.spec.qfunction.gradient_out
        buffers = 0 if self.spec.dim == 1 else 2 if self.spec.dim == 3 and gradient else 1
        return (1 + self.spec.dim * gradient if self.spec.has_end else buffers) * self.ncomp

    @property
    def bank_lines(self) -> Lines:
        """Lines of points that threads read and write in shared memory."""
        sides = (*self.spec.sources, *self.spec.targets)
        p1d = max(side.p1d for side in sides)
        collocated = all(Matrix1D(side.bases[0]).is_identity for side in sides)
        gradient = self.spec.qfunction.gradient_in or self.spec.qfunction.gradient_out
        sizes = self.spec.dim, self.spec.q1d, p1d, gradient, self.work_arrays, self.shape.elements
        return Lines(*sizes, self.spec.dtype.itemsize * self.vectors, collocated)

    def shape_key(self, device: str) -> TuningKey:
        """Key of the launch shape in the tuning database, by a device's name or architecture."""
        spec = self.spec
        sides = (" + ".join(map(words_of, sides)) for sides in (spec.sources, spec.targets))
        types = f"{spec.dtype}, stored {spec.stored}{', reproducible' * spec.reproducible}"
        points = f"{spec.q1d} points{' of faces' * spec.has_end}"
        text = f"{spec.dim}-D, {points}; {spec.qfunction.words(*sides)}; {types}"
        return TuningKey(device, text)

    @cached_property
    def strides(self) -> Strides:
        """Strides of work arrays in shared memory, in numbers of one vector."""
        return face_strides(self.spec.q1d) if self.spec.has_end else strides_for(self.bank_lines)

    @property
    def volume(self) -> int:
        """Numbers of a work array."""
        if self.spec.has_end:
            return self.strides.y * self.spec.q1d if self.spec.dim == 3 else self.lines
        return self.spec.q1d * self.strides.x

    @property
    def slab(self) -> int:
        """Numbers from the begin of an element's work arrays to the begin of the next element's."""
        return self.work_arrays * self.volume + self.strides.more

    @property
    def staged(self) -> bool:
        """True if the qdata of a block are copied to shared memory first."""
        applies = self.entry in ("apply", "apply_many")
        return applies and self.shape.staged and self.spec.qfunction.numbers.point > 0

    @property
    def persistent(self) -> bool:
        """True if a block works on one portion of the elements after the other."""
        return self.staged and self.shape.persistent and self.entry == "apply"

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory of a block: sums, work arrays, staged qdata and their barrier."""
        return self._stage_at + (self._stream_bytes + 32) * self.staged

    @property
    def _stage_at(self) -> int:
        """Offset of the staged qdata in shared memory, a multiple of 16 bytes."""
        slabs = self.shape.elements * self.slab * self.vectors * self.spec.dtype.itemsize
        before = slabs + self.threads * 8 * self.merged
        return -(-before // 16) * 16 if self.staged else before

    @property
    def _stream_bytes(self) -> int:
        """Bytes of the qdata of a block."""
        numbers = self.line_points * self.spec.qfunction.numbers.point
        pieces = -(-numbers * self.spec.stored.itemsize // 16)
        return 16 * pieces * self.vector_threads

    def stream_shape(self, numbers: int, blocks: int) -> tuple[int, ...]:
        """Each block has the numbers of its threads' points, in pieces of 16 bytes."""
        piece = 16 // self.spec.stored.itemsize
        return blocks, -(-self.line_points * numbers // piece), self.vector_threads, piece

    def streamed(self, xp: ModuleType, values: Any) -> Any:
        numbers = self.line_points * values.shape[2]
        shape = self.stream_shape(values.shape[2], len(values) // self.shape.elements)
        blocks, pieces, threads, piece = shape
        padded = xp.zeros((blocks * threads, pieces * piece), self.spec.stored)
        padded[:, :numbers] = values.reshape(-1, numbers)
        return padded.reshape(blocks, threads, pieces, piece).swapaxes(1, 2)

    def unstreamed(self, stream: Any, numbers: int) -> Any:
        blocks, _, threads, _ = stream.shape
        lines = stream.swapaxes(1, 2).reshape(blocks, threads, -1)
        used = lines[:, :, : self.line_points * numbers]
        return used.reshape(blocks * self.shape.elements, -1, numbers)

    @cached_property
    def text(self) -> str:
        """Source in CUDA C++, without ``device.cuh``, which the device adds."""
        qfunction = self.spec.qfunction.cuda(self.spec.dim, self._ncomp[0])
        parts = [self._sizes(), self.layout.text, self._matrices(), source_of("contraction")]
        files = ["dofs", "ghosts", "staged_stream" if self.staged else "stream", "numbers"]
        files += ["reduce", "cg_state", "merged", "operator", "marks", "lines"]
        files += ["face" if self.spec.has_end else "element", "step"]
        files.append("face_" * (self.spec.has_end and self.entry == "diagonal") + self.entry)
        parts.append(constants_text(STATE_CONSTANTS))
        return "\n".join([*parts, qfunction, *map(source_of, files)])

    def _sizes(self) -> str:
        qfunction, (source, target) = self.spec.qfunction, self._ncomp
        numbers = {
            "DIM": self.spec.dim,
            "Q": self.spec.q1d,
            "POINTS": self.line_points,
            "G1D": 1 if self.spec.geometry is None else self.spec.geometry.g1d,
            "NCOMP_IN": source,
            "NCOMP_TEST": target,
            "NCOMP_OUT": target + self.spec.minima + self.spec.sums,
            "NCOMP": self.ncomp,
            "NMINIMA": self.spec.minima,
            **qfunction.numbers.named(),
            "ELEMENTS": self.shape.elements,
            "BLOCKS": self.shape.blocks,
            "LINES": self.lines,
            "THREADS": self.threads,
            "VECTORS": self.vectors,
            **{f"STRIDE_{d.upper()}": getattr(self.strides, d) * self.vectors for d in "xyz"},
            "VOLUME": self.volume * self.vectors,
            "SLAB": self.slab * self.vectors,
            "PIECE": 16 // self.spec.stored.itemsize,
            "STREAM_BYTES": self._stream_bytes,
            "STAGE_AT": self._stage_at,
            **MARKS,
        }
        return self._head(numbers, {"FACES": self.spec.has_end})

    def _matrices(self) -> str:
        spec, many = self.spec, self.entry == "apply_many"
        sides = sides_text(spec.sources, spec.targets, spec.blocks, many=many)
        parts = [sides, matrix_type("D", Matrix1D(self.spec.d1d))]
        weighted = self.spec.qfunction.numbers.weight
        parts.append(table("WEIGHTS", self.spec.weights if weighted else np.zeros(1)))
        if self.entry == "diagonal":
            b1d = self.target.bases[0]
            parts.append(squares("SQUARES", b1d, self.spec.d1d @ b1d))
            if self.target.near_end is not None:
                parts.append(squares("ENDS", *self.target.near_end))
        value, slope = np.zeros((1, 1)), np.zeros((1, 1))
        if self.spec.geometry is not None:
            value, slope = self.spec.geometry.value, self.spec.geometry.slope
        return "".join([*parts, columns("MODE", value), columns("SLOPE", slope)])


K = TypeVar("K", bound=CudaKernel)


def shape_for(kernel: LineKernel, device: Device) -> Shape:
    """Launch shape from the tuning database, else the shape that a model chooses.

    The database has shapes for a device by name, or for all devices of its architecture.  A shape
    of the database is not changed, even if its kernel spills some registers.

    The model takes about `_THREADS` threads per block.  With fewer, small elements leave warps half
    empty; with more, threads wait longer at barriers.  It leaves registers for `_RESIDENT` threads
    per multiprocessor, which then has work while memory answers.  More are faster on faces where
    functions have derivatives: a thread has one point there.  The device compiles the kernel to
    count registers.  If they do not suffice, fewer blocks share a multiprocessor: none is spilled.
    """
    names = device.name, device.arch
    measured = next(filter(None, (measured_shape(kernel.shape_key(name)) for name in names)), None)
    if measured is None:
        sizes = (_FACE_THREADS, _FACE_RESIDENT) if kernel.spec.has_end else (_THREADS, _RESIDENT)
        model = shape_of(kernel, device, *sizes)
        return unspilled(replace(kernel, shape=model), device).shape
    if not is_possible(replace(kernel, shape=measured), device):
        ways = ", staged" * measured.staged + ", persistent" * measured.persistent
        raise KernelValueError(
            f"a table of launch shapes has {measured.elements} elements per block{ways} for a "
            f"kernel that {device.name} can't run so: measure again by femops bench gpu --sweep"
        )
    return measured


def is_possible(kernel: LineKernel, device: Device) -> bool:
    """True if a device can run a kernel with its launch shape, apart from registers."""
    wrong = kernel.shape.persistent and not kernel.shape.staged
    if wrong or (kernel.staged and not device.copies_blocks):
        return False
    room = kernel.shared_bytes <= device.shared_bytes or not kernel.staged
    return room and kernel.shape.elements <= most_elements(kernel, device)


def staged_shapes(kernel: LineKernel, device: Device, shapes: Iterable[Shape]) -> list[Shape]:
    """Staged variants of the shapes that fit into shared memory, then their persistent variants.

    ``blocks`` is lowered to the number that shared memory has room for.
    """
    fitting: dict[Shape, None] = {}
    for shape in shapes:
        staged = replace(kernel, shape=replace(shape, staged=True))
        if staged.staged and is_possible(staged, device):
            room = (device.shared_bytes + _RESERVED) // (staged.shared_bytes + _RESERVED)
            fitting[replace(staged.shape, blocks=min(shape.blocks, room))] = None
    return [replace(shape, persistent=flag) for flag in (False, True) for shape in fitting]


def shape_of(kernel: LineKernel, device: Device, threads: int, resident: int) -> Shape:
    """Shape with about ``threads`` per block and registers for ``resident`` per multiprocessor."""
    most = most_elements(kernel, device)
    if most < 1:
        shared = replace(kernel, shape=Shape(1)).slab * kernel.spec.dtype.itemsize
        raise KernelValueError(
            f"an element needs {shared} bytes of shared memory and {kernel.lines} threads, a block "
            f"of {device.name} has {device.shared_bytes} and {MOST_THREADS}: take a lower order or "
            "fewer components"
        )
    elements = min(max(1, threads // kernel.lines), most)
    warps = -(-elements * kernel.lines // 32)
    return Shape(elements, max(1, resident // (32 * warps)))


def most_elements(kernel: LineKernel, device: Device) -> int:
    """Largest number of elements that a block's threads and shared memory allow, or 0."""
    if not kernel.work_arrays:
        return MOST_THREADS
    room = device.shared_bytes // (kernel.spec.dtype.itemsize * kernel.vectors)
    slab = replace(kernel, shape=Shape(1)).slab
    if slab > room:
        return 0
    most = slab if kernel.spec.has_end else kernel.bank_lines.most
    return min(MOST_THREADS // (kernel.lines * kernel.vectors), max(1, room // most))


def unspilled(kernel: K, device: Device) -> K:
    """Variant of the kernel with as many blocks per multiprocessor as registers allow."""

    def tried(blocks: int) -> K:
        return replace(kernel, shape=replace(kernel.shape, blocks=blocks))

    def spills(blocks: int) -> bool:
        return device.function(tried(blocks).text).local_bytes > 0

    most = kernel.shape.blocks
    if most == 1 or not spills(most):
        return kernel
    return tried(1 + bisect_left(range(2, most), True, key=spills))
