"""Operators of bilinear forms that users define by a function."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from inspect import Parameter, signature
from typing import Any, overload

import numpy as np
from numpy.typing import DTypeLike

from femops.basis import Quadrature1D
from femops.errors import OperatorError, TraceError
from femops.forms.options import FormOptions, Options, with_options
from femops.geometry.boundary import asked_attributes
from femops.operators.execution.choice import backend_of
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.coefficients import Coefficient, FormCoefficient
from femops.operators.integrals.integral import Integral
from femops.operators.operator import Operator
from femops.pointwise.diagnostics import definition
from femops.pointwise.trace import FormFunction, name_of
from femops.spaces.base import Space
from femops.spaces.boundary_space import boundary_space
from femops.spaces.domain_space import DomainSpace
from femops.spaces.memory import memory_of
from femops.spaces.product import Product
from femops_meshes.arguments import checked, shown

Shapes = tuple[tuple[int, ...], ...]


@overload
def form(
    function: FormFunction,
    trial: Space,
    test: Space | None = None,
    *,
    boundary: bool | int | str | Iterable[int | str] | None = None,
    faces: str | None = None,
    quadrature: int | Quadrature1D | None = None,
    dtype: DTypeLike = np.float64,
    data_dtype: DTypeLike | None = None,
    lanes: int | None = None,
    level: str = "partial",
    **coefficients: Any,
) -> Operator: ...


@overload
def form(
    function: FormFunction,
    trial: Product,
    test: None = None,
    *,
    boundary: bool | int | str | Iterable[int | str] | None = None,
    faces: str | None = None,
    quadrature: int | Quadrature1D | None = None,
    dtype: DTypeLike = np.float64,
    data_dtype: DTypeLike | None = None,
    lanes: int | None = None,
    level: str = "partial",
    **coefficients: Any,
) -> Operator: ...


@with_options(FormOptions)
@checked(OperatorError)
def form(
    function: FormFunction,
    trial: Space | Product,
    test: Space | None = None,
    *,
    boundary: bool | int | str | Iterable[int | str] | None = None,
    faces: str | None = None,
    quadrature: int | Quadrature1D | None = None,
    dtype: DTypeLike = np.float64,
    data_dtype: DTypeLike | None = None,
    lanes: int | None = None,
    level: str = "partial",
    **coefficients: Any,
) -> Operator:
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
    trial : Space or Product
        Space of u, or of all fields.
    test : Space, optional
        Space of v, on the same mesh. By default the trial space. Not allowed for products.
    boundary : "all", True, int, name, or several, optional
        Integrate over the full boundary, or over boundary attributes as for `Space.boundary_dofs`.
        Fields and derivatives are taken in the elements at the boundary. A parameter ``n`` of the
        function gets the outer unit normal. A parameter ``h`` gets the extent of the element across
        the face. Arrays have the shape (nf, nq, *shape), for the points of `BoundaryGeometry`.
    **options
        See `femops.forms.options.Options`.
    **coefficients
        Numbers or arrays (constants), functions of x (shape (dim, n)) that return (*shape, n),
        arrays at the quadrature points (ne, nq, *shape), or a `GridFunction`.  The call copies
        arrays and vectors and evaluates functions. `Operator.update` does it again.

    Returns
    -------
    Operator
        Operator from the trial to the test space.

    Raises
    ------
    TraceError
        If the function can't be traced or is not linear (the message names the line), or a
        coefficient has the name of one of the arguments above.
    OperatorError
        If spaces are on different meshes, or coefficients have a wrong shape or are not finite.
    SpaceError
        If the mesh does not have a boundary attribute.

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
    """
    check_names(function, len(trial.names) if isinstance(trial, Product) else 1, form)
    given = {name: FormCoefficient(name, value) for name, value in coefficients.items()}
    options: FormOptions = {"quadrature": quadrature, "dtype": dtype, "data_dtype": data_dtype}
    options |= {"lanes": lanes, "level": level}
    if isinstance(trial, Product):
        if test is not None:
            raise OperatorError("a product has test functions of its own: leave out the test space")
        return build_blocks(function, arguments_of(trial, boundary, faces), given, options)
    if faces is not None:
        sides = [arguments_of(space, boundary, faces) for space in (trial, test or trial)]
        return _build(function, *sides, given, options)
    if boundary is None:
        return build(function, trial, test, given, options)
    attributes = _attributes(trial, boundary)
    traces = boundary_space(trial, attributes, slopes=True)
    tests = traces if test is None else boundary_space(test, attributes, slopes=True)
    return build(function, traces, tests, given, options)


def scalars(*, positive: bool = False, **given: Coefficient) -> dict[str, FormCoefficient]:
    """Make form coefficients by name that take scalar values only."""
    return {name: FormCoefficient(name, c, ((),), positive=positive) for name, c in given.items()}


def check_displacements(V: Space, maker: Callable[..., Any]) -> None:
    """Raise unless a space has as many components as dimensions."""
    if V.ncomp != V.dim:
        raise OperatorError(
            f"{maker.__name__} takes a space with ncomp={V.dim}, this one has ncomp={V.ncomp}"
        )


def check_names(function: Any, fields: int, maker: Callable[..., Any]) -> None:
    """Raise if a coefficient of a user's function has the name of an argument of its maker.

    A keyword of this name would set the argument, not the coefficient.

    Parameters
    ----------
    function : callable
        Function to check. A function without a readable signature is reported by tracing.
    fields : int
        Number of leading arguments that are fields. Their names do not matter.
    maker : callable
        `femops.form`, `femops.residual`, `femops.functional` or `femops.project`.

    Raises
    ------
    TraceError
    """
    try:
        names = list(signature(function).parameters)
    except (TypeError, ValueError):
        return
    own = signature(maker).parameters.values()
    taken = {p.name for p in own if p.kind is not Parameter.VAR_KEYWORD}
    for name in names[fields:]:
        if name in taken:
            raise TraceError(
                f"{definition(function)}{name_of(function)}({', '.join(names)}): {name!r} is an "
                f"argument of femops.{maker.__name__}: rename the coefficient"
            )


def _attributes(space: Space | Product, boundary: Any) -> Any:
    """Boundary attributes for a user's argument ``boundary=``. None stands for all."""
    names = space.mesh.boundary_names if isinstance(space, Space | Product) else ()
    return asked_attributes(boundary, names)


def arguments_of(space: Space | Product, boundary: Any, faces: str | None = None) -> Arguments:
    """Make the fields or test functions on the elements or on faces.

    Parameters
    ----------
    space : Space or Product
    boundary
        Boundary faces, see `form`; None for the elements.
    faces : {"interior"}, optional
        Faces between elements, see `form`.

    Raises
    ------
    OperatorError
        If both are given, or ``faces`` has another value.
    SpaceError
        If the mesh has no such faces.
    """
    if faces is not None:
        if faces != "interior":
            raise OperatorError(f'faces {shown(faces)}: give "interior", or boundary="all"')
        if boundary is not None:
            raise OperatorError("boundary= and faces= exclude each other: add two forms instead")
        return Arguments.on_sides(space)
    if boundary is None:
        return Arguments.of(space)
    attributes = _attributes(space, boundary)
    if isinstance(space, Space):
        return Arguments.of(boundary_space(space, attributes, slopes=True))
    faces = {n: boundary_space(s, attributes, slopes=True) for n, s in space.spaces.items()}
    return Arguments(faces, space)


def build_blocks(
    function: FormFunction,
    sides: Arguments,
    coefficients: Mapping[str, FormCoefficient],
    options: FormOptions,
) -> Operator:
    """Build an operator on a product from a function and checked coefficients; see `form`."""
    product = sides.whole
    assert isinstance(product, Product)
    if not callable(function):
        raise OperatorError(f"a form is a function of the fields, got {function!r}")
    o = Options(**options)
    backend_of(product).check_lanes(o.lanes)
    check_fields(function, product, coefficients)
    largest = max(sides.spaces.values(), key=lambda space: space.order)
    whole = Integral(function, sides, sides, largest.quadrature(o.quadrature), coefficients)
    return Operator.of_form(whole.reduced.of_values, o.dtype, o.lanes, o.level, o.data_dtype)


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
    trial: DomainSpace,
    test: DomainSpace | None,
    coefficients: Mapping[str, FormCoefficient],
    options: FormOptions,
) -> Operator:
    """Build an operator from a function and checked coefficients; see `form`."""
    test = trial if test is None else test
    for space in (trial, test):
        if not isinstance(space, DomainSpace):
            raise OperatorError(
                f"a form was given a {type(space).__name__} for a space: make one with "
                "femops.H1(mesh, order)"
            )
    return _build(function, Arguments.of(trial), Arguments.of(test), coefficients, options)


def _build(
    function: FormFunction,
    fields: Arguments,
    tests: Arguments,
    coefficients: Mapping[str, FormCoefficient],
    options: FormOptions,
) -> Operator:
    """Build an operator between two spaces; see `form`."""
    trial, test, o = fields.first, tests.first, Options(**options)
    memory_of([trial.volume, test.volume])
    backend_of(trial.volume).check_lanes(o.lanes)
    if not callable(function):
        raise OperatorError(f"a form is a function of the field, got {function!r}")
    if test.domain is not trial.domain:
        raise OperatorError("trial and test space are on different meshes: make both on one mesh")
    larger = trial if trial.order >= test.order else test
    rule = larger.quadrature(o.quadrature)
    integral = Integral(function, fields, tests, rule, coefficients)
    return Operator.of_form(integral.of_values, o.dtype, o.lanes, o.level, o.data_dtype)
