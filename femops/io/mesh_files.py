"""Mesh files of all formats: `femops.io.gmsh` reads Gmsh, `femops_meshes.formats` the others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, cast, overload

import numpy as np

import femops_meshes
from femops.errors import FileError
from femops.io.atomic import checked_path
from femops.io.checkpoint.state import begins_like_state, load_mesh
from femops.io.gmsh.file import begins_like_gmsh, read_arrays
from femops.io.gmsh.objects import is_mesh_object, mixed_arrays, object_arrays
from femops.parallel.comm import check, communicator
from femops.parallel.distribution import distribute, refuse_without_ranks
from femops.parallel.mesh import DistributedMesh
from femops_common.arguments import Kind, checked
from femops_meshes import Mesh, MeshArgumentError, MeshFormatError, MixedMesh
from femops_meshes.formats.mfem_reader import FileArrays, read_mixed
from femops_meshes.formats.scanner import printable
from femops_meshes.names import names_of

_CURE = "the path of a mesh file, a meshio.Mesh, gmsh.model, or a mesh of Netgen or NGSolve"
MeshSource = Annotated[
    Any, Kind(lambda x: isinstance(x, str | os.PathLike) or is_mesh_object(x), _CURE)
]
"""Path of a mesh file, or a mesh of meshio, Gmsh, Netgen or NGSolve."""


@overload
def read_mesh(
    path: MeshSource,
    refine: int = 0,
    reorder: bool = True,
    *,
    split: Literal[True],
    comm: None = None,
    method: str = "curve",
    reproducible: bool = False,
) -> Mesh: ...


# A union with Any: the mesh may be a `MixedMesh`, but whoever knows that the elements have one
# shape need not tell the type checker so.
@overload
def read_mesh(
    path: MeshSource,
    refine: int = 0,
    reorder: bool = True,
    *,
    split: bool = False,
    comm: None = None,
    method: str = "curve",
    reproducible: bool = False,
) -> Mesh | Any: ...


@overload
def read_mesh(
    path: MeshSource,
    refine: int = 0,
    reorder: bool = True,
    *,
    split: bool = False,
    comm: Any,
    method: str = "curve",
    reproducible: bool = False,
) -> DistributedMesh: ...


@checked(MeshArgumentError)
def read_mesh(
    path: MeshSource,
    refine: int = 0,
    reorder: bool = True,
    *,
    split: bool = False,
    comm: Any = None,
    method: str = "curve",
    reproducible: bool = False,
) -> Mesh | DistributedMesh | Any:
    """Read a mesh file or take another library's mesh, refine it, and order it for speed.

    With a communicator only rank 0 reads the file. It sends each rank its part. The format is
    detected from the content of the file:

    * MFEM mesh v1.0 to v1.3, straight or curved, and MFEM INLINE mesh v1.0, of all shapes but
      pyramids;
    * MFEM NC mesh v1.0, whose elements are refined locally, in all directions. If elements touch
      others that are two levels smaller, they are refined, with a warning;
    * Gmsh, versions 2.2 and 4.1, ASCII and binary: complete elements of degree 1 to 9, triangles,
      tetrahedra and prisms 1 to 6. Tags of physical groups become
      attributes. `Mesh.element_names` and `Mesh.boundary_names` have their names. Elements and
      exterior faces in no group, or in a group of tag 0, have attribute 1, or the lowest number
      that is no tag. Periodic sides are glued. Partitions are left out. A warning lists names of
      groups without elements;
    * checkpoints of `femops.io.save_state` that keep their mesh. It is the mesh that was saved, bit
      by bit, with its trees, and in its order.

    A ``meshio.Mesh``, ``gmsh.model`` of a program that has made a mesh by Gmsh, a
    ``netgen.meshing.Mesh`` and an ``ngsolve.Mesh`` are read in the same way. Attributes of a
    ``meshio.Mesh`` are its cell data ``gmsh:physical``, ``medit:ref`` or ``cell_tags``, else its
    cell sets, with their names. Groups and sets may overlap. Of Netgen the numbers and names of
    materials and boundary conditions are taken, and the map that ``Curve`` made. Sides that it
    identifies are not glued.

    If the elements are prisms, or have several shapes, the mesh is a `MixedMesh`. For type
    checkers the result is then ``Mesh | Any``: they check what a program does with a `Mesh`, and
    ``isinstance(mesh, femops.MixedMesh)`` tells them of the other class. Elements that a file lists
    in mirrored order are turned over.

    Parameters
    ----------
    path : path, meshio.Mesh, gmsh.model, or a mesh of Netgen or NGSolve
        Path of the file, or the mesh.
    refine
        Number of times to split every element into 2**dim elements. Curved geometry is kept.
    reorder
        Whether to order the elements along a Hilbert curve. `Mesh.file_elements` has the file's
        order. The mesh of a checkpoint keeps its own.
    split
        False to take all elements as they are. True to split each triangle into three
        quadrilaterals, each tetrahedron into four hexahedra and each prism into six. Then
        quadrilaterals are split into four and hexahedra into eight, so that all fit together.
        Curved geometry (of Gmsh and Netgen, not of MFEM), attributes, names and periodic sides are
        kept. Exterior faces that the file does not list are listed. A file without triangles,
        tetrahedra and prisms is not changed.
    comm : mpi4py.MPI.Intracomm or Communicator, optional
        Ranks that each get a part. The call is collective.
    method, reproducible
        Partition of the mesh, as in `femops.distribute`.

    Raises
    ------
    MeshFileError
        If the file cannot be read.
    MeshFormatError
        If the file is damaged, or has unsupported elements: pyramids, serendipity elements, or a
        surface in space. Elements of MFEM that are refined in some directions only are not
        supported either.
    CheckpointError
        If a checkpoint has no mesh, or is damaged.
    MeshTopologyError, MeshGeometryError
        If the elements do not fit together, or are partly inverted.
    MeshArgumentError
        If `path` is no path, `refine` is no whole number >= 0, or `split` is no bool. If `method`
        and `reproducible` cannot be combined, or are used without `comm`.
    RankError
        On the ranks that do not read, if rank 0 failed.
    """
    if comm is None:
        refuse_without_ranks(method, reproducible=reproducible)
        return _read(path, refine, reorder, split=split)
    ranks = communicator(comm)
    with check(ranks):
        mesh = _read(path, refine, reorder, split=split) if ranks.rank == 0 else None
    return distribute(mesh, ranks, method=method, reproducible=reproducible)


def save_mesh(path: str | os.PathLike[str], mesh: Any, fields: Mapping[str, Any]) -> Path:
    """Write a mesh to a file ending in .mesh, for `femops.save`."""
    if isinstance(mesh, DistributedMesh) and mesh.comm.size == 1:
        mesh = mesh.mesh
    if fields or not isinstance(mesh, Mesh | MixedMesh):
        what = "" if fields else f" (a {type(mesh).__name__} was given)"
        raise FileError(
            f"'{path}' cannot hold fields{what}: a .mesh file (MFEM) is of one whole mesh, as in "
            "femops.save(path, mesh); fields, and meshes of several ranks, go to .vtu or .pvtu"
        )
    target = checked_path(path, ".mesh")
    femops_meshes.write_mfem(mesh, target)
    return target


def not_kept(mesh: Mesh | MixedMesh, suffix: str) -> list[str]:
    """List, in a few words each, the parts of a mesh that a file with this suffix loses."""
    if suffix == ".mesh":
        return []
    if suffix == ".png":
        return ["the mesh itself, being a picture"]
    lost = []
    if mesh.num_boundary:
        count = len(np.unique(mesh.boundary_attributes))
        lost.append(f"the {mesh.num_boundary} boundary faces and their {count} attribute(s)")
    if mesh.element_names or mesh.boundary_names:
        lost.append(
            "names of attributes: " + ", ".join([*mesh.element_names, *mesh.boundary_names])
        )
    if isinstance(mesh, Mesh) and mesh.forest is not None:
        lost.append("of which elements the smaller ones are parts, so that they can be coarsened")
    if not mesh.continuous:
        lost.append("which sides are glued, as the mesh is periodic")
    return lost


def _read(path: MeshSource, refine: int, reorder: bool, *, split: bool) -> Mesh:
    if not isinstance(refine, int | np.integer) or refine < 0:
        raise MeshArgumentError(f"refine is {refine!r}: give a whole number >= 0")
    if split not in (True, False):
        raise MeshArgumentError(f"split is {split!r}: give True or False")
    if not is_mesh_object(path) and begins_like_state(path):
        return cast(Mesh, load_mesh(Path(os.fspath(path)))).refine(refine)
    if is_mesh_object(path) or begins_like_gmsh(path):
        from femops.io.gmsh.reader import mesh_from

        if is_mesh_object(path):
            content, name = object_arrays(path)
        else:
            content, name = read_arrays(path), printable(os.fspath(path))
        return _finished(mesh_from(content, name, split=split), refine, reorder)
    try:
        mixed = read_mixed(path) if split else None
        if mixed is not None:
            return _finished(_split_mixed(mixed, printable(os.fspath(path))), refine, reorder)
        return femops_meshes.read_mesh(path, refine, reorder)
    except MeshFormatError as error:
        if Path(path).suffix.lower() != ".msh":
            raise
        raise MeshFormatError(
            f"{printable(os.fspath(path))} does not begin with $MeshFormat, as a Gmsh file of "
            "version 2.2 or 4.1 does: let Gmsh save it again (unpacked, with Mesh.MshFileVersion = "
            "4.1)"
        ) from error


def _split_mixed(mixed: FileArrays, name: str) -> Mesh | MixedMesh:
    from femops.io.gmsh.reader import mesh_from

    mesh = mesh_from(mixed_arrays(mixed), name, split=True)
    return mesh.with_names(
        names_of(mixed.element_names, mesh.element_attributes),
        names_of(mixed.boundary_names, mesh.boundary_attributes),
    )


def _finished(mesh: Mesh | MixedMesh, refine: int, reorder: bool) -> Mesh:
    """Mesh that is refined and ordered. Type checkers take one of several shapes for a `Mesh`."""
    mesh = cast(Mesh, mesh).refine(refine)
    return mesh.reordered(femops_meshes.hilbert_order(mesh.element_centers())) if reorder else mesh
