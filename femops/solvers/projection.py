"""L2 projection of fields, and of functions of fields and their gradients."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.basis import Quadrature1D, Rule
from femops.element import TensorElement, table_of
from femops.errors import OperatorError, SpaceError, TraceError
from femops.forms import mass
from femops.forms.form import check_names
from femops.forms.load import load_vector
from femops.geometry.domain import element_blocks
from femops.geometry.jacobians import Geometry, LegendreGeometry
from femops.operators.execution.backend import Step
from femops.operators.execution.host import backend_of
from femops.operators.execution.ranks import compiled_steps
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.coefficients import FormCoefficient
from femops.operators.integrals.constraints import Constraints
from femops.operators.integrals.integral import Integral
from femops.operators.integrals.term import Term
from femops.pointwise.qdata_split import NonlinearQFunction
from femops.pointwise.trace import FormFunction, definition, name_of, trace
from femops.solvers.cg import cg
from femops.solvers.jacobi import jacobi
from femops.spaces.base import GridFunction, Space
from femops.spaces.h1_l2 import H1, L2
from femops.spaces.memory import memory_of
from femops.spaces.product import Product
from femops_common.arguments import Fraction, checked, shown
from femops_kernels.cpu.machine import lane_width
from femops_meshes.coordinates.mapping import tensor_apply

Floats = NDArray[np.float64]
_SAFE = 400  # powers of two whose sums of squares are well in the range of float64
_RTOL = {"float64": 1e-12, "float32": 1e-6}
_MANY = {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
_NONE = np.zeros(0, dtype=np.int64)


@checked(OperatorError)
def project(
    Q: Space,
    f: Any,
    space: Space | Product | None = None,
    u: Any = None,
    /,
    *,
    quadrature: int | Rule | None = None,
    rtol: Fraction | None = None,
    **given: Any,
) -> NDArray[Any]:
    r"""L2 projection onto a space: stress, flux, vorticity, or any function of fields.

    The result :math:`q` has :math:`\int_\Omega q \cdot v\, dx = \int_\Omega f \cdot v\, dx` for all
    v of Q, where f is a function of fields and their gradients.

    Parameters
    ----------
    Q : Space
        H1 or L2, on the mesh of the fields; of any order and number of components.
    f : callable, number(s), array or GridFunction
        With fields: ``f(*fields, x, **coefficients)`` as for `femops.form`, which returns the value
        at a point: a number, an array (ncomp,), or a matrix with ncomp entries, read row by row.
        Without fields: any f that `femops.load` accepts, such as a function of x.
    space : Space or Product, optional
        Space of the field that is the first argument of f, or of the fields that f takes by name.
    u : (size,) array, optional
        A vector of that space.
    quadrature : int or rule, optional
        Number of Gauss points in each direction, or a rule. The default is p + 2 points, where p is
        the highest order of Q and the fields.
    rtol : float, optional
        Tolerance of `femops.cg` for the mass matrix of an H1 space. The default is 1e-12 in float64
        and 1e-6 in float32. The mass matrix of an L2 space is inverted exactly, element by element.
    **given
        Further arguments of f, by name. A `GridFunction` is a field, with its gradient. All other
        values are coefficients as for `femops.form`.

    Returns
    -------
    (Q.size,) array
        Vector of Q: float32 if the vectors of all fields are float32, else float64. Collective if
        ranks share the mesh.

    Raises
    ------
    OperatorError
        A space without a vector, two fields of the same name, or a coefficient that f does not
        take.
    SpaceError
        Fields on another mesh than Q.
    TraceError
        A function that can't be traced, or that returns another shape.
    VectorError
        Vectors of another shape or type.

    Warns
    -----
    ConvergenceWarning
        `femops.cg` has not converged.

    Examples
    --------
    >>> import femops
    >>> import numpy as np
    >>> V = femops.H1(femops.box((4, 4)), order=3)
    >>> u = V.interpolate(lambda x: x[0] ** 2 * x[1])
    >>> Q = femops.L2(V.mesh, order=2, ncomp=2)
    >>> flux = femops.project(Q, lambda u, kappa: -kappa * u.grad, V, u, kappa=3.0)
    >>> exact = Q.interpolate(lambda x: (-6.0 * x[0] * x[1], -3.0 * x[0] ** 2))
    >>> bool(abs(flux - exact).max() < 1e-12)
    True

    Several fields, as GridFunctions, into a continuous space:

    >>> p = femops.GridFunction(femops.L2(V.mesh, order=1), np.ones(64))
    >>> total = femops.project(V, lambda u, p: p + 0.5 * u**2, u=femops.GridFunction(V, u), p=p)
    >>> total.shape == V.shape
    True
    """
    fields, coefficients = _fields(f, space, u, given)
    if coefficients and not fields:
        raise OperatorError(
            f"{next(iter(coefficients))!r} is given, but no field: without fields f is a function "
            "of x alone"
        )
    _check_meshes(Q, fields)
    orders = [Q, *(own for own, _ in fields.values())]
    largest = max(orders, key=lambda one: one.order)
    rules = [part.quadrature(quadrature) for part in largest.parts]
    # other mass matrices are ill-conditioned
    nodal = Q if all(part.element.is_nodal for part in Q.parts) else _nodal(Q)
    if fields:
        right = _right_side(nodal, f, fields, coefficients, rules)
    else:
        right = load_vector(nodal.parts, rules, f, None, "f", np.float64)
    xp = Q.memory.xp
    if Q.comm.max(int(not bool(xp.isfinite(right).all()))):
        raise OperatorError(
            f"{name_of(f) if callable(f) else 'f'} is not finite at some quadrature points: look "
            "at square roots, logarithms and divisions in it"
        )
    if isinstance(nodal, L2):
        q = Q.memory.put(_by_elements(nodal, Q.memory.get(right), rules))
    else:
        A = mass(nodal, quadrature=quadrature if nodal.mixed else rules[0], dtype=right.dtype)
        tolerance = _RTOL[right.dtype.name] if rtol is None else rtol
        exponent = _excess(Q, right)
        q, _ = cg(A, xp.ldexp(right, -exponent), M=jacobi(A), rtol=tolerance)
        q = xp.ldexp(q, exponent)
    return q if nodal is Q else _in_basis(Q, q)


def _excess(Q: Space, right: NDArray[Any]) -> int:
    """Exponent e such that squares of right / 2**e are in range; zero if they are so anyway."""
    own = float(abs(right).max()) if len(right) else 0.0
    exponent = math.frexp(Q.comm.max(own))[1]
    return exponent if abs(exponent) > _SAFE else 0


def _nodal(Q: Space) -> Space:
    """Space of the same functions as Q, with their values at the nodes of Q's basis as dofs."""
    mesh, order, ncomp, device = Q.distributed or Q.mesh, Q.order, Q.ncomp, Q.device
    if isinstance(Q, H1):
        return H1(mesh, order, ncomp, device=device, reproducible=Q.reproducible)
    return L2(mesh, order, ncomp, "gauss" if Q.basis.family == "hermite" else "gll", device=device)


def _in_basis(Q: Space, values: NDArray[Any]) -> NDArray[Any]:
    """Vector (size,) of Q for the function with the nodal values ``values``."""
    made = Q.from_nodal(Q.memory.get(values))
    return Q.memory.put(made.astype(values.dtype, copy=False))


# --- fields ---------------------------------------------------------------------------------------


def _fields(
    f: Any, space: Space | Product | None, u: Any, given: Mapping[str, Any]
) -> tuple[dict[str, tuple[Space, NDArray[Any]]], dict[str, Any]]:
    """Return the space and vector of each field that f takes, by name, and the coefficients."""
    if (space is None) != (u is None):
        missing = "vector" if u is None else "space"
        raise OperatorError(f"the {missing} of the field is missing: project(Q, f, V, u)")
    named = {n: (g.space, g.vector) for n, g in given.items() if isinstance(g, GridFunction)}
    fields = dict[str, tuple[Space, NDArray[Any]]]()
    if space is not None:
        names = _parameters(f)
        vector = space.memory.vector_of(space, u, "u")
        if isinstance(space, Space):
            fields = {names[0]: (space, vector)} if names else {}
        else:
            parts = zip(space.names, space.spaces.values(), space.split(vector), strict=True)
            fields = {name: (own, part) for name, own, part in parts if name in names}
        if not fields:
            raise TraceError(f"{_shown(f)} takes no field of {space!r}")
    if unknown := [name for name in named if name not in _parameters(f)]:
        raise TraceError(f"{_shown(f)} takes no field {unknown[0]!r}: make it one of its arguments")
    if twice := [name for name in named if name in fields]:
        raise OperatorError(f"two fields are called {twice[0]!r}: rename one of them")
    return fields | named, {n: value for n, value in given.items() if n not in named}


def _parameters(f: Any) -> list[str]:
    """Names of the arguments of a function of fields."""
    if not callable(f):
        raise OperatorError(f"what is projected is a function of the fields, got {shown(f)}")
    try:
        return list(signature(f).parameters)
    except (TypeError, ValueError) as error:
        raise TraceError(f"{name_of(f)} has no signature: give a function of Python") from error


def _shown(f: FormFunction) -> str:
    """Line that defines a function, its name and the names of its arguments."""
    return f"{definition(f)}{name_of(f)}({', '.join(_parameters(f))})"


def _check_meshes(Q: Space, fields: Mapping[str, tuple[Space, Any]]) -> None:
    for name, (space, _) in fields.items():
        if (space.mesh, space.distributed) != (Q.mesh, Q.distributed):
            raise SpaceError(
                f"{name} is on another mesh than {Q!r}: make all spaces on one mesh, or "
                "interpolate the field first"
            )
    memory_of([Q, *(space for space, _ in fields.values())])


def _right_side(
    Q: Space,
    f: FormFunction,
    fields: Mapping[str, tuple[Space, NDArray[Any]]],
    given: Mapping[str, Any],
    rules: Sequence[Rule],
) -> NDArray[Any]:
    """Integral of f times the test functions, (Q.size,), with a rule for each part. Collective."""
    check_names(f, len(fields), project)
    spaces = {name: space for name, (space, _) in fields.items()}
    if len(spaces) == 1:
        ((only, vector),) = fields.values()
        whole: Space | Product = only
        vector = Q.memory.xp.ascontiguousarray(vector)
    else:
        whole = Product(**spaces)
        vector = whole.join(**{n: u for n, (_, u) in fields.items()})
    coefficients = {name: FormCoefficient(name, value) for name, value in given.items()}
    first = next(iter(spaces))  # kernels know test functions by the names of fields
    values, steps = _values(f, list(spaces), Q), []
    right: NDArray[Any] = Q.memory.xp.zeros(Q.size, dtype=vector.dtype)
    kind, backend = vector.dtype, backend_of(Q)
    free = Constraints(rows=_NONE, symmetric=False)
    for k, (part, rule) in enumerate(zip(Q.parts, rules, strict=True)):
        sides = Arguments({name: space.parts[k] for name, space in spaces.items()}, whole)
        tests = Arguments({first: part}, Q)
        form = Integral(values, sides, tests, rule, coefficients)
        shapes = form.coefficient_shapes()
        traced = trace(values, Q.dim, sides.components, tests.components, shapes)
        if all(node.is_constant(0.0) for node in traced.tests[first].flat()):
            return right
        form = replace(form, traced=NonlinearQFunction(traced))
        term = Term.of_residual(form, kind, lane_width(kind, None))
        launch = backend.launch(term, free, 0.0) if part.mesh.num_elements else backend.idle()
        steps.append(Step(1.0, launch, sides, tests, begins=part.domain.covers))
    ends = steps[0].fields, steps[0].tests
    compiled_steps(backend, steps, ends, free, kind).apply(vector, right)
    return right


def _values(f: FormFunction, fields: Sequence[str], Q: Space) -> FormFunction:
    """Wrap f as an integrand with tests of Q. The fields are its first arguments, in this order."""
    parameters = signature(f).parameters
    first = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in fields]
    others = [
        parameter.replace(kind=Parameter.KEYWORD_ONLY)
        for name, parameter in parameters.items()
        if name not in fields and parameter.kind not in _MANY
    ]

    @wraps(f)
    def values(*given: Any, **known: Any) -> Any:
        result = f(**dict(zip(fields, given, strict=True)), **known)
        if isinstance(result, dict):
            raise TraceError(
                f"{definition(f)}{name_of(f)} returned a dictionary: return what is projected"
            )
        array = np.asarray(result, dtype=object)
        if array.size != Q.ncomp:
            raise TraceError(
                f"{definition(f)}{name_of(f)} returned a value of shape {array.shape}, {Q!r} has "
                f"{Q.ncomp} component(s): make a space with ncomp={array.size}"
            )
        return {"value": array.reshape(-1)}

    values.__signature__ = Signature([*first, *others])  # type: ignore[attr-defined]
    return values


# --- the mass matrix of an L2 space ---------------------------------------------------------------


def _by_elements(Q: L2, right: NDArray[Any], rules: Sequence[Rule]) -> NDArray[Any]:
    """Multiply the inverse mass matrix by a vector (size,), element by element."""
    parts = [_of_part(part, right, rule) for part, rule in zip(Q.parts, rules, strict=True)]
    return parts[0] if len(parts) == 1 else np.sum(parts, axis=0)


def _of_part(Q: Space, right: NDArray[Any], rule: Rule) -> NDArray[Any]:
    """As `_by_elements`, on the elements of one shape; zero at other dofs."""
    if not isinstance(rule, Quadrature1D) or not isinstance(Q.element, TensorElement):
        return _by_tables(Q, right, rule)
    interpolation = Q.basis.interpolation(rule.points)
    e_vec = Q.restriction.gather(Q.l_vec(right)).astype(np.float64)
    e_vec = e_vec.reshape(*e_vec.shape[:2], Q.ncomp)
    geometry = Geometry(Q.mesh, rule)
    if LegendreGeometry(Q.mesh).affine:
        line = np.linalg.inv(interpolation.T @ (rule.weights[:, np.newaxis] * interpolation))
        weight = rule.tensor_weights(Q.dim)[0]
        for block in geometry:
            volume = block.weighted_det[:, :1, np.newaxis] / weight
            here = e_vec[block.start : block.stop]
            here[:] = tensor_apply([line] * Q.dim, here) / volume
    else:
        each = -(-(e_vec.shape[1] ** 2) // 32)  # matrices of 8 MB at once
        for start, stop in element_blocks(Q.mesh.num_elements, each):
            matrices = _mass_matrices(
                interpolation, geometry.block(start, stop).weighted_det, Q.dim
            )
            e_vec[start:stop] = np.linalg.solve(matrices, e_vec[start:stop])
    return Q.restriction.assigned(e_vec.astype(right.dtype, copy=False)).reshape(-1)


def _by_tables(Q: Space, right: NDArray[Any], rule: Rule) -> NDArray[Any]:
    """Multiply by the inverse mass matrix where functions are no products, or points no grid."""
    table = table_of(Q.element, rule.places)[0]
    pairs = (table[:, :, np.newaxis] * table[:, np.newaxis]).reshape(len(table), -1)
    e_vec = Q.restriction.gather(Q.l_vec(right)).astype(np.float64)
    e_vec = e_vec.reshape(*e_vec.shape[:2], Q.ncomp)
    geometry, n = Geometry(Q.mesh, rule), table.shape[1]
    for start, stop in element_blocks(Q.mesh.num_elements, -(-(n**2) // 32)):
        weights = geometry.block(start, stop).weighted_det
        matrices = (weights @ pairs).reshape(-1, n, n)
        e_vec[start:stop] = np.linalg.solve(matrices, e_vec[start:stop])
    return Q.restriction.assigned(e_vec.astype(right.dtype, copy=False)).reshape(-1)


def _mass_matrices(interpolation: Floats, weights: Floats, dim: int) -> Floats:
    """Mass matrices (n, nodes, nodes) of elements with the weights (n, points) at their points.

    The sum over points is done direction by direction.
    """
    q1d, p1d = interpolation.shape
    pairs = (interpolation[:, :, np.newaxis] * interpolation[:, np.newaxis]).reshape(q1d, -1)
    grid = tensor_apply([pairs.T] * dim, weights).reshape(len(weights), *[p1d] * (2 * dim))
    rows, columns = range(1, 2 * dim, 2), range(2, 2 * dim + 1, 2)
    return np.asarray(grid.transpose(0, *rows, *columns).reshape(len(weights), p1d**dim, p1d**dim))
