"""Reading of mesh files in all formats of this package."""

import os

from femops_meshes.formats.mfem_reader import read_mfem
from femops_meshes.mesh import Mesh
from femops_meshes.topology.ordering import hilbert_order


def read_mesh(path: str | os.PathLike[str], refine: int = 0, reorder: bool = True) -> Mesh:
    """Read a mesh file (MFEM mesh v1.0 or INLINE), refine it, and order its elements for speed.

    Parameters
    ----------
    path
        The file.
    refine
        Number of times to split every element into 2**dim; curved geometry is kept.
    reorder
        Order the elements along a Hilbert curve; `Mesh.file_elements` keeps the file's order.

    Raises
    ------
    MeshFileError, MeshFormatError, MeshTopologyError, MeshGeometryError
        As in `femops_meshes.read_mfem`.
    MeshArgumentError
        If `refine` is no whole number >= 0.
    """
    mesh = read_mfem(path).refine(refine)
    return mesh.reordered(hilbert_order(mesh.element_centers())) if reorder else mesh
