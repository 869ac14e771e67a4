"""Every rank holds its part of a mesh: made by itself, or sent by the rank that has the whole."""

import itertools
import re
import warnings
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import femops
from femops import CommunicatorError, MeshError, RankError
from femops.parallel import DistributedMesh, Serial
from femops_meshes import MeshArgumentError, MeshFileError, box_part, part_of, partition
from parallel.mesh_cases import (
    IN_MESH,
    IN_PART,
    SAMPLES,
    check_blocks,
    check_mesh,
    striped,
    whole_blocks,
)
from simulated_ranks import on_ranks

SIZES = (1, 2, 3, 5)

BOXES = {
    "square": {"counts": (7, 4), "upper": (2.0, 1.0), "order": 2},
    "ring": {"counts": (5, 3), "periodic": (True, False)},
    "bent": {"counts": (3, 3, 2), "mapping": lambda x: x + 0.1 * x[::-1] ** 2, "order": 3},
    "interval": {"counts": 17, "lower": -1.0},
}


def quietly(size, program):
    """Of each rank, whatever is warned of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return on_ranks(size, program)


# --- Boxes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [*SIZES, 40])
@pytest.mark.parametrize("name", BOXES)
def test_ranks_make_their_parts_of_a_box(name, size):
    whole = femops.box(**BOXES[name])
    assert isinstance(whole, femops.Mesh)

    def program(comm):
        got = femops.box(**BOXES[name], comm=comm)
        check_mesh(got, whole, partition(whole, size), comm)
        assert (got.reproducible, got.blocks) == (False, None)
        again = femops.box(**BOXES[name], comm=comm, reproducible=True)
        check_mesh(again, whole, whole_blocks(whole, size), comm)
        check_blocks(again)

    quietly(size, program)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 8, 1000])
def test_blocks_of_several_elements(size):
    """The same for any number of ranks; 900 elements are 60 blocks of two, and single ones."""

    def program(comm):
        got = femops.box((30, 30), comm=comm, reproducible=True)
        check_blocks(got)
        return (got.part.elements[0] + got.blocks[:-1]).tolist() if got.mesh.num_elements else []

    starts, _ = quietly(size, program)
    lengths = np.diff([*itertools.chain(*starts), 900])
    assert lengths.tolist() == [2] * 60 + [1] * 780


def test_counts_that_can_be_read_but_once():
    def program(comm):
        return femops.box((n for n in (4, 4)), periodic=(w for w in (True, False)), comm=comm)

    meshes, _ = on_ranks(3, program)
    assert [mesh.num_elements for mesh in meshes] == [16, 16, 16]


def test_of_a_box_no_rank_hears_of_the_others():
    _, comms = on_ranks(4, lambda comm: femops.box((16, 16, 16), comm=comm))
    for comm in comms:
        assert comm.largest <= 512  # bytes


# --- Scattering -----------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [*SIZES, 150])
@pytest.mark.parametrize("name", SAMPLES)
def test_one_rank_scatters_a_mesh(name, size):
    whole, root = SAMPLES[name](), size // 2

    def program(comm):
        mine = whole if comm.rank == root else None
        got = femops.distribute(mine, comm, root=root)
        check_mesh(got, whole, partition(whole, size), comm)
        assert not got.reproducible
        if size < 10:
            again = femops.distribute(mine, comm, root=root, reproducible=True)
            check_mesh(again, whole, whole_blocks(whole, size), comm)
            check_blocks(again)

    quietly(size, program)


@pytest.mark.parametrize("method", ["curve", "metis"])
def test_other_partitions(method):
    if method == "metis":
        pytest.importorskip("pymetis")
    whole = SAMPLES["ball"]()
    weights = 1.0 + np.arange(whole.num_elements)

    def program(comm):
        mine = (whole, weights) if comm.rank == 0 else (None, None)
        got = femops.distribute(mine[0], comm, method=method, weights=mine[1])
        check_mesh(got, whole, partition(whole, 3, method, weights), comm)

    on_ranks(3, program)


@pytest.mark.parametrize("options", [{}, {"reproducible": True}])
def test_a_file_is_read_by_one_rank(options):
    path = femops.sample("disc.mesh")
    whole = femops.read_mesh(path, 1, False)

    def program(comm):
        name = path if comm.rank == 0 else "no.mesh"
        got = femops.read_mesh(name, 1, False, comm=comm, **options)
        shares = whole_blocks(whole, 3) if options else partition(whole, 3)
        check_mesh(got, whole, shares, comm)
        assert got.reproducible == bool(options)

    on_ranks(3, program)


def test_all_ranks_may_give_the_mesh():
    def program(comm):
        whole = SAMPLES["square"]()
        check_mesh(femops.distribute(whole, comm), whole, partition(whole, 3), comm)

    on_ranks(3, program)


def test_one_rank_alone():
    whole, comm = SAMPLES["disc"](), Serial()
    check_mesh(femops.distribute(whole, comm), whole, partition(whole, 1), comm)
    assert femops.distribute(whole, None).comm.size == 1
    got = femops.box((40, 30), comm=comm, reproducible=True)
    check_mesh(got, femops.box((40, 30)), partition(femops.box((40, 30)), 1), comm)
    check_blocks(got)
    assert repr(got) == ("DistributedMesh(rank 0 of 1: 1200 of 1200 elements in 840 blocks, dim 2)")


def test_each_part_is_sent_once():
    """Others receive nothing of what is not theirs, so no coordinates of other elements."""
    whole, size = SAMPLES["ball"](), 5
    shares = partition(whole, size)
    _, comms = on_ranks(
        size, lambda comm: femops.distribute(whole if comm.rank == 0 else None, comm)
    )
    for rank in range(1, size):
        part = part_of(whole, shares, rank)
        arrays = [getattr(part, name) for name in IN_PART]
        arrays += [getattr(part.mesh, name) for name in IN_MESH]
        received = [messages.get(rank, 0) for messages in comms[0].sent]
        assert sum(received) == sum(array.nbytes for array in arrays)
        assert comms[rank].largest == part.mesh.coordinates.nbytes
        told = {other for messages in comms[rank].sent for other in messages}
        assert told == {0}  # which attributes there are


def test_parts_of_the_ranks_own_making():
    whole = SAMPLES["cube"]()
    owner = np.arange(whole.num_elements) % 3
    shares = femops.Partition.of(whole, owner, 3)

    def program(comm):
        got = DistributedMesh.of(comm, part_of(whole, shares, comm.rank))
        check_mesh(got, whole, shares, comm)
        return got.checksum

    assert set(on_ranks(3, program)[0]) == {femops.distribute(whole, None).checksum}


# --- Identity -------------------------------------------------------------------------------------


def checksum(mesh):
    return femops.distribute(mesh, Serial()).checksum


@pytest.mark.parametrize("name", SAMPLES)
def test_a_checksum_knows_no_ranks(name):
    whole = SAMPLES[name]()
    found = {checksum(whole)}
    for options in ({}, {"reproducible": True}, {"weights": 1.0 + whole.elements[:, 0]}):
        program = partial(femops.distribute, whole, **options)
        for size in (2, 3, 5, 30):
            meshes, _ = quietly(size, program)
            found |= {mesh.checksum for mesh in meshes}
    assert len(found) == 1
    assert 0 <= found.pop() < 2**64


@pytest.mark.parametrize("name", BOXES)
def test_a_checksum_is_that_of_the_whole_box(name):
    whole = checksum(femops.box(**BOXES[name]))
    for size in (1, 3, 20):
        got, _ = quietly(size, lambda comm: femops.box(**BOXES[name], comm=comm).checksum)
        assert set(got) == {whole}


def test_a_checksum_tells_meshes_apart():
    mesh = striped(femops.box((3, 3)))
    nudged = mesh.coordinates.copy()
    nudged[4, 2, 1] = np.nextafter(nudged[4, 2, 1], 2.0)
    inside, sides = mesh.element_attributes.copy(), mesh.boundary_attributes.copy()
    inside[5] += 1
    sides[[0, 2]] = sides[[2, 0]]
    swap = np.array([1, 0, *range(2, 16)])
    order = np.array([1, 0, *range(2, 9)])
    others = [
        replace(mesh, coordinates=nudged),
        mesh.with_attributes(elements=inside),
        mesh.with_attributes(boundary=sides),
        mesh.with_attributes(elements=mesh.element_attributes[::-1]),
        replace(mesh, elements=swap[mesh.elements], boundary=swap[mesh.boundary]),
        replace(mesh, coordinates=mesh.coordinates[order]),
        replace(mesh, boundary=mesh.boundary[1:], boundary_attributes=sides[1:]),
        mesh.reordered(order),
        mesh.curved(2),
        femops.box((3, 3)),
    ]
    assert len({checksum(mesh), *map(checksum, others)}) == 1 + len(others)


# --- More ranks than elements ---------------------------------------------------------------------


@pytest.mark.parametrize("make", ["box", "distribute"])
def test_more_ranks_than_elements(make):
    def program(comm):
        if make == "box":
            return femops.box((2, 2), comm=comm)
        return femops.distribute(femops.box((2, 2)) if comm.rank == 0 else None, comm)

    with pytest.warns(UserWarning, match="3 of 7 ranks have no elements: the mesh has 4") as seen:
        meshes, _ = on_ranks(7, program)
    assert len(seen) == 1
    assert [mesh.mesh.num_elements for mesh in meshes] == [1, 1, 1, 1, 0, 0, 0]
    assert all(mesh.whole_boundary_attributes.tolist() == [1, 2, 3, 4] for mesh in meshes)
    assert repr(meshes[6]) == "DistributedMesh(rank 6 of 7: 0 of 4 elements, dim 2)"


def test_a_warning_that_is_an_error_ends_all():
    rank_zero = "UserWarning: 1 of 3 ranks have no elements"
    raised(3, lambda comm: femops.box(2, comm=comm), UserWarning, "1 of 3 ranks", rank_zero)


# --- Errors ---------------------------------------------------------------------------------------


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
        ("ball.mesh", {}, "mesh is a str: give the root a whole Mesh"),
        (None, {"root": 3}, "root is 3: it must be a rank, 0 to 2"),
        (None, {"root": True}, "root is True: it must be a rank, 0 to 2"),
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
    raised(2, lambda comm: femops.box(4, order=0, comm=comm), MeshArgumentError, "order is a")


def test_a_file_that_is_missing():
    told = "rank 0 of 3 failed: MeshFileError: "
    raised(3, lambda c: femops.read_mesh("no.mesh", comm=c), MeshFileError, "no.mesh", told)


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
    with pytest.raises(CommunicatorError, match=re.escape("comm=4 is no communicator")):
        make(4)


def test_pieces_of_a_box():
    part = box_part(1, 3, (4, 4), piece=(3, 5))
    assert part.elements.tolist() == [3, 4]
    assert (part.rank, part.size) == (1, 3)
    for piece, message in [
        ((5, 3), "the piece is from 5 to 3: start and stop ascend from 0 to 16"),
        ((3, 17), "the piece is from 3 to 17"),
        ((-1, 3), "start of the piece is a whole number >= 0, got -1"),
        ((0, 1.5), "stop of the piece is a whole number >= 0, got 1.5"),
    ]:
        with pytest.raises(MeshArgumentError, match=message):
            box_part(1, 3, (4, 4), piece=piece)
