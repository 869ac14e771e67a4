"""Kernel of one term of an operator in CUDA C++, by tables of functions that are no products."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, groupby
from types import ModuleType
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cuda.device.arguments import Layout
from femops_kernels.cuda.device.sources import constants_text, source_of
from femops_kernels.cuda.operator.cg_state import STATE_CONSTANTS
from femops_kernels.cuda.operator.dofs import interleaved
from femops_kernels.cuda.operator.inputs import MARKS, layout_of
from femops_kernels.cuda.operator.kernel import CudaKernel, unspilled
from femops_kernels.cuda.operator.shapes import Shape
from femops_kernels.cuda.operator.sides import SideTexts, runs_of, sides_text, switches, table
from femops_kernels.device import Device
from femops_kernels.errors import KernelValueError
from femops_kernels.spec import MapMatrices, PointSpec, QFunctionCode, Side

PARTS = 8
"""Threads of an element whose nodes and sums are too many for the registers of one."""

_HELD = 160  # 32-bit registers that nodes and sums may take
_CONSTANT_BYTES = 60_000  # constant memory has 64 kB
_UNROLLED = 1500  # multiply-adds of an element up to which its points are unrolled
_COLUMNS, _MANY_COLUMNS = 64, 32  # elements times vectors of a block
_AHEAD = 4  # points before a point at which its numbers are asked for
_RESIDENT = 512  # threads of a multiprocessor


@final
@dataclass(frozen=True, eq=False)
class TableKernel(CudaKernel):
    """Kernel that multiplies by tables; see ``table.cuh``."""

    @staticmethod
    def fitting(device: Device, spec: PointSpec) -> TableKernel:
        """Kernel with a launch shape that a device has room for."""
        return TableKernel(spec, Shape(1))._fitted(device)

    def filling(
        self,
        device: Device,
        sources: tuple[Side, ...],
        qfunction: QFunctionCode,
        geometry: MapMatrices | None,
        numbers: int,
    ) -> TableKernel:
        spec = self._filling_spec(sources, qfunction, geometry, numbers)
        made = TableKernel(spec, Shape(1), entry="fill", reader=self)
        return made._fitted(device, self.shape.elements)

    def for_many(self, device: Device, nvec: int) -> TableKernel:
        """Variant for many vectors, of which a block works on up to eight."""
        vectors = next((n for n in (8, 4, 2) if nvec >= n), 1)
        made = replace(self, entry="apply_many", vectors=vectors)
        return made._fitted(device, max(1, _MANY_COLUMNS // vectors))

    def _fitted(self, device: Device, elements: int = 0) -> TableKernel:
        """Variant with ``elements`` per block or, if there is no room, a part of them."""
        elements = elements or (_COLUMNS if self.lines == 1 else _COLUMNS // 2)
        while replace(self, shape=Shape(elements)).shared_bytes > device.shared_bytes:
            if elements % 2:
                raise KernelValueError(
                    f"an element needs {replace(self, shape=Shape(1)).shared_bytes} bytes of "
                    f"shared memory, a block of {device.name} has {device.shared_bytes}: take a "
                    "lower order or fewer components"
                )
            elements //= 2
        threads = elements * self.vectors * self.lines
        shape = Shape(elements, max(1, _RESIDENT // (-(-threads // 32) * 32)))
        return unspilled(replace(self, shape=shape), device)

    @property
    def points(self) -> int:
        return self.spec.q1d

    @cached_property
    def lines(self) -> int:
        if self._by_component:
            return self.spec.source.ncomp
        return 1 if self._held(*self.spec.sources, *self._targets) else PARTS

    def _held(self, *sides: Side) -> bool:
        """True if a thread has registers for all nodes, and sums, of these sides."""
        return _numbers(sides) * self.spec.dtype.itemsize <= 4 * _HELD

    @cached_property
    def _by_component(self) -> bool:
        """True if a thread has one component of an element, as it has no registers for all."""
        spec, given = self.spec, (*self.spec.sources, *self._targets)
        ncomp = {side.ncomp for side in given}
        alike = len(spec.sources) == len(spec.targets) == len(ncomp) == 1 and not spec.functionals
        if not alike or self.entry not in ("apply", "apply_many") or self._held(*given):
            return False
        return self._held(*(replace(side, ncomp=1) for side in given))

    @property
    def shared_numbers(self) -> int:
        """Numbers that ``table.cuh`` writes to shared memory and reads there, for one element."""
        if self.lines == 1:
            return 0
        nodes, points = _numbers(self.spec.sources), self.spec.q1d
        if self._by_component:
            return self._slots_in * points * (1 + self.lines)
        return nodes * (1 + points) + self._slots_out * points * (1 + self.lines)

    @property
    def columns(self) -> int:
        """Elements times vectors of a block."""
        return self.shape.elements * self.vectors

    @property
    def _slots_in(self) -> int:
        """Values and derivatives of all fields at a point."""
        qfunction = self.spec.qfunction
        return self._ncomp[0] * (qfunction.value_in + self.spec.dim * qfunction.gradient_in)

    @property
    def _slots_out(self) -> int:
        """Factors of all test functions at a point."""
        qfunction = self.spec.qfunction
        return self._ncomp[1] * (qfunction.value_out + self.spec.dim * qfunction.gradient_out)

    @property
    def shared_bytes(self) -> int:
        work = 0
        if self._by_component:
            work = 2 * self._slots_in * self.columns
        elif self.lines > 1 and self.entry != "diagonal":  # whose threads share nothing
            factors = 0 if self.entry == "fill" else self.lines * max(self._slots_out, 1)
            work = (_numbers(self.spec.sources) + factors) * self.columns
        return work * self.spec.dtype.itemsize + self.threads * 8 * self.merged

    @cached_property
    def layout(self) -> Layout:
        return layout_of(self.spec, {"tables": "const T*"})

    def stream_shape(self, numbers: int, blocks: int) -> tuple[int, ...]:
        return blocks, self.spec.q1d, numbers, self.shape.elements

    def streamed(self, xp: ModuleType, values: Any) -> Any:  # noqa: ARG002
        grouped = values.reshape(-1, self.shape.elements, *values.shape[1:])
        return grouped.transpose(0, 2, 3, 1)

    def unstreamed(self, stream: Any, numbers: int) -> Any:
        return stream.transpose(0, 3, 1, 2).reshape(-1, self.spec.q1d, numbers)

    def by_element(self, values: NDArray[Any]) -> NDArray[Any]:
        return interleaved(values)

    @cached_property
    def _sides(self) -> _Tables:
        spec, qfunction = self.spec, self.spec.qfunction
        sides = [("Source", side) for side in spec.sources]
        sides += [("Target", side) for side in self._targets]
        value = qfunction.value_in or qfunction.value_out
        slope = qfunction.gradient_in or qfunction.gradient_out
        kinds = slice(1 - value, 1 + spec.dim * slope)
        parts = 1 if self._by_component else self.lines
        return _Tables.of(sides, spec, parts, kinds, apart=self._unrolled)

    @property
    def _unrolled(self) -> bool:
        """True if a thread has all points, and the text repeats the work for each of them."""
        code, dim = self.spec.qfunction, self.spec.dim
        read = _numbers(self.spec.sources) * (code.value_in + dim * code.gradient_in)
        written = _numbers(self._targets) * (code.value_out + dim * code.gradient_out)
        each = (read + written) // (self.lines if self._by_component else 1)
        return self.lines != PARTS and each * self.spec.q1d <= _UNROLLED

    @property
    def _targets(self) -> tuple[Side, ...]:
        """Test functions whose sums a thread has."""
        return () if self.entry == "fill" else self.spec.targets

    @property
    def tables(self) -> NDArray[np.float64] | None:
        return self._sides.numbers if self._sides.in_memory else None

    @cached_property
    def text(self) -> str:
        spec, qfunction = self.spec, self.spec.qfunction
        source, target = self._ncomp
        nodes, sums = (_numbers(sides) for sides in (spec.sources, self._targets))
        held = max(nodes, sums)
        if self._by_component:
            held //= self.lines
        elif self.lines > 1:  # the thread's part of the sums
            held = sum(-(-s.num_nodes // self.lines) * s.ncomp for s in self._targets)
        given = qfunction.numbers
        if given.mapped:
            raise KernelValueError(
                "kernels of a GPU do not compute the geometry of triangles and tetrahedra: take "
                "level='partial'"
            )
        numbers = {
            "DIM": spec.dim,
            "POINTS": spec.q1d,
            "PARTS": self.lines,
            "AHEAD": max(self.lines, _AHEAD),
            "HELD": max(held, 1),
            "NODES_IN": nodes,
            "UNROLLED_NODES": 4 if self.lines > 1 else max(nodes, 1),
            "UNROLLED_POINTS": spec.q1d if self._unrolled else 1,
            "NCOMP_IN": source,
            "NCOMP_TEST": target,
            "NCOMP_OUT": target + spec.minima + spec.sums,
            "NMINIMA": spec.minima,
            **given.named(),
            "ELEMENTS": self.shape.elements,
            "BLOCKS": self.shape.blocks,
            "THREADS": self.threads,
            "VECTORS": self.vectors,
            **MARKS,
        }
        weights = spec.weights if given.weight else np.zeros(1)
        parts = [self._head(numbers, {}), self.layout.text]
        parts += [sides_text(spec.sources, self._targets, spec.blocks, by=self._sides)]
        parts += [table("WEIGHTS", weights), constants_text(STATE_CONSTANTS)]
        parts.append(qfunction.cuda(spec.dim, source))
        files = ["ghosts", "reduce", "cg_state", "merged", "marks", "table"]
        files.append("table_components" if self._by_component else "table_nodes")
        own = self.entry in ("fill", "diagonal")
        return "\n".join([*parts, *map(source_of, [*files, "table_" * own + self.entry])])


def _numbers(sides: Sequence[Side]) -> int:
    """Numbers that an element has of all sides."""
    return sum(side.num_nodes * side.ncomp for side in sides)


@final
@dataclass(frozen=True, eq=False)
class _Tables(SideTexts):
    """C++ types of sides with tables. Sides with one table share its numbers."""

    texts: list[str]
    numbers: NDArray[np.float64]  # (n,): all tables, one after the other
    first: dict[tuple[str, int], int]  # where each table begins
    apart: bool  # True if fields and test functions have tables of their own
    in_memory: bool  # True if constant memory has no room
    dim: int
    parts: int
    kinds: slice  # of each entry: the value is the first one
    begins: dict[str, int] = field(default_factory=lambda: {"Source": 0, "Target": 0})

    @staticmethod
    def of(
        sides: Sequence[tuple[str, Side]], spec: PointSpec, parts: int, kinds: slice, *, apart: bool
    ) -> _Tables:
        """Tables (points, functions, kinds) of all sides.

        If fields and test functions have copies ``apart``, the compiler does not keep an entry in a
        register from its use for the one to its use for the other.
        """
        given = {_key(kind, side, apart): side.table for kind, side in sides}
        made = [np.moveaxis(t[kinds], 0, 2).ravel() for t in given.values() if t is not None]
        first = dict(zip(given, [0, *accumulate(map(len, made))], strict=False))
        numbers = np.concatenate([*made, np.zeros(1)])
        in_memory = (len(numbers) + spec.q1d) * spec.dtype.itemsize > _CONSTANT_BYTES
        texts = [] if in_memory else [table("TABLE", numbers)]
        return _Tables(texts, numbers, first, apart, in_memory, spec.dim, parts, kinds)

    def lines(self, name: str, side: Side, first: int) -> list[str]:
        runs = runs_of(replace(side, on_faces=False), self.dim, tabulated=True)
        nodes = side.num_nodes
        kind, mine = name.split("_", maxsplit=1)[0], -(-nodes // self.parts)
        begin = self.begins[kind]
        self.begins[kind] += side.ncomp * (nodes if kind == "Source" else mine)
        sizes = {"N": nodes, "NCOMP": side.ncomp, "FIRST": first, "MINE": mine}
        sizes |= {"BEGIN" if kind == "Source" else "SUMS": begin, "RUNS": len(runs.nodes)}
        sizes |= {"INSIDE": len(runs.inside)}
        counted = ", ".join(f"{key} = {n}" for key, n in sizes.items())
        run, place = _runs_text([len(each) for each in runs.nodes])
        return [
            f"struct {name} {{",
            f"    static constexpr int {counted};",
            f"    static constexpr bool {switches(side)};",
            f"{_FUNCTION} int run(int n) {{ return {run}; }}",
            f"{_FUNCTION} int place(int n) {{ return {place}; }}",
            *self._row(self.first[_key(kind, side, self.apart)]),
        ]

    def _row(self, first: int) -> list[str]:
        """C++ lines of the function that reads the values and derivatives of a function."""
        count, slopes = self.kinds.stop - self.kinds.start, 1 - self.kinds.start
        read = "__ldg(tables + {})" if self.in_memory else "TABLE[{}]"
        at = f"{first} + (k * N + n) * {count}"
        value = read.format(at) if slopes else "T(0)"
        entry = read.format(f"{at} + {slopes} + d")
        return [
            "    template <bool VALUE, bool SLOPES>",
            f"{_FUNCTION} void row(const T* tables, int k, int n, T (&to)[1 + DIM]) {{",
            "        (void)tables;",
            f"        if constexpr (VALUE) to[0] = {value};",
            "#pragma unroll",
            f"        for (int d = 0; d < DIM && SLOPES; ++d) to[1 + d] = {entry};",
            "    }",
        ]


_FUNCTION = "    static __device__ __forceinline__"


def _key(kind: str, side: Side, apart: bool) -> tuple[str, int]:
    return kind if apart else "", id(side.table)


def _runs_text(sizes: Sequence[int]) -> tuple[str, str]:
    """C++ expressions of the run of node n, and of the node's place in it."""
    run, place, node, before = list[str](), list[str](), 0, 0
    for size, group in groupby(sizes):
        count = len(list(group))
        node += size * count
        inner = f"(n - {node - size * count})"
        test = f"n < {node} ? " if before + count < len(sizes) else ""
        run.append(f"{test}{before} + {inner} / {size}")
        place.append(f"{test}{inner} % {size}")
        before += count
    return " : ".join(run), " : ".join(place)
