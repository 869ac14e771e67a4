"""Meshes whose nodes have moved by a field."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from femops.errors import SpaceError
from femops.spaces.base import Space
from femops_meshes.arguments import checked
from femops_meshes.coordinates.interpolation import gauss_lobatto, tensor_apply
from femops_meshes.mesh import Mesh


@checked(SpaceError)
def moved(space: Space, displacement: NDArray[Any]) -> Mesh:
    """Mesh of a space whose nodes have moved by a field.

    Parameters
    ----------
    space : Space
        On the mesh, with a component for each dimension: ``gradient.spaces["mesh"]``, for instance.
        If its order is above the degree of the mesh, the new mesh has the order for its degree.
    displacement : (space.size,) array

    Returns
    -------
    Mesh
        With the elements, their order and the names of the old one.

    Raises
    ------
    SpaceError
        Another number of components, or a mesh that ranks share: move the mesh before it is
        distributed.
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
    nodes = space.basis.interpolation(gauss_lobatto(finer.order + 1)[0])
    values = space.element_vector(space.l_vec(displacement), slice(None))
    steps = tensor_apply([nodes] * space.dim, values)
    old = finer.coordinates.reshape(steps.shape)

    def position(_: Any) -> NDArray[Any]:
        return (old + steps).reshape(-1, space.dim).T.copy()

    return finer.mapped(position)
