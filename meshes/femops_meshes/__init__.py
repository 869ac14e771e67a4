"""Meshes of segments, quadrilaterals and hexahedra.

Topology, coordinates of any degree, readers and writers, generators, refinement, ordering. No
physics, no kernels: only NumPy is needed.
"""

from femops_meshes.axes import scrambled
from femops_meshes.errors import (
    MeshArgumentError,
    MeshError,
    MeshFileError,
    MeshFormatError,
    MeshGeometryError,
    MeshTopologyError,
)
from femops_meshes.generators import ball, box, cylinder, disc, l_shape, shell
from femops_meshes.mesh import Mesh
from femops_meshes.mfem import mfem_h1_dofs, read_mfem, write_mfem
from femops_meshes.ordering import hilbert_order
from femops_meshes.readers import read_mesh
from femops_meshes.samples import sample, samples
from femops_meshes.topology import Topology, entity_permutation

__all__ = [
    "Mesh",
    "MeshArgumentError",
    "MeshError",
    "MeshFileError",
    "MeshFormatError",
    "MeshGeometryError",
    "MeshTopologyError",
    "Topology",
    "ball",
    "box",
    "cylinder",
    "disc",
    "entity_permutation",
    "hilbert_order",
    "l_shape",
    "mfem_h1_dofs",
    "read_mesh",
    "read_mfem",
    "sample",
    "samples",
    "scrambled",
    "shell",
    "write_mfem",
]
