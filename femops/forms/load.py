"""Load vector: the integral of f v + F : grad v."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from femops.basis import Rule
from femops.errors import OperatorError
from femops.forms.complex_form import complex_load
from femops.geometry.domain import DomainBlock, DomainGeometry, element_blocks
from femops.operators.integrals.coefficients import (
    Coefficient,
    FormCoefficient,
    check_range,
    largest_of,
)
from femops.spaces.base import Space
from femops.spaces.domain_space import DomainSpace
from femops.spaces.vectors import vector_type
from femops_common.arguments import checked
from femops_kernels.cpu.in_order import in_order

_BLOCKS = 4  # usual blocks of elements that are worked on at once

Floats = NDArray[np.float64]
_Part = tuple[DomainBlock, Floats | None, Floats | None]


@checked(OperatorError)
@complex_load("f", "flux")
def load(
    V: Space,
    f: Coefficient | None = None,
    *,
    flux: Coefficient | None = None,
    quadrature: int | Rule | None = None,
    dtype: DTypeLike = np.float64,
) -> NDArray[Any]:
    r"""Load vector, (V.size,): :math:`b_i = \int_\Omega f \cdot v_i + F : \nabla v_i\, dx`.

    Parameters
    ----------
    V : Space
        Test space.
    f : number, callable, array or GridFunction, optional
        A constant, a function of x (dim, n) that returns (n,) or (ncomp, n), an array
        (ne, nq[, ncomp]), or a field. Shapes (n,) and (ne, nq) give all components the same value.
    flux : array, callable or GridFunction, optional
        F, the factor of the gradient, such as a heat flux or a stress: a constant (dim,), or
        (ncomp, dim) with more than one component; a function of x that returns (dim, n) or
        (ncomp, dim, n); or an array (ne, nq[, ncomp], dim).
    quadrature : int or Rule, optional
        Gauss points per direction, or a rule. The default is p + 2 Gauss points.
    dtype : dtype
        Type of the result, float64 or float32. Sums are formed in float64. With complex128 or
        complex64 f and flux may be complex.

    Returns
    -------
    (V.size,) array

    Raises
    ------
    OperatorError
        If f and flux are both omitted, have the wrong shape, or have values that are not finite.
    """
    if f is None and flux is None:
        raise OperatorError("the load is empty: give f, flux or both")
    rules = [part.quadrature(quadrature) for part in V.parts]
    return load_vector(V.parts, rules, f, flux, "f", dtype)


def load_vector(
    domains: Sequence[DomainSpace],
    rules: Sequence[Rule],
    f: Coefficient | None,
    flux: Coefficient | None,
    name: str,
    dtype: DTypeLike,
) -> NDArray[Any]:
    """Compute a load vector (size,) over domains, each with a rule; see `load`."""
    if f is None and flux is None:
        raise OperatorError(f"{name} is None: give a number, a function of x or a field")
    kind, V = vector_type(dtype), domains[0]
    first, *others = [
        _over_domain(each, each.domain.geometry(rule), f, flux, name)
        for each, rule in zip(domains, rules, strict=True)
    ]
    total = sum(others, first)
    largest = V.volume.comm.max(largest_of(total))
    if largest:
        check_range(f"the integrals of {name}", largest, kind, whole=True)
    return V.memory.put(total.astype(kind, copy=False))


def _over_domain(
    V: DomainSpace,
    geometry: DomainGeometry,
    f: Coefficient | None,
    flux: Coefficient | None,
    name: str,
) -> Floats:
    """Load vector (size,) over one domain."""
    shape = _components(V)
    # vectors are read here, because all ranks take part in reading
    source = None if f is None else FormCoefficient(name, f, (shape, ()) if shape else ((),))
    along = None if flux is None else FormCoefficient("flux", flux, ((*shape, V.dim),))
    source, along = (None if c is None else c.on_part(V, geometry).read() for c in (source, along))
    places = V.places(geometry.quadrature)

    def integrals(part: _Part) -> tuple[int, Floats]:
        """First element of a block, and integrals (n, nodes[, ncomp]) over its elements."""
        block, sources, fluxes = part
        found = None if sources is None else V.element.sums(places, sources)
        for k, along_k in enumerate([] if fluxes is None else _reference_fluxes(fluxes, block)):
            one = V.element.sums(places, along_k, k)
            found = one if found is None else np.add(found, one, out=found)
        assert found is not None
        return block.start, found

    return V.sum_blocks(in_order(integrals, _parts(V, geometry, source, along)), shape)


def _parts(
    V: DomainSpace,
    geometry: DomainGeometry,
    source: FormCoefficient | None,
    along: FormCoefficient | None,
) -> Iterator[_Part]:
    """Yield blocks with the values of f times the weights, and of the flux."""
    at_points = any(given is not None and callable(given.value) for given in (source, along))

    def prepared(ends: tuple[int, int]) -> tuple[DomainBlock, Floats | None]:
        block = geometry.block(*ends)
        if at_points:
            block.points  # noqa: B018  (computed once)
        return block, None if source is None else block.point_weights

    # a user's function is called, and checked, for few large blocks, by this thread alone
    ranges = element_blocks(geometry.num_elements, -(-geometry.num_points // _BLOCKS))
    for block, weights in in_order(prepared, ranges):
        fluxes = None if along is None else along.at(block)
        if source is None or weights is None:
            yield block, None, fluxes
        else:
            yield block, _weighted(V, source.at(block), weights), fluxes


def _components(V: DomainSpace) -> tuple[int, ...]:
    return () if V.ncomp == 1 else (V.ncomp,)


def _weighted(V: DomainSpace, values: Floats, weights: Floats) -> Floats:
    """Values (n, nq[, ncomp]) of f times weighted determinants. A scalar f fits all components."""
    shape = _components(V)
    if values.ndim == 2 and shape:
        values = values[..., np.newaxis]
    weights = weights.reshape(*weights.shape, *(1,) * len(shape))
    return np.asarray(weights * np.broadcast_to(values, (*weights.shape[:2], *shape)))


def _reference_fluxes(values: Floats, block: DomainBlock) -> list[Floats]:
    """Factors of the reference derivatives of the test function, w det(J) F J^-T.

    ``values`` are those of F. The result has dim arrays of shape (n, nq[, ncomp]).
    """
    factors = block.weighted_det[..., np.newaxis, np.newaxis] * block.inverse
    pulled = np.einsum("eq...i,eqji->jeq...", values, factors)
    return list(pulled)
