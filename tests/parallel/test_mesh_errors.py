"""What can't be distributed: one clear error each, on all ranks."""

import re

import numpy as np
import pytest

import femops
from femops.errors import CommunicatorError, MeshError, RankError
from femops.parallel import DistributedMesh
from femops_meshes import MeshArgumentError, MeshFileError, box_part
from support.cases.rank_meshes import SAMPLES
from support.simulated_ranks import on_ranks


def raised(size, program, error, message, told=None, failing=0):
    """What ranks raise: all the same error, or one its own, of which the others are told."""

    def caught(comm):
        own = told is None or comm.rank == failing
        with pytest.raises(error if own else RankError) as info:
            program(comm)
        assert (message if own else told) in str(info.value)
        return own or str(info.value)

    assert len(set(on_ranks(size, caught)[0])) == 1 + (told is not None)


def differing(size, program, message):
    raised(size, program, MeshArgumentError, f"ranks disagree about the mesh: {message}")


def test_a_warning_that_is_an_error_ends_all():
    rank_zero = "UserWarning: 1 of 3 ranks have no elements"
    raised(3, lambda comm: femops.box(2, comm=comm), UserWarning, "1 of 3 ranks", rank_zero)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({}, {"counts": (5, 3)}, "counts is (4, 3) on rank 0, but (5, 3) on rank 2 (1 of 3 differ"),
        ({}, {"upper": 1.5}, "upper is (1.0, 1.0) on rank 0, but (1.5, 1.5) on rank 2"),
        ({}, {"lower": -1}, "lower is (0.0, 0.0) on rank 0, but (-1.0, -1.0) on rank 2"),
        ({}, {"periodic": (True, False)}, "periodic is (False, False) on rank 0, but (True,"),
        ({}, {"order": 2}, "order is 1 on rank 0, but 2 on rank 2"),
        ({}, {"reproducible": True}, "reproducible is False on rank 0, but True on rank 2"),
        ({}, {"mapping": np.square}, "use of a mapping is False on rank 0, but True"),
    ],
)
def test_boxes_that_differ(first, second, message):
    default = {"counts": (4, 3)}

    def program(comm):
        femops.box(**default | (second if comm.rank == 2 else first), comm=comm)

    differing(3, program, message)


def other(mesh, change):
    """A mesh that differs in one thing."""
    if change == "coordinates":
        return mesh.mapped(lambda x: x + 1e-13)
    if change == "attributes":
        return mesh.with_attributes(boundary=mesh.boundary_attributes[::-1])
    if change == "names":
        return mesh.with_names({"middle": 10})
    return femops.box((4, 7)) if change == "box" else mesh.refine(1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("coordinates", "checksum of numbers, coordinates and attributes is"),
        ("attributes", "names of the boundary is [('outer', (11,))] on rank 1, but [] on rank 0"),
        ("names", "names of elements is [('first', (10,)), ('some', (10, 11))] on rank 1, but"),
        ("box", "order of the mesh is 2 on rank 1, but 1 on rank 0"),
        ("refined", "number of elements is 28 on rank 1, but 112 on rank 0"),
    ],
)
def test_meshes_that_differ(change, message):
    def program(comm):
        mesh = SAMPLES["square"]()
        mesh = other(mesh, change) if comm.rank in (0, 3) else mesh
        with pytest.raises(MeshArgumentError, match=r"2 of 4 differ from rank 1: ranks 0, 3\)"):
            femops.distribute(mesh, comm, root=1)
        femops.distribute(mesh, comm, root=1)

    differing(4, program, message)


def test_arguments_that_differ():
    mesh = SAMPLES["square"]()
    differing(2, lambda c: femops.distribute(mesh, c, root=c.rank), "root is 0 on rank 0, but 1")
    differing(
        2,
        lambda comm: femops.distribute(mesh, comm, method=["curve", "metis"][comm.rank]),
        "method is 'curve' on rank 0, but 'metis' on rank 1",
    )
    differing(
        2,
        lambda comm: femops.distribute(mesh, comm, reproducible=comm.rank == 1),
        "reproducible is False on rank 0, but True on rank 1",
    )


@pytest.mark.parametrize(
    ("holders", "message"),
    [
        ((), "the mesh is given on none of 4 ranks: give it on the root, rank 1, alone"),
        ((0,), "the mesh is given on rank 0 of 4 ranks: give it on the root, rank 1, alone"),
        ((1, 2), "the mesh is given on ranks 1, 2 of 4 ranks"),
    ],
)
def test_who_gives_the_mesh(holders, message):
    mesh = SAMPLES["square"]()

    def program(comm):
        femops.distribute(mesh if comm.rank in holders else None, comm, root=1)

    raised(4, program, MeshArgumentError, message)


@pytest.mark.parametrize(
    ("mesh", "options", "message"),
    [
        ("ball.mesh", {}, "mesh is 'ball.mesh': give a mesh"),
        (None, {"root": 3}, "root is 3: it must be a rank, 0 to 2"),
        (None, {"root": True}, "root is True: give a whole number"),
        (None, {"method": "best"}, "method is 'curve' or 'metis', got 'best'"),
        (None, {"method": "metis", "reproducible": True}, "so method='metis' can't be obeyed"),
        (None, {"weights": np.ones(28), "reproducible": True}, "so weights can't be obeyed"),
    ],
)
def test_arguments_that_make_no_sense(mesh, options, message):
    def program(comm):
        whole = SAMPLES["square"]() if comm.rank == 0 else None
        femops.distribute(mesh or whole, comm, **options)

    raised(3, program, MeshArgumentError, message)


def test_what_fails_on_the_root():
    def program(comm):
        whole = SAMPLES["square"]() if comm.rank == 2 else None
        femops.distribute(whole, comm, root=2, weights=np.ones(3))

    message = "weights have shape (3,), it must be (28,)"
    told = f"rank 2 of 3 failed: MeshArgumentError: {message}"
    raised(3, program, MeshArgumentError, message, told, failing=2)


def test_a_box_that_fails_on_one_rank():
    def inverting(x):
        return np.where(x[0] > 0.9, -x, x)

    def program(comm):
        femops.box(6, mapping=inverting, comm=comm)

    told = "rank 2 of 3 failed: MeshGeometryError: 1 of 2 element(s) are inverted"
    raised(3, program, MeshError, "1 of 2 element(s) are inverted", told, failing=2)
    raised(2, lambda comm: femops.box((2, 0), comm=comm), MeshArgumentError, "each of counts")
    raised(2, lambda comm: femops.box(4, order=0, comm=comm), MeshArgumentError, "order is 0")


def test_a_file_that_is_missing():
    told = "rank 0 of 3 failed: MeshFileError: "
    raised(3, lambda c: femops.read_mesh("no.mesh", comm=c), MeshFileError, "no.mesh", told)


def test_attributes_that_the_mesh_of_a_rank_has():
    mesh = femops.distribute(SAMPLES["square"](), None)
    with pytest.raises(
        AttributeError, match=r"of this rank's elements it is mesh\.mesh\.coordinates"
    ):
        _ = mesh.coordinates
    for name in ("mapped", "with_names"):
        with pytest.raises(AttributeError, match=rf"changed\(lambda whole: whole\.{name}\("):
            getattr(mesh, name)
    with pytest.raises(AttributeError, match=r"'colour'$"):
        _ = mesh.colour


def test_what_ranks_alone_could_obey():
    with pytest.raises(MeshArgumentError, match="reproducible=True says how ranks share a mesh"):
        femops.box((2, 2), reproducible=True)
    path = femops.sample("disc.mesh")
    with pytest.raises(MeshArgumentError, match="reproducible=True says how ranks share a mesh"):
        femops.read_mesh(path, reproducible=True)
    with pytest.raises(MeshArgumentError, match="method='metis' says how ranks share a mesh"):
        femops.read_mesh(path, method="metis")


@pytest.mark.parametrize(
    "make",
    [
        lambda comm: femops.box((2, 2), comm=comm),
        lambda comm: femops.read_mesh(femops.sample("disc.mesh"), comm=comm),
        lambda comm: femops.distribute(femops.box((2, 2)), comm),
    ],
)
def test_no_communicator(make):
    with pytest.raises(CommunicatorError, match=re.escape("comm=4 is not a communicator")):
        make(4)


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (lambda: femops.box(4), "part is a Mesh: give each rank its Part"),
        (lambda: box_part(1, 2, 4), "rank 0 of 2 has part 1 of 2: give each"),
        (lambda: box_part(0, 3, 4), "rank 0 of 2 has part 0 of 3: give each rank"),
    ],
)
def test_parts_that_are_not_the_ranks_own(part, message):
    def program(comm):
        DistributedMesh.of(comm, part() if comm.rank == 0 else box_part(1, 2, 4))

    told = f"rank 0 of 2 failed: MeshArgumentError: {message}"
    raised(2, program, MeshArgumentError, message, told)


@pytest.mark.parametrize("groups", [[0, 1], [1, 2], [0, 2, 1, 2], []], ids=str)
def test_groups_that_are_not_the_parts(groups):
    def program(comm):
        DistributedMesh.of(comm, box_part(comm.rank, 2, 4), [0, 2] if comm.rank else groups)

    message = f"element_groups are {groups}: they must ascend from 0"
    told = f"rank 0 of 2 failed: MeshArgumentError: {message}"
    raised(2, program, MeshArgumentError, message, told)
