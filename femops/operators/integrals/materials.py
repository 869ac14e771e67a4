"""Coefficients that depend on the element attribute: materials."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from femops.errors import OperatorError
from femops.parallel.mesh import DistributedMesh
from femops.spaces.base import GridFunction
from femops.spaces.h1_l2 import L2
from femops_common.arguments import array_of, checked, refusal
from femops_meshes.mesh import Mesh
from femops_meshes.mixed import MixedMesh
from femops_meshes.names import Names, listing, with_numbers


@checked(OperatorError)
def by_attribute(
    mesh: Mesh | MixedMesh | DistributedMesh,
    values: Mapping[int | str, ArrayLike],
    default: ArrayLike | None = None,
) -> GridFunction:
    """Coefficient with one value for each element attribute.

    The coefficient is constant in each element. Forms store it by element, not by quadrature point.

    Parameters
    ----------
    mesh : Mesh, MixedMesh or DistributedMesh
    values : dict
        Values by attribute, or by name of ``mesh.element_names``. All are numbers, or all are
        vectors (ncomp,).
    default : number or (ncomp,) vector, optional
        Value in elements of all other attributes. If omitted, each attribute needs a value.

    Returns
    -------
    GridFunction
        On an L2 space of order 0.

    Raises
    ------
    OperatorError
        ``values`` is no dict, an attribute is not in the mesh or is named twice, an element has no
        value, or the values have different shapes or are not real and finite.

    Examples
    --------
    >>> import femops
    >>> box = femops.box((4, 4))
    >>> mesh = box.with_attributes(1 + (box.element_centers()[:, 0] > 0.5))
    >>> V = femops.H1(mesh, order=2)
    >>> A = femops.diffusion(V, femops.by_attribute(mesh, {1: 1.0, 2: 100.0}))
    """
    whole, local = mesh, mesh.mesh if isinstance(mesh, DistributedMesh) else mesh
    attributes = local.element_attributes
    everywhere = attributes
    if isinstance(whole, DistributedMesh):
        everywhere = whole.whole_element_attributes.astype(attributes.dtype)
    first = next(iter(values.values()), default)
    shape = () if first is None else np.shape(first)
    result = np.full((local.num_elements, *shape), np.nan)
    if default is not None:
        result[...] = _checked(default, shape, "the default")
    known = set(np.unique(everywhere).tolist())
    used: set[int | str] = set()
    for key, value in values.items():
        for number in with_numbers(key, mesh.element_names) or []:
            if number not in known:
                has = listing(everywhere, mesh.element_names)
                raise OperatorError(f"no element has the attribute {number!r}: the mesh has {has}")
            if number in used:
                raise OperatorError(f"attribute {number} has two values: give it one")
            used.add(number)
            result[attributes == number] = _checked(value, shape, f"the value of {key!r}")
    missing = sorted(known - used)
    if missing and default is None:
        name = _named(missing[0], mesh.element_names)
        raise OperatorError(f"no value for the attribute {name}: give it one, or a default")
    space = L2(mesh, 0, ncomp=int(np.prod(shape, dtype=int)))
    of_elements = result.reshape(-1, 1, space.ncomp).astype(np.float64, copy=False)
    if space.mixed:  # dofs are numbered part by part, as elements are
        return GridFunction(space, of_elements.reshape(-1))
    return GridFunction(space, space.restriction.assigned(of_elements).reshape(-1))


def _named(number: int, names: Names) -> str:
    """Return the number of an attribute, with its name if it has one."""
    found = [name for name, group in names.items() if number in group]
    return f"{number}, {found[0]!r}" if found else f"{number}"


def _checked(value: Any, shape: tuple[int, ...], what: str) -> Any:
    """Convert a value to a real, finite array of shape ``shape``."""
    array = array_of(value, what, OperatorError)
    if len(shape) > 1 or array.dtype.kind not in "biuf":
        cure = "real numbers, or vectors of one length, such as the entries of matrices"
        raise OperatorError(refusal(what, value, cure))
    if array.shape != shape:
        raise OperatorError(
            f"{what} has shape {array.shape}, the first value {shape}: "
            "give real numbers, or vectors of one length"
        )
    if not np.isfinite(array).all():
        raise OperatorError(f"{what} is not finite")
    return array
