"""Distributed meshes over MPI; tests/parallel/test_mesh.py has what ranks do with messages."""

import pytest

import femops
from femops.errors import RankError
from femops.parallel import Serial
from femops.parallel.launch import mpi
from femops_meshes import MeshTopologyError, partition
from support.cases.glued import alike, glued
from support.cases.rank_meshes import SAMPLES, check_groups, check_mesh, whole_groups


@pytest.mark.parallel(1, 2, 4)
@pytest.mark.parametrize("name", ["ball", "periodic", "disc"])
def test_meshes_are_shared_out(comm, name):
    whole, root = SAMPLES[name](), comm.size - 1
    mine = whole if comm.rank == root else None
    got = femops.distribute(mine, mpi().COMM_WORLD, root=root)
    check_mesh(got, whole, partition(whole, comm.size), comm)
    again = femops.distribute(mine, comm, root=root, reproducible=True)
    check_mesh(again, whole, whole_groups(whole, comm.size), comm)
    check_groups(again)
    assert got.checksum == again.checksum == femops.distribute(whole, Serial()).checksum
    arguments = {"counts": (7, 5), "periodic": (True, False), "order": 2}
    plain = femops.box(**arguments)
    for reproducible, shared in ((False, partition), (True, whole_groups)):
        box = femops.box(**arguments, comm=mpi().COMM_WORLD, reproducible=reproducible)
        check_mesh(box, plain, shared(plain, comm.size), comm)


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
