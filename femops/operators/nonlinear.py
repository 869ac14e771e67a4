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
from femops.operators.constraints import Held, read_only
from femops.operators.execution.device import device_sweep, idle, terms_of
from femops.operators.execution.ranks import AnyTerms, End, rank_terms
from femops.operators.execution.vectors import check_output, checked_vector
from femops.operators.integrals.bilinear import FIELD, STATE, BilinearForm
from femops.operators.integrals.coefficients import Given
from femops.operators.integrals.device_state import DeviceState
from femops.operators.integrals.number_types import float_type
from femops.operators.integrals.term import Term
from femops.operators.operator import Operator
from femops.pointwise.cut import Cut, nonlinear_cut
from femops.pointwise.linear import LinearStep
from femops.pointwise.trace import FormFunction, Trace, linearised, trace
from femops.spaces.base import Space
from femops.spaces.devices import arrays
from femops.spaces.restriction import positions
from femops_kernels.cpu.machine import lane_width
from femops_kernels.pointwise.qdata import Data

_NOTHING: NDArray[np.int64] = np.zeros(0, dtype=np.int64)


@final
class NonlinearForm:
    r"""A residual that is not linear in its field.

    :math:`R(u; v) = \int_\Omega f(u, \nabla u) \cdot v + F(u, \nabla u) : \nabla v\, dx`.

    It is made by `femops.nonlinear_form`, or by a form of the library such as `femops.neo_hookean`.

    Attributes
    ----------
    space : Space
        Of the field and of the test function.
    dtype : numpy.dtype
        float64 or float32; vectors have this type.
    """

    def __init__(
        self,
        function: FormFunction,
        space: Space,
        quadrature: Quadrature1D,
        coefficients: Mapping[str, Given],
        dtype: DTypeLike,
        lanes: int | None,
    ) -> None:
        self.space = space
        self.dtype = float_type(dtype)
        self._form = BilinearForm(function, space, space, quadrature, coefficients)
        self._width = lane_width(self.dtype, lanes)
        self._trace = self._traced()  # now: what the function reads may change later
        self._held = _NOTHING
        self._setups: dict[Any, tuple[Cut, Data]] = {}  # of Jacobians at states on a device

    @property
    def name(self) -> str:
        """Name of the function."""
        return self._form.name

    @property
    def constrained_dofs(self) -> NDArray[np.int64]:
        """Flat positions of the constrained dofs, ascending; read-only."""
        return read_only(self._held)

    def _traced(self) -> Trace:
        shapes = self._form.coefficient_shapes()
        components = {FIELD: self.space.ncomp}
        return trace(self._form.function, self.space.dim, components, components, shapes)

    @cached_property
    def _derivative(self) -> LinearStep:
        return LinearStep(linearised(self._trace, FIELD, STATE), FIELD, FIELD)

    @cached_property
    def _terms(self) -> AnyTerms:
        form = replace(self._form, static=self._trace.static)
        point, test = self._trace.fields[FIELD], self._trace.tests[FIELD]
        cut = nonlinear_cut(self._trace, point, test.flat(), self.space.ncomp, form.known)
        kind, width, space, rule = self.dtype, self._width, self.space, self._form.quadrature
        held = Held(rows=self._held, symmetric=False)
        launch = idle(space.device)
        if space.mesh.num_elements:
            data = form.data(cut, kind, width)
            term = Term(self.name, space, space, rule, cut.program, kind, width, None, given=data)
            launch = (
                term.sweep(term.factorised_kernel(), held, 0.0, data)
                if space.device is None
                else device_sweep(space.device, term, held, 0.0)
            )
        terms = terms_of(space.device, [(1.0, launch)])
        ends = [End(space, _NOTHING)], [End(space, self._held)]
        return rank_terms(terms, *ends, [(0, 0)], kind)

    def residual(self, u: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """R(u; v) for all test functions v.

        Parameters
        ----------
        u : l_vec or flat vector
            C-contiguous, of the form's type.
        out : array like u, optional
            Overwritten by the result; must not overlap u.

        Returns
        -------
        array of the shape of u
            Zero at constrained dofs.

        Raises
        ------
        VectorError
            A vector of another length, type or memory layout, or an ``out`` that overlaps u.
        """
        u = self._check(u, "u")
        result = arrays(self.space).empty_like(u) if out is None else self._check(out, "out")
        check_output(self.space, u, result, out)
        self._terms.apply(u, result)
        return result

    def jacobian(self, u: NDArray[Any]) -> Operator:
        """Derivative of the residual at u, an operator.

        What it needs of u is stored at the quadrature points, at level "none" too; see
        `Operator.at_level` for all levels.  Constrained dofs have rows and columns of the identity.

        Parameters
        ----------
        u : l_vec or flat vector
            The state; a copy is kept, from which another level or a transpose is computed.

        Returns
        -------
        Operator

        Raises
        ------
        VectorError
            A vector of another length or type.
        """
        u = self._check(u, "u")
        form = replace(self._form, traced=self._derivative, state=self._state(u))
        operator = Operator.of_form(form, self.dtype, self._width)
        # of ranks that share the conditions some may hold nothing
        return operator if self._held is _NOTHING else operator.constrained(self._held)

    def _state(self, u: NDArray[Any]) -> NDArray[Any] | DeviceState:
        """A copy of a state, where Jacobians are computed from it: on the device of one rank."""
        space = self.space
        if space.device is None:
            return space.l_vec(u).copy()
        if space.halo is None:
            return DeviceState(space, arrays(space).copy(u), self._setups)
        return space.l_vec(space.device.download(u)).copy()

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
        twin.__dict__.pop("_terms", None)
        twin._form, twin._setups = self._form.replaced(coefficients, {}), {}
        if twin._form.coefficient_shapes() != self._form.coefficient_shapes():
            twin.__dict__.pop("_derivative", None)
            twin._trace = twin._traced()
        return twin

    def constrained(self, dofs: ArrayLike) -> NonlinearForm:
        """The form with some dofs held: their residual is zero, their Jacobian the identity.

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
        twin.__dict__.pop("_terms", None)
        twin._held = np.union1d(self._held, positions(dofs, self.space.size))
        return twin

    def _check(self, vector: Any, what: str) -> NDArray[Any]:
        checked: NDArray[Any] = checked_vector(self.space, self.dtype, vector, what)
        return checked

    def __repr__(self) -> str:
        held = f", {len(self._held)} constrained" if len(self._held) else ""
        return f"NonlinearForm({self.name}: {self.space.size} unknowns, {self.dtype}{held})"
