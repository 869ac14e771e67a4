"""Pictures of triangles and tetrahedra: that they show what is there, without a display."""

import numpy as np
import pytest

import femops
from femops.io.plots.sampling import Sampler, boundary_faces
from femops.io.plots.scene import make_scene
from femops_meshes.coordinates import simplices
from femops_meshes.topology.entities import SIMPLICES
from support.simplex_meshes import SIMPLEX_MESHES, renumbered

pytest.importorskip("matplotlib.image", reason="needs the extra viz")

DRAWN = {"backend": "matplotlib"}


def areas(polygons):
    """Area vectors, outward."""
    spokes = polygons[:, 1:, :3] - polygons[:, :1, :3]
    return np.cross(spokes[:, :-1], spokes[:, 1:]).sum(axis=1) / 2


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("n", [1, 2, 5])
def test_pieces_fill_a_simplex(dim, n):
    cell = SIMPLICES[dim]
    x = simplices.equispaced(cell, n)[simplices.pieces(cell, n)]
    volumes = np.linalg.det(x[:, 1:] - x[:, :1])
    np.testing.assert_allclose(volumes, n**-dim)
    assert len(x) == n**dim
    assert len(np.unique(x.mean(axis=1).round(9), axis=0)) == n**dim


@pytest.mark.parametrize("name", ["triangles", "curved triangles", "disc of triangles"])
def test_a_plane_scene_has_the_area_and_carries_the_field(name):
    mesh = SIMPLEX_MESHES[name]()
    V = femops.H1(mesh, mesh.order)
    u = V.interpolate(lambda x: x[0] - 2 * x[1])
    scene = make_scene(Sampler(mesh, femops.GridFunction(V, u)), "u", None, False, True)
    shown = np.abs(areas(scene.patches)[:, 2]).sum()
    assert shown == pytest.approx(mesh.volume(), rel=1e-3)
    for corners in (scene.patches, scene.edges):
        np.testing.assert_allclose(corners[..., 3], corners[..., :2] @ [1, -2], atol=1e-12)


def test_edges_are_those_of_the_elements():
    mesh = SIMPLEX_MESHES["triangles"]()
    edges = make_scene(Sampler(mesh), "u", None, False, True).edges
    length = np.linalg.norm(edges[:, 1] - edges[:, 0], axis=1).sum()
    ends = mesh.coordinates[:, [[0, 1], [0, 2], [1, 2]]]
    assert length == pytest.approx(np.linalg.norm(ends[:, :, 1] - ends[:, :, 0], axis=2).sum())


@pytest.mark.parametrize(("cut", "volume"), [("x", 4), ("yz", 6), ("xyz", 7), ("", 8)])
def test_a_cut_solid_is_closed_and_carries_the_field(cut, volume):
    """The volume by the divergence theorem sees each hole and each face turned wrongly."""
    mesh = renumbered(femops.box((2, 1, 3), lower=-1).simplices())
    V = femops.H1(mesh, 2)
    field = femops.GridFunction(V, V.interpolate(lambda x: x[0] - 2 * x[1] + 3 * x[2]))
    scene = make_scene(Sampler(mesh, field), "u", cut, False, True)
    p, area = scene.patches, areas(scene.patches)
    np.testing.assert_allclose(area.sum(axis=0), 0, atol=1e-12)
    assert np.einsum("pi,pi->", p[:, 0, :3], area) / 3 == pytest.approx(volume, abs=1e-4)
    for corners in (p, scene.edges):
        np.testing.assert_allclose(corners[..., 3], corners[..., :3] @ [1, -2, 3], atol=1e-12)


def test_sampled_faces_of_curved_tetrahedra_turn_outward():
    mesh = SIMPLEX_MESHES["curved tetrahedra"]()
    p = Sampler(mesh).surface(9, boundary_faces(mesh))[0]
    assert np.einsum("pi,pi->", p[:, 0], areas(p)) / 3 == pytest.approx(mesh.volume(), rel=5e-3)


@pytest.mark.parametrize("name", SIMPLEX_MESHES)
def test_all_pictures_are_drawn(tmp_path, name):
    mesh = SIMPLEX_MESHES[name]()
    V, Q = femops.H1(mesh, 2, ncomp=mesh.dim), femops.L2(mesh, 1)
    u, q = V.interpolate(lambda x: 0.1 * x[::-1]), Q.interpolate(lambda x: x[0])
    for what in ((mesh,), (Q, q), (Q, q * (1 + 1j)), (V, u)):
        assert len(femops.plot(*what, **DRAWN)._repr_png_()) > 5000
    moved = femops.plot(V, u, deform=1.0, **DRAWN)
    assert moved.save(tmp_path / "u.png").exists()
    frames = [("a", Q, q), ("b", Q, 2 * q)]
    assert femops.io.movie(tmp_path / "u.gif", frames).exists()


@pytest.mark.parametrize("name", ["curved triangles", "curved tetrahedra"])
def test_pyvista_has_the_cells_and_their_volume(name):
    pyvista = pytest.importorskip("pyvista", reason="needs the extra viz")
    mesh = SIMPLEX_MESHES[name]()
    V = femops.H1(mesh, 3)
    grid = femops.io.to_pyvista(V, V.interpolate(lambda x: x[0]))
    kinds = {2: pyvista.CellType.LAGRANGE_TRIANGLE, 3: pyvista.CellType.LAGRANGE_TETRAHEDRON}
    assert set(grid.celltypes) == {kinds[mesh.dim]}
    np.testing.assert_allclose(grid["u"], grid.points[:, 0], atol=1e-12)
    fine = grid.tessellate(max_n_subdivide=3)
    sizes = fine.compute_cell_sizes()
    size = sizes["Area" if mesh.dim == 2 else "Volume"]
    assert np.abs(size).sum() == pytest.approx(mesh.volume(), rel=2e-2)
