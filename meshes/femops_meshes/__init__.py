"""Meshes of segments, quadrilaterals, hexahedra, triangles, tetrahedra and prisms.

Topology, coordinates of any degree, readers and writers, generators, refinement, ordering,
partition. No physics, no kernels: only NumPy is needed.
"""

import femops_meshes.generators.prisms  # noqa: F401  (it makes Mesh.prisms)
from femops_meshes.errors import (
    MeshArgumentError,
    MeshError,
    MeshExtraError,
    MeshFileError,
    MeshFormatError,
    MeshGeometryError,
    MeshTopologyError,
)
from femops_meshes.formats.mfem import mfem_h1_dofs, read_mfem, write_mfem
from femops_meshes.formats.mfem_reader import read_mesh
from femops_meshes.generators.boxes import box, box_part, scrambled
from femops_meshes.generators.curved_domains import ball, cylinder, disc, l_shape, shell
from femops_meshes.mesh import Mesh
from femops_meshes.mixed import MixedMesh
from femops_meshes.partitioning.partition import Partition, partition
from femops_meshes.partitioning.parts import Part, part_of
from femops_meshes.samples import sample, samples
from femops_meshes.topology.ordering import hilbert_order
from femops_meshes.topology.topology import Topology, entity_permutation

__all__ = [
    "Mesh",
    "MeshArgumentError",
    "MeshError",
    "MeshExtraError",
    "MeshFileError",
    "MeshFormatError",
    "MeshGeometryError",
    "MeshTopologyError",
    "MixedMesh",
    "Part",
    "Partition",
    "Topology",
    "ball",
    "box",
    "box_part",
    "cylinder",
    "disc",
    "entity_permutation",
    "hilbert_order",
    "l_shape",
    "mfem_h1_dofs",
    "part_of",
    "partition",
    "read_mesh",
    "read_mfem",
    "sample",
    "samples",
    "scrambled",
    "shell",
    "write_mfem",
]
