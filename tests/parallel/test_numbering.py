"""Ranks number their dofs by themselves, and agree about what they share."""

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import femops
from femops import H1, L2
from femops.errors import SpaceError
from femops.numbering import local_nodes, ternary_codes
from femops.parallel.numbering import h1_rank_numbering, l2_rank_numbering
from femops_meshes import Partition, box_part, part_of, partition
from support.cases.parts import ALL, holders, parts_of, shared_meshes
from support.mixed_meshes import flat_mesh, mixed_mesh
from support.refined import tree
from support.simulated_ranks import on_ranks


def numbered(mesh, cut, p):
    parts = parts_of(mesh, cut)
    return on_ranks(cut.size, lambda comm: h1_rank_numbering(parts[comm.rank], p, comm))[0]


def check_first_touch(numbering, dim, p):
    """Follow the contract by a plain loop: new owned dofs are next, in the element's order."""
    count = 0
    layout = [local_nodes(digits, p) for _, digits in ternary_codes(dim)]
    for row in numbering.indices:
        for nodes in layout:
            met = row[nodes].tolist()
            if met and count <= met[0] < numbering.owned:
                assert met == list(range(count, count + len(met)))
                count += len(met)
    assert count == numbering.owned


def check(mesh, cut, p, numberings):
    """All that a numbering promises, against the whole mesh's and sets of ranks."""
    serial = H1(mesh, p)
    held = holders(mesh, cut, p)
    name = {}
    for rank, numbering in enumerate(numberings):
        own = np.flatnonzero(cut.owner == rank)
        touched = numbering.whole[numbering.indices]
        pairs = set(zip(serial.restriction.indices[own].flat, touched.flat, strict=True))
        assert len(pairs) == numbering.ndofs
        assert len(set(numbering.whole.tolist())) == numbering.ndofs
        for dof, number in pairs:
            assert name.setdefault(dof, number) == number
            owner = held[dof][0]
            assert numbering.offsets[owner] <= number < numbering.offsets[owner + 1]
        assert numbering.owned == sum(ranks[0] == rank for ranks in held.values())
        assert (np.diff(numbering.ghosts) > 0).all()
        check_first_touch(numbering, mesh.dim, p)
    assert sorted(name.values()) == list(range(serial.ndofs))
    np.testing.assert_array_equal(np.diff(numberings[0].offsets), cut.owned_dofs(p))
    if (np.diff(cut.owner) >= 0).all():
        assert all(dof == number for dof, number in name.items())


@settings(max_examples=12, deadline=None)
@given(shared_meshes(), st.integers(1, 4))
def test_ranks_agree_with_the_whole_mesh(case, p):
    mesh, cut = case
    check(mesh, cut, p, numbered(mesh, cut, p))


@pytest.mark.sample(4)
@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("name", ALL)
def test_every_kind_of_mesh(name, p):
    mesh = ALL[name]()
    rng = np.random.default_rng(p)
    owner = rng.integers(4, size=mesh.num_elements)
    for cut in (partition(mesh, 5), Partition.of(mesh, owner, 4)):
        if name != "ball" or p < 4:
            check(mesh, cut, p, numbered(mesh, cut, p))


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", ["squares", "disc", "periodic", "line", "cubes", "random cubes"])
def test_locally_refined_meshes(name):
    mesh = tree(name)
    owner = np.random.default_rng(1).integers(4, size=mesh.num_elements)
    for cut in (partition(mesh, 5), Partition.of(mesh, owner, 4)):
        for p in (1, 3):
            check(mesh, cut, p, numbered(mesh, cut, p))


@pytest.mark.parametrize("p", [1, 3])
def test_an_element_a_rank(p):
    """So every entity is seen from another rank in all its orientations."""
    for name in ("scrambled cube", "3-torus", "disc"):
        mesh = ALL[name]()
        cut = partition(mesh, mesh.num_elements)
        check(mesh, cut, p, numbered(mesh, cut, p))


@pytest.mark.parametrize("order", [0, 2])
def test_l2_shares_nothing(order):
    mesh = ALL["cube"]()
    cut = partition(mesh, 5)
    parts = parts_of(mesh, cut)
    numberings = on_ranks(5, lambda comm: l2_rank_numbering(parts[comm.rank], order, comm))[0]
    serial = L2(mesh, order).restriction.indices
    for part, numbering in zip(parts, numberings, strict=True):
        np.testing.assert_array_equal(numbering.whole[numbering.indices], serial[part.elements])
        assert len(numbering.ghosts) == 0
        assert numbering.ndofs == numbering.owned == numbering.indices.size


@pytest.mark.parametrize(("name", "size"), [("all", 3), ("all", 7), ("prisms", 4), ("plane", 5)])
@pytest.mark.parametrize("p", [1, 2, 4])
def test_several_shapes(name, size, p):
    """More ranks than elements of a shape, too; ranks without any."""
    mesh = {
        "all": lambda: mixed_mesh(1, seed=size),
        "prisms": lambda: mixed_mesh(2, shapes=("prisms",)),
        "plane": lambda: flat_mesh(1),
    }[name]()
    owner = np.random.default_rng(p).integers(size, size=mesh.num_elements)
    owner[owner == 1] = 0
    for cut in (partition(mesh, size), Partition.of(mesh, owner, size)):
        parts, serial = parts_of(mesh, cut), H1(mesh, p)
        numberings = on_ranks(size, lambda comm: h1_rank_numbering(parts[comm.rank], p, comm))[0]  # noqa: B023
        held = {}
        for rank, numbering in enumerate(numberings):
            first = 0
            for one, dofs, part in zip(
                serial.parts, numbering.dofs, parts[rank].parts, strict=True
            ):
                expected = one.restriction.indices[part.elements - first]
                first += one.mesh.num_elements
                for dof, number in zip(
                    expected.flat, numbering.whole[dofs.indices].flat, strict=True
                ):
                    held.setdefault(int(dof), (set(), set()))
                    held[int(dof)][0].add(int(number))
                    held[int(dof)][1].add(rank)
        numbers = [number for (number,), _ in held.values()]
        assert sorted(numbers) == list(range(serial.ndofs))
        offsets = numberings[0].offsets
        for (number,), ranks in held.values():
            assert offsets[min(ranks)] <= number < offsets[min(ranks) + 1]


def test_one_rank_numbers_as_a_space_does():
    mesh = ALL["ball"]()
    (numbering,) = numbered(mesh, partition(mesh, 1), 3)
    serial = H1(mesh, 3).restriction
    np.testing.assert_array_equal(numbering.indices, serial.indices)
    assert (numbering.owned, numbering.ndofs) == (serial.ndofs, serial.ndofs)
    assert repr(numbering) == (
        f"RankNumbering(rank 0 owns {serial.ndofs} of {serial.ndofs} dofs, 0 ghosts)"
    )


def test_a_box_that_is_never_whole():
    """Parts that ranks make by themselves; messages go with the surface of a part."""
    counts, touched, p, most = (20, 20, 20), {}, 2, 25
    serial = H1(femops.box(counts), p).restriction.indices

    def program(comm):
        part = box_part(comm.rank, comm.size, counts)
        numbering = h1_rank_numbering(part, p, comm)
        np.testing.assert_array_equal(numbering.whole[numbering.indices], serial[part.elements])
        return numbering.ndofs, len(part.interface)

    for size in (8, 64):
        results, comms = on_ranks(size, program)
        touched[size], surface = np.max(results, axis=0)
        for comm in comms:
            assert max(sum(sent.values()) for sent in comm.sent) < 8 * most * surface
            assert comm.largest < 8 * most * surface
    assert touched[64] < touched[8] / 5


def raised(size, program, message):
    """Every rank raises the same error by itself."""

    def caught(comm):
        with pytest.raises(SpaceError, match=re.escape(message)) as info:
            program(comm)
        return str(info.value)

    assert len(set(on_ranks(size, caught)[0])) == 1


SQUARE, CUBE = femops.box((3, 4)), femops.box((2, 3, 2))


def square(rank, size=3):
    return part_of(SQUARE, partition(SQUARE, size), rank)


@pytest.mark.parametrize(
    ("part", "p", "message"),
    [
        (lambda r: square(2 - r), lambda r: 2, "rank 0 of 3 has part 2 of 3: give each rank the"),
        (lambda r: square(r, 4), lambda r: 2, "rank 0 of 3 has part 0 of 4"),
        (square, lambda r: 2 + (r == 1), "order: 2 on rank 0, 3 on rank 1: give all ranks the"),
        (
            lambda r: part_of(CUBE, partition(CUBE, 3), r) if r == 2 else square(r),
            lambda r: 2,
            "dimension of the mesh: 2 on rank 0, 3 on rank 2",
        ),
        (lambda r: box_part(r, 3, (4 + r, 2)), lambda r: 2, "elements of the mesh: 8 on rank 0"),
        (
            lambda r: box_part(r, 3, [(2, 6), (3, 4), (4, 3)][r]),
            lambda r: 1,
            "vertices of the mesh: 21 on rank 0, 20 on rank 1",
        ),
        (
            lambda r: part_of(SQUARE, partition(SQUARE, 3, weights=np.arange(12) + 1 + r * 20), r),
            lambda r: 2,
            "elements together, the mesh has 12: make all parts by one partition",
        ),
        (square, lambda r: 0, "order is 0, it must be at least 1"),
    ],
)
def test_parts_that_do_not_fit(part, p, message):
    raised(3, lambda comm: h1_rank_numbering(part(comm.rank), p(comm.rank), comm), message)


def test_too_low_an_order_of_l2():
    message = "order is -1, it must be at least 0"
    raised(3, lambda comm: l2_rank_numbering(square(comm.rank), -1, comm), message)
