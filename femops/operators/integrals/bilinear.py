"""Forms: a function of the user, its spaces and its coefficients, traced."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.basis import Quadrature1D, gauss
from femops.errors import OperatorError
from femops.geometry.boundary import BoundaryBlock, BoundaryFaces, BoundaryGeometry
from femops.geometry.jacobians import Geometry
from femops.geometry.legendre import LegendreGeometry
from femops.operators.integrals.chunks import chunk_batches
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.integrals.number_types import check_range, check_values, largest_of
from femops.operators.integrals.snapshots import Block
from femops.operators.integrals.state import State
from femops.pointwise.expressions.graph import Node, ancestors
from femops.pointwise.linear import LinearQFunction
from femops.pointwise.printer import evaluate
from femops.pointwise.qdata_split import (
    Known,
    QDataSplit,
    linear_split,
    nonlinear_split,
    stored_split,
)
from femops.pointwise.trace import (
    INVERSE,
    NORMAL,
    POSITION,
    WEIGHT,
    Argument,
    CoefficientShape,
    FormFunction,
    Objects,
    Trace,
    name_of,
    trace,
)
from femops.spaces.base import Space
from femops.spaces.boundary_space import BoundarySpace, volume_space
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.derived import Derived
from femops_kernels.pointwise.qdata import Data, store_interleaved
from femops_meshes.mesh import Mesh

Made = dict[FormCoefficient, FormCoefficient]
FIELD = "u"
STATE = "@state"
_CACHED = ("qfunction", "geometry", "known", "center", "_splits", "_setups")
# Of a determinant times a weight, an adjugate, and its division by the determinant.
_INVERSE_FLOPS = {1: 2, 2: 3 + 1 + 2 + 4, 3: 14 + 1 + 27 + 9}

_mode_lanes = Derived[Mesh, NDArray[Any]]()


def mode_lanes(
    mesh: Mesh, dtype: np.dtype[Any], width: int, edges: NDArray[np.int64]
) -> NDArray[Any]:
    """Modes of a mesh's elements for kernels, (nbatch, dim, modes, width); made once.

    Slots past the last element repeat it, so that they have a Jacobian.  They lie near the threads
    of the first sweep that asks, whose chunks begin at batches ``edges``.
    """

    def make() -> NDArray[Any]:
        modes, ne = LegendreGeometry(mesh), mesh.num_elements
        shape = (-(-ne // width), mesh.dim, (modes.degree + 1) ** mesh.dim, width)
        out = placed_array(shape, dtype, edges)
        for start, values in modes.blocks():
            store_interleaved(out, values, start)
        if ne:  # on a rank there may be none
            filled = ne - (len(out) - 1) * width
            out[-1, :, :, filled:] = out[-1, :, :, filled - 1 : filled]
        return out

    return _mode_lanes.get(mesh, make, dtype.str, width)


@final
@dataclass(frozen=True, eq=False)
class BilinearForm:
    """A form that is linear in a field of one space and in a test function of another.

    Or the residual of a form that is not linear, perhaps in several fields.

    Attributes
    ----------
    function : callable
        See `femops.form`.
    trial, test : Space or BoundarySpace
        On one mesh, or on the same faces of its boundary; of several fields those of the first.
    quadrature : Quadrature1D
    coefficients : dict of FormCoefficient
        Read when the form is made, see `FormCoefficient.keep`: what parts of an operator compute
        of them later is of the same values. Collective, if there is a field that ranks share.
    traced : LinearQFunction, optional
        The q-function, where it is known; else the function is traced.
    state : State, optional
        Where a nonlinear function was differentiated.
    residual : Trace, optional
        The trace of a form that is not linear: fields and test functions as its kernel has them.
    rounded : tuple of Node
        Numbers that are rounded to float32 wherever they are computed at points.
    """

    function: FormFunction
    trial: Space | BoundarySpace
    test: Space | BoundarySpace
    quadrature: Quadrature1D
    coefficients: Mapping[str, FormCoefficient]
    traced: LinearQFunction | None = None
    state: State | None = None
    residual: Trace | None = None
    rounded: tuple[Node, ...] = ()

    def __post_init__(self) -> None:
        kept = {n: g if g.kept else g.keep(self.geometry) for n, g in self.coefficients.items()}
        object.__setattr__(self, "coefficients", kept)

    @property
    def name(self) -> str:
        """Name of the function."""
        return name_of(self.function).strip("_")

    @cached_property
    def geometry(self) -> Geometry | BoundaryGeometry:
        """Jacobians and positions at the quadrature points."""
        return self._geometry(self.quadrature)

    def _geometry(self, rule: Quadrature1D) -> Geometry | BoundaryGeometry:
        mesh = self.trial.mesh
        if isinstance(mesh, BoundaryFaces):
            return BoundaryGeometry(mesh.mesh, rule, mesh)
        return Geometry(mesh, rule)

    @cached_property
    def qfunction(self) -> LinearQFunction:
        """The traced q-function.

        Raises
        ------
        TraceError
            The function can't be traced, or is not linear in the field.
        """
        if self.traced is not None:
            return self.traced
        fields, tests = {FIELD: self.trial.ncomp}, {FIELD: self.test.ncomp}
        shapes = self.coefficient_shapes()
        boundary = isinstance(self.trial, BoundarySpace)
        traced = trace(self.function, self.geometry.dim, fields, tests, shapes, boundary=boundary)
        return LinearQFunction(traced, FIELD, FIELD)

    def coefficient_shapes(self) -> dict[str, CoefficientShape]:
        """Shapes of the coefficients, as tracing needs them. Collective."""
        first = self.geometry.block(0, 1)
        shapes = {name: given.shape(first) for name, given in self.coefficients.items()}
        skew = np.array([not shape.symmetric for shape in shapes.values()], dtype=np.int64)
        if len(skew):  # somewhere: the step is the same on all ranks
            skew = volume_space(self.trial).comm.max(skew)
        return {
            name: replace(shape, symmetric=not any_skew)
            for (name, shape), any_skew in zip(shapes.items(), skew, strict=True)
        }

    def __getstate__(self) -> dict[str, Any]:
        """State for a copy or another process, where what the function reads may differ."""
        state = {k: v for k, v in self.__dict__.items() if k not in _CACHED}
        return state | ({"traced": self.qfunction} if "qfunction" in self.__dict__ else {})

    def with_coefficients(self, values: Mapping[str, Any], made: Made) -> BilinearForm:
        """The same form with other coefficients; parameters and errors as of `replaced`."""
        new = self.replaced(values, made)
        # another shape is another trace; a derivative keeps its own
        if self.state is None:
            same = new.coefficient_shapes() == self.coefficient_shapes()
            new = replace(new, traced=self.qfunction if same else None)
        else:  # not what was computed of other coefficients
            new = replace(new, state=self.state.of(self.state.spaces, {}))
        return new

    def replaced(self, values: Mapping[str, Any], made: Made) -> BilinearForm:
        """The form with other coefficients, and whatever it was traced to.

        Parameters
        ----------
        values : dict
        made : dict of FormCoefficient
            Replacements of the coefficients of forms that share them, read once for all; added to.

        Raises
        ------
        OperatorError
            A coefficient that the form does not have.
        """
        unknown = [name for name in values if name not in self.coefficients]
        if unknown:
            has = ", ".join(self.coefficients) or "none"
            raise OperatorError(f"{self.name} has no coefficient {unknown[0]!r}: it has {has}")
        changed = {}
        for name, value in values.items():
            old = self.coefficients[name]
            if old not in made:
                made[old] = old.of(value).keep(self.geometry)
            changed[name] = made[old]
        return replace(self, coefficients={**self.coefficients, **changed})

    @cached_property
    def known(self) -> Known:
        """Facts that a cut of this form may rely on."""
        mesh, points = self.geometry.mesh, self.geometry.num_points
        given = self.coefficients.items()
        constants = [name for name, g in given if g.is_constant(self.geometry)]
        elementwise = [name for name, g in given if g.is_elementwise]
        affine, mapped = LegendreGeometry(mesh).affine, isinstance(self.trial, Space)
        return Known(affine, frozenset(constants), points, mapped, frozenset(elementwise))

    @cached_property
    def _splits(self) -> dict[tuple[str, bool], QDataSplit]:
        return {} if self.state is None else self.state.setups

    def qdata_split(self, level: str, *, transpose: bool = False) -> QDataSplit:
        """The q-function of a level, and its inputs; made once."""
        if level == "matrix-free" and isinstance(self.trial, BoundarySpace):
            level = "partial"  # kernels have no maps of faces; these are few
        key = (level, transpose)
        if key not in self._splits:
            if self.residual is None:
                found = linear_split(self.qfunction, level, self.known, transpose=transpose)
            else:
                found = self._residual_split(self.residual)
            self._splits[key] = found
        return self._splits[key]

    def _residual_split(self, traced: Trace) -> QDataSplit:
        """The q-function of a form that is not linear, of all fields and test functions."""
        point, test = (
            Argument.joined([*arguments.values()]) for arguments in (traced.fields, traced.tests)
        )
        return nonlinear_split(traced, point, test.flat(), len(test.values), self.known)

    def data(
        self,
        qdata_split: QDataSplit,
        dtype: np.dtype[Any],
        width: int,
        data_dtype: np.dtype[Any] | None = None,
        *,
        at_points: bool = True,
        looks: bool = True,
    ) -> Data:
        """Compute the data that a kernel reads, block by block; ``data_dtype`` at points.

        Without ``at_points`` what is stored there is left out. Unless it ``looks``, nothing is
        computed for errors alone: neither determinants nor what kernels compute of them.
        """
        ne, points = self.trial.mesh.num_elements, self.geometry.num_points
        nbatch, numbers = -(-ne // width), qdata_split.qfunction.numbers
        edges = chunk_batches(self.trial, self.test, dtype, width)
        swept = self._swept(qdata_split, dtype, width) if at_points and not data_dtype else None
        stores = numbers.point if at_points and swept is None else 0
        stored = placed_array((nbatch, points, stores, width), data_dtype or dtype, edges)
        elements = placed_array((nbatch, 1, numbers.element, width), dtype, edges)
        what, finite, largest = f"{self.name}: the data at quadrature points", True, 0.0
        cure = "use float64" if data_dtype is None else "leave data_dtype out"
        for block in self.geometry if stores else ():
            values = self.values(qdata_split.point, block, check=False)
            finite &= bool(np.isfinite(values).all())
            if stored.dtype == np.float32 and self.state is None:
                largest = max(largest, largest_of(values))
                check_range(what, largest, stored.dtype, cure)
            store_interleaved(stored, values, block.start)
        if largest and data_dtype is not None:
            check_range(what, largest, stored.dtype, cure, whole=True)
        for block in self.center if numbers.element else ():
            values = self.values(qdata_split.element, block, check=False)
            finite &= bool(np.isfinite(values).all())
            check_values(f"{self.name}: the data of elements", values, dtype)
            store_interleaved(elements, values, block.start)
        constants = np.zeros(len(qdata_split.constant), dtype)
        if ne:  # one element tells what is the same everywhere
            values = self.values(qdata_split.constant, self.center.block(0, 1), check=False)[0, 0]
            finite &= bool(np.isfinite(values).all())
            check_values(f"{self.name}: constants that kernels read", values, dtype)
            constants[:] = values
        if not finite:
            self.check(qdata_split.finite)
        if qdata_split.computed and at_points and looks and swept is None:
            self.check(qdata_split.computed)
        modes: NDArray[Any] = np.zeros(0, dtype)
        if numbers.mapped:
            assert isinstance(self.geometry, Geometry)
            if looks:
                self.geometry.check()
            modes = mode_lanes(self.geometry.mesh, dtype, width, edges)
        return Data(stored if swept is None else swept, elements[:, 0], modes, constants)

    def _swept(
        self, qdata_split: QDataSplit, dtype: np.dtype[Any], width: int
    ) -> NDArray[Any] | None:
        """Numbers at points of a state by a compiled sweep; None where NumPy is to compute them."""
        if self.state is None or not qdata_split.point:
            return None
        return self.state.points(self, qdata_split, dtype, width)

    @cached_property
    def center(self) -> Geometry | BoundaryGeometry:
        """The geometry at one point of each element, with the weight 1."""
        return self._geometry(gauss(1))

    @property
    def looks(self) -> bool:
        """True if the host looks at what kernels compute of the geometry; else these do."""
        return not (isinstance(self.trial, Space) and self.trial.memory.fills)

    def filled(self, qdata_split: QDataSplit) -> bool:
        """True if kernels compute what a cut keeps at points, where they run.

        Of a state that is there, or of a geometry. Coefficients alone come from the host.
        """
        if self.state is not None:
            return self.state.filled
        if self.looks:
            return False
        shape = [n for name in (INVERSE, WEIGHT) for n in self._static[name].flat]
        used = {node.number for node in ancestors(qdata_split.point)}
        return any(node.number in used for node in shape)

    @property
    def weight(self) -> Node:
        """Determinant times quadrature weight."""
        node: Node = self._static[WEIGHT].item()
        return node

    @cached_property
    def _setups(self) -> dict[Any, tuple[QDataSplit, Data]]:
        return {} if self.state is None else self.state.setups

    def setup(
        self, qdata_split: QDataSplit, dtype: np.dtype[Any], width: int
    ) -> tuple[QDataSplit, Data]:
        """The program of kernels that compute what a cut keeps at points, and its data.

        Both do not depend on a state, and are made once. On a device nothing of the geometry is
        among the data.
        """
        key = dtype, width, tuple(node.number for node in qdata_split.point)
        if key not in self._setups:
            static, given = dict(self._static), next(iter(self._trace.fields.values()))
            if self.state is not None:
                parts = [Argument(static.pop(n), static.pop(f"d{n}")) for n in self.state.spaces]
                given = Argument.joined(parts)
            trace, nodes = replace(self._trace, static=static), qdata_split.point
            there = self.state is None or self.state.filled
            split = stored_split if there else nonlinear_split
            found = split(trace, given, nodes, len(nodes), self.known)
            plain = self if self.state is None else replace(self, state=None, residual=trace)
            self._setups[key] = found, plain.data(found, dtype, width, looks=not there)
        return self._setups[key]

    def check(self, stored: list[Node]) -> None:
        """Evaluate the numbers that a cut stores, only for the errors that this may raise.

        At a state only what it is made of may raise any: a bad state shows in its residual.
        """
        used = {node.number for node in ancestors(stored)}
        used &= {n.number for name in self.coefficients for n in self._static[name].flat}
        for block in self.geometry:
            if self.state is None:
                self.values(stored, block)
            else:
                self.inputs(block, used)

    def values(
        self,
        stored: list[Node],
        block: Block,
        *,
        check: bool = True,
        known: Mapping[int, Any] | None = None,
    ) -> NDArray[np.float64]:
        """Values of static nodes at the points of a block of elements, (n, points, nodes).

        ``known`` has values by number of the node, which are not computed again. Without it the
        nodes in ``rounded`` are rounded to float32 first.
        """
        if known is None:
            used = {node.number for node in ancestors(stored)}
            nodes, known = [node for node in self.rounded if node.number in used], {}
            if nodes:
                found = self.values(nodes, block, check=False, known={}).astype(np.float32)
                rounded = np.moveaxis(found.astype(np.float64), -1, 0)
                known = {node.number: rounded[k] for k, node in enumerate(nodes)}
        inputs = self.inputs(block, {node.number for node in ancestors(stored, known)})
        inputs |= known
        values = np.empty((block.stop - block.start, block.geometry.num_points, len(stored)))
        with np.errstate(all="ignore"):  # what is not a number is told of below
            for k, value in enumerate(evaluate(stored, inputs)):
                values[..., k] = value
        if check:
            self._check_finite(values, block)
        return values

    def _check_finite(self, values: NDArray[np.float64], block: Block) -> None:
        bad = np.argwhere(~np.isfinite(values).all(axis=-1))
        if len(bad) and self.state is None:  # a bad state shows in its residual
            where = ", ".join(f"{c:.6g}" for c in block.points[tuple(bad[0])])
            raise OperatorError(
                f"{self.name} is not finite at {len(bad)} quadrature points, the first of them "
                f"({where}): look at square roots, logarithms and divisions in the form"
            )

    def data_flops(self, qdata_split: QDataSplit) -> int:
        """Floating-point operations of `data`; coefficients and a state are not counted.

        Jacobians by sum factorisation, their determinants and inverses, and what is kept as the
        graph has it.
        """
        each = sum(
            self._store_flops(nodes, q1d)
            for nodes, q1d in ((qdata_split.element, 1), (qdata_split.point, self.quadrature.q1d))
        )
        return int(self.trial.mesh.num_elements * each)

    def _store_flops(self, stored: list[Node], q1d: int) -> int:
        """Operations to compute the stored numbers of one element."""
        if not stored:
            return 0
        dim, g1d = self.geometry.dim, self.trial.mesh.order + 1
        operations = sum(node.op not in ("const", "input") for node in ancestors(stored))
        # points in each direction: on a boundary face one in the last, whichever is fixed
        rows = [q1d] * dim if isinstance(self.geometry, Geometry) else [*[q1d] * (dim - 1), 1]
        lines = sum(g1d ** (dim - 1 - k) * math.prod(rows[: k + 1]) for k in range(dim))
        jacobian = dim * dim * lines * (2 * g1d - 1)
        return int(jacobian + math.prod(rows) * (_INVERSE_FLOPS[dim] + operations))

    @property
    def _trace(self) -> Trace:
        return self.qfunction.trace if self.residual is None else self.residual

    @property
    def _static(self) -> Mapping[str, Objects]:
        return self._trace.static

    def inputs(self, block: Block, used: set[int]) -> dict[int, Any]:
        """Arrays of the static inputs that are used, (n, points) each."""
        inputs: dict[int, Any] = {}
        # positivity of the determinants is checked here, whatever the form uses of the geometry
        sources: dict[str, Callable[[], NDArray[Any]]] = {
            WEIGHT: lambda: block.weighted_det,
            POSITION: lambda: block.points,
            **(
                {NORMAL: lambda: block.normals}
                if isinstance(block, BoundaryBlock)
                else {INVERSE: lambda: block.inverse}
            ),
            **self._state_at(block),
        }
        for name, nodes in self._static.items():
            wanted = [(i, n) for i, n in np.ndenumerate(nodes) if n.number in used]
            if wanted or name == WEIGHT:
                given = self.coefficients.get(name)
                array = sources[name]() if given is None else self._coefficient(given, block)
                inputs |= {node.number: array[(..., *index)] for index, node in wanted}
        return inputs

    def _coefficient(self, given: FormCoefficient, block: Block) -> NDArray[np.float64]:
        """Values (n, points, *shape) of a coefficient; (1, 1, *shape) if they are all the same."""
        if given.name in self.known.constants:
            return given.at(self.geometry.block(0, 1))[:, :1]
        return given.at(block)

    def _state_at(self, block: Block) -> dict[str, Callable[[], NDArray[Any]]]:
        """Ways to the values and derivatives of the state's fields, by static input."""
        found: dict[str, Callable[[], NDArray[Any]]] = {}
        for name in () if self.state is None else self.state.spaces:
            found[name] = partial(self._state_values, name, block)
            found[f"d{name}"] = partial(self._state_slopes, name, block)
        return found

    def _state_values(self, name: str, block: Block) -> NDArray[np.float64]:
        """Values of a field of the state, (n, points, ncomp)."""
        assert self.state is not None
        values = self.state.field(name).at(block)
        return values.reshape(*values.shape[:2], -1)

    def _state_slopes(self, name: str, block: Block) -> NDArray[np.float64]:
        """Reference derivatives of a field of the state, (n, points, ncomp, dim)."""
        assert self.state is not None
        slopes = self.state.field(name).slopes_at(block)
        return slopes.reshape(*slopes.shape[:2], -1, slopes.shape[-1])
