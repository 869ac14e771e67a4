"""Nonlinear forms on several fields of different spaces, with functionals of these."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from femops.basis import Quadrature1D
from femops.errors import OperatorError
from femops.fields.norms import exact_sum, least_element
from femops.operators.block import BlockOperator
from femops.operators.block_form import check_fields, forms_of
from femops.operators.constraints import read_only
from femops.operators.execution.choice import backend_of
from femops.operators.execution.fields import FieldWork
from femops.operators.execution.vectors import check_output, checked_vector
from femops.operators.integrals.bilinear import STATE, BilinearForm
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.integrals.number_types import float_type
from femops.operators.integrals.term import Term
from femops.operators.operator import Operator
from femops.pointwise.blocks import Pair, linear_blocks
from femops.pointwise.trace import FormFunction, Trace, linearised, name_of, trace
from femops.spaces.product import Product
from femops.spaces.restriction import positions
from femops_kernels.compiled import CompiledFields
from femops_kernels.cpu.machine import lane_width
from femops_kernels.exclusive import Exclusive, together
from femops_meshes.arguments import names_checked

Ints = NDArray[np.int64]

_NOTHING: Ints = np.zeros(0, dtype=np.int64)
_CACHED = ("compiled", "_term")


@final
@dataclass(frozen=True)
class Functionals:
    """Names of the functionals of a form: integrals, and least values at the points."""

    integrals: tuple[str, ...] = ()
    minima: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All names, in the order of a kernel's components."""
        return (*self.minima, *self.integrals)


@final
class CoupledForm:
    r"""A residual that is not linear in several fields, and functionals of them.

    :math:`R(u_1, u_2, \ldots; v_1, v_2, \ldots) = \sum_i \int_\Omega f_i \cdot v_i
    + F_i : \nabla v_i\, dx`, where :math:`f_i` and :math:`F_i` are functions of all fields and
    their gradients.  It is made by `femops.coupled_form`.

    Attributes
    ----------
    space : Product
        Of the fields and of the test functions.
    dtype : numpy.dtype
        float64 or float32; vectors have this type.
    functionals : Functionals
    """

    _given_as = "a coupled form, as femops.coupled_form(function, W)"

    def __init__(
        self,
        function: FormFunction,
        product: Product,
        functionals: Functionals,
        quadrature: Quadrature1D,
        coefficients: Mapping[str, FormCoefficient],
        dtype: DTypeLike,
        lanes: int | None,
    ) -> None:
        self.space, self.functionals, self.dtype = product, functionals, float_type(dtype)
        backend_of(product).check_lanes(lanes)
        self._width = lane_width(self.dtype, lanes)
        check_fields(function, product, coefficients)
        first = product.spaces[product.names[0]]
        self._form = BilinearForm(function, first, first, quadrature, coefficients)
        self._trace = self._traced()  # now: what the function reads may change later
        if not self._tests and not functionals.names:
            raise OperatorError(f"{self.name} returns nothing: give factors of test functions")
        self._constrained = _NOTHING
        self._alone = Exclusive()  # while a sweep's results by element are used
        self._setups: dict[Pair, dict[Any, Any]] = {}  # of the blocks of Jacobians, see `State`

    def __getstate__(self) -> dict[str, Any]:
        """Copies and pickles find the compiled code in the cache."""
        return {k: v for k, v in self.__dict__.items() if k not in _CACHED}

    @property
    def name(self) -> str:
        """Name of the function."""
        return self._form.name

    @property
    def constrained_dofs(self) -> Ints:
        """Flat positions of the constrained dofs, ascending; read-only."""
        return read_only(self._constrained)

    def _traced(self) -> Trace:
        functionals, spaces = self.functionals, self.space.spaces
        fields = {name: space.ncomp for name, space in spaces.items()}
        outputs = fields | dict.fromkeys(functionals.names, 1)
        function = _complete(self._form.function, tuple(fields), functionals.names)
        shapes = self._form.coefficient_shapes()
        dim = self.space.dim
        return trace(function, dim, fields, outputs, shapes, unweighted=functionals.minima)

    @cached_property
    def _tests(self) -> list[str]:
        """Names of the test functions that are multiplied by something."""
        tests = self._trace.tests
        wanted = self.space.names
        return [n for n in wanted if not all(o.is_constant(0.0) for o in tests[n].flat())]

    @cached_property
    def _term(self) -> Term:
        """The residual and the functionals, cut at the quadrature points."""
        names = [*self._tests, *self.functionals.names]
        traced = replace(self._trace, tests={name: self._trace.tests[name] for name in names})
        return Term.of_residual(replace(self._form, residual=traced), self.dtype, self._width)

    @cached_property
    def compiled(self) -> CompiledFields:
        """The compiled form."""
        return backend_of(self.space).fields(
            FieldWork(
                self.space,
                self._tests,
                len(self.functionals.minima),
                len(self.functionals.integrals),
                self._term,
                self._constrained,
            )
        )

    def residual(self, u: NDArray[Any], out: NDArray[Any] | None = None) -> NDArray[Any]:
        """R(u; v) for all test functions v.

        Parameters
        ----------
        u : (size,) array
            C-contiguous, of the form's type: a vector of the product.
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
        """A functional of each element, where the form runs."""
        values: NDArray[Any] = self.compiled.functionals[self.functionals.names.index(name)]
        return values

    @names_checked
    def jacobian(self, u: NDArray[Any], level: str = "partial") -> BlockOperator:
        """Derivative of the residual at a state, an operator on all fields.

        Its blocks come from the same graph, differentiated.  What depends on the state is stored at
        the quadrature points, at level "matrix-free" too; a block that does not is that of a linear
        form.  Constrained dofs have rows and columns of the identity.

        Parameters
        ----------
        u : (size,) array
            The state; a copy is kept, from which another level or a transpose is computed.
        level : str
            See `Operator.at_level`.

        Returns
        -------
        BlockOperator

        Raises
        ------
        VectorError
            A vector of another shape or type.
        TraceError
            The residual does not depend on any field.
        """
        u = self._check(u, "u")
        forms, symmetric = self._derivative
        vectors = zip(self.space.spaces.values(), self.space.split(u), strict=True)
        named = dict(zip(self._states.values(), vectors, strict=True))
        whole = backend_of(self.space).state(named, {})
        blocks = {}
        for pair, (form, names) in forms.items():
            state = whole.of(names, self._setups.setdefault(pair, {}))
            at_state = replace(form, state=state) if names else form
            blocks[pair] = Operator.of_form(at_state, self.dtype, self._width, level)
        found = BlockOperator(self.space, blocks, symmetric, self.dtype)
        # of ranks that share the conditions some may hold nothing
        return found if self._constrained is _NOTHING else found.constrained(self._constrained)

    @property
    def _states(self) -> dict[str, str]:
        """Name of each field's values among the static inputs of the derivative."""
        return {name: f"{STATE}({name})" for name in self.space.names}

    @cached_property
    def _derivative(self) -> tuple[dict[Pair, tuple[BilinearForm, list[str]]], bool]:
        """The form of each block, with what it uses of a state; whether all are symmetric."""
        tests = {name: self._trace.tests[name] for name in self.space.names}
        split = linear_blocks(linearised(replace(self._trace, tests=tests), self._states))
        found = {}
        for pair, form in forms_of(self._form, split, self.space).items():
            used = form.qfunction.used()
            names = [n for n in self._states.values() if n in used or f"d{n}" in used]
            found[pair] = form, names
        return found, split.symmetric

    @names_checked
    def element_of(self, name: str) -> int:
        """Element of the least value of a functional in the last evaluation. Collective.

        Parameters
        ----------
        name : str
            One of the form's minima.

        Returns
        -------
        int
            Its number in the whole mesh, the same on all ranks; the lowest of several. A value
            that is not a number counts as least.

        Raises
        ------
        OperatorError
            Another name, or a form that has not been evaluated yet, as a copy.
        """
        if name not in self.functionals.minima:
            raise OperatorError(f"{self!r} has no minimum {name!r}: {self.functionals.minima}")
        if "compiled" not in vars(self):
            raise OperatorError(f"{self!r} has not been evaluated: call its evaluate(u) first")
        whole = next(iter(self.space.spaces.values())).distributed
        numbers = None if whole is None else whole.part.elements
        values = self.space.memory.get(self._by_element(name))
        return least_element(values, self.space.comm, numbers)

    @names_checked
    def constrained(self, dofs: ArrayLike) -> CoupledForm:
        """The form with some dofs constrained: their residual is zero.

        Parameters
        ----------
        dofs : (k,) integers
            Flat positions in a vector of the product.

        Returns
        -------
        CoupledForm

        Raises
        ------
        OperatorError
            Positions that are no whole numbers or outside the vector.
        """
        twin = object.__new__(CoupledForm)
        twin.__dict__.update(self.__getstate__(), _alone=Exclusive())
        twin._constrained = np.union1d(self._constrained, positions(dofs, self.space.size))
        return twin

    def _check(self, vector: Any, what: str) -> NDArray[Any]:
        checked: NDArray[Any] = checked_vector(self.space, self.dtype, vector, what)
        return checked

    def __repr__(self) -> str:
        names = ", ".join(self.space.names)
        return f"CoupledForm({self.name}: {names}, {self.space.size} unknowns, {self.dtype})"


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
        return {key: {} for key in fields} | results | found

    return complete
