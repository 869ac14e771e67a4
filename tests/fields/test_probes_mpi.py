"""Functions at points in space over MPI: every rank has what one process has."""

from dataclasses import replace

import numpy as np
import pytest

import femops
from femops import H1, L2, Probe
from femops.errors import (
    CommunicatorError,
    GeometryError,
    ProbeError,
    RankError,
    SpaceError,
    VectorError,
)
from femops_meshes.coordinates.mapping import positions
from support.cases.rank_meshes import SAMPLES
from support.cases.rank_operators import sines as waves

SPACES = [
    (H1, "gll", 3, 1),
    (H1, "bernstein", 2, 2),
    (L2, "gauss", 2, 3),
    (L2, "gauss", 0, 1),
]


def points_of(mesh, rng):
    """Inside elements, on what they share with others, and outside."""
    grid = positions(mesh.coordinates, np.array([0.0, 0.3, 0.5, 1.0])).reshape(-1, mesh.dim)
    lower, upper = mesh.bounding_box()
    anywhere = rng.uniform(lower - 0.1, upper + 0.1, (50, mesh.dim))
    return np.concatenate([grid[rng.permutation(len(grid))[:400]], anywhere])


def same_on_all_ranks(comm, array):
    everywhere = comm.gather_all(array).view(np.uint8)
    np.testing.assert_array_equal(everywhere, everywhere[:1].repeat(comm.size, axis=0))


def check_probe(comm, whole, mesh, points):
    """Of the whole, and of its parts, are the same elements, places, values and gradients."""
    expected, got = Probe(whole, points, "nan"), Probe(mesh, points, "nan")
    assert 0 < got.found.sum() < len(points)
    np.testing.assert_array_equal(got.elements, expected.elements)
    np.testing.assert_allclose(got.reference, expected.reference, rtol=0, atol=1e-12)
    same_on_all_ranks(comm, got.reference)
    assert f"{len(points)} points in {whole.num_elements} elements" in repr(got)
    for kind, family, p, ncomp in SPACES:
        V, W = (kind(m, p, ncomp=ncomp, family=family) for m in (mesh, whole))
        u = np.random.default_rng(p).standard_normal(W.shape)
        if isinstance(V, L2):  # values jump, so it shows which element is taken
            own = u.reshape(whole.num_elements, -1)[mesh.part.elements].reshape(V.shape)
        else:
            u, own = (S.interpolate(waves(ncomp)) for S in (W, V))
        for evaluate in ("__call__", "gradient"):
            values = getattr(got, evaluate)(V, own)
            same_on_all_ranks(comm, values)
            exact = getattr(expected, evaluate)(W, u)
            np.testing.assert_allclose(values, exact, rtol=1e-11, atol=1e-11)


@pytest.mark.parallel(1, 2, 4)
@pytest.mark.parametrize("name", ["ball", "disc", "disc by metis", "periodic", "line", "one"])
def test_all_ranks_have_what_one_has(comm, name):
    sample, _, method = name.partition(" by ")
    if method:
        pytest.importorskip("pymetis")
    whole = (SAMPLES | {"one": lambda: femops.box((1, 1))})[sample]()
    points = points_of(whole, np.random.default_rng(3))
    check_probe(comm, whole, femops.distribute(whole, comm, method=method or "curve"), points)


@pytest.mark.parallel(1, 2, 4)
def test_points_outside(comm):
    mesh = femops.box((4, 3), upper=(2.0, 1.0), comm=comm)
    message = (
        r"1 of 2 points are outside the mesh, the first is number 1, \(2, 1\.5\): the mesh's nodes "
        r"lie from \(0, 0\) to \(2, 1\)"
    )
    with pytest.raises(ProbeError, match=message):
        Probe(mesh, [[0.5, 0.5], [2.0, 1.5]])
    V = H1(mesh, 1)
    probe = Probe(mesh, [[0.5, 0.5], [2.0, 1.5]], outside="nan")
    np.testing.assert_array_equal(probe(V, V.zeros() + 1), [1.0, np.nan])
    assert np.isnan(probe.gradient(V, V.zeros())[1]).all()


@pytest.mark.parallel(1, 2, 4)
def test_numbers_keep_their_bits(comm):
    mesh = femops.box(8, comm=comm)
    numbers = np.array([np.pi, np.inf, -np.inf, np.nan, 1e-320, 1e300, 0.0, -1 / 3])
    probe = Probe(mesh, (np.arange(8)[:, None] + 0.5) / 8)
    values = probe(L2(mesh, 0), numbers[mesh.part.elements])
    np.testing.assert_array_equal(values, numbers)


@pytest.mark.parallel(2, 4)
def test_errors_on_all_ranks(comm):
    mesh, last = femops.box((4, 4), comm=comm), comm.rank == comm.size - 1
    V = H1(mesh, 2)
    probe = Probe(mesh, [[0.1, 0.9], [0.9, 0.1]])
    with pytest.raises(CommunicatorError, match="disagree about a probe: checksum of the points"):
        Probe(mesh, [[0.1, 0.9 if last else 0.8]])
    with pytest.raises(ProbeError if last else RankError, match="1 of 1 points are not finite"):
        Probe(mesh, [[0.1, np.nan if last else 0.8]])
    with pytest.raises(VectorError if last else RankError, match="has 1 entries"):
        probe(V, np.zeros(1) if last else V.zeros())
    with pytest.raises(SpaceError, match="another mesh than the probe"):
        probe(H1(femops.box((4, 4), comm=comm), 1), V.zeros())
    local = Probe(V.mesh, [[0.1, 0.9]], outside="nan")
    with pytest.raises(SpaceError, match=r"make a femops\.Probe\(V\.distributed, points\)"):
        local(V, V.zeros())


@pytest.mark.parallel(2, 4)
def test_an_element_without_gradient(comm):
    whole = femops.box((2, 2))
    coordinates = whole.coordinates.copy()
    coordinates[3] = coordinates[3][[1, 0, 3, 2]]  # turned inside out, past the checks
    mesh = femops.distribute(replace(whole, coordinates=coordinates), comm)
    V, last = L2(mesh, 1), comm.rank == comm.size - 1
    probe = Probe(mesh, whole.element_centers())
    np.testing.assert_allclose(probe(V, V.zeros() + 2), [2.0] * 4)
    message = r"det J is -0\.25 in element 3 at point 3, .*: there is no gradient"
    with pytest.raises(GeometryError if last else RankError, match=message):
        probe.gradient(V, V.zeros())
