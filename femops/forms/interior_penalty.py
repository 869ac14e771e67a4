"""Interior penalty: diffusion and elasticity of discontinuous functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray

from femops.basis import Quadrature1D
from femops.errors import OperatorError
from femops.forms.diffusion import diffusion
from femops.forms.elasticity import elasticity
from femops.forms.form import (
    FormOptions,
    NonlinearOptions,
    arguments_of,
    build_sides,
    built_in,
    check_displacements,
    scalars,
)
from femops.forms.residual import build_residual
from femops.geometry.boundary import asked_attributes, has_outer, outer_attributes
from femops.geometry.interior import are_joined
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.coefficients import Coefficient, FormCoefficient, on_several_domains
from femops.operators.operator import Operator
from femops.spaces.base import Space
from femops_common.arguments import checked, number_of, type_name

Coefficients = dict[str, FormCoefficient]


def _penalty(V: Space, penalty: float | None) -> float:
    """Check a space and the factor of the jumps. Return the factor, by default 2 (p + 1)**2.

    On simplices it is (d + 1) (p + 1) (p + d) / 2: a function's mean square on a face is at most
    (p + 1) (p + d) over the height times that in the element (Warburton and Hesthaven, 2003).
    """
    if not isinstance(V, Space):
        raise OperatorError(
            f"interior penalty was given {type_name(type(V))} for a space: make one with "
            "femops.L2(mesh, order)"
        )
    p, d = V.order, V.dim
    usual = 2.0 * (p + 1) ** 2
    if V.mixed or not V.mesh.cell.cube:
        usual = 0.5 * (d + 1) * (p + 1) * (p + d)
    value = usual if penalty is None else penalty
    if not 0.0 < value < np.inf:
        raise OperatorError(f"penalty {penalty}: it must be a positive number")
    if V.order == 0:
        raise OperatorError("interior penalty needs gradients: take a space of order 1 or more")
    return value


def _conductivity(V: Space, kappa: Coefficient) -> Coefficients:
    shapes = ((), (V.dim,), (V.dim, V.dim))
    return {"kappa": on_several_domains("kappa", kappa, shapes, positive=True, smooth=True)}


def _prescribed_on(V: Space, boundary: Any) -> Any:
    """Value of ``boundary=`` with prescribed values. None of its faces is between elements.

    "all" leaves such faces out. An attribute that has some is refused.
    """
    if boundary is None:
        return None
    mesh, asked = V.distributed or V.mesh, asked_attributes(boundary, V.mesh.boundary_names)
    if asked is None:
        return True if has_outer(mesh) else None
    return outer_attributes(mesh, asked)


def _summed(
    V: Space,
    cells: Operator,
    functions: tuple[Callable[..., Any], Callable[..., Any]],
    coefficients: Coefficients,
    boundary: Any,
    options: FormOptions,
) -> Operator:
    """Add the integrals over faces to the operator of an integral over cells."""
    across, at_boundary = functions
    parts: list[tuple[Callable[..., Any], list[Arguments]]] = []
    if are_joined(V.distributed or V.mesh):
        parts.append((across, Arguments.on_sides(V)))
    if (given := _prescribed_on(V, boundary)) is not None:
        parts.append((at_boundary, arguments_of(V, given)))
    for function, domain in parts:
        cells = cells + build_sides(function, domain, domain, coefficients, options)
    return cells


def _flux(kappa: Any, grad: Any) -> Any:
    return grad @ kappa.T if np.ndim(kappa) == 2 else kappa * grad


def _normal(kappa: Any, n: Any) -> Any:
    """Conductivity across a face: n . kappa n."""
    along = kappa @ n if np.ndim(kappa) == 2 else kappa * n
    return along @ n


def _times(jump: Any, n: Any) -> Any:
    """Outer product of a jump and the normal, in the shape of a gradient."""
    return np.multiply.outer(jump.value, n) if np.ndim(jump.value) else jump.value * n


def _across(u: Any, n: Any, h: Any, kappa: Any, penalty: Any) -> dict[str, Any]:
    tension = 0.5 * (_normal(kappa.minus, n) / h.minus + _normal(kappa.plus, n) / h.plus)
    fluxes = _flux(kappa.minus, u.minus.grad), _flux(kappa.plus, u.plus.grad)
    jump = _times(u.jump, n)
    return {
        "jump": penalty * tension * u.jump - 0.5 * (fluxes[0] + fluxes[1]) @ n,
        "minus": {"grad": -0.5 * _transposed_flux(kappa.minus, jump)},
        "plus": {"grad": -0.5 * _transposed_flux(kappa.plus, jump)},
    }


def _transposed_flux(kappa: Any, grad: Any) -> Any:
    return grad @ kappa if np.ndim(kappa) == 2 else kappa * grad


def _at_boundary(u: Any, n: Any, h: Any, kappa: Any, penalty: Any) -> dict[str, Any]:
    return {
        "value": penalty * _normal(kappa, n) / h * u - _flux(kappa, u.grad) @ n,
        "grad": -_transposed_flux(kappa, _times(u, n)),
    }


@built_in(FormOptions)
def interior_penalty(
    V: Space,
    kappa: Coefficient = 1.0,
    *,
    penalty: float | None = None,
    boundary: Any = "all",
    **options: Unpack[FormOptions],
) -> Operator:
    r"""Diffusion of discontinuous functions by the symmetric interior penalty method.

    .. math::
        \int_\Omega \kappa \nabla u : \nabla v\, dx + \int_F \eta \{\kappa_n / h\} [u] [v]
        - \{\kappa \nabla u\} n \cdot [v] - \{\kappa \nabla v\} n \cdot [u]\, ds

    The faces F are those between elements, and those of the boundary where the solution is
    prescribed. There the jump and the mean are the value inside.

    Parameters
    ----------
    V : Space
        Trial and test space, usually `femops.L2`, of order 1 or more.
    kappa : number, callable, array or GridFunction
        Positive conductivity: a scalar, a diagonal (dim,) or a tensor (dim, dim), as for
        `femops.diffusion`, but no array at points. A `GridFunction` may jump between elements. A
        function of x has one value on a face, so one that jumps there is refused. On a glued face
        of a periodic mesh it is evaluated at the minus side's x. The sign is not checked for a
        tensor that varies, nor at level "matrix-free" for a field of order 1 or more.
    penalty : float, optional
        The factor :math:`\eta`. The default :math:`2 (p + 1)^2` makes the operator positive
        definite where elements are moderately distorted; half of it does on boxes. h is the extent
        of an element across the face, and :math:`\kappa_n = n \cdot \kappa n`.
    boundary : "all", int, name, or several, optional
        Boundary attributes where the solution is prescribed; None for none. Elsewhere the flux is
        zero. `femops.dirichlet_load` has the prescribed values. "all" leaves out faces between
        elements; an attribute that has such faces is refused.
    **options
        See `femops.forms.form.Options`.

    Notes
    -----
    Arnold, An interior penalty finite element method with discontinuous elements, 1982.
    """
    factor = _penalty(V, penalty)
    given = _conductivity(V, kappa) | scalars(positive=True, penalty=factor)
    functions = _across, _at_boundary
    return _summed(V, diffusion(V, kappa, **options), functions, given, boundary, options)


def _lame(V: Space, lam: Coefficient, mu: Coefficient) -> Coefficients:
    """Make Lame's parameters. Raise if they are numbers and a change of volume takes no energy."""
    number, shear = number_of(lam), number_of(mu)
    if number is not None and shear is not None and (shear > 0.0 or V.dim == 1):
        least = -2.0 * shear / V.dim
        if number <= least:
            raise OperatorError(
                f"lam is {number:g} and mu is {shear:g}: give a lam above {least:g}, which is "
                f"-2 mu / {V.dim}"
            )
    return {
        "lam": on_several_domains("lam", lam, ((),), smooth=True),
        "mu": on_several_domains("mu", mu, ((),), positive=V.dim > 1, smooth=True),
    }


def _stress(slopes: Any, lam: Any, mu: Any) -> Any:
    grad = np.atleast_2d(slopes)  # in 1-D the gradient is a vector
    return lam * np.trace(grad) * np.eye(len(grad)) + mu * (grad + grad.T)


def _elastic_across(u: Any, n: Any, h: Any, lam: Any, mu: Any, penalty: Any) -> dict[str, Any]:
    sides = (u.minus, lam.minus, mu.minus, h.minus), (u.plus, lam.plus, mu.plus, h.plus)
    stiffness = sum(0.5 * (b + 2.0 * c) / d for _, b, c, d in sides)
    stresses = [_stress(a.grad, b, c) for a, b, c, _ in sides]
    jump = _times(u.jump, n)
    return {
        "jump": penalty * stiffness * u.jump.value - 0.5 * (stresses[0] + stresses[1]) @ n,
        "minus": {"grad": -0.5 * _stress(jump, lam.minus, mu.minus)},
        "plus": {"grad": -0.5 * _stress(jump, lam.plus, mu.plus)},
    }


def _elastic_at_boundary(u: Any, n: Any, h: Any, lam: Any, mu: Any, penalty: Any) -> dict[str, Any]:
    return {
        "value": penalty * (lam + 2.0 * mu) / h * u.value - _stress(u.grad, lam, mu) @ n,
        "grad": -_stress(_times(u, n), lam, mu),
    }


@built_in(FormOptions)
def elastic_interior_penalty(
    V: Space,
    lam: Coefficient = 1.0,
    mu: Coefficient = 1.0,
    *,
    penalty: float | None = None,
    boundary: Any = "all",
    **options: Unpack[FormOptions],
) -> Operator:
    r"""Linear elasticity of discontinuous displacements by the interior penalty method.

    As `femops.interior_penalty`, with the stress of `femops.elasticity` for the flux, and
    :math:`\lambda + 2 \mu` for :math:`\kappa_n`.

    Parameters
    ----------
    V : Space
        Trial and test space, with as many components as dimensions, of order 1 or more.
    lam, mu : number, callable or GridFunction
        Lame's parameters, in units of stress. mu is positive, and lam is above -2 mu / dim, so
        that every deformation takes energy. In 1-D mu may have any sign. lam is checked if both
        are numbers, but not by `Operator.update`. Functions of x that jump between elements are
        refused: a `GridFunction` may jump.
    penalty, boundary
        See `femops.interior_penalty`.
    **options
        See `femops.forms.form.Options`.
    """
    check_displacements(V, elastic_interior_penalty)
    given = _lame(V, lam, mu) | scalars(positive=True, penalty=_penalty(V, penalty))
    functions = _elastic_across, _elastic_at_boundary
    return _summed(V, elasticity(V, lam, mu, **options), functions, given, boundary, options)


def _prescribed(n: Any, h: Any, kappa: Any, penalty: Any, g: Any) -> dict[str, Any]:
    """Factors of the test function for prescribed values g, the negative of `_at_boundary`'s."""
    along = np.multiply.outer(g, n) if np.ndim(g) else g * n
    return {
        "value": -penalty * _normal(kappa, n) / h * g,
        "grad": _transposed_flux(kappa, along),
    }


@checked(OperatorError)
def dirichlet_load(
    V: Space,
    g: Coefficient,
    kappa: Coefficient = 1.0,
    *,
    penalty: float | None = None,
    boundary: Any = "all",
    quadrature: int | Quadrature1D | None = None,
) -> NDArray[Any]:
    r"""Load vector of the values that `femops.interior_penalty` prescribes on the boundary.

    :math:`\int_\Gamma \eta \kappa_n g v / h - g\, \kappa \nabla v \cdot n\, ds`

    Parameters
    ----------
    V : Space
    g : number, callable, array or GridFunction
        Prescribed values: scalar, or (ncomp,).
    kappa, penalty, boundary
        As for `femops.interior_penalty`.
    quadrature : int or Quadrature1D, optional
        Gauss points per direction, or a rule, as for `femops.interior_penalty`. Operator and load
        fit together exactly if they have the same rule.

    Returns
    -------
    (size,) array
        To be added to `femops.load`.

    Raises
    ------
    OperatorError
        If a coefficient has another shape, or values that are not finite, or kappa is not positive;
        see `femops.interior_penalty`.
    SpaceError
        If there are too few quadrature points, or a boundary attribute has faces between elements.

    Examples
    --------
    >>> import femops
    >>> V = femops.L2(femops.box((3, 3)), order=2)
    >>> A = femops.interior_penalty(V)
    >>> u, info = femops.cg(A, femops.dirichlet_load(V, lambda x: x[0] - x[1]), rtol=1e-12)
    >>> bool(abs(u - V.interpolate(lambda x: x[0] - x[1])).max() < 1e-9)
    True
    """
    factor = _penalty(V, penalty)
    if V.distributed is not None:
        Arguments.on_sides(V)  # refuses meshes that ranks share
    if (given := _prescribed_on(V, boundary)) is None:
        raise OperatorError(
            "no faces have prescribed values: give boundary=, an attribute of the mesh"
        )

    def prescribed(u: Any, n: Any, h: Any, kappa: Any, g: Any) -> dict[str, Any]:  # noqa: ARG001
        return _prescribed(n, h, kappa, factor, g)

    shape = (V.ncomp,) if V.ncomp > 1 else ()
    coefficients = _conductivity(V, kappa) | {"g": FormCoefficient("g", g, (shape,))}
    options: NonlinearOptions = {"quadrature": quadrature}
    at_rest = build_residual(prescribed, V, coefficients, options, boundary=given)
    values: NDArray[Any] = -at_rest.residual(V.zeros())
    return values
