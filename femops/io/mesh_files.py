"""One door to all mesh files."""

from __future__ import annotations

import os
from pathlib import Path

import femops_meshes
from femops.io.gmsh_file import begins_like_gmsh
from femops_meshes import Mesh, MeshFormatError


def read_mesh(path: str | os.PathLike[str], refine: int = 0, reorder: bool = True) -> Mesh:
    """Read a mesh file, refine it, and order its elements for speed.

    The content of the file tells its format:

    * MFEM mesh v1.0;
    * Gmsh, versions 2.2 and 4.1, ASCII and binary, with complete elements of degree 1 to 9 (needs
      ``pip install 'femops[mesh]'``). Tags of physical groups become attributes, their names
      `Mesh.element_names` and `Mesh.boundary_names`; what is in no group, exterior faces among
      it, has attribute 1 or the lowest number that is no group's.

    Parameters
    ----------
    path
        The file.
    refine
        How many times to split every element into 2**dim; curved geometry is kept.
    reorder
        Order the elements along a Hilbert curve; `Mesh.file_elements` keeps the file's order.

    Raises
    ------
    MeshFileError
        If the file cannot be read.
    MeshFormatError
        If it is damaged, or holds what is not supported: triangles, tetrahedra, serendipity
        elements, a surface in space.
    MeshTopologyError, MeshGeometryError
        If the elements don't fit together, or are inverted.
    MeshArgumentError
        If `refine` is no whole number >= 0.
    MissingExtraError
        If it is a Gmsh file, and the package ``gmsh`` is missing or does not find its libraries.
    """
    if begins_like_gmsh(path):
        from femops.io.gmsh_reader import read_gmsh

        mesh = read_gmsh(path).refine(refine)
        order = femops_meshes.hilbert_order(mesh.element_centers()) if reorder else None
        return mesh if order is None else mesh.reordered(order)
    try:
        return femops_meshes.read_mesh(path, refine, reorder)
    except MeshFormatError as error:
        if Path(path).suffix.lower() != ".msh":
            raise
        raise MeshFormatError(
            f"{path} does not begin with $MeshFormat, as a Gmsh file of version 2.2 or 4.1 does: "
            "let Gmsh save it again (unpacked, with Mesh.MshFileVersion = 4.1)"
        ) from error
