"""Specifications of kernels: the work on each element and at each point, for any machine."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import accumulate, pairwise
from typing import Any, ClassVar, final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.errors import KernelValueError
from femops_kernels.pointwise.recording import Recording
from femops_kernels.simd.matrix import Matrix1D

MOST_REPEATED = 32
"""Number of lines of a q-function up to which kernels repeat it for each point of a line."""


@final
@dataclass(frozen=True)
class QFunctionInputs:
    """Counts of the numbers that a q-function takes besides the field, by kind.

    The q-function takes the kinds in the order of the attributes.
    """

    element: int = 0  # count of numbers stored for each element
    # dim**2 or 0: derivatives of the position by rows, computed from the element's geometry
    jacobian: int = 0
    position: int = 0  # dim or 0: the position, computed from the element's geometry
    weight: int = 0  # 1 or 0: the quadrature weight on the reference element
    constant: int = 0  # count of numbers that are the same everywhere
    point: int = 0  # count of numbers stored at each quadrature point

    @property
    def total(self) -> int:
        """Count of all numbers."""
        return sum(self.counts())

    @property
    def mapped(self) -> bool:
        """True if the q-function takes numbers computed from the element's geometry."""
        return self.jacobian + self.position > 0

    def counts(self) -> tuple[int, ...]:
        """Return the counts of all kinds, in the order of the attributes."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def named(self) -> dict[str, int]:
        """Return {name in kernels: count}, in the order of the attributes."""
        names = "NELEMENT", "NJACOBIAN", "NPOSITION", "NWEIGHT", "NCONSTANT", "NQDATA"
        return dict(zip(names, self.counts(), strict=True))

    def slices(self) -> list[slice]:
        """Return the range of each kind among all numbers, in the order of the attributes."""
        ends = list(accumulate(self.counts(), initial=0))
        return [slice(a, b) for a, b in pairwise(ends)]


@final
@dataclass(frozen=True)
class QFunctionCode:
    """The q-function of a kernel, as text."""

    # definition of ``pointwise(u, ux, uy, uz, q)`` in lane Python, decorated with ``@inner``.
    # Each argument is a tuple of lane vectors.  ``u, ux, uy, uz`` have the field and its
    # reference derivatives by component, and ``q`` all other numbers.  The function returns ``(v,
    # vx, vy, vz)``, the factors of the test function and of its reference derivatives. For a
    # factor that kernels do not use, it returns the argument at this place.
    text: str
    numbers: QFunctionInputs  # contents of ``q``
    # values_in and slopes_in: components of the field whose values are read, and components whose
    # derivatives are read
    values_in: tuple[int, ...]
    slopes_in: tuple[int, ...]
    # values_out and slopes_out: components of ``v`` that are used, and components of ``vx, vy,
    # vz`` that are used
    values_out: tuple[int, ...]
    slopes_out: tuple[int, ...]

    @property
    def value_in(self) -> bool:
        """True if values of the field are read."""
        return bool(self.values_in)

    @property
    def gradient_in(self) -> bool:
        """True if derivatives of the field are read."""
        return bool(self.slopes_in)

    @property
    def value_out(self) -> bool:
        """True if ``v`` is used."""
        return bool(self.values_out)

    @property
    def gradient_out(self) -> bool:
        """True if ``vx, vy, vz`` are used."""
        return bool(self.slopes_out)

    @property
    def short(self) -> bool:
        """True if kernels repeat the text for each point of a line."""
        return not self.numbers.mapped and self.text.count("\n") <= MOST_REPEATED

    def words(self, source: str, target: str) -> str:
        """Describe the inputs and outputs, for the key of the kernel in the tuning database."""
        sides = (
            (source, self.value_in, self.gradient_in),
            (target, self.value_out, self.gradient_out),
        )
        read, written = (
            f"{side}, " + " and ".join(["value"] * value + ["gradient"] * gradient)
            for side, value, gradient in sides
        )
        given = ", ".join(f"{n} {name}" for name, n in asdict(self.numbers).items() if n)
        return f"{read}; {written}; {given}"

    def cuda(self, dim: int, ncomp: int) -> str:
        """The q-function in CUDA C++; see `femops_kernels.pointwise.recording.Recording.cuda`."""
        read = used_slots(dim, self.value_in, self.gradient_in)
        recording = Recording(self.text, read, ncomp, self.numbers.total)
        return recording.cuda(used_slots(dim, self.value_out, self.gradient_out))


def used_slots(dim: int, value: bool, gradient: bool) -> list[int]:
    """Slots that are used: 0 for a value of a field or test function, 1 to dim for derivatives."""
    return [0] * value + list(range(1, dim + 1)) * gradient


Floats = NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class MapMatrices:
    """Matrices from the modes of an element's map to quadrature points.

    On a grid they are 1-D: values and derivatives of Legendre's polynomials. In a list of points
    they are tables of the polynomials of positions, and of those of the entries of Jacobians.
    """

    # value and slope are (points, modes). The first polynomial of values is 1; in tables that of
    # slopes is 1 as well.
    value: Floats
    slope: Floats

    @property
    def g1d(self) -> int:
        """Legendre coefficients per direction of a grid."""
        return int(self.value.shape[1])


@final
@dataclass(frozen=True, eq=False)
class Factors:
    """Tables of two factors, if the functions of an element are products, and so are its points.

    A prism has a triangle as base, and a segment as line. The points of the base are fastest.
    """

    base: Floats  # (dim, points, functions): values, then derivatives along each direction
    line: Floats  # (2, points, functions): values, then derivatives along the last direction
    # node of the element for each product of functions, that of the line fastest
    nodes: tuple[int, ...]

    @property
    def lines(self) -> tuple[Floats, Floats]:
        """Matrices (points, functions) to values and derivatives along the line."""
        return self.line[0], _used_rows(self.line[1])

    def tables(self, *, valued: bool, sloped: bool) -> list[tuple[Floats, bool]]:
        """Tables (points, functions) of the base for values, and for each derivative.

        Beside each is True if it multiplies derivatives along the line.
        """
        flat = self.base[0 if valued else 1 : None if sloped else 1]
        found = [*((table, False) for table in flat), *[(self.base[0], True)] * sloped]
        return [(_used_rows(table), turned) for table, turned in found]

    def multiply_adds(self, *, valued: bool, sloped: bool) -> int:
        """Number of multiply-adds from the nodes to values, and derivatives, at the points."""
        count, lines = self.base.shape[2], self.lines
        along = sum(line.size for line in lines[: 1 + sloped])
        tables = self.tables(valued=valued, sloped=sloped)
        each = sum(table.size * len(lines[turned]) for table, turned in tables)
        return int(count * along + each)


@final
@dataclass(frozen=True, eq=False)
class Side:
    """Field or test function of a kernel: components, dofs, and values at quadrature points."""

    ncomp: int
    shape: tuple[int, ...]  # nodes along each direction, x first
    # for each direction (points, nodes): interpolation to the quadrature points. Empty where a
    # kernel has a table, or other matrices.
    bases: tuple[Floats, ...] = ()
    # (1 + dim, points, functions): values, then derivatives along each direction, of functions that
    # are no products
    table: Floats | None = None
    # (points, modes) and (dim, modes, functions): factors of the table's derivatives, which are
    # combinations of fewer functions. None if the table takes less work.
    slopes: tuple[Floats, Floats] | None = None
    factors: Factors | None = None  # of the table, if there are any
    sizes: tuple[int, ...] = ()  # nodes of each run of a simplex, see `DofRuns.sizes`
    # (2, nodes): values and inward derivatives of the basis at the end of the last direction where
    # faces lie. Both are zero but for the first ``layers`` nodes. None unless elements are faces on
    # which functions have derivatives.
    end: Floats | None = None
    layers: int = 0
    broken: bool = False  # True if functions are discontinuous: all dofs of an element are one run
    # True if elements are faces. Faces of one element share dofs in every space.
    on_faces: bool = False
    ghosts: bool = False  # True if some dofs may be ghosts
    # (2, nodes, nodes) of an edge: matrices from dofs of an edge to those of its halves, on locally
    # refined meshes. Else None.
    halves: Floats | None = None
    masked: bool = False  # True if hanging nodes read zero, and their results are dropped

    @property
    def p1d(self) -> int:
        """Nodes per direction, if all directions have the same number."""
        return self.shape[0]

    @property
    def num_nodes(self) -> int:
        """Number of nodes of an element."""
        return math.prod(self.shape)

    @property
    def near_end(self) -> Floats | None:
        """``end`` without the functions that have neither value nor derivative there."""
        return None if self.end is None else self.end[:, : self.layers]


@dataclass(frozen=True, eq=False, kw_only=True)
class KernelSpec(ABC):
    """Specification of the work on each element that takes fields and adds to test functions."""

    # True if a kernel on faces reads only the layers of nodes whose functions matter there
    layered: ClassVar[bool] = True
    dim: int
    # sources and targets: the fields, and the test functions. A field and a test function of one
    # space are one object.
    sources: tuple[Side, ...]
    targets: tuple[Side, ...]
    dtype: np.dtype[Any]  # float64 or float32
    # any_width and reproducible: True if results have the same bits for lanes of any width, and if
    # they are summed in the order of the elements on any machine
    any_width: bool = False
    reproducible: bool = False
    blocks: tuple[int, ...] = (0,)  # for each test function the number of the field in its space
    # minima and sums: number of functionals that are minima over the points of an element, and of
    # sums over them. A q-function returns them after the components of the test functions.
    minima: int = 0
    sums: int = 0
    # kernels that a machine has rendered, by what the machine added to the specification
    rendered: dict[Any, Any] = field(default_factory=dict, init=False, repr=False)

    @property
    def source(self) -> Side:
        """The field, or the first one."""
        return self.sources[0]

    @property
    def target(self) -> Side:
        """The test function, or the first one; the first field if there is no test function."""
        return self.targets[0] if self.targets else self.source

    @property
    def hanging(self) -> bool:
        """True if a field or a test function may have hanging nodes."""
        return any(side.halves is not None for side in (*self.sources, *self.targets))

    @property
    def functionals(self) -> int:
        """Number of functionals."""
        return self.minima + self.sums

    @abstractmethod
    def contraction_flops(self) -> int:
        """Number of floating-point operations for one element, without q-functions."""


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class PointSpec(KernelSpec):
    """``y_t = sum_e B_t^T D (B_1 x_1, B_2 x_2, ...)`` by a q-function D at quadrature points.

    The points are a grid, or a list if the functions of elements are no products.
    """

    qfunction: QFunctionCode
    weights: Floats  # of the rule: (q1d,) of each direction of a grid, or (points,) of a list
    # (q1d, q1d): derivatives at the points of a direction of the points' Lagrange polynomials
    d1d: Floats
    geometry: MapMatrices | None = None  # needed if the q-function takes Jacobians or positions
    # type of the qdata in memory. Loads widen them to ``dtype``, which is the default.
    data_dtype: np.dtype[Any] | None = None

    def __post_init__(self) -> None:
        if not self.tabulated and (self.dim > 1 or not self.has_end):
            most = max(max(side.shape) for side in (*self.sources, *self.targets))
            if self.q1d < most:
                raise KernelValueError(
                    f"q1d = {self.q1d} is less than p1d = {most}: take more quadrature points"
                )

    @property
    def tabulated(self) -> bool:
        """True if the functions of a field or a test function are no products."""
        return any(side.table is not None for side in (*self.sources, *self.targets))

    @property
    def factored(self) -> bool:
        """True if the tables of all fields and test functions have factors."""
        return all(side.factors is not None for side in (*self.sources, *self.targets))

    @property
    def q1d(self) -> int:
        """Quadrature points per direction of a grid."""
        return len(self.weights)

    @property
    def has_end(self) -> bool:
        """True if elements are faces, at one end of an element, and functions have derivatives."""
        return self.source.end is not None

    @property
    def stored(self) -> np.dtype[Any]:
        """Type of the qdata."""
        return self.data_dtype or self.dtype

    @property
    def several(self) -> bool:
        """True if there are several fields, or functionals."""
        return len(self.sources) > 1 or self.functionals > 0

    def contraction_flops(self) -> int:
        if self.tabulated:
            return _table_flops(self) + _map_table_flops(self)
        return _contractions(self, Matrix1D.flops) + _geometry_flops(self)

    def contraction_operations(self) -> int:
        """Number of instructions on lanes of all contractions, without q-functions and geometry.

        Each lane has one element, or one of many vectors. A multiply-add is one instruction.
        """
        return _contractions(self, Matrix1D.operations)


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class SeparableSpec(KernelSpec):
    """``y = sum_e A_e x``, where A_e is a sum of Kronecker products of 1-D matrices.

    Each product has a factor per element and component. The first product has ``mass`` in all
    directions. The others have ``stiffness`` in one direction each, and ``mass`` in the others.
    """

    # for each direction (nodes of the target, of the source): integrals over the reference segment
    # of products of values, and of derivatives (or of derivatives of one function and values of
    # the other)
    mass: tuple[Floats, ...]
    stiffness: tuple[Floats, ...]
    # value and gradient: True if the sum has products of values, and products of derivatives
    value: bool
    gradient: bool

    def at_nodes(self, *, scaled: bool) -> PointSpec:
        """Return the products of values as work at points, one per node of the larger side.

        With ``scaled`` one factor of each element multiplies all components.
        """
        assert not self.gradient
        matrix = self.mass[0]
        to, fro = matrix.shape
        points = max(to, fro)
        bases = (matrix, np.eye(to)) if to > fro else (np.eye(fro), matrix.T)
        source, target = (
            replace(side, bases=(basis,) * self.dim)
            for side, basis in zip((self.source, self.target), bases, strict=True)
        )
        return PointSpec(
            dim=self.dim,
            sources=(source,),
            targets=(target,),
            dtype=self.dtype,
            any_width=self.any_width,
            reproducible=self.reproducible,
            qfunction=scaling(source.ncomp, QFunctionInputs(element=int(scaled))),
            weights=np.ones(points),
            d1d=np.eye(points),
        )

    def contraction_flops(self) -> int:
        return self._count(Matrix1D.flops, 2)

    def contraction_operations(self) -> int:
        """Number of instructions on lanes for one element. A multiply-add is one instruction."""
        return self._count(Matrix1D.operations, 1)

    def _count(self, count: Callable[[Matrix1D], int], multiply_add: int) -> int:
        """Sum the operations of all lines, with ``count`` of a matrix and of a multiply-add."""
        total, dim = 0, self.dim
        for d in reversed(range(dim)):  # the last direction is gathered first
            n, m = self.source.shape[d], self.target.shape[d]
            by_mass, by_stiffness = (
                count(Matrix1D(matrices[d])) for matrices in (self.mass, self.stiffness)
            )
            alone, last = d == dim - 1, d == 0
            line = 0 if alone and last and not self.value else by_mass
            if self.gradient:
                both = not alone or (last and self.value)  # added to an earlier result
                line += by_stiffness + m * (multiply_add if both else 1)
                line += by_mass * (not alone and not last)
            if last and self.value:
                line += n * (1 if alone or not self.gradient else multiply_add)
            total += math.prod(self.target.shape[d + 1 :]) * math.prod(self.source.shape[:d]) * line
        return self.source.ncomp * total


@final
@dataclass(frozen=True, eq=False, kw_only=True)
class MatrixSpec(KernelSpec):
    """``y = sum_e A_e x`` with stored matrices A_e, whose rows go component after component."""

    layered = False

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of an element matrix."""
        rows, columns = (s.ncomp * s.num_nodes for s in (self.target, self.source))
        return rows, columns

    def contraction_flops(self) -> int:
        rows, columns = self.shape
        return rows * (2 * columns + 3)


def _used_rows(table: Floats) -> Floats:
    """The table without its last rows of zeros, but for the first row."""
    used = np.flatnonzero(table.any(axis=1))
    return table[: used[-1] + 1 if len(used) else 1]


def scaling(ncomp: int, numbers: QFunctionInputs) -> QFunctionCode:
    """Q-function that multiplies all components by the number in ``numbers``, if there is one."""
    scaled = ", ".join(f"q[0] * u[{c}]" for c in range(ncomp))
    values = f"({scaled},)" if numbers.total else "u"
    text = f"@inner\ndef pointwise(u, ux, uy, uz, q):\n    return {values}, ux, uy, uz\n"
    components = tuple(range(ncomp))
    return QFunctionCode(text, numbers, components, (), components, ())


def slopes_of(
    sides: Sequence[Side], slopes: Sequence[int], values: Sequence[int]
) -> tuple[tuple[int, int, bool], ...]:
    """Ranges (first, end, True if values are used too) of components whose derivatives are used.

    Neighbouring fields alike in this are one range.
    """
    found: list[tuple[int, int, bool]] = []
    for side, end in zip(sides, accumulate(side.ncomp for side in sides), strict=True):
        first = end - side.ncomp
        both = not set(range(first, end)).isdisjoint(values)
        if set(range(first, end)).isdisjoint(slopes):
            continue
        if found and found[-1][1:] == (first, both):
            first = found.pop()[0]
        found.append((first, end, both))
    return tuple(found)


def _contractions(spec: PointSpec, count: Callable[[Matrix1D], int]) -> int:
    if spec.has_end:
        return _face_contractions(spec, count)
    q, dim, qfunction = spec.q1d, spec.dim, spec.qfunction
    flops = 0
    sides = [
        *((side, False) for side in spec.sources),
        *((side, True) for side in spec.targets),
    ]
    for side, turned in sides:
        nodes = 1
        for d, basis in enumerate(side.bases[:dim]):
            lines = nodes * q ** (dim - 1 - d)
            flops += side.ncomp * lines * count(Matrix1D(basis.T if turned else basis))
            nodes *= basis.shape[1]
    lines = dim * q ** (dim - 1)
    for first, end, _ in slopes_of(spec.sources, qfunction.slopes_in, qfunction.values_in):
        flops += (end - first) * lines * count(Matrix1D(spec.d1d))
    for first, end, valued in slopes_of(spec.targets, qfunction.slopes_out, qfunction.values_out):
        # The results of all directions are summed: one addition per point and direction. The first
        # result needs none unless it is added to values.
        adds = q**dim * (dim if valued else dim - 1)
        flops += (end - first) * (lines * count(Matrix1D(spec.d1d.T)) + adds)
    weights = bool(qfunction.numbers.weight) * (q**dim + (q ** (dim - 1) if dim > 2 else 0))
    return int(flops + weights)


def _face_contractions(spec: PointSpec, count: Callable[[Matrix1D], int]) -> int:
    """Operations of the contractions of one face: first across the face, then along it."""
    q, along, qfunction, flops = spec.q1d, spec.dim - 1, spec.qfunction, 0
    for sides, turn in ((spec.sources, False), (spec.targets, True)):
        for side in sides:
            end, b1d = side.near_end, side.bases[0]
            assert end is not None
            p1d = b1d.shape[1]
            lines = 2 * sum(p1d ** (along - 1 - k) * q**k for k in range(along))
            each = p1d**along * count(Matrix1D(end.T if turn else end))
            flops += side.ncomp * (each + lines * count(Matrix1D(b1d.T if turn else b1d)))
    lines = along * q ** max(along - 1, 0)
    for first, last, _ in slopes_of(spec.sources, qfunction.slopes_in, qfunction.values_in):
        flops += (last - first) * lines * count(Matrix1D(spec.d1d))
    for first, last, valued in slopes_of(spec.targets, qfunction.slopes_out, qfunction.values_out):
        adds = q**along * max(along if valued else along - 1, 0)
        flops += (last - first) * (lines * count(Matrix1D(spec.d1d.T)) + adds)
    return int(flops)


def _geometry_flops(spec: PointSpec) -> int:
    """Operations that compute Jacobians and positions from Legendre coefficients."""
    given, dim, q = spec.qfunction.numbers, spec.dim, spec.q1d
    if not given.mapped:
        return 0
    assert spec.geometry is not None
    value, slope = _row_flops(spec.geometry.value), _row_flops(spec.geometry.slope)
    g1d, flops = spec.geometry.g1d, 0
    if dim > 2:
        flops += q * dim * g1d**2 * (value + slope)
    if dim > 1:
        flops += q ** (dim - 1) * dim * g1d * ((dim - 1) * value + slope)
    per_point = bool(given.jacobian) * ((dim - 1) * value + slope)
    per_point += bool(given.position) * value
    return int(flops + q**dim * dim * per_point)


def _row_flops(matrix: NDArray[np.float64]) -> int:
    """Operations of one row in the code of ``dot_row``: zeros and ones cost no multiplication."""
    used = [column for column in matrix.T if np.any(column != 0.0)]
    products = sum(bool(np.any(column != 1.0)) for column in used)
    return products + max(len(used) - 1, 0)


def _table_flops(spec: PointSpec) -> int:
    """Operations of the products with tables: to values at points, and back to functions."""
    code, flops = spec.qfunction, 0
    for sides, valued, sloped in (
        (spec.sources, code.value_in, code.gradient_in),
        (spec.targets, code.value_out, code.gradient_out),
    ):
        for side in sides:
            assert side.table is not None
            direct = side.slopes is None
            products = spec.q1d * side.num_nodes * (valued + spec.dim * (sloped and direct))
            if spec.factored and side.factors is not None:
                products = side.factors.multiply_adds(valued=valued, sloped=sloped)
            elif side.slopes is not None and sloped:
                products += spec.dim * side.slopes[0].shape[1] * (spec.q1d + side.num_nodes)
            flops += side.ncomp * 2 * products
    return flops


def _map_table_flops(spec: PointSpec) -> int:
    """Operations that compute Jacobians and positions from modes by tables."""
    given, tables = spec.qfunction.numbers, spec.geometry
    if not given.mapped:
        return 0
    assert tables is not None
    return sum(
        count * 2 * len(table) * (table.shape[1] - 1)
        for count, table in ((given.jacobian, tables.slope), (given.position, tables.value))
    )
