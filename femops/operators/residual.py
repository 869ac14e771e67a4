"""Residuals: nonlinear forms, with their derivatives as operators, and with functionals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from functools import cache, cached_property, partial
from typing import Any, ClassVar, Never, final

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse.linalg import LinearOperator

from femops.errors import Errors, OperatorError
from femops.fields.norms import exact_sum, least_element
from femops.operators.execution.backend import Step
from femops.operators.execution.host import backend_of
from femops.operators.execution.ranks import compiled_steps
from femops.operators.execution.vectors import check_output, checked_vector, contiguous_vector
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.constraints import Constraints, read_only
from femops.operators.integrals.history import History
from femops.operators.integrals.integral import Made
from femops.operators.integrals.nonlinear import Functionals, NonlinearIntegral
from femops.operators.integrals.state import State
from femops.operators.operator import Operator
from femops.operators.sums import Summable
from femops.parallel.comm import check
from femops.spaces.base import Space
from femops.spaces.product import Product
from femops.spaces.restriction import positions
from femops_common.arguments import names_checked
from femops_kernels.compiled import CompiledOperator, Instruction, Launch
from femops_kernels.exclusive import Exclusive, together

Ints = NDArray[np.int64]

_NOTHING: Ints = np.zeros(0, dtype=np.int64)
_EMPTY: NDArray[Any] = np.zeros(0)
_CACHED = ("compiled", "_launches")
_VALUE = "F.residual(u) is its value, and F.jacobian(u) @ du a product with its derivative"


@final
class Residual(Summable):
    r"""Residual that may be nonlinear in its fields, together with functionals of the fields.

    :math:`R(u_1, u_2, \ldots; v_1, v_2, \ldots) = \sum_i \int_\Omega f_i \cdot v_i
    + F_i : \nabla v_i\, dx`, where :math:`f_i` and :math:`F_i` are functions of all fields and
    their gradients.  `femops.residual` makes it, and so do forms of the library such as
    `femops.neo_hookean`. Residuals on one space can be added, subtracted and multiplied by numbers.
    They may be integrals over different domains. Factors do not apply to functionals.

    Attributes
    ----------
    space : Space or Product
        Space of the fields and of the test functions.
    dtype : numpy.dtype
        float64 or float32; vectors have this type.
    functionals : Functionals
    """

    _given_as = "a residual, as femops.neo_hookean(V)"
    _aside = "femops.newton(F, u0, b) solves F(u) = b, and F.jacobian(u) is an operator"
    _remedies: ClassVar[Mapping[type, str]] = {
        LinearOperator: "write its terms as a residual too, femops.residual(function, V)",
        np.ndarray: "give a load to the solver, femops.newton(R, u0, b)",
    }

    def __init__(
        self,
        space: Space | Product,
        dtype: np.dtype[Any],
        parts: Sequence[NonlinearIntegral],
    ) -> None:
        self.space, self.dtype, self._parts = space, dtype, tuple(parts)
        self.functionals = Functionals(
            *(
                tuple({name: None for part in parts for name in getattr(part.functionals, kind)})
                for kind in ("integrals", "minima")
            )
        )
        self._constrained = _NOTHING
        self._alone = Exclusive()  # held while a sweep's results by element are used

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy or another process, without compiled code."""
        return {k: v for k, v in self.__dict__.items() if k not in _CACHED}

    def __copy__(self) -> Residual:
        twin = object.__new__(Residual)
        twin.__dict__.update(self.__getstate__(), _alone=Exclusive())
        return twin

    @property
    def name(self) -> str:
        """Names of the integrated functions."""
        return " + ".join(part.name for part in self._parts)

    @property
    def parts(self) -> tuple[NonlinearIntegral, ...]:
        """Integrals of the residual, over elements or boundary faces."""
        return self._parts

    @property
    def constrained_dofs(self) -> Ints:
        """Flat positions (k,) of the constrained dofs, ascending. The array is read-only."""
        return read_only(self._constrained)

    @property
    def unconstrained(self) -> Residual:
        """Copy without essential conditions. Its entries at their dofs are the reactions."""
        twin = copy(self)
        twin._constrained = _NOTHING
        return twin

    def __matmul__(self, other: Any) -> Never:
        raise OperatorError(f"a residual is no matrix: {_VALUE}")

    def __call__(self, *_: Any, **__: Any) -> Never:
        raise OperatorError(f"a residual is not called: {_VALUE}")

    # --- sums ------------------------------------------------------------------------------------

    def _plus(self, other: Residual) -> Residual:
        if not np.array_equal(self._constrained, other._constrained):
            raise OperatorError(
                "residuals with different constraints can't be added: write "
                "(R + S).constrained(dofs)"
            )
        twice = {*self.functionals.names} & {*other.functionals.names}
        if twice:
            raise OperatorError(
                f"both residuals have a functional {min(twice)!r}: rename one of them"
            )
        both = Residual(self.space, self.dtype, self._parts + other._parts)
        both._constrained = self._constrained
        return both

    def _times(self, factor: float) -> Residual:
        twin = copy(self)
        twin._parts = tuple(part.times(factor) for part in self._parts)
        return twin

    # --- evaluation ------------------------------------------------------------------------------

    @property
    def _conditions(self) -> Constraints:
        return Constraints(rows=self._constrained, symmetric=False)

    @cached_property
    def _launches(self) -> list[Launch]:
        """Launches of all parts: sweeps over the elements or faces of this rank."""
        backend, terms = backend_of(self.space), [part.term for part in self._parts]
        return [
            backend.launch(term, self._conditions, 0.0)
            if term.domain.num_elements
            else backend.idle()
            for term in terms
        ]

    @cached_property
    def compiled(self) -> CompiledOperator:
        """Compiled residual. It is made, or read from the cache, at first use."""
        sides, steps, begun = (Arguments.of(self.space),) * 2, list[Step](), set[str]()
        swept = [k for k, part in enumerate(self._parts) if not part.is_zero]
        for k in sorted(swept, key=lambda k: not self._parts[k].form.domain.covers):
            term = self._parts[k].term
            begins = term.domain.covers and begun.isdisjoint(term.tests.spaces)
            steps.append(Step(1.0, self._launches[k], term.fields, term.tests, begins))
            begun |= steps[-1].written
        return compiled_steps(backend_of(self.space), steps, sides, self._conditions, self.dtype)

    def residual(self, u: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Evaluate R(u; v) for all test functions v.

        Parameters
        ----------
        u : (size,) array
            Vector of the space or product: C-contiguous, of the residual's type.
        out : (size,) array, optional
            Array that receives the result. It must not overlap u.

        Returns
        -------
        (size,) array
            Zero at constrained dofs, and for test functions whose factors are all zero.

        Raises
        ------
        VectorError
            A vector has another shape, type or memory layout, or ``out`` overlaps u.
        """
        return together([self._alone], lambda: self._residual(u, out))

    def _residual(self, u: NDArray[Any], out: NDArray[Any] | None) -> NDArray[Any]:
        u = self._given(u)
        xp = self.space.memory.xp
        result = xp.empty_like(u) if out is None else self._check(out, "out")
        check_output(self.space, u, result, out)
        self.compiled.apply(u, result)
        self._check_laws(u, result)
        return result

    def _check_laws(self, u: NDArray[Any], result: NDArray[Any]) -> None:
        """Raise if results are no numbers because a law fails at a point. Collective."""
        if not any(part.calls for part in self._parts):
            return
        comm, memory = self.space.comm, self.space.memory
        found = [result, *map(self._by_element, self.functionals.names)]
        if comm.max(int(any(memory.get(memory.xp.isnan(one)).any() for one in found))):
            state = self._state(u)
            with check(comm):
                for part in self._parts:
                    part.check_laws(state)

    def evaluate(
        self, u: NDArray[Any], out: NDArray[Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, float]]:
        """Evaluate the residual and the functionals in one sweep.

        See `residual` for parameters and errors.

        Returns
        -------
        residual : (size,) array
        functionals : dict of float
            Value of each functional by name.
        """
        return together([self._alone], lambda: (self._residual(u, out), self._found()))

    def _found(self) -> dict[str, float]:
        """Values of the functionals in the last application, by name. Collective."""
        found, comm = {}, self.space.comm
        for name in self.functionals.minima:
            values = self._by_element(name)
            least = float(values.min()) if values.size else np.inf
            if comm.size > 1:  # a NaN on one rank is the result on all ranks
                broken = comm.max(int(np.isnan(least)))
                least = np.nan if broken else -float(comm.max(np.array([-least]))[0])
            found[name] = least
        for name in self.functionals.integrals:
            values = self.space.memory.get(self._by_element(name))
            found[name] = exact_sum(values.astype(np.float64), comm)
        return found

    def _by_element(self, name: str) -> NDArray[Any]:
        """Value of a functional in each element, in the memory of the residual's vectors."""
        found: list[NDArray[Any]] = [
            self._launches[k].functionals[number]
            for k, number in self._places(name)
            if self._parts[k].form.domain.num_elements
        ]
        # several on a mesh of several shapes, none on a rank without elements
        return self.space.memory.xp.concatenate(found) if len(found) > 1 else [*found, _EMPTY][0]

    def _places(self, name: str) -> list[tuple[int, int]]:
        """Number of each part with a functional, and number of the functional within the part."""
        names = [part.functionals.names for part in self._parts]
        return [(k, own.index(name)) for k, own in enumerate(names) if name in own]

    def instructions(
        self, u: NDArray[Any], out: NDArray[Any], scalars: Mapping[str, int]
    ) -> list[Instruction] | None:
        """Instructions of a host sequence that do `evaluate`. None if Python has to evaluate.

        Python evaluates if ranks share dofs, or if a functional is an integral, which Python sums
        exactly.

        Parameters
        ----------
        u, out : (size,) arrays
        scalars : dict of int
            For each functional, the number of the sequence's scalar that receives its value.
        """
        backend = backend_of(self.space)
        found = [self.compiled.instruction(u, out), *[None] * len(self.functionals.integrals)]
        for name in self.functionals.minima:
            (k, number), *others = self._places(name)
            if others:  # of several shapes
                return None
            found.append(backend.least_instruction(self._launches[k], number, scalars[name]))
        known = [instruction for instruction in found if instruction is not None]
        return known if len(known) == len(found) else None

    @names_checked
    def element_of(self, name: str) -> int:
        """Element with the least value of a functional in the last evaluation. Collective.

        Parameters
        ----------
        name : str
            Name of a functional that is a minimum.

        Returns
        -------
        int
            Number of the element in the global mesh, the same on all ranks. If several elements
            have the least value, their lowest number is returned. NaN counts as the least value.

        Raises
        ------
        OperatorError
            If there is no such minimum, or this residual or copy has not been evaluated yet.
        """
        on_elements = [part for part in self._parts if part.form.domain.on_elements]
        if not any(name in part.functionals.minima for part in on_elements):
            known = ", ".join(n for one in on_elements for n in one.functionals.minima) or "none"
            raise OperatorError(
                f"{self!r} has no minimum {name!r} over the elements: it has {known}"
            )
        if "compiled" not in vars(self):
            raise OperatorError(f"{self!r} has not been evaluated: call its evaluate(u) first")
        whole = self.space.distributed
        numbers = None if whole is None else whole.part.elements
        values = self.space.memory.get(self._by_element(name))
        return least_element(values, self.space.comm, numbers)

    # --- derivative ------------------------------------------------------------------------------

    @names_checked
    def jacobian(self, u: NDArray[Any], level: str = "partial") -> Operator:
        """Derivative of the residual at u as an operator.

        The operator stores numbers that depend on u at the quadrature points, at level
        "matrix-free" too. Rows and columns of constrained dofs are those of the identity.

        Parameters
        ----------
        u : (size,) array
            State at which to differentiate. The operator keeps a copy for other levels and the
            transpose.
        level : str
            See `Operator.at_level`.

        Returns
        -------
        Operator

        Raises
        ------
        VectorError
            The vector has another shape or type.
        TraceError
            The residual does not depend on any field.
        """
        u = self._given(u)
        state = cache(partial(self._state, u))
        # integrals that depend on no field add nothing; if all are constant, the first one raises
        moving = [part for part in self._parts if not part.is_constant] or self._parts[:1]
        terms = (
            Operator.of_form(part.derivative(state), self.dtype, part.width, level)
            for part in moving
        )
        operator = next(terms)
        for term in terms:
            operator = operator + term
        # a rank may have no constrained dofs while other ranks have some
        return (
            operator if self._constrained is _NOTHING else operator.constrained(self._constrained)
        )

    def _state(self, u: NDArray[Any]) -> State:
        """Copy the fields of a vector into a state, under their names in derivatives."""
        named = {}
        for part in self._parts:
            for name, space in part.form.fields.spaces.items():
                values = u[part.form.fields.origin(name) :][: space.size]
                named[part.states[name]] = space.volume.whole, values
        return backend_of(self.space).state(named, {})

    def committed(self, u: NDArray[Any], history: History) -> Residual:
        """See `History.commit`. Collective."""
        given = [pair for part in self._parts for pair in part.histories.items()]
        if not any(one is history for _, one in given):
            has = ", ".join(name for name, _ in given) or "none"
            raise OperatorError(
                f"{self!r} does not have this history (it has {has}): give it as a coefficient"
            )
        for k, (name, one) in enumerate(given):
            if any(name == other or one is used for other, used in given[:k]):
                raise OperatorError(
                    f"{self!r} has two next values for the history {name}: let one function "
                    "compute all that needs it, and give each history a name of its own"
                )
        state, found = self._state(self._given(u)), dict[str, NDArray[Any]]()
        with check(self.space.comm):
            for part in self._parts:
                if part.histories:
                    found |= part.next_values(state)
        for name, one in given:
            one.set(found[name])
        return self.update(**dict(given))

    def failure_of_laws(self, u: NDArray[Any]) -> str:
        """Words about a law that fails at u, itself or its derivative, or none. Collective."""
        state = self._state(self._given(u))
        try:
            with check(self.space.comm):
                for part in self._parts:
                    part.check_laws(state)
                    part.check_slopes(state)
        except Errors as error:
            return str(error)
        return ""

    # --- copies with changes ---------------------------------------------------------------------

    def update(self, **coefficients: Any) -> Residual:
        """Copy of the residual with new values of some coefficients.

        The call copies the values. Constrained dofs do not change. Kernels are compiled only if a
        coefficient changes its shape, or changes between constant and variable.

        Parameters
        ----------
        **coefficients
            New values by name.

        Returns
        -------
        Residual

        Raises
        ------
        OperatorError
            The residual does not have the coefficient, or the new value has another shape.
        """
        known = dict.fromkeys(n for part in self._parts for n in part.form.coefficients)
        unknown = [name for name in coefficients if name not in known]
        if unknown:
            has = ", ".join(known) or "none"
            raise OperatorError(f"{self.name} has no coefficient {unknown[0]!r}: it has {has}")
        return self.with_coefficients(coefficients, {})

    def with_coefficients(self, values: Mapping[str, Any], made: Made) -> Residual:
        """Copy of the residual with new values of coefficients; see `NonlinearIntegral.updated`."""
        twin = copy(self)
        twin._parts = tuple(part.updated(values, made) for part in self._parts)
        return twin

    @names_checked
    def constrained(self, dofs: ArrayLike) -> Residual:
        """Copy of the residual that is zero at ``dofs``. Its Jacobian has the identity there.

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
            A position is no whole number or is outside the vector.
        """
        twin = copy(self)
        twin._constrained = np.union1d(self._constrained, positions(dofs, self.space.size))
        return twin

    def _given(self, u: Any) -> NDArray[Any]:
        return contiguous_vector(self.space, self.dtype, u, "u")

    def _check(self, vector: Any, what: str) -> NDArray[Any]:
        checked: NDArray[Any] = checked_vector(self.space, self.dtype, vector, what)
        return checked

    def __repr__(self) -> str:
        fields = ", ".join(self.space.names) + ", " if isinstance(self.space, Product) else ""
        labels = " + ".join(part.label for part in self._parts)
        constrained = f", {len(self._constrained)} constrained" if len(self._constrained) else ""
        return f"Residual({labels}: {fields}{self.space.size} unknowns, {self.dtype}{constrained})"
