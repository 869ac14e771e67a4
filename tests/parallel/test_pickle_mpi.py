"""Copies and pickles of what ranks hold together: each rank gets its own back, or an error."""

import copy
import pickle

import numpy as np
import pytest

import femops
from femops.parallel import DistributedMesh, Serial, communicator
from support.cases.kernels import smooth


def again(thing):
    return pickle.loads(pickle.dumps(thing))


def operator(mesh, level="partial"):
    V = femops.H1(mesh, 2)
    A = femops.diffusion(V, smooth, level=level) + femops.boundary_mass(V, level=level)
    return A.constrained(V.boundary_dofs(1))


@pytest.mark.parallel(1, 3)
@pytest.mark.parametrize(
    ("level", "twin", "reproducible"),
    [
        ("full", again, True),
        ("element", copy.deepcopy, False),
        ("partial", copy.copy, True),
        ("partial", again, False),
        ("matrix-free", again, True),
    ],
)
def test_operators(comm, level, twin, reproducible):
    A = operator(femops.box((4, 4, 4), comm=comm, reproducible=reproducible), level)
    u = A.space.interpolate(smooth)
    expected = A @ u  # compiled, and with channels
    B = twin(A)
    assert B.space.comm is comm
    assert np.array_equal(B @ u, expected)
    assert np.array_equal(B.rhs(u, u), A.rhs(u, u))
    assert np.array_equal(B.diagonal(), A.diagonal())
    assert np.array_equal(A @ u, expected)


@pytest.mark.parallel(2)
def test_meshes_spaces_and_functions(comm):
    mesh = femops.distribute(femops.ball(1), comm)
    V = femops.H1(mesh, 3)
    f = femops.GridFunction(V, V.interpolate(smooth))
    same, W, g = again((mesh, V, f))
    assert isinstance(same, DistributedMesh)
    assert W.distributed is same
    assert g.space is W
    assert repr((same, W)) == repr((mesh, V))
    assert same.checksum == mesh.checksum
    assert not same.whole_boundary_attributes.flags.writeable
    assert femops.integrate(W, g.vector) == femops.integrate(V, f.vector)


@pytest.mark.parallel(2, 3)
def test_what_another_rank_has_pickled(comm):
    from mpi4py import MPI

    A = operator(femops.box((4, 4), comm=comm))
    given = MPI.COMM_WORLD.bcast(pickle.dumps(A))
    if comm.rank == 0:
        assert pickle.loads(given).shape == A.shape
    else:
        text = f"rank {comm.rank} of {comm.size} has part 0 of {comm.size}"
        with pytest.raises(femops.errors.MeshError, match=text):
            pickle.loads(given)
    assert comm.sum(1) == comm.size


@pytest.mark.parallel(2)
def test_communicators_of_one_program_alone(comm):
    from mpi4py import MPI

    half = communicator(MPI.COMM_WORLD.Split(comm.rank))
    A = operator(femops.box((4, 4), comm=half))
    with pytest.raises(femops.errors.CommunicatorError, match="can be pickled"):
        pickle.dumps(A)
    u = A.space.interpolate(smooth)
    assert np.array_equal(copy.deepcopy(A) @ u, A @ u)
    alone = operator(femops.box((4, 4), comm=MPI.COMM_SELF))
    assert again(alone).space.comm is communicator(MPI.COMM_SELF)


def test_of_one_process():
    A = operator(femops.box((4, 4), comm=Serial(), reproducible=True))
    u = A.space.interpolate(smooth)
    assert np.array_equal(again(A) @ u, A @ u)
