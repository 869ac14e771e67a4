"""Meshes that are refined in some elements and coarsened in others."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from femops.adapt.transfer import Pairs
from femops_common.arguments import checked
from femops_meshes.errors import MeshArgumentError
from femops_meshes.mesh import Mesh, chosen_elements


@checked(MeshArgumentError)
def change(mesh: Mesh, refine: ArrayLike = (), coarsen: ArrayLike = ()) -> Mesh:
    """Refine some elements of a mesh, and coarsen others.

    Parameters
    ----------
    mesh : Mesh
    refine : (k,) integers or (ne,) booleans
        Elements to halve, as for `Mesh.refined`.
    coarsen : (k,) integers or (ne,) booleans
        Elements that may give way to their parents, as for `Mesh.coarsened`. Elements to halve, and
        those that were never halved, stay.

    Returns
    -------
    Mesh
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
    more = chosen_elements(mesh, np.asarray(refine), None)
    less = chosen_elements(mesh, np.asarray(coarsen), None) & ~more
    if less.any() and mesh.trees.depth:
        coarse = mesh.coarsened(less)
        if coarse is not mesh:
            pairs = Pairs.of(mesh, coarse)
            stays = (pairs.levels == 0) & more[pairs.around]
            more = np.zeros(coarse.num_elements, dtype=np.bool_)
            more[pairs.inside[stays]] = True
            mesh = coarse
    return mesh.refine() if more.all() else mesh.refined(np.flatnonzero(more))
