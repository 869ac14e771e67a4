"""Pictures: that they show what is there, without a display."""

import subprocess
import sys

import numpy as np
import pytest

import femops
from femops.errors import FileError, MissingExtraError, SpaceError, VectorError
from femops.io.plots.picture import VIEW
from femops.io.plots.surface import exposed_faces, kept_elements, sample_surface, view_axes
from femops_meshes.coordinates.mapping import positions

image = pytest.importorskip("matplotlib.image", reason="needs the extra femops[viz]")

VIRIDIS_ENDS = np.array([[68, 1, 84], [253, 231, 37]]) / 255


def pixels(path):
    return image.imread(path)[:, :, :3].reshape(-1, 3)


def has_color(path, color):
    return (np.abs(pixels(path) - color).max(axis=1) < 0.06).any()


@pytest.mark.parametrize("kind", [femops.H1, femops.L2])
def test_a_plane_field_shows_both_ends_of_its_colours(tmp_path, kind):
    V = kind(femops.box((3, 2)), 2)
    path = femops.picture(tmp_path / "u.png", V, V.interpolate(lambda x: x[0]), title="u")
    assert all(has_color(path, end) for end in VIRIDIS_ENDS)
    femops.picture(path, V.mesh)
    assert not has_color(path, VIRIDIS_ENDS[1])


def test_a_curve(tmp_path):
    V = femops.H1(femops.box((4,)), 3)
    path = femops.picture(tmp_path / "u.png", V, V.interpolate(lambda x: np.sin(9 * x[0])))
    assert has_color(path, [0x1F / 255, 0x77 / 255, 0xB4 / 255])


def test_a_cut_ball_shows_its_middle(tmp_path):
    V = femops.H1(femops.box((4, 4, 4), lower=-1), 2)
    u = V.interpolate(lambda x: np.exp(-((x**2).sum(0))))
    femops.picture(tmp_path / "whole.png", V, u)
    femops.picture(tmp_path / "cut.png", V, u, cut=True)
    assert middle(tmp_path / "whole.png")[0] < 0.35
    assert middle(tmp_path / "cut.png")[0] > 0.6


def middle(path):
    """Mean colour next to the middle of what is drawn, the bar of colours left aside."""
    shown = image.imread(path)[:, :, :3]
    shown = shown[:, : int(0.8 * shown.shape[1])]
    rows, columns = np.nonzero((shown < 0.99).any(axis=2))
    r, c = (rows.min() + rows.max()) // 2, (columns.min() + columns.max()) // 2
    return shown[r - 30 : r + 30 : 4, c - 30 : c + 30 : 4].mean(axis=(0, 1))


def test_vector_fields_are_drawn_by_their_length(tmp_path):
    mesh = femops.box((2, 2))
    scalar, vector = femops.H1(mesh, 2), femops.H1(mesh, 2, ncomp=2)
    femops.picture(tmp_path / "a.png", scalar, scalar.interpolate(lambda x: 5 * x[0] + 5))
    femops.picture(
        tmp_path / "b.png", vector, vector.interpolate(lambda x: (3 * x[0] + 3, -4 * x[0] - 4))
    )
    np.testing.assert_allclose(pixels(tmp_path / "a.png"), pixels(tmp_path / "b.png"), atol=0.02)


def test_sampled_faces_turn_outward_and_carry_the_field():
    mesh = femops.box((3, 2, 2), mapping=lambda x: x + 0.1 * np.sin(2 * x[[1, 2, 0]]), order=2)
    keep = kept_elements(mesh, VIEW, cut=True)
    assert 0 < keep.sum() < mesh.num_elements
    faces = exposed_faces(mesh, keep)
    assert keep[faces[:, 0]].all()
    V = femops.H1(mesh, 3)
    surface = sample_surface(mesh, faces, 5, V, V.interpolate(lambda x: x[0] + 2 * x[2]))
    p = surface.points
    np.testing.assert_allclose(surface.values, p[..., 0] + 2 * p[..., 2], atol=2e-3)
    centers = positions(mesh.coordinates, np.array([0.5]))[faces[:, 0], 0]
    first, second = p[:, 3, 2] - p[:, 1, 2], p[:, 2, 3] - p[:, 2, 1]
    outward = p[:, 2, 2] - centers
    assert (np.einsum("fi,fi->f", np.cross(first, second), outward) > 0).all()


def test_all_faces_of_a_whole_mesh_are_its_boundary():
    mesh = femops.box((3, 2, 2))
    faces = exposed_faces(mesh, kept_elements(mesh, VIEW, cut=False))
    assert len(faces) == mesh.num_boundary == 2 * (6 + 6 + 4)


def test_the_view_is_orthonormal():
    axes = view_axes(VIEW)
    np.testing.assert_allclose(axes @ axes.T, np.eye(3), atol=1e-15)
    assert axes[1, 2] > 0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda V, p: femops.picture(p / "u.jpg", V), FileError, "name it 'u.png'"),
        (lambda V, p: femops.picture(p / "u.png", V.mesh, V.zeros()), SpaceError, "with a mesh"),
        (lambda V, p: femops.picture(p / "u.png", 3), SpaceError, "was given a int"),
        (lambda V, p: femops.picture(p / "u.png", V, np.zeros(2)), VectorError, "u has 2 entries"),
    ],
)
def test_errors_say_what_to_do(tmp_path, call, error, message):
    with pytest.raises(error, match=message):
        call(femops.H1(femops.box((2, 2)), 1), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_matplotlib_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingExtraError, match=r"pip install matplotlib  \(or 'femops\[viz\]'\)"):
        femops.picture(tmp_path / "u.png", femops.box((2, 2)))


def test_matplotlib_is_loaded_only_to_draw():
    code = "import sys, femops; femops.save, femops.picture; print('matplotlib' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert out.stdout.strip() == "False"
