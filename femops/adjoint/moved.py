"""Copies of meshes with moved nodes."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from femops.errors import SpaceError
from femops.spaces.base import Space
from femops_common.arguments import checked
from femops_meshes.coordinates.mapping import gauss_lobatto
from femops_meshes.mesh import Mesh


@checked(SpaceError)
def moved(space: Space, displacement: NDArray[Any]) -> Mesh:
    """Return a copy of a space's mesh, its nodes moved by a field of the space.

    Parameters
    ----------
    space : Space
        Space with a component for each dimension, such as ``gradient.spaces["mesh"]``. If its order
        is above the degree of the mesh, the degree of the copy is the order.
    displacement : (space.size,) array

    Returns
    -------
    Mesh
        It has the elements, the order of the elements and the names of the old mesh.

    Raises
    ------
    SpaceError
        The space has another number of components. Or ranks share the mesh: move the mesh before
        `femops.distribute`.
    MeshGeometryError
        An element is turned over.

    Examples
    --------
    >>> import femops
    >>> X = femops.H1(femops.box((2, 2)), order=1, ncomp=2)
    >>> mesh = femops.adjoint.moved(X, X.interpolate(lambda x: (0.5 * x[0], 0.0 * x[1])))
    >>> mesh.volume()
    1.5
    """
    mesh = space.mesh
    if space.ncomp != space.dim:
        raise SpaceError(f"displacements have ncomp={space.dim}, this space has {space.ncomp}")
    if space.comm.size > 1:
        raise SpaceError("ranks share the mesh: move the mesh before femops.distribute")
    finer = mesh.curved(max(mesh.order, space.order))
    values = space.element_vector(space.l_vec(displacement), slice(None))
    steps = space.element.values(gauss_lobatto(finer.order + 1)[0], values)
    return finer.with_nodes(finer.coordinates + steps.reshape(finer.coordinates.shape))
