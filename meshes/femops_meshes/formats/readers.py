"""Read a file in MFEM's formats, refine the mesh, and order its elements."""

import os

from femops_meshes.formats.mfem_reader import read_mfem
from femops_meshes.mesh import Mesh
from femops_meshes.topology.ordering import hilbert_order


def read_mesh(path: str | os.PathLike[str], refine: int = 0, reorder: bool = True) -> Mesh:
    """Read a mesh file of MFEM, refine it, and order its elements for speed."""
    mesh = read_mfem(path).refine(refine)
    return mesh.reordered(hilbert_order(mesh.element_centers())) if reorder else mesh
