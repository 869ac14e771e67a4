"""Residuals: forms that are not linear, their derivatives as operators, and functionals."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from femops.basis import Quadrature1D
from femops.errors import OperatorError
from femops.fields.norms import exact_sum, least_element
from femops.operators.constraints import Constraints, read_only
from femops.operators.execution.backend import Step
from femops.operators.execution.choice import backend_of
from femops.operators.execution.ranks import compiled_steps
from femops.operators.execution.vectors import check_output, checked_vector
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.integrals.integral import STATE, Integral
from femops.operators.integrals.number_types import float_type
from femops.operators.integrals.term import Term
from femops.operators.operator import Operator
from femops.pointwise.linear import LinearQFunction
from femops.pointwise.qdata_split import NonlinearQFunction
from femops.pointwise.trace import FormFunction, Trace, differentiated, linearised, name_of, trace
from femops.spaces.boundary_space import volume_space
from femops.spaces.product import Product
from femops.spaces.restriction import positions
from femops_kernels.compiled import CompiledOperator, Launch
from femops_kernels.cpu.machine import lane_width
from femops_kernels.exclusive import Exclusive, together
from femops_kernels.instruction import Instruction
from femops_meshes.arguments import names_checked

Ints = NDArray[np.int64]

_NOTHING: Ints = np.zeros(0, dtype=np.int64)
_CACHED = ("compiled", "_term", "_launch")


@final
@dataclass(frozen=True)
class Functionals:
    """Names of the functionals of a residual: integrals, and least values at the points."""

    integrals: tuple[str, ...] = ()
    minima: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in the order of a kernel's components."""
        return (*self.minima, *self.integrals)


NONE = Functionals()
ENERGY = "@energy"


@final
class Residual:
    r"""A residual that need not be linear in its fields, and functionals of these.

    :math:`R(u_1, u_2, \ldots; v_1, v_2, \ldots) = \sum_i \int_\Omega f_i \cdot v_i
    + F_i : \nabla v_i\, dx`, where :math:`f_i` and :math:`F_i` are functions of all fields and
    their gradients.  `femops.residual` makes it, and so do forms of the library such as
    `femops.neo_hookean`.

    Attributes
    ----------
    space : Space or Product
        Of the fields and of the test functions.
    dtype : numpy.dtype
        float64 or float32; vectors have this type.
    functionals : Functionals
    """

    _given_as = "a residual, as femops.neo_hookean(V)"

    def __init__(
        self,
        function: FormFunction,
        sides: Arguments,
        functionals: Functionals,
        quadrature: Quadrature1D,
        coefficients: Mapping[str, FormCoefficient],
        dtype: DTypeLike,
        lanes: int | None,
        *,
        of_energy: bool = False,
    ) -> None:
        self.space, self.functionals, self.dtype = sides.whole, functionals, float_type(dtype)
        self._width, self._of_energy = lane_width(self.dtype, lanes), of_energy
        self._form = Integral(function, sides, sides, quadrature, coefficients)
        self._read()  # now: what the function reads may change later
        backend_of(self.space).check_fields(self.name, self._form.fields)
        if self._is_zero and not of_energy:
            raise OperatorError(f"{self.name} returns nothing: give factors of test functions")
        self._constrained = _NOTHING
        self._alone = Exclusive()  # while a sweep's results by element are used
        self._setups: dict[Any, Any] = {}  # of Jacobians, see `State`

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles find the compiled code in the cache."""
        return {k: v for k, v in self.__dict__.items() if k not in _CACHED}

    def __copy__(self) -> Residual:
        twin = object.__new__(Residual)
        twin.__dict__.update(self.__getstate__(), _alone=Exclusive())
        return twin

    @property
    def name(self) -> str:
        """Name of the function."""
        return self._form.name

    @property
    def constrained_dofs(self) -> Ints:
        """Flat positions of the constrained dofs, ascending; read-only."""
        return read_only(self._constrained)

    def _read(self) -> None:
        """Trace the function; over the boundary fields have derivatives if it asks for any."""
        self._trace = self._traced()
        if self._form.on_boundary:
            sides = self._form.fields.with_slopes(self._trace.has_slopes)
            self._form = replace(self._form, fields=sides, tests=sides)
            self._trace = self._trace if sides.have_slopes else self._trace.of_values

    def _traced(self) -> Trace:
        functionals, form = self.functionals, self._form
        fields, shapes = Arguments.of(self.space).components, form.coefficient_shapes()
        dim, boundary = form.geometry.dim, form.on_boundary
        if self._of_energy:
            given = dim, fields, {ENERGY: 1}, shapes
            traced = differentiated(trace(form.function, *given, boundary=boundary), ENERGY)
        else:
            outputs, function = fields | dict.fromkeys(functionals.names, 1), form.function
            if len(outputs) > 1:
                function = _complete(function, tuple(fields), functionals.names)
            given = dim, fields, outputs, shapes
            unweighted = functionals.minima
            traced = trace(function, *given, boundary=boundary, unweighted=unweighted)
        return traced

    @cached_property
    def _tests(self) -> list[str]:
        """Names of the test functions that are multiplied by something."""
        tests, wanted = self._trace.tests, self._form.tests.spaces
        return [n for n in wanted if not all(o.is_constant(0.0) for o in tests[n].flat())]

    @property
    def _is_zero(self) -> bool:
        """True if there are no functionals, and test functions are multiplied by nothing."""
        return not (self._tests or self.functionals.names)

    # --- evaluation ------------------------------------------------------------------------------

    @cached_property
    def _term(self) -> Term:
        """The residual and the functionals, cut at the quadrature points."""
        names = [*self._tests, *self.functionals.names]
        traced = replace(self._trace, tests={name: self._trace.tests[name] for name in names})
        form = replace(
            self._form, tests=self._form.tests.only(self._tests), traced=NonlinearQFunction(traced)
        )
        counts = len(self.functionals.minima), len(self.functionals.integrals)
        return Term.of_residual(form, self.dtype, self._width, *counts)

    @property
    def _conditions(self) -> Constraints:
        return Constraints(rows=self._constrained, symmetric=False)

    @cached_property
    def _launch(self) -> Launch:
        """The sweep over the elements, or faces, of this rank."""
        backend, term = backend_of(self.space), self._term
        if not term.mesh.num_elements:
            return backend.idle()
        return backend.launch(term, self._conditions, 0.0)

    @cached_property
    def compiled(self) -> CompiledOperator:
        """The compiled work; compiled, or read from the cache, at the first use."""
        sides, steps = (Arguments.of(self.space),) * 2, list[Step]()
        if not self._is_zero:
            term = self._term
            steps = [Step(1.0, self._launch, term.fields, term.tests, not term.on_boundary)]
        return compiled_steps(backend_of(self.space), steps, sides, self._conditions, self.dtype)

    def residual(self, u: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """R(u; v) for all test functions v.

        Parameters
        ----------
        u : (size,) array
            C-contiguous, of the residual's type: a vector of the space, or of the product.
        out : (size,) array, optional
            Overwritten by the result; must not overlap u.

        Returns
        -------
        (size,) array
            Zero at constrained dofs, and in the parts of test functions that nothing multiplies.

        Raises
        ------
        VectorError
            A vector of another shape, type or memory layout, or an ``out`` that overlaps u.
        """
        return together([self._alone], lambda: self._residual(u, out))

    def _residual(self, u: NDArray[Any], out: NDArray[Any] | None) -> NDArray[Any]:
        u = self._check(u, "u")
        xp = self.space.memory.xp
        result = xp.empty_like(u) if out is None else self._check(out, "out")
        check_output(self.space, u, result, out)
        self.compiled.apply(u, result)
        return result

    def evaluate(
        self, u: NDArray[Any], out: NDArray[Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, float]]:
        """The residual and the functionals, by one sweep.

        Parameters and errors as of `residual`.

        Returns
        -------
        residual : (size,) array
        functionals : dict of float
            By name.
        """
        return together([self._alone], lambda: (self._residual(u, out), self._found()))

    def _found(self) -> dict[str, float]:
        """The functionals of the last application. Collective."""
        found, comm = {}, self.space.comm
        for name in self.functionals.minima:
            values = self._by_element(name)
            least = float(values.min()) if values.size else np.inf
            if comm.size > 1:  # what is not a number is so for all
                broken = comm.max(int(np.isnan(least)))
                least = np.nan if broken else -float(comm.max(np.array([-least]))[0])
            found[name] = least
        for name in self.functionals.integrals:
            values = self.space.memory.get(self._by_element(name))
            found[name] = exact_sum(values.astype(np.float64), comm)
        return found

    def _by_element(self, name: str) -> NDArray[Any]:
        """A functional of each element, where the residual is computed."""
        if not self._term.mesh.num_elements:
            return np.zeros(0)
        values: NDArray[Any] = self._launch.functionals[self.functionals.names.index(name)]
        return values

    def instructions(
        self, u: NDArray[Any], out: NDArray[Any], scalars: Mapping[str, int]
    ) -> list[Instruction] | None:
        """Instructions that do `evaluate` on the host; None if Python is to do it.

        That is so where ranks share dofs, and with integrals, which are summed exactly.

        Parameters
        ----------
        u, out : (size,) arrays
        scalars : dict of int
            By functional, the scalar of the sequence that gets it.
        """
        backend, names = backend_of(self.space), self.functionals.names
        found = [self.compiled.instruction(u, out)]
        found += [
            None
            if name in self.functionals.integrals
            else backend.least_instruction(self._launch, k, scalars[name])
            for k, name in enumerate(names)
        ]
        known = [instruction for instruction in found if instruction is not None]
        return known if len(known) == len(found) else None

    @names_checked
    def element_of(self, name: str) -> int:
        """Element of the least value of a functional in the last evaluation. Collective.

        Parameters
        ----------
        name : str
            One of the minima.

        Returns
        -------
        int
            Its number in the whole mesh, the same on all ranks; the lowest of several. A value
            that is not a number counts as least.

        Raises
        ------
        OperatorError
            Another name, or a residual that has not been evaluated yet, as a copy.
        """
        if name not in self.functionals.minima or self._form.on_boundary:
            raise OperatorError(f"{self!r} has no minimum {name!r}: {self.functionals.minima}")
        if "compiled" not in vars(self):
            raise OperatorError(f"{self!r} has not been evaluated: call its evaluate(u) first")
        whole = self.space.distributed
        numbers = None if whole is None else whole.part.elements
        values = self.space.memory.get(self._by_element(name))
        return least_element(values, self.space.comm, numbers)

    # --- derivative ------------------------------------------------------------------------------

    @names_checked
    def jacobian(self, u: NDArray[Any], level: str = "partial") -> Operator:
        """Derivative of the residual at u, an operator.

        The part that depends on u is stored at the quadrature points, at level "matrix-free"
        too; see `Operator.at_level` for all levels.  Constrained dofs have rows and columns of
        the identity.

        Parameters
        ----------
        u : (size,) array
            The state; a copy is kept, from which another level or a transpose is computed.
        level : str
            See `Operator.at_level`.

        Returns
        -------
        Operator

        Raises
        ------
        VectorError
            A vector of another shape or type.
        TraceError
            The residual does not depend on any field.
        OperatorError
            A residual over the boundary on a GPU.
        """
        u, sides = self._check(u, "u"), self._form.fields
        if self._form.on_boundary and self.space.device is not None:
            raise OperatorError(f"{self!r} is over the boundary: its Jacobian is of the CPU alone")
        form, used = self._derivative
        named = {
            state: (volume_space(space), u[sides.origin(name) :][: space.size])
            for (name, space), state in zip(
                sides.spaces.items(), self._states.values(), strict=True
            )
        }
        if used:
            whole = backend_of(self.space).state(named, self._setups)
            form = replace(form, state=whole.of(used, self._setups))
        operator = Operator.of_form(form, self.dtype, self._width, level)
        # of ranks that share the conditions some may hold nothing
        return (
            operator if self._constrained is _NOTHING else operator.constrained(self._constrained)
        )

    @property
    def _states(self) -> dict[str, str]:
        """Name of each field's values among the static inputs of the derivative."""
        return {name: f"{STATE}({name})" for name in self._form.fields.spaces}

    @cached_property
    def _linearised(self) -> LinearQFunction:
        """The q-function of the Jacobian."""
        tests = {name: self._trace.tests[name] for name in self._form.tests.spaces}
        return LinearQFunction(linearised(replace(self._trace, tests=tests), self._states))

    @cached_property
    def _derivative(self) -> tuple[Integral, list[str]]:
        """The form of the Jacobian, and what it uses of a state."""
        form = replace(self._form, traced=self._linearised).reduced
        used = form.qfunction.used()
        return form, [name for name in self._states.values() if {name, f"d{name}"} & {*used}]

    # --- the same with something else ------------------------------------------------------------

    def update(self, **coefficients: Any) -> Residual:
        """The residual with other values of some coefficients, which are read now.

        Constrained dofs stay. Nothing is compiled, unless a coefficient that was constant varies
        now or the other way around, or its shape is another.

        Parameters
        ----------
        **coefficients
            By name.

        Returns
        -------
        Residual

        Raises
        ------
        OperatorError
            A coefficient that the residual does not have, or one of another shape.
        """
        twin = copy(self)
        twin._form, twin._setups = self._form.replaced(coefficients, {}), {}
        twin.__dict__.pop("_derivative", None)  # it has the coefficients
        if twin._form.coefficient_shapes() != self._form.coefficient_shapes():
            for name in ("_tests", "_linearised"):
                twin.__dict__.pop(name, None)
            twin._read()
        return twin

    @names_checked
    def constrained(self, dofs: ArrayLike) -> Residual:
        """The residual with some dofs constrained: there it is zero, its Jacobian the identity.

        Parameters
        ----------
        dofs : (k,) integers
            Flat positions, as `Space.boundary_dofs` and `Product.positions` give them.

        Returns
        -------
        Residual

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
        fields = ", ".join(self.space.names) + ", " if isinstance(self.space, Product) else ""
        constrained = f", {len(self._constrained)} constrained" if len(self._constrained) else ""
        return (
            f"Residual({self.name}: {fields}{self.space.size} unknowns, {self.dtype}{constrained})"
        )


def _complete(
    function: FormFunction, fields: tuple[str, ...], functionals: Sequence[str]
) -> Callable[..., Any]:
    """The function with all its results by name, as tracing wants them."""

    @functools.wraps(function)
    def complete(*args: Any, **options: Any) -> Any:
        results = function(*args, **options)
        if not isinstance(results, dict):
            return results
        missing = [name for name in functionals if name not in results]
        if missing:
            raise OperatorError(f"{name_of(function)} returned no {missing[0]!r}: it is asked for")
        found = {name: {"value": results[name]} for name in functionals}
        if len(fields) == 1:  # factors of its test function stand beside the functionals
            results = {fields[0]: {k: v for k, v in results.items() if k not in found}}
        return {key: {} for key in fields} | results | found

    return complete
