"""Integrals over the boundary: mass for Robin conditions, load for Neumann conditions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Unpack

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.basis import Rule
from femops.errors import OperatorError
from femops.forms.complex_form import complex_load
from femops.forms.form import FormOptions, build, with_options
from femops.forms.load import load_vector
from femops.operators.integrals.coefficients import Coefficient, FormCoefficient
from femops.operators.operator import Operator
from femops.spaces.base import Space
from femops.spaces.boundary_space import boundary_spaces
from femops_common.arguments import checked


def _boundary_mass(u: Any, alpha: Any) -> dict[str, Any]:
    return {"value": alpha @ u if np.ndim(alpha) == 2 else alpha * u}


@with_options(FormOptions)
@checked(OperatorError)
def boundary_mass(
    V: Space,
    alpha: Coefficient = 1.0,
    attributes: int | str | Iterable[int | str] | None = None,
    **options: Unpack[FormOptions],
) -> Operator:
    r"""Mass on the boundary, :math:`\int_\Gamma \alpha\, u \cdot v\, ds`.

    For a Robin condition, :math:`F n = g - \alpha u`, use the operator
    ``A + boundary_mass(V, alpha, attributes)`` and the right-hand side
    ``b + boundary_load(V, g, attributes)``.

    Parameters
    ----------
    V : Space
        Trial and test space.
    alpha : number, callable, array or GridFunction
        A constant, a function, an array (nf, nq, *shape) at the points of `BoundaryGeometry`, or a
        field on the mesh. A function takes x, or x and the outer normal n, both of shape (dim, k),
        and returns (*shape, k). Values are scalars. For several components they may also have the
        shape (ncomp,), one per component, or (ncomp, ncomp), a matrix. An array (ncomp, ncomp) on
        ncomp faces of ncomp points is refused, as it may be either.
    attributes : "all", int, name, or several, optional
        Boundary attributes, as for `Space.boundary_dofs`. By default the full boundary.
    **options
        See `femops.forms.form.Options`.

    Returns
    -------
    Operator
        Operator on vectors of V. It can be added to other operators.

    Raises
    ------
    SpaceError
        If the mesh has no such attribute, or no boundary.
    OperatorError
        If a coefficient has the wrong shape, or values that are not finite.
    GeometryError
        If an element is inverted or a face has no area.

    Notes
    -----
    Partial assembly: the surface element times the weight times alpha is stored at each point of
    the faces. If all elements are affine, constant factors are stored once for each face.  Level
    "matrix-free" stores the same.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.box((4, 4), upper=(2.0, 1.0)), order=2)
    >>> R = femops.boundary_mass(V, 3.0, attributes=[3, 4])
    >>> one = V.interpolate(1.0)
    >>> round(float(one @ (R @ one)), 12)
    12.0
    """
    shapes = ((),) if V.ncomp == 1 else ((), (V.ncomp,), (V.ncomp, V.ncomp))
    given = {"alpha": FormCoefficient("alpha", alpha, shapes)}
    traces = boundary_spaces(V, attributes, slopes=False)
    return build(_boundary_mass, traces, None, given, options)


@checked(OperatorError)
@complex_load("g")
def boundary_load(
    V: Space,
    g: Coefficient,
    attributes: int | str | Iterable[int | str] | None = None,
    *,
    quadrature: int | Rule | None = None,
    dtype: DTypeLike = np.float64,
) -> NDArray[Any]:
    r"""Load on the boundary, (V.size,): :math:`b_i = \int_\Gamma g \cdot v_i\, ds`.

    Parameters
    ----------
    V : Space
        Test space.
    g : number, callable, array or GridFunction
        A constant (a number for all components, or (ncomp,)), a function, an array (nf, nq) or (nf,
        nq, ncomp) at the points of `BoundaryGeometry`, or a field. A function takes x, or x and the
        outer unit normal n, both of shape (dim, k), and returns (k,) or (ncomp, k).
    attributes : "all", int, name, or several, optional
        Boundary attributes, as for `Space.boundary_dofs`. By default the full boundary.
    quadrature : int or Quadrature1D, optional
        Gauss points per direction, or a rule of the faces. The default is p + 2 Gauss points.
    dtype : dtype
        Type of the result, float64 or float32. Sums are formed in float64. With complex128 or
        complex64 g may be complex.

    Returns
    -------
    (V.size,) array

    Raises
    ------
    SpaceError
        If the mesh has no such attribute, or no boundary.
    OperatorError
        If g has the wrong shape, or values that are not finite.
    GeometryError
        If an element is inverted or a face has no area.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.box((4, 4)), order=2)
    >>> flux = femops.boundary_load(V, lambda x, n: x[0] * n[0] + x[1] * n[1])
    >>> round(float(flux.sum()), 12)  # the divergence theorem
    2.0
    """
    traces = boundary_spaces(V, attributes, slopes=False)
    rules = [on.quadrature(quadrature) for on in traces]
    return load_vector(traces, rules, g, None, "g", dtype)
