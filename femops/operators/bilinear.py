"""Bilinear forms: a function of the user, its spaces and its coefficients, traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from femops.abstract_space import Space
from femops.basis import Quadrature1D
from femops.errors import OperatorError
from femops.evaluation import reference_gradient, reference_values
from femops.geometry import Geometry, GeometryBlock
from femops.operators.coefficients import Given
from femops.pointwise.cut import LinearStep
from femops.pointwise.graph import Node, ancestors
from femops.pointwise.printer import evaluate
from femops.pointwise.trace import (
    INVERSE,
    POSITION,
    WEIGHT,
    CoefficientShape,
    FormFunction,
    Objects,
    name_of,
    trace,
)
from femops_kernels.sweep import aligned_array, store_interleaved

FIELD = "u"
STATE = "@state"
# Of a determinant times a weight, an adjugate, and its division by the determinant.
_INVERSE_FLOPS = {1: 2, 2: 3 + 1 + 2 + 4, 3: 14 + 1 + 27 + 9}


@final
@dataclass(frozen=True, eq=False)
class BilinearForm:
    """A form that is linear in a field of one space and in a test function of another.

    Attributes
    ----------
    function : callable
        See `femops.form`.
    trial, test : Space
        On one mesh.
    quadrature : Quadrature1D
    coefficients : dict of Given
    traced : LinearStep, optional
        The pointwise step, where it is known; else the function is traced.
    state : l_vec of the trial space, optional
        Where a nonlinear function was differentiated.
    static : dict of arrays of Node, optional
        The static inputs of a trace that has no linear step.
    """

    function: FormFunction
    trial: Space
    test: Space
    quadrature: Quadrature1D
    coefficients: Mapping[str, Given]
    traced: LinearStep | None = None
    state: NDArray[Any] | None = None
    static: Mapping[str, Objects] | None = None

    @property
    def name(self) -> str:
        """Name of the function."""
        return name_of(self.function).strip("_")

    @cached_property
    def geometry(self) -> Geometry:
        """Jacobians and positions at the quadrature points."""
        return Geometry(self.trial.mesh, self.quadrature)

    @cached_property
    def step(self) -> LinearStep:
        """The traced pointwise step.

        Raises
        ------
        TraceError
            The function can't be traced, or is not linear in the field.
        """
        if self.traced is not None:
            return self.traced
        fields, tests = {FIELD: self.trial.ncomp}, {FIELD: self.test.ncomp}
        shapes = self.coefficient_shapes()
        return LinearStep(trace(self.function, self.trial.dim, fields, tests, shapes), FIELD, FIELD)

    def coefficient_shapes(self) -> dict[str, CoefficientShape]:
        """What tracing must know of the coefficients."""
        first = self.geometry.block(0, 1)
        return {name: given.shape(first) for name, given in self.coefficients.items()}

    def __getstate__(self) -> dict[str, Any]:
        """What a copy or another process needs: the function is traced again there."""
        return {k: v for k, v in self.__dict__.items() if k not in ("step", "geometry")}

    def with_coefficients(self, values: Mapping[str, Any]) -> BilinearForm:
        """The same form with other coefficients.

        Raises
        ------
        OperatorError
            A coefficient that the form does not have.
        """
        unknown = [name for name in values if name not in self.coefficients]
        if unknown:
            has = ", ".join(self.coefficients) or "none"
            raise OperatorError(f"{self.name} has no coefficient {unknown[0]!r}: it has {has}")
        changed = {name: replace(self.coefficients[name], value=v) for name, v in values.items()}
        new = replace(self, coefficients={**self.coefficients, **changed})
        # another shape is another trace; a derivative keeps its own
        if self.state is None:
            same = new.coefficient_shapes() == self.coefficient_shapes()
            new = replace(new, traced=self.step if same else None)
        return new

    def store(self, stored: list[Node], dtype: np.dtype[Any], width: int) -> NDArray[Any]:
        """Compute what a cut stores, block by block of elements.

        Returns
        -------
        (nbatch, q1d**dim, nqdata, width) array
        """
        ne, points = self.trial.mesh.num_elements, self.geometry.num_points
        qdata = aligned_array((-(-ne // width), points, len(stored), width), dtype)
        for block in self.geometry:
            store_interleaved(qdata, self.values(stored, block), block.start)
        return qdata

    def check(self, stored: list[Node]) -> None:
        """Evaluate what a cut stores and drop it, for the errors this may raise."""
        for block in self.geometry:
            self.values(stored, block)

    def values(self, stored: list[Node], block: GeometryBlock) -> NDArray[np.float64]:
        """What a cut stores for a block of elements, (n, q1d**dim, nqdata)."""
        inputs = self._inputs(block, {node.number for node in ancestors(stored)})
        values = np.empty((block.stop - block.start, self.geometry.num_points, len(stored)))
        with np.errstate(all="ignore"):  # what is not a number is told of below
            for k, value in enumerate(evaluate(stored, inputs)):
                values[..., k] = value
        self._check_finite(values, block)
        return values

    def _check_finite(self, values: NDArray[np.float64], block: GeometryBlock) -> None:
        bad = np.argwhere(~np.isfinite(values).all(axis=-1))
        if len(bad) and self.state is None:  # a bad state shows in its residual
            where = ", ".join(f"{c:.6g}" for c in block.points[tuple(bad[0])])
            raise OperatorError(
                f"{self.name} is not finite at {len(bad)} quadrature points, the first of them "
                f"({where}): look at square roots, logarithms and divisions in the form"
            )

    def store_flops(self, stored: list[Node]) -> int:
        """Floating-point operations of `store`; coefficients and a state are not counted.

        Jacobians by sum factorisation, their determinants and inverses, and the stored numbers as
        the graph has them.
        """
        dim, q1d, g1d = self.trial.dim, self.quadrature.q1d, self.trial.mesh.order + 1
        operations = sum(node.op not in ("const", "input") for node in ancestors(stored))
        lines = sum(g1d ** (dim - 1 - k) * q1d ** (k + 1) for k in range(dim))
        jacobian = dim * dim * lines * (2 * g1d - 1)
        element = jacobian + q1d**dim * (_INVERSE_FLOPS[dim] + operations)
        return int(self.trial.mesh.num_elements * element)

    def _inputs(self, block: GeometryBlock, used: set[int]) -> dict[int, Any]:
        """Arrays of the static inputs that are used, (n, points) each."""
        inputs: dict[int, Any] = {}
        # positivity of the determinants is checked here, whatever the form uses of the geometry
        sources: dict[str, Callable[[], NDArray[Any]]] = {
            WEIGHT: lambda: block.weighted_det,
            INVERSE: lambda: block.inverse,
            POSITION: lambda: block.points,
            STATE: lambda: self._state_values(block),
            f"d{STATE}": lambda: self._state_derivatives(block),
        }
        static = self.step.trace.static if self.static is None else self.static
        for name, nodes in static.items():
            wanted = [(i, n) for i, n in np.ndenumerate(nodes) if n.number in used]
            if wanted or name == WEIGHT:
                given = self.coefficients.get(name)
                array = sources[name]() if given is None else given.at(block)
                inputs |= {node.number: array[(..., *index)] for index, node in wanted}
        return inputs

    def _state_values(self, block: GeometryBlock) -> NDArray[np.float64]:
        """Values of the state, (n, points, ncomp)."""
        space = self.trial
        e_vec = space.element_vector(self.state, block.start, block.stop)
        values = reference_values(space.basis, self.quadrature.points, space.dim, e_vec)
        return values.reshape(*values.shape[:2], space.ncomp)

    def _state_derivatives(self, block: GeometryBlock) -> NDArray[np.float64]:
        """Reference derivatives of the state, (n, points, ncomp, dim)."""
        space = self.trial
        e_vec = space.element_vector(self.state, block.start, block.stop)
        parts = reference_gradient(space.basis, self.quadrature.points, space.dim, e_vec)
        return np.stack([p.reshape(*p.shape[:2], space.ncomp) for p in parts], axis=-1)
