"""Distribution of a mesh: each rank makes its part, or one rank sends out all parts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import ArrayLike

import femops_meshes
from femops.parallel.comm import Communicator, check, check_same, communicator, listed
from femops.parallel.mesh import DistributedMesh, whole_checksum
from femops.parallel.scattering import groups_of, rank_groups, scattered, shares
from femops_common.arguments import Degree, checked, type_name
from femops_meshes import Mesh, MeshArgumentError, MixedMesh, Part
from femops_meshes.generators.grids import Grid
from femops_meshes.mesh import PointMap
from femops_meshes.partitioning.partition import METHODS
from femops_meshes.topology.entities import Cells, wants_simplices


@overload
def box(
    counts: int | Iterable[int],
    lower: float | Sequence[float] = 0.0,
    upper: float | Sequence[float] = 1.0,
    periodic: bool | Iterable[bool] = False,
    mapping: PointMap | None = None,
    order: Degree = 1,
    cells: None = None,
    *,
    comm: None = None,
    reproducible: bool = False,
) -> Mesh: ...


@overload
def box(
    counts: int | Iterable[int],
    lower: float | Sequence[float] = 0.0,
    upper: float | Sequence[float] = 1.0,
    periodic: bool | Iterable[bool] = False,
    mapping: PointMap | None = None,
    order: Degree = 1,
    cells: Cells | None = None,
    *,
    comm: None = None,
    reproducible: bool = False,
) -> Mesh | Any: ...  # of prisms a `MixedMesh`


@overload
def box(
    counts: int | Iterable[int],
    lower: float | Sequence[float] = 0.0,
    upper: float | Sequence[float] = 1.0,
    periodic: bool | Iterable[bool] = False,
    mapping: PointMap | None = None,
    order: Degree = 1,
    cells: Cells | None = None,
    *,
    comm: Any,
    reproducible: bool = False,
) -> DistributedMesh: ...


@checked(MeshArgumentError)
def box(
    counts: int | Iterable[int],
    lower: float | Sequence[float] = 0.0,
    upper: float | Sequence[float] = 1.0,
    periodic: bool | Iterable[bool] = False,
    mapping: PointMap | None = None,
    order: Degree = 1,
    cells: Cells | None = None,
    *,
    comm: Any = None,
    reproducible: bool = False,
) -> Mesh | DistributedMesh | Any:
    """Mesh of an interval, rectangle or box by a grid of elements.

    With a communicator each rank makes its own part. No rank has the global mesh.

    Parameters
    ----------
    counts
        Number of elements in each direction. The length is the dimension. A single number means
        1-D.
    lower, upper
        Corners of the box: one number for all directions, or one per direction. Any unit of length.
    periodic
        Whether opposite sides are joined: one value for all directions, or one per direction. A
        periodic direction needs at least 3 elements.
    mapping
        Function that maps positions (dim, n) of nodes to new positions. A rank calls it with the
        nodes of its part.
    order
        Degree of the coordinates.
    cells
        "triangles", "tetrahedra" or "prisms": each element is split into two, six, or two,
        before the mapping. None for no split. Not with `comm`.
    comm : mpi4py.MPI.Intracomm or Communicator, optional
        Ranks that each get a part. The call is collective, with the same arguments on all ranks.
    reproducible
        Whether ranks take complete groups of elements, so that results can be the same for any
        number of ranks.

    Returns
    -------
    Mesh, MixedMesh of prisms, or DistributedMesh
        Boundary attributes are 1 and 2 at the low and high end of x, 3 and 4 of y, 5 and 6 of z.
        Periodic directions have no boundary.

    Raises
    ------
    MeshArgumentError
        If counts, corners or order are invalid, the mesh or a rank's part does not fit into memory,
        arguments differ between ranks, or `reproducible` is True without `comm`.
    MeshGeometryError
        If the mapping inverts elements.
    RankError
        If another rank failed.

    Warns
    -----
    UserWarning
        On rank 0, if there are more ranks than elements.
    """
    if comm is None:
        refuse_without_ranks(reproducible=reproducible)
        return femops_meshes.box(counts, lower, upper, periodic, mapping, order, cells)
    ranks = communicator(comm)
    with check(ranks):
        grid = Grid.checked(counts, lower, upper, periodic)
        if wants_simplices(cells, grid.dim, prisms=True):
            raise MeshArgumentError(
                f"ranks make no parts of {cells}: make the whole mesh on one rank, and share it by "
                "femops.distribute(mesh, comm)"
            )
    same = {name: getattr(grid, name) for name in ("counts", "lower", "upper")}
    same |= {"periodic": grid.wraps, "order": order, "reproducible": bool(reproducible)}
    _check_same(ranks, {**same, "use of a mapping": mapping is not None})
    piece, groups = None, None
    if reproducible:
        piece, groups = rank_groups([grid.num_cells], ranks.size, ranks.rank)
    with check(ranks):
        part = femops_meshes.box_part(
            ranks.rank,
            ranks.size,
            grid.counts,
            grid.lower,
            grid.upper,
            grid.wraps,
            mapping,
            order,
            piece=piece,
        )
    return DistributedMesh.of(ranks, part, groups)


@checked(MeshArgumentError)
def distribute(
    mesh: Mesh | MixedMesh | None,
    comm: Any,
    *,
    root: int = 0,
    method: str = "curve",
    weights: ArrayLike | None = None,
    reproducible: bool = False,
) -> DistributedMesh:
    """Partition a mesh that one rank holds, and send each rank its part. Collective.

    Parameters
    ----------
    mesh
        Global mesh on the rank `root`, and None on other ranks. Or the same mesh on all ranks.
    comm : mpi4py.MPI.Intracomm or Communicator
        Ranks that each get a part. None means this process alone.
    root
        Rank that partitions the mesh.
    method
        "curve" or "metis", as in `femops.partition`.
    weights
        Shape (ne,), positive, on the rank `root`: work of each element, in any unit. None means
        equal work.
    reproducible
        Whether ranks take complete groups of elements, so that results can be the same for any
        number of ranks.

    Raises
    ------
    MeshArgumentError
        On all ranks, if `root` or `method` is invalid, differs between ranks, or cannot be combined
        with `reproducible`. On all ranks, if the mesh is neither on `root` alone nor on all ranks,
        or differs between ranks. On `root`, if the weights are invalid.
    MeshExtraError
        On `root`, if the method is METIS and the package ``pymetis`` is missing.
    RankError
        If another rank failed.

    Warns
    -----
    UserWarning
        On rank 0, if there are more ranks than elements, so that some ranks have no elements.

    Examples
    --------
    >>> import femops
    >>> from femops.parallel import Serial
    >>> femops.distribute(femops.box((4, 4)), Serial())
    DistributedMesh(rank 0 of 1: 16 of 16 elements, dim 2)
    """
    ranks = communicator(comm)
    with check(ranks):
        mesh = _checked_arguments(mesh, root, ranks.size, method)
        _check_reproducible(reproducible, method, weights)
    _check_same(ranks, {"root": root, "method": method, "reproducible": bool(reproducible)})
    _check_given(mesh, root, ranks)
    parts: list[Part] = []
    with check(ranks):
        if mesh is not None and ranks.rank == root:
            cut = shares(mesh, ranks.size, method, weights, reproducible)
            parts = [femops_meshes.part_of(mesh, cut, rank) for rank in range(ranks.size)]
    part = scattered(parts, ranks, root)
    return DistributedMesh.of(ranks, part, groups_of(part, ranks) if reproducible else None)


def _check_reproducible(reproducible: bool, method: str, weights: ArrayLike | None = None) -> None:
    """Raise if ``reproducible`` is combined with weights or a method other than "curve"."""
    if reproducible and (method != "curve" or weights is not None):
        got = f"method={method!r}" if weights is None else "weights"
        raise MeshArgumentError(
            f"reproducible=True cuts the curve into equal groups, so {got} can't be obeyed: "
            "leave out one of them"
        )


def refuse_without_ranks(method: str = "curve", *, reproducible: bool) -> None:
    """Raise if options of distributed meshes are used without a communicator."""
    if reproducible or method != "curve":
        got = "reproducible=True" if reproducible else f"method={method!r}"
        raise MeshArgumentError(
            f"{got} says how ranks share a mesh, but comm is None: give a communicator, as "
            "MPI.COMM_WORLD, or for this process alone femops.parallel.Serial() (it needs "
            "import femops.parallel)"
        )


def _checked_arguments(
    mesh: object, root: object, size: int, method: object
) -> Mesh | MixedMesh | None:
    if not (isinstance(mesh, Mesh | MixedMesh) or mesh is None):
        raise MeshArgumentError(
            f"mesh is {type_name(type(mesh))}: give the root a whole Mesh, and the others None"
        )
    if isinstance(root, bool) or not isinstance(root, int | np.integer) or not 0 <= root < size:
        raise MeshArgumentError(f"root is {root!r}: it must be a rank, 0 to {size - 1}")
    if method not in METHODS:
        raise MeshArgumentError(f"method is {' or '.join(map(repr, METHODS))}, got {method!r}")
    return mesh


def _check_given(mesh: Mesh | MixedMesh | None, root: int, comm: Communicator) -> None:
    """Check that the mesh is on the root alone, or is the same on all ranks."""
    given = comm.gather_all(np.array([mesh is not None]))[:, 0]
    if mesh is not None and given.all() and comm.size > 1:
        _check_same(
            comm,
            {
                "dimension of the mesh": mesh.dim,
                "order of the mesh": mesh.order,
                "shapes of elements": [part.cell.plural for part in mesh.parts],
                "number of elements": mesh.num_elements,
                "number of vertices": mesh.num_vertices,
                "number of boundary entries": mesh.num_boundary,
                "names of elements": sorted(mesh.element_names.items()),
                "names of the boundary": sorted(mesh.boundary_names.items()),
                "checksum of numbers, coordinates and attributes": whole_checksum(mesh),
            },
            root,
        )
    elif given.sum() != 1 or not given[root]:
        raise MeshArgumentError(
            f"the mesh is given on {listed(np.flatnonzero(given))} of {comm.size} ranks: give it "
            f"on the root, rank {root}, alone, or the same on all"
        )


def _check_same(comm: Communicator, facts: Mapping[str, object], root: int = 0) -> None:
    check_same(comm, "the mesh", facts, root, MeshArgumentError)
