"""Nonlinear forms of the user's own on several fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from femops.basis import Quadrature1D
from femops.errors import OperatorError
from femops.forms.form import check_names
from femops.forms.options import NonlinearOptions, with_options
from femops.operators.coupled import CoupledForm, Functionals
from femops.operators.execution.choice import backend_of
from femops.operators.integrals.coefficients import FormCoefficient
from femops.pointwise.trace import FormFunction
from femops.spaces.product import Product
from femops_meshes.arguments import checked


@with_options(NonlinearOptions)
@checked(OperatorError)
def coupled_form(
    function: FormFunction,
    product: Product,
    *,
    integrals: Sequence[str] = (),
    minima: Sequence[str] = (),
    quadrature: int | Quadrature1D | None = None,
    dtype: DTypeLike = np.float64,
    lanes: int | None = None,
    **coefficients: Any,
) -> CoupledForm:
    r"""Nonlinear form on several fields, given as a function of the fields at one point.

    Parameters
    ----------
    function : callable
        ``function(*fields, x, **coefficients)``, as for `femops.form` on a product, but it need
        not be linear: fields have ``.grad`` and ``.reference_grad``, and it returns what multiplies
        the test functions, by the names of their spaces, ``{"u": {"grad": F}, "p": {"value": g}}``;
        those that nothing multiplies may be left out.  The functionals stand beside them, each a
        number: ``{"energy": w}``.
    product : Product
        Spaces of the fields and test functions.
    integrals : names, optional
        Functionals that are integrals over the mesh.
    minima : names, optional
        Functionals that are the least value at the quadrature points.
    **options
        See `femops.forms.options.Options`.
    **coefficients
        As for `femops.form`; they are read when the form is made.

    Returns
    -------
    CoupledForm

    Raises
    ------
    TraceError
        A function that can't be traced; the message names the line.
    OperatorError
        Coefficients of a wrong shape or with values that are not finite; names that are taken.

    Examples
    --------
    >>> import femops
    >>> mesh = femops.box((4,))
    >>> W = femops.Product(c=femops.H1(mesh, order=2), h=femops.L2(mesh, order=1))
    >>> def reaction(c, h):
    ...     return {"c": {"grad": h * c.grad}, "h": {"value": c**2}, "mass": c, "least": c + h}
    >>> F = femops.coupled_form(reaction, W, integrals=["mass"], minima=["least"])
    >>> c = W.spaces["c"].interpolate(lambda x: x[0])
    >>> u = W.join(c=c, h=1.0 + 0.0 * W.spaces["h"].zeros())
    >>> residual, found = F.evaluate(u)
    >>> bool(abs(found["mass"] - 0.5) < 1e-14 and found["least"] > 1.0)
    True
    >>> bool(abs(W.split(residual)[1].sum() - 1 / 3) < 1e-14)  # the integral of x^2
    True
    """
    check_names(function, len(product.names), coupled_form)
    functionals = Functionals(_names(integrals, "integrals"), _names(minima, "minima"))
    _check_functionals(functionals, product)
    backend_of(product).check_lanes(lanes)
    given = {name: FormCoefficient(name, value) for name, value in coefficients.items()}
    largest = max(product.spaces.values(), key=lambda space: space.order)
    rule = largest.quadrature(quadrature)
    return CoupledForm(function, product, functionals, rule, given, dtype, lanes)


def _names(given: Any, what: str) -> tuple[str, ...]:
    names = tuple(given) if isinstance(given, list | tuple) else (given,)
    if not all(isinstance(name, str) for name in names):
        raise OperatorError(f"{what} are {type(given).__name__}: give a list of names")
    return names


def _check_functionals(functionals: Functionals, product: Product) -> None:
    names = functionals.names
    taken = [name for name in names if name in product.names or names.count(name) > 1]
    if taken:
        raise OperatorError(
            f"{taken[0]!r} is the name of two results of a coupled form: rename the functional"
        )
