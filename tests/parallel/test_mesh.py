"""Every rank holds its part of a mesh: made by itself, or sent by the rank that has the whole."""

import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import femops
from femops.parallel import DistributedMesh, Serial
from femops_meshes import part_of, partition
from support.cases.rank_meshes import (
    IN_MESH,
    IN_PART,
    SAMPLES,
    check_groups,
    check_mesh,
    striped,
    whole_groups,
)
from support.mixed_meshes import flat_mesh, mixed_mesh
from support.simulated_ranks import on_ranks, quietly

SIZES = (1, 2, 3, 5)

BOXES = {
    "rectangle": {"counts": (7, 4), "upper": (2.0, 1.0), "order": 2},
    "ring": {"counts": (5, 3), "periodic": (True, False)},
    "bent": {"counts": (3, 3, 2), "mapping": lambda x: x + 0.1 * x[::-1] ** 2, "order": 3},
    "interval": {"counts": 17, "lower": -1.0},
}


# --- Boxes ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [*SIZES, 40])
@pytest.mark.parametrize("name", BOXES)
def test_ranks_make_their_parts_of_a_box(name, size):
    whole = femops.box(**BOXES[name])
    assert isinstance(whole, femops.Mesh)

    def program(comm):
        got = femops.box(**BOXES[name], comm=comm)
        check_mesh(got, whole, partition(whole, size), comm)
        assert (got.reproducible, got.element_groups) == (False, None)
        again = femops.box(**BOXES[name], comm=comm, reproducible=True)
        check_mesh(again, whole, whole_groups(whole, size), comm)
        check_groups(again)

    quietly(size, program)


@pytest.mark.parametrize("reproducible", [False, True])
@pytest.mark.parametrize("size", [1, 3, 7])
def test_several_shapes(size, reproducible):
    """Ranks without elements, and without some of the shapes; the mesh put together again."""
    for mesh in (flat_mesh(1), mixed_mesh(1), femops.box((2, 1, 1), cells="prisms")):
        names = mesh.with_names(boundary={"all": 1})

        def program(comm, mesh=names):
            given = mesh if comm.rank == 0 else None
            got = femops.distribute(given, comm, reproducible=reproducible)
            assert [part.mesh.cell.name for part in got.parts] == [p.cell.name for p in mesh.parts]
            starts = np.cumsum([0, *(part.num_elements for part in mesh.parts)])
            for part, whole, first in zip(got.parts, mesh.parts, starts, strict=False):
                own = part.part.elements - first
                np.testing.assert_array_equal(part.mesh.coordinates, whole.coordinates[own])
                corners = part.part.vertices[part.mesh.elements]
                np.testing.assert_array_equal(corners, whole.elements[own])
                if reproducible:
                    assert (np.diff(part.element_groups) <= 16).all()
                    assert part.element_groups[-1] == part.mesh.num_elements
            assert comm.sum(got.mesh.num_boundary) == mesh.num_boundary
            assert (got.boundary_names, got.has_outer_faces) == ({"all": (1,)}, True)
            V = femops.H1(got, 1)
            assert femops.integrate(V, 1.0) == pytest.approx(mesh.volume(), abs=1e-13)
            area = femops.integrate(femops.H1(mesh, 1), 1.0, boundary="all")
            assert femops.integrate(V, 1.0, boundary="all") == pytest.approx(area, abs=1e-12)
            again = got.changed(lambda whole: whole.refine())
            assert again.checksum == femops.distribute(mesh.refine(), Serial()).checksum
            assert again.mesh.continuous
            with pytest.raises(AttributeError, match=r"mesh\.parts are meshes of one shape"):
                got.cell  # noqa: B018
            return got.checksum

        assert {*quietly(size, program)[0]} == {femops.distribute(names, Serial()).checksum}


@pytest.mark.parametrize("size", [1, 3, 8])
def test_groups_of_several_elements(size):
    """The same for any number of ranks; more than 840 * 16 elements are groups of 32."""

    def program(comm):
        got = femops.box(15000, comm=comm, reproducible=True)
        check_groups(got)
        return (got.part.elements[0] + got.element_groups[:-1]).tolist()

    starts, _ = on_ranks(size, program)
    lengths = np.diff([*itertools.chain(*starts), 15000])
    assert lengths.tolist() == [32] * 468 + [24]


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


@pytest.mark.sample(4)
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
            again = femops.distribute(SAMPLES[name](), comm, reproducible=True)  # all ranks give it
            check_mesh(again, whole, whole_groups(whole, size), comm)
            check_groups(again)

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
        shares = whole_groups(whole, 3) if options else partition(whole, 3)
        check_mesh(got, whole, shares, comm)
        assert got.reproducible == bool(options)

    on_ranks(3, program)


def test_one_rank_alone():
    whole, comm = SAMPLES["disc"](), Serial()
    check_mesh(femops.distribute(whole, comm), whole, partition(whole, 1), comm)
    assert femops.distribute(whole, None).comm.size == 1
    got = femops.box((40, 30), comm=comm, reproducible=True)
    check_mesh(got, femops.box((40, 30)), partition(femops.box((40, 30)), 1), comm)
    check_groups(got)
    assert repr(got) == ("DistributedMesh(rank 0 of 1: 1200 of 1200 elements in 75 groups, dim 2)")


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
    own = part_of(whole, shares, 0).mesh
    attributes = len(set(own.boundary_attributes)) + len(set(own.element_attributes))
    assert sum(messages.get(0, 0) for messages in comms[0].sent) == 8 * attributes


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


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", [*SAMPLES, *BOXES])
def test_a_checksum_knows_no_ranks(name):
    """Nor who has made the parts."""
    whole = SAMPLES[name]() if name in SAMPLES else femops.box(**BOXES[name])
    programs = [
        partial(femops.distribute, whole, **options)
        for options in ({}, {"reproducible": True}, {"weights": 1.0 + whole.elements[:, 0]})
    ]
    if name in BOXES:
        programs = [lambda comm: femops.box(**BOXES[name], comm=comm)]
    found = {checksum(whole)}
    for program in programs:
        for size in (2, 3, 5, 30):
            found |= {mesh.checksum for mesh in quietly(size, program)[0]}
    assert len(found) == 1
    assert 0 <= found.pop() < 2**64


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


def test_a_space_shows_its_share():
    spaces, _ = on_ranks(2, lambda comm: repr(femops.H1(femops.box((4, 4), comm=comm), 2)))
    assert [text.partition("2-D, ")[2] for text in spaces] == [
        f"{n} dofs, of 81 on 2 ranks)" for n in (45, 36)
    ]


# --- More ranks than elements ---------------------------------------------------------------------


@pytest.mark.parametrize("make", ["box", "distribute"])
def test_more_ranks_than_elements(make):
    def program(comm):
        if make == "box":
            return femops.box((2, 2), comm=comm)
        return femops.distribute(femops.box((2, 2)) if comm.rank == 0 else None, comm)

    with pytest.warns(UserWarning, match="3 of 7 ranks have no elements: the mesh has 4") as seen:
        meshes, _ = on_ranks(7, program)
    assert [one.filename for one in seen] == [__file__]
    assert [mesh.mesh.num_elements for mesh in meshes] == [1, 1, 1, 1, 0, 0, 0]
    assert all(mesh.whole_boundary_attributes.tolist() == [1, 2, 3, 4] for mesh in meshes)
    assert repr(meshes[6]) == "DistributedMesh(rank 6 of 7: 0 of 4 elements, dim 2)"
    with pytest.warns(UserWarning, match="6 of 7 ranks .* has 4, shared out in groups of 16 or"):
        on_ranks(7, lambda comm: femops.box((2, 2), comm=comm, reproducible=True))
