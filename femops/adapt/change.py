"""Meshes that are refined in some elements and coarsened in others."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from femops.adapt.transfer import Pairs
from femops.parallel.comm import check
from femops.parallel.mesh import DistributedMesh, ranks_of
from femops.spaces.base import AnyMesh
from femops_common.arguments import checked
from femops_meshes.checks import array
from femops_meshes.errors import MeshArgumentError
from femops_meshes.mesh import Mesh, chosen_elements

Flags = NDArray[np.bool_]


@checked(MeshArgumentError)
def change(mesh: AnyMesh, refine: ArrayLike = (), coarsen: ArrayLike = ()) -> Any:
    """Refine some elements of a mesh, and coarsen others.

    Parameters
    ----------
    mesh : Mesh or DistributedMesh
        The call is collective if ranks share the mesh. Then elements are those of this rank.
    refine : (k,) integers or (ne,) booleans
        Elements to halve, as for `Mesh.refined`.
    coarsen : (k,) integers or (ne,) booleans
        Elements that may give way to their parents, as for `Mesh.coarsened`. Elements to halve, and
        those that were never halved, stay.

    Returns
    -------
    Mesh or DistributedMesh
        On the trees of the mesh, so that `transfer` takes fields to it.

    Raises
    ------
    MeshArgumentError
        If there are no such elements.

    Examples
    --------
    >>> import femops
    >>> mesh = femops.box((2, 2)).refined([0])
    >>> femops.adapt.change(mesh, refine=[6], coarsen=range(4)).forest.level.tolist()
    [0, 0, 0, 1, 1, 1, 1]
    """
    with check(ranks_of(mesh)):
        refine, coarsen = array(refine, "refine"), array(coarsen, "coarsen")
    if isinstance(mesh, DistributedMesh):
        return mesh.changed(_changed, mesh.chosen(refine, None), mesh.chosen(coarsen, None))
    return _changed(mesh, chosen_elements(mesh, refine, None), chosen_elements(mesh, coarsen, None))


def _changed(mesh: Mesh, more: Flags, less: Flags) -> Mesh:
    """Mesh in which elements are halved, and others give way to their parents; see `change`."""
    less = less & ~more
    if less.any() and mesh.trees.depth:
        coarse = mesh.coarsened(less)
        if coarse is not mesh:
            pairs = Pairs.of(mesh.trees, coarse.trees)
            stays = (pairs.levels == 0) & more[pairs.around]
            more = np.zeros(coarse.num_elements, dtype=np.bool_)
            more[pairs.inside[stays]] = True
            mesh = coarse
    return mesh.refine() if more.all() else mesh.refined(np.flatnonzero(more))
