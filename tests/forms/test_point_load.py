"""Loads at points: the transpose of the evaluation at points."""

import numpy as np
import pytest

import femops
from femops.errors import CommunicatorError, OperatorError, ProbeError, SpaceError, VectorError
from support.cases.rank_meshes import SAMPLES
from support.cases.rank_operators import sines

SPACES = [
    (femops.H1, "gll", 3, 1),
    (femops.H1, "bernstein", 2, 2),
    (femops.L2, "gauss", 2, 3),
    (femops.L2, "gauss", 0, 1),
]
INSIDE = {
    "line": [[0.1], [0.5], [0.1]],
    "disc": [[0.1, 0.2], [-0.3, 0.5], [0.1, 0.2], [0.0, 0.0]],
    "ball": [[0.1, 0.2, -0.1], [0.4, -0.3, 0.5]],
}


@pytest.mark.parallel(1, 2, 4)
def test_the_transpose_of_evaluation(comm):
    for name, inside in INSIDE.items():
        mesh, points = femops.distribute(SAMPLES[name](), comm), np.array(inside)
        for kind, family, p, ncomp in SPACES:
            check_transpose(kind(mesh, p, ncomp=ncomp, family=family), points)


def check_transpose(V, points):
    comm, mesh = V.distributed.comm, V.distributed
    shape = (len(points),) if V.ncomp == 1 else (len(points), V.ncomp)
    sources = np.random.default_rng(V.order).standard_normal(shape)
    b, probe = femops.point_load(V, points, sources), femops.Probe(mesh, points)
    assert b.shape == (V.size,)
    assert b.dtype == np.float64
    u = V.interpolate(sines(V.ncomp))
    assert np.isclose(comm.sum(b @ u), (sources * probe(V, u)).sum(), rtol=1e-13)
    np.testing.assert_array_equal(probe.load(V, sources), b)
    assert np.isclose(comm.sum(femops.point_load(V, points).sum()), sources.size)


def test_types_and_shapes():
    V = femops.H1(femops.box((2, 2)), 2, ncomp=2)
    b = femops.point_load(V, [0.3, 0.4], (1.0, -2.0), dtype=np.float32)
    assert b.dtype == np.float32
    assert np.allclose(V.components(b).sum(axis=0), (1.0, -2.0))
    two = femops.point_load(V, [[0.3, 0.4], [0.5, 0.5]], (1.0, -2.0))
    assert np.allclose(V.components(two).sum(axis=0), (2.0, -4.0))
    probe = femops.Probe(V.mesh, [[0.3, 0.4], [3.0, 0.4]], outside="nan")
    np.testing.assert_allclose(probe.load(V, (1.0, -2.0)), b, atol=1e-6)  # outside: nothing


def test_refused_arguments():
    V, W = (femops.H1(femops.box((2, 2)), 1, ncomp=n) for n in (1, 2))
    at, other = [0.3, 0.4], femops.Probe(femops.box((3, 3)), [0.3, 0.4])
    shapes = r"values have shape \(3,\) .* numbers of shape \(1, 2\)"
    for ask, kind, text in (
        (lambda: femops.point_load(W, at, [1.0, 2.0, 3.0]), OperatorError, shapes),
        (lambda: femops.point_load(W, at, np.nan), OperatorError, "finite numbers"),
        (lambda: femops.point_load(W, at, "1"), OperatorError, "give real numbers"),
        (lambda: femops.point_load(W, at, 1j), OperatorError, "give real numbers"),
        (lambda: femops.point_load(V, [3.0, 0.4]), ProbeError, "outside the mesh"),
        (lambda: femops.point_load(V, [0.3]), ProbeError, "shape"),
        (lambda: femops.point_load(V.mesh, at), OperatorError, "V is a Mesh: give a space"),
        (lambda: femops.point_load(V, at, dtype=int), VectorError, "float64 or float32"),
        (lambda: other.load(V), SpaceError, "another mesh"),
    ):
        with pytest.raises(kind, match=text):
            ask()


@pytest.mark.parallel(2)
def test_ranks_that_disagree(comm):
    V = femops.H1(femops.box((4, 4), comm=comm), 1)
    with pytest.raises(CommunicatorError, match="disagree about a load at points: the values"):
        femops.point_load(V, [0.3, 0.4], float(comm.rank))
