"""MFEM's mesh format v1.0, read and written, and MFEM's numbering of H1 dofs."""

from femops_meshes.formats.mfem_numbering import mfem_h1_dofs
from femops_meshes.formats.mfem_reader import read_mfem
from femops_meshes.formats.mfem_writer import write_mfem

__all__ = ["mfem_h1_dofs", "read_mfem", "write_mfem"]
