"""Integrals over the boundary: mass (Robin conditions) and load (Neumann conditions)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Unpack

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.basis import Quadrature1D
from femops.errors import OperatorError
from femops.forms.form import build
from femops.forms.load import load_vector
from femops.forms.options import FormOptions, with_options
from femops.operators.integrals.coefficients import Coefficient, FormCoefficient
from femops.operators.operator import Operator
from femops.spaces.base import Space
from femops.spaces.boundary_space import boundary_space
from femops_meshes.arguments import checked


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

    With it a Robin condition, :math:`F n = g - \alpha u`, comes into a form:
    ``A + boundary_mass(V, alpha, attributes)`` and ``b + boundary_load(V, g, attributes)``.

    Parameters
    ----------
    V : Space
        Trial and test space.
    alpha : number, callable, array or GridFunction
        A scalar; on a space of several components also one for each, (ncomp,), or a matrix
        (ncomp, ncomp).  A constant; a function of x, or of x and the outer normal n, both of shape
        (dim, k), that returns (*shape, k); an array (nf, nq, *shape) at the points of
        `BoundaryGeometry`; or a field on the mesh.
    attributes : int, name, or several, optional
        Boundary attributes, as `Space.boundary_dofs` takes them; the whole boundary if omitted.
    **options
        See `femops.forms.options.Options`.

    Returns
    -------
    Operator
        On vectors of V; it can be added to others.

    Raises
    ------
    SpaceError
        A mesh without such an attribute, or without a boundary.
    OperatorError
        A coefficient of another shape or with values that are not finite.
    GeometryError
        An inverted element or a face without area.

    Notes
    -----
    Partial assembly: the surface element times the weight times alpha is stored at each point of
    the faces, or what is constant once for each face if all are affine.  So it is at level
    "matrix-free".

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
    traces = boundary_space(V, attributes, slopes=False)
    return build(_boundary_mass, traces, None, given, options)


@checked(OperatorError)
def boundary_load(
    V: Space,
    g: Coefficient,
    attributes: int | str | Iterable[int | str] | None = None,
    *,
    quadrature: int | Quadrature1D | None = None,
    dtype: DTypeLike = np.float64,
) -> NDArray[Any]:
    r"""Load on the boundary, :math:`b_i = \int_\Gamma g \cdot v_i\, ds`.

    Parameters
    ----------
    V : Space
        Test space.
    g : number, callable, array or GridFunction
        A constant, one for all components or (ncomp,); a function of x, or of x and the outer
        unit normal n if it takes two arguments, both of shape (dim, k), that returns (k,) or
        (ncomp, k); an array (nf, nq) or (nf, nq, ncomp) at the points of `BoundaryGeometry`; or a
        field.
    attributes : int, name, or several, optional
        Boundary attributes, as `Space.boundary_dofs` takes them; the whole boundary if omitted.
    quadrature : int or Quadrature1D, optional
        Points per direction (Gauss), or a rule; p + 2 Gauss points if omitted.
    dtype : dtype
        Type of the result, float64 or float32; sums are formed in float64.

    Returns
    -------
    (V.size,) array

    Raises
    ------
    SpaceError
        A mesh without such an attribute, or without a boundary.
    OperatorError
        g of another shape or with values that are not finite.
    GeometryError
        An inverted element or a face without area.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.box((4, 4)), order=2)
    >>> flux = femops.boundary_load(V, lambda x, n: x[0] * n[0] + x[1] * n[1])
    >>> round(float(flux.sum()), 12)  # the divergence theorem
    2.0
    """
    traces = boundary_space(V, attributes, slopes=False)
    geometry = traces.domain.geometry(traces.quadrature(quadrature))
    return load_vector(traces, geometry, g, None, "g", dtype)
