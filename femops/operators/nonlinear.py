"""Nonlinear forms: a residual, and its derivative as an operator."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from femops.basis import Quadrature1D
from femops.operators.constraints import Constraints, read_only
from femops.operators.execution.choice import backend_of
from femops.operators.execution.ranks import Operand, distributed
from femops.operators.execution.vectors import check_output, checked_vector
from femops.operators.integrals.bilinear import FIELD, STATE, BilinearForm
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.integrals.number_types import float_type
from femops.operators.integrals.term import Term
from femops.operators.operator import Operator
from femops.pointwise.linear import LinearQFunction
from femops.pointwise.qdata_split import QDataSplit
from femops.pointwise.trace import FormFunction, Trace, linearised, trace
from femops.spaces.base import Space
from femops.spaces.restriction import positions
from femops_kernels.compiled import CompiledOperator
from femops_kernels.cpu.machine import lane_width
from femops_kernels.pointwise.qdata import Data
from femops_meshes.arguments import names_checked

_NOTHING: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
_CACHED = ("_compiled", "_term")


@final
class NonlinearForm:
    r"""A residual that is not linear in its field.

    :math:`R(u; v) = \int_\Omega f(u, \nabla u) \cdot v + F(u, \nabla u) : \nabla v\, dx`.

    It is made by `femops.nonlinear_form`, or by a form of the library such as `femops.neo_hookean`.

    Attributes
    ----------
    space : Space
        Space of the field and of the test function.
    dtype : numpy.dtype
        float64 or float32; vectors have this type.
    """

    _given_as = "a nonlinear form, as femops.neo_hookean(V)"

    def __init__(
        self,
        function: FormFunction,
        space: Space,
        quadrature: Quadrature1D,
        coefficients: Mapping[str, FormCoefficient],
        dtype: DTypeLike,
        lanes: int | None,
    ) -> None:
        self.space = space
        self.dtype = float_type(dtype)
        self._form = BilinearForm(function, space, space, quadrature, coefficients)
        self._width = lane_width(self.dtype, lanes)
        self._trace = self._traced()  # now: what the function reads may change later
        self._constrained = _NOTHING
        self._setups: dict[Any, tuple[QDataSplit, Data]] = {}  # of Jacobians at states on a device

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles find the compiled code in the cache."""
        return {k: v for k, v in self.__dict__.items() if k not in _CACHED}

    @property
    def name(self) -> str:
        """Name of the function."""
        return self._form.name

    @property
    def constrained_dofs(self) -> NDArray[np.int64]:
        """Flat positions of the constrained dofs, ascending; read-only."""
        return read_only(self._constrained)

    def _traced(self) -> Trace:
        shapes = self._form.coefficient_shapes()
        components = {FIELD: self.space.ncomp}
        return trace(self._form.function, self.space.dim, components, components, shapes)

    @cached_property
    def _derivative(self) -> LinearQFunction:
        return LinearQFunction(linearised(self._trace, {FIELD: STATE}), FIELD, FIELD)

    @cached_property
    def _term(self) -> Term:
        """The residual, cut at the quadrature points."""
        return Term.of_residual(replace(self._form, residual=self._trace), self.dtype, self._width)

    @cached_property
    def _compiled(self) -> CompiledOperator:
        space, backend = self.space, backend_of(self.space)
        constrained = Constraints(rows=self._constrained, symmetric=False)
        launch = backend.idle()
        if space.mesh.num_elements:
            launch = backend.launch(self._term, constrained, 0.0)
        local = backend.operator([(1.0, launch)])
        ends = [Operand(space, _NOTHING)], [Operand(space, self._constrained)]
        return distributed(backend, local, *ends, [(0, 0)], self.dtype)

    def residual(self, u: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """R(u; v) for all test functions v.

        Parameters
        ----------
        u : (size,) array
            C-contiguous, of the form's type.
        out : (size,) array, optional
            Overwritten by the result; must not overlap u.

        Returns
        -------
        (size,) array
            Zero at constrained dofs.

        Raises
        ------
        VectorError
            A vector of another shape, type or memory layout, or an ``out`` that overlaps u.
        """
        u = self._check(u, "u")
        result = self.space.memory.xp.empty_like(u) if out is None else self._check(out, "out")
        check_output(self.space, u, result, out)
        self._compiled.apply(u, result)
        return result

    @names_checked
    def jacobian(self, u: NDArray[Any]) -> Operator:
        """Derivative of the residual at u, an operator.

        The part that depends on u is stored at the quadrature points, at level "matrix-free"
        too; see `Operator.at_level` for all levels.  Constrained dofs have rows and columns of
        the identity.

        Parameters
        ----------
        u : (size,) array
            The state; a copy is kept, from which another level or a transpose is computed.

        Returns
        -------
        Operator

        Raises
        ------
        VectorError
            A vector of another shape or type.
        """
        u = self._check(u, "u")
        state = backend_of(self.space).state({STATE: (self.space, u)}, self._setups)
        form = replace(self._form, traced=self._derivative, state=state)
        operator = Operator.of_form(form, self.dtype, self._width)
        # of ranks that share the conditions some may hold nothing
        return (
            operator if self._constrained is _NOTHING else operator.constrained(self._constrained)
        )

    def update(self, **coefficients: Any) -> NonlinearForm:
        """The form with other values of some coefficients, which are read now.

        Constrained dofs stay. Nothing is compiled, unless a coefficient that was constant varies
        now or the other way around, or its shape is another.

        Parameters
        ----------
        **coefficients
            By name.

        Returns
        -------
        NonlinearForm

        Raises
        ------
        OperatorError
            A coefficient that the form does not have, or one of another shape.
        """
        twin = copy(self)
        twin._form, twin._setups = self._form.replaced(coefficients, {}), {}
        if twin._form.coefficient_shapes() != self._form.coefficient_shapes():
            twin.__dict__.pop("_derivative", None)
            twin._trace = twin._traced()
        return twin

    @names_checked
    def constrained(self, dofs: ArrayLike) -> NonlinearForm:
        """The form with some dofs constrained: their residual is zero, their Jacobian the identity.

        Parameters
        ----------
        dofs : (k,) integers
            Flat positions, as `Space.boundary_dofs` gives them.

        Returns
        -------
        NonlinearForm

        Raises
        ------
        OperatorError
            Positions that are no whole numbers or outside the vector.
        """
        twin = copy(self)
        twin._constrained = np.union1d(self._constrained, positions(dofs, self.space.size))
        return twin

    def _check(self, vector: Any, what: str) -> NDArray[Any]:
        checked: NDArray[Any] = checked_vector(self.space, self.dtype, vector, what)
        return checked

    def __repr__(self) -> str:
        constrained = f", {len(self._constrained)} constrained" if len(self._constrained) else ""
        return f"NonlinearForm({self.name}: {self.space.size} unknowns, {self.dtype}{constrained})"
