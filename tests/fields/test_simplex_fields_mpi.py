"""Probes, checkpoints and pictures of triangles and tetrahedra that ranks share."""

import numpy as np
import pytest

import femops
from femops.parallel import Serial
from support.simplex_meshes import SIMPLEX_MESHES

NAMES = ["curved triangles", "tetrahedra"]


def f(x):
    return x[0] ** 2 - x[0] * x[-1]


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("name", NAMES)
def test_probes(comm, name):
    mesh = SIMPLEX_MESHES[name]()
    x = mesh.element_centers()[::2]
    whole = femops.distribute(mesh, Serial())
    V, W = femops.H1(whole, 2), femops.H1(femops.distribute(mesh, comm), 2)
    one, many = femops.Probe(whole, x), femops.Probe(W.distributed, x)
    np.testing.assert_array_equal(one.elements, many.elements)
    np.testing.assert_allclose(one.reference, many.reference, atol=1e-13)
    u, w = V.interpolate(f), W.interpolate(f)
    np.testing.assert_allclose(one(V, u), many(W, w), atol=1e-13)
    np.testing.assert_allclose(one.gradient(V, u), many.gradient(W, w), atol=1e-11)


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", [femops.H1, femops.L2])
def test_checkpoints_of_any_number_of_ranks(comm, tmp_path, name, kind):
    folder = comm.broadcast(tmp_path if comm.rank == 0 else None)
    mesh = SIMPLEX_MESHES[name]()
    W = kind(femops.distribute(mesh, comm), 3)
    w = W.interpolate(lambda x: np.sin(3 * x[0] + 2 * x[-1]))
    path = femops.io.save_state(folder / "run.state", {"w": (W, w)}, keep_mesh=True)
    np.testing.assert_array_equal(femops.io.load_state(path, {"w": W}).vectors["w"], w)
    V = kind(femops.distribute(mesh, Serial()), 3)
    v = femops.io.load_state(path, {"w": V}).vectors["w"]
    np.testing.assert_allclose(v, V.interpolate(lambda x: np.sin(3 * x[0] + 2 * x[-1])), atol=1e-13)
    again = femops.read_mesh(path)
    np.testing.assert_array_equal(again.elements, mesh.elements)
    back = femops.io.load_state(path, {"w": kind(femops.distribute(again, comm), 3)}).vectors["w"]
    np.testing.assert_array_equal(back, w)


@pytest.mark.parallel(2)
@pytest.mark.parametrize("name", NAMES)
def test_pictures(comm, tmp_path, name):
    pytest.importorskip("matplotlib", reason="needs the extra viz")
    folder = comm.broadcast(tmp_path if comm.rank == 0 else None)
    mesh = SIMPLEX_MESHES[name]()
    W = femops.H1(femops.distribute(mesh, comm), 2)
    path = femops.io.picture(folder / "u.png", W, W.interpolate(f))
    comm.sum(0)  # rank 0 has written it
    assert path.stat().st_size > 5000
