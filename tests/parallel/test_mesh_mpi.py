"""Distributed meshes over MPI."""

import warnings

import pytest

import femops
from femops.errors import CommunicatorError, RankError
from femops.parallel import Serial
from femops.parallel.launch import mpi
from femops_meshes import MeshArgumentError, MeshFileError, MeshTopologyError, partition
from support.cases.glued import alike, glued
from support.cases.rank_meshes import SAMPLES, check_groups, check_mesh, whole_groups


@pytest.mark.parallel(1, 2, 4)
@pytest.mark.parametrize("name", ["ball", "periodic", "disc"])
@pytest.mark.filterwarnings("ignore:.*ranks have no elements")
def test_one_rank_scatters_a_mesh(comm, name):
    whole, root = SAMPLES[name](), comm.size - 1
    mine = whole if comm.rank == root else None
    got = femops.distribute(mine, mpi().COMM_WORLD, root=root)
    check_mesh(got, whole, partition(whole, comm.size), comm)
    again = femops.distribute(mine, comm, root=root, reproducible=True)
    check_mesh(again, whole, whole_groups(whole, comm.size), comm)
    check_groups(again)
    assert got.checksum == again.checksum == femops.distribute(whole, Serial()).checksum


@pytest.mark.parallel(1, 2, 4)
def test_partitions_by_metis(comm):
    pytest.importorskip("pymetis")
    path = femops.sample("ball.mesh")
    whole = femops.read_mesh(path)
    got = femops.read_mesh(path, comm=comm, method="metis")
    check_mesh(got, whole, partition(whole, comm.size, "metis"), comm)
    assert got.checksum == femops.distribute(whole, Serial()).checksum


@pytest.mark.filterwarnings("ignore:.*ranks have no elements")
@pytest.mark.parallel(1, 2, 4)
@pytest.mark.parametrize("reproducible", [False, True])
def test_ranks_make_their_parts_of_a_box(comm, reproducible):
    arguments = {"counts": (7, 5), "periodic": (True, False), "order": 2}
    whole = femops.box(**arguments)
    got = femops.box(**arguments, comm=mpi().COMM_WORLD, reproducible=reproducible)
    shares = (whole_groups if reproducible else partition)(whole, comm.size)
    check_mesh(got, whole, shares, comm)
    assert got.checksum == femops.distribute(whole, Serial()).checksum


@pytest.mark.parallel(2, 4)
@pytest.mark.parametrize(
    ("reproducible", "groups"), [(False, ""), (True, ", shared out in groups")]
)
def test_more_ranks_than_elements(comm, reproducible, groups):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        got = femops.box(1, comm=comm, reproducible=reproducible)
    expected = f"{comm.size - 1} of {comm.size} ranks have no elements: the mesh has 1{groups}"
    assert [expected in str(one.message) for one in seen] == ([True] if comm.rank == 0 else [])
    assert got.whole_boundary_attributes.tolist() == [1, 2]
    assert got.mesh.num_elements == (comm.rank == 0)


@pytest.mark.parallel(1, 2, 4)
def test_a_file_that_is_missing(comm):
    with pytest.raises(MeshFileError if comm.rank == 0 else RankError, match=r"no\.mesh"):
        femops.read_mesh("no.mesh", comm=comm)


@pytest.mark.parallel(2, 4)
def test_meshes_that_differ(comm):
    mesh = SAMPLES["square"]()
    if comm.rank == 1:
        mesh = mesh.mapped(lambda x: x + 1e-13)
    with pytest.raises(MeshArgumentError, match="ranks disagree about the mesh: checksum"):
        femops.distribute(mesh, comm)
    with pytest.raises(MeshArgumentError, match=r"counts is \(3, 4\) on rank 0, but \(3, 5\) on"):
        femops.box((3, 4 + comm.rank), comm=comm)


@pytest.mark.parallel(1, 2, 4)
def test_no_communicator(comm):
    with pytest.raises(CommunicatorError, match="comm='world' is not a communicator"):
        femops.box((3, 4), comm="world")


@pytest.mark.parallel(1, 2, 4)
@pytest.mark.parametrize(("dim", "wraps"), [(2, (True, True)), (3, (True, False, True))])
def test_both_sides_of_glued_faces_wherever_they_are_cut(comm, dim, wraps):
    whole, plain = glued(dim, wraps)
    V = femops.H1(femops.distribute(whole if comm.rank == 0 else None, comm), 2)
    W = femops.H1(plain, 2)
    for attribute in range(1, 2 * dim + 1):
        got = femops.boundary_load(V, lambda x, n: n[0] * x[0] + x[1], attribute)
        expected = femops.boundary_load(W, lambda x, n: n[0] * x[0] + x[1], attribute)
        total = comm.sum(float(got[: V.restriction.owned].sum()))
        assert total == pytest.approx(float(expected.sum()), abs=1e-12)


@pytest.mark.parallel(1, 2)
def test_a_mesh_whose_glued_sides_are_not_known_is_not_distributed(comm):
    error = MeshTopologyError if comm.rank == 0 else RankError
    with pytest.raises(error, match="tell their side" if comm.rank == 0 else None):
        femops.distribute(alike(2) if comm.rank == 0 else None, comm)
