"""Operators of bilinear forms that users define by a function, and the options of forms."""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, cleandoc, signature
from typing import Any, TypedDict, TypeVar, final, overload

import numpy as np
from numpy.typing import DTypeLike

from femops.basis import Rule
from femops.errors import OperatorError, TraceError
from femops.forms.complex_form import ComplexType, complex_form
from femops.geometry.boundary import asked_attributes
from femops.operators.complex_operator import ComplexOperator
from femops.operators.execution.host import backend_of
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.coefficients import Coefficient, FormCoefficient
from femops.operators.integrals.integral import Integral
from femops.operators.operator import Operator
from femops.pointwise.trace import FormFunction, definition, name_of
from femops.spaces.base import Space
from femops.spaces.boundary_space import boundary_spaces
from femops.spaces.domain_space import DomainSpace
from femops.spaces.memory import memory_of
from femops.spaces.product import Product
from femops.spaces.side_space import sides_turn
from femops.spaces.vectors import is_complex
from femops_common.arguments import checked, shown

Form = TypeVar("Form", bound=Callable[..., Any])


class NonlinearOptions(TypedDict, total=False):
    """Options of residuals, documented in `Options`."""

    quadrature: int | Rule | None
    dtype: DTypeLike
    lanes: int | None


@final
class FormOptions(NonlinearOptions, total=False):
    """Options of bilinear forms, documented in `Options`."""

    data_dtype: DTypeLike | None
    level: str


@final
@dataclass(frozen=True)
class Options:
    """Options of a form, with their default values.

    Attributes
    ----------
    quadrature : int or Rule, optional
        Gauss points per direction, or a rule. The default is p + 2 Gauss points, where p is the
        larger order of two spaces.
    dtype : dtype
        Type of the vectors, the stored data and the arithmetic: float64 or float32.
    lanes : int, optional
        Number of SIMD lanes. The default is that of the machine. A GPU has no lanes.
    data_dtype : dtype, optional
        Type of the numbers that levels partial and matrix-free store at quadrature points.
        float32 in an operator of float64 halves their memory; see `Operator.at_level`.
    level : {"full", "element", "partial", "matrix-free", "auto"}
        Level, which decides what the operator stores; see `Operator.at_level`.
    """

    quadrature: int | Rule | None = None
    dtype: DTypeLike = np.float64
    lanes: int | None = None
    data_dtype: DTypeLike | None = None
    level: str = "partial"


_RETURNS = """
Returns
-------
{result}

Raises
------
OperatorError
    If a coefficient has another shape or values that are not finite, or spaces have other numbers
    of components or are on different meshes{level}.
SpaceError, GeometryError
    If there are too few quadrature points, or elements are inverted.
"""
"""Sections of the docstring of a built-in form after its options."""

_LEVEL = ",\n    or the level is unknown or would not fit into memory"


def built_in(kind: type) -> Callable[[Form], Form]:
    """Decorate a built-in form: check its arguments, complete its signature and docstring.

    The last parameters are ``**options``; see `with_options`. The decorator adds the sections
    Returns and Raises, which are the same for all built-in forms.
    """

    def complete(form: Form) -> Form:
        if form.__doc__:
            level = _LEVEL if "level" in kind.__annotations__ else ""
            returns = _RETURNS.format(result=form.__annotations__["return"], level=level)
            own = cleandoc(form.__doc__) + "\n"
            form.__doc__ = re.sub(r"\*\*options\n.*\n", lambda found: found[0] + returns, own)
        return with_options(kind)(checked(OperatorError)(form))

    return complete


def with_options(kind: type) -> Callable[[Form], Form]:
    """Decorate a form: list its options in its signature and docstring, for ``help()``.

    In the source the options are ``**options: Unpack[kind]``, for editors and type checkers, and an
    entry of the docstring. Options that are parameters of the form are not changed.
    """

    def spelled_out(form: Form) -> Form:
        parameters = dict(signature(form).parameters)
        if parameters.pop("options", None):
            for name, written in kind.__annotations__.items():
                default, annotation = getattr(Options, name), written.__forward_arg__
                parameters[name] = Parameter(
                    name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation
                )
            shown = signature(form).replace(parameters=list(parameters.values()))
            form.__signature__ = shown  # type: ignore[attr-defined]
        if form.__doc__ and Options.__doc__:  # python -OO has none
            # Python up to 3.12 keeps the indentation of docstrings, so remove it
            every, own = (cleandoc(one) + "\n" for one in (Options.__doc__, form.__doc__))
            entries = re.findall(r"^\w+ : .*\n(?: {4}.*\n)+", every, re.MULTILINE)
            mine = [entry for entry in entries if entry.split()[0] in kind.__annotations__]
            form.__doc__ = re.sub(r"\*\*options\n.*\n", lambda _: "".join(mine), own)
        return form

    return spelled_out


Shapes = tuple[tuple[int, ...], ...]


@overload
def form(
    function: FormFunction | Mapping[str, FormFunction],
    trial: Space | Product,
    test: Space | None = None,
    *,
    boundary: bool | int | str | Iterable[int | str] | None = None,
    faces: str | None = None,
    quadrature: int | Rule | None = None,
    dtype: ComplexType,
    data_dtype: DTypeLike | None = None,
    lanes: int | None = None,
    level: str = "partial",
    **coefficients: Any,
) -> ComplexOperator: ...


@overload
def form(
    function: FormFunction | Mapping[str, FormFunction],
    trial: Space | Product,
    test: Space | None = None,
    *,
    boundary: bool | int | str | Iterable[int | str] | None = None,
    faces: str | None = None,
    quadrature: int | Rule | None = None,
    dtype: DTypeLike = np.float64,
    data_dtype: DTypeLike | None = None,
    lanes: int | None = None,
    level: str = "partial",
    **coefficients: Any,
) -> Operator: ...


@with_options(FormOptions)
@checked(OperatorError)
def form(
    function: FormFunction | Mapping[str, FormFunction],
    trial: Space | Product,
    test: Space | None = None,
    *,
    boundary: bool | int | str | Iterable[int | str] | None = None,
    faces: str | None = None,
    quadrature: int | Rule | None = None,
    dtype: DTypeLike = np.float64,
    data_dtype: DTypeLike | None = None,
    lanes: int | None = None,
    level: str = "partial",
    **coefficients: Any,
) -> Operator | ComplexOperator:
    r"""Operator of a bilinear form defined by a user's function of the fields at a point.

    Parameters
    ----------
    function : callable
        ``function(u, x, **coefficients)``, where ``u`` is the field, ``x`` the position (optional),
        and coefficients are passed by name. In arithmetic ``u`` is the value of the field. Its
        derivatives are ``u.grad`` (dim,) or (ncomp, dim), ``u.div`` and ``u.sym_grad``. The
        function returns ``{"value": f, "grad": F}``, for the form
        :math:`\int_\Omega f \cdot v + F : \nabla v\, dx`. Either entry may be left out. The
        function is called once, with symbols. It must be linear in u. Use arithmetic, NumPy's
        functions and `femops.where`, `femops.det`, `femops.inv`, `femops.inner`, ... A Python
        ``if`` can't test a symbol.
        On a product the function takes the fields, with their names and in their order. For each
        test function it returns a dictionary with "value" and "grad", by name: ``{"u": {"grad": F},
        "p": {"value": g}}``.
        Several functions, by the domain of their integrals ("cells", "interior", "boundary"), are
        one operator: their sum. Each coefficient goes to the functions that take it.
    trial : Space or Product
        Space of u, or of all fields.
    test : Space, optional
        Space of v, on the same mesh. By default the trial space. Not allowed for products.
    boundary : "all", True, int, name, or several, optional
        Integrate over the full boundary, or over boundary attributes as for `Space.boundary_dofs`.
        Fields and derivatives are taken in the elements at the boundary. A parameter ``n`` of the
        function gets the outer unit normal. A parameter ``h`` gets the extent of the element across
        the face. Arrays have the shape (nf, nq, *shape), for the points of `BoundaryGeometry`.
    faces : {"interior"}, optional
        Integrate over the faces between elements. Fields have two values there: ``u.minus``,
        ``u.plus``, ``u.jump`` (minus - plus) and ``u.mean``, each with its gradient. ``n`` points
        from the minus to the plus side; ``h`` has two values, too, and so has a `GridFunction`. The
        function returns what multiplies these parts of the test function, as ``{"jump": f,
        "mean": {"grad": F}}`` for :math:`\int f [v] + F \cdot \{\nabla v\}\, ds`.
    **options
        See `femops.forms.form.Options`.
    **coefficients
        Numbers or arrays (constants), functions of x (shape (dim, n)) that return (*shape, n),
        arrays at the quadrature points (ne, nq, *shape), or a `GridFunction`.  The call copies
        arrays and vectors and evaluates functions. `Operator.update` does it again.

    Returns
    -------
    Operator
        Operator from the trial to the test space. A `ComplexOperator` for a complex ``dtype``.

    Raises
    ------
    TraceError
        If the function can't be traced (the message names the line) or is not linear, or a
        coefficient has the name of one of the arguments above.
    OperatorError
        If spaces are on different meshes, or coefficients have a wrong shape or are not finite.
    SpaceError
        If the mesh does not have a boundary attribute.

    Notes
    -----
    With ``dtype="complex128"`` or ``"complex64"`` fields and coefficients are complex, except a
    `GridFunction`. The function must be linear over complex numbers: it may have ``1j * u``, not
    ``np.conj(u)``. The test function is not conjugated.

    Examples
    --------
    >>> import femops
    >>> import numpy as np
    >>> def reaction_diffusion(u, x, kappa):
    ...     return {"value": (1 + x[0]) * u, "grad": kappa * u.grad}
    >>> V = femops.H1(femops.box((2, 2)), order=2)
    >>> A = femops.form(reaction_diffusion, V, kappa=3.0)
    >>> A.shape
    (25, 25)
    >>> def stokes(u, p, mu):
    ...     return {"u": {"grad": mu * u.grad - p * np.eye(2)}, "p": {"value": -u.div}}
    >>> W = femops.Product(u=femops.H1(V.mesh, order=2, ncomp=2), p=femops.H1(V.mesh, order=1))
    >>> S = femops.form(stokes, W, mu=0.1)
    >>> S.symmetric, S["p", "p"] is None
    (True, True)

    Upwind convection of discontinuous functions, with nothing flowing in:

    >>> def upwind(u, n):
    ...     speed = 2.0 * n[0] + n[1]
    ...     return {"jump": speed * femops.where(speed > 0.0, u.minus, u.plus)}
    >>> def outflow(u, n):
    ...     return {"value": np.maximum(2.0 * n[0] + n[1], 0.0) * u}
    >>> cells = lambda u: {"grad": -np.array([2.0, 1.0]) * u}
    >>> D = femops.L2(V.mesh, order=2)
    >>> C = femops.form({"cells": cells, "interior": upwind, "boundary": outflow}, D)
    """
    options: FormOptions = {"quadrature": quadrature, "dtype": dtype, "data_dtype": data_dtype}
    options |= {"lanes": lanes, "level": level}
    if is_complex(dtype) and not isinstance(function, Mapping):
        places = {"boundary": boundary, "faces": faces}
        return complex_form(form, function, trial, test, coefficients, places | options)
    if isinstance(function, Mapping):
        if faces is not None:
            raise OperatorError("functions by domain name their faces: leave out faces=")
        whole: Operator = _over_domains(function, trial, test, boundary, coefficients, options)
        return whole
    check_names(function, len(trial.names) if isinstance(trial, Product) else 1, form)
    given = {
        name: value if isinstance(value, FormCoefficient) else FormCoefficient(name, value)
        for name, value in coefficients.items()
    }
    if isinstance(trial, Product):
        if test is not None:
            raise OperatorError("a product has test functions of its own: leave out the test space")
        return build_blocks(function, arguments_of(trial, boundary, faces), given, options)
    sides = arguments_of(trial, boundary, faces)
    other = sides if test is None else arguments_of(test, boundary, faces)
    return build_sides(function, sides, other, given, options)


def _over_domains(
    functions: Mapping[str, FormFunction],
    trial: Space | Product,
    test: Space | None,
    boundary: Any,
    coefficients: Mapping[str, Any],
    options: FormOptions,
) -> Any:
    """Sum of forms over several domains; see `form`."""
    make: Any = form
    terms = [
        make(function, trial, test, **own, **options)
        for function, own in by_domain(functions, boundary, coefficients)
    ]
    return functools.reduce(operator.add, terms)


def by_domain(
    functions: Mapping[str, FormFunction], boundary: Any, coefficients: Mapping[str, Any]
) -> list[tuple[FormFunction, dict[str, Any]]]:
    """List functions over several domains with the arguments of each: domain and coefficients."""
    places: dict[str, dict[str, Any]] = {
        "cells": {},
        "interior": {"faces": "interior"},
        "boundary": {"boundary": "all" if boundary is None else boundary},
    }
    unknown = [name for name in functions if name not in places]
    if unknown or not functions:
        raise OperatorError(
            f"functions over {shown(unknown[0]) if unknown else 'no domain'}: "
            f"the domains are {', '.join(places)}"
        )
    if boundary is not None and "boundary" not in functions:
        raise OperatorError('boundary= chooses faces for a function of "boundary": there is none')
    taken = {name: {*_parameters(function)} for name, function in functions.items()}
    unused = [name for name in coefficients if not any(name in own for own in taken.values())]
    if unused:
        raise TraceError(f"no function takes the coefficient {unused[0]!r}: make it an argument")
    own = {
        name: {key: value for key, value in coefficients.items() if key in taken[name]}
        for name in functions
    }
    return [(function, places[name] | own[name]) for name, function in functions.items()]


def _parameters(function: Any) -> list[str]:
    """Names of a function's parameters; none if its signature can't be read."""
    try:
        return list(signature(function).parameters)
    except (TypeError, ValueError):
        return []


def scalars(*, positive: bool = False, **given: Coefficient) -> dict[str, FormCoefficient]:
    """Make form coefficients by name that take scalar values only."""
    return {name: FormCoefficient(name, c, ((),), positive=positive) for name, c in given.items()}


def check_displacements(V: Space, maker: Callable[..., Any]) -> None:
    """Raise unless a space has one component along each dimension. Collective."""
    if sides_turn(V):
        raise OperatorError(
            f"{maker.__name__} has vectors, whose components do not turn with the sides that this "
            "periodic mesh joins: take the whole body in place of a sector"
        )
    if V.ncomp != V.dim:
        raise OperatorError(
            f"{maker.__name__} takes a space with ncomp={V.dim}, this one has ncomp={V.ncomp}"
        )


def check_names(function: Any, fields: int, maker: Callable[..., Any]) -> None:
    """Raise if a coefficient of a user's function has the name of an argument of its maker.

    A keyword of this name would set the argument, not the coefficient.
    """
    names = _parameters(function)
    own = signature(maker).parameters.values()
    taken = {p.name for p in own if p.kind is not Parameter.VAR_KEYWORD}
    for name in names[fields:]:
        if name in taken:
            raise TraceError(
                f"{definition(function)}{name_of(function)}({', '.join(names)}): {name!r} is an "
                f"argument of femops.{maker.__name__}: rename the coefficient"
            )


def _attributes(space: Space | Product, boundary: Any) -> Any:
    """Boundary attributes for a user's argument ``boundary=``. None stands for all outer faces."""
    names = space.mesh.boundary_names if isinstance(space, Space | Product) else ()
    return asked_attributes(boundary, names)


def arguments_of(
    space: Space | Product, boundary: Any, faces: str | None = None
) -> list[Arguments]:
    """Make the fields or test functions on the elements or on faces: a list of domains.

    There is one domain, but on a mesh of several shapes one for each part, and shape of faces.
    """
    if faces is not None:
        if faces != "interior":
            raise OperatorError(f'faces {shown(faces)}: give "interior", or boundary="all"')
        if boundary is not None:
            raise OperatorError("boundary= and faces= exclude each other: add two forms instead")
        return Arguments.on_sides(space)
    if boundary is None:
        return Arguments.over(space)
    attributes = _attributes(space, boundary)
    if not isinstance(space, Product):
        return [Arguments.of(on) for on in boundary_spaces(space, attributes, slopes=True)]
    named = {n: boundary_spaces(s, attributes, slopes=True) for n, s in space.spaces.items()}
    return [
        Arguments(dict(zip(named, each, strict=True)), space)
        for each in zip(*named.values(), strict=True)
    ]


def _added(operators: Iterable[Operator]) -> Operator:
    whole: Operator = functools.reduce(operator.add, operators)
    return whole


def build_blocks(
    function: FormFunction,
    domains: Sequence[Arguments],
    coefficients: Mapping[str, FormCoefficient],
    options: FormOptions,
) -> Operator:
    """Build an operator on a product from a function and checked coefficients; see `form`."""
    product = domains[0].whole
    assert isinstance(product, Product)
    o = Options(**options)
    backend_of(product).check_lanes(o.lanes)
    check_fields(function, product, coefficients)

    def over(sides: Arguments) -> Operator:
        largest = max(sides.spaces.values(), key=lambda space: space.order)
        whole = Integral(function, sides, sides, largest.quadrature(o.quadrature), coefficients)
        return Operator.of_form(whole.reduced.of_values, o.dtype, o.lanes, o.level, o.data_dtype)

    return _added(map(over, domains))


def check_fields(
    function: FormFunction, product: Product, coefficients: Mapping[str, FormCoefficient]
) -> None:
    """Check that a function's first arguments are the fields, and no coefficient has their name."""
    names = product.names
    clash = [name for name in coefficients if name in names]
    if clash:
        raise OperatorError(
            f"{clash[0]!r} is a field of {product!r} and a coefficient: rename one of them"
        )
    taken = tuple(signature(function).parameters)
    if taken[: len(names)] != names:
        raise TraceError(
            f"{name_of(function)}({', '.join(taken)}) must take the fields first, in the order of "
            f"{product!r}: {', '.join(names)}"
        )


def build(
    function: FormFunction,
    trial: Space | Sequence[DomainSpace],
    test: Space | None,
    coefficients: Mapping[str, FormCoefficient],
    options: FormOptions,
) -> Operator:
    """Build an operator from a function and checked coefficients; see `form`.

    ``trial``: a space, or its functions on domains.
    """
    given = [trial] if isinstance(trial, Space) else trial
    fields = [each for one in given for each in Arguments.over(one)]
    tests = fields if test is None else Arguments.over(test)
    return build_sides(function, fields, tests, coefficients, options)


def build_sides(
    function: FormFunction,
    fields: Sequence[Arguments],
    tests: Sequence[Arguments],
    coefficients: Mapping[str, FormCoefficient],
    options: FormOptions,
) -> Operator:
    """Build an operator between the arguments of two spaces on domains; see `form`."""
    if len(fields) != len(tests):
        raise OperatorError("trial and test space are on different meshes: make both on one mesh")
    pairs = zip(fields, tests, strict=True)
    return _added(_between(function, *pair, coefficients, options) for pair in pairs)


def _between(
    function: FormFunction,
    fields: Arguments,
    tests: Arguments,
    coefficients: Mapping[str, FormCoefficient],
    options: FormOptions,
) -> Operator:
    trial, test, o = fields.first, tests.first, Options(**options)
    memory_of([trial.volume, test.volume])
    backend_of(trial.volume).check_lanes(o.lanes)
    if test.domain is not trial.domain:
        raise OperatorError("trial and test space are on different meshes: make both on one mesh")
    larger = trial if trial.order >= test.order else test
    rule = larger.quadrature(o.quadrature)
    integral = Integral(function, fields, tests, rule, coefficients)
    return Operator.of_form(integral.of_values, o.dtype, o.lanes, o.level, o.data_dtype)
