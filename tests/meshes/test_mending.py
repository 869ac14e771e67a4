"""Elements listed in mirrored order: readers turn them over; tangled ones stay errors."""

import hashlib
from itertools import product

import numpy as np
import pytest

import femops
from femops_meshes import (
    Mesh,
    MeshGeometryError,
    ball,
    box,
    disc,
    mfem_h1_dofs,
    read_mfem,
    sample,
    scrambled,
    write_mfem,
)
from support.gmsh_files import document, need_gmsh, of_mesh


def mirrored(mesh, which, direction=None):
    """The mesh with some elements in mirrored order: a direction reversed, or two swapped."""

    def turned(values, n):
        grid = values[which].reshape(-1, *[n] * mesh.dim, *values.shape[2:])
        if direction is None:
            grid = grid.swapaxes(mesh.dim - 1, mesh.dim)
        else:
            grid = np.flip(grid, axis=mesh.dim - direction)
        result = values.copy()
        result[which] = grid.reshape(-1, *values.shape[1:])
        return result

    return Mesh.assemble(
        turned(mesh.elements, 2),
        turned(mesh.coordinates, mesh.order + 1),
        mesh.num_vertices,
        mesh.element_attributes,
        mesh.boundary,
        mesh.boundary_attributes,
    )


MESHES = {
    "segments": lambda: box(7, mapping=lambda x: x + 0.1 * x**2, order=2),
    "squares": lambda: scrambled(box((3, 4)), 3),
    "disc": lambda: scrambled(disc(2, order=3), 1),
    "torus": lambda: scrambled(box((4, 3), periodic=True, order=2), 2),
    "ring of cubes": lambda: scrambled(box((3, 2, 2), periodic=(True, False, False)), 2),
    "cubes": lambda: scrambled(box((3, 2, 2)), 4),
    "ball": lambda: scrambled(ball(1, order=3), 2),
}


@pytest.mark.parametrize("name", MESHES)
def test_mirrored_elements_of_a_file_are_turned_over(tmp_path, name):
    mesh = MESHES[name]()
    mesh = mesh.with_attributes(
        1 + np.arange(mesh.num_elements) % 3, 1 + np.arange(mesh.num_boundary) % 2
    )
    directions = [0] if mesh.dim == 1 else [None, *range(mesh.dim)]
    # all of the elements are mirrored, or every third
    for direction, every in [*product(directions, [3]), (directions[-1], 1)]:
        bad = mirrored(mesh, slice(0, None, every), direction)
        with pytest.raises(MeshGeometryError, match="inverted"):
            bad.validate()
        write_mfem(bad, tmp_path / "a.mesh")
        got = read_mfem(tmp_path / "a.mesh")
        got.validate()
        assert got.volume() == pytest.approx(mesh.volume(), rel=1e-13)
        assert got.continuous == mesh.continuous
        assert got.topology.num_entities == mesh.topology.num_entities
        for name in ("element_attributes", "boundary", "boundary_attributes"):
            assert np.array_equal(getattr(got, name), getattr(mesh, name)), name
        others = np.arange(mesh.num_elements) % every > 0
        assert np.array_equal(got.elements[others], mesh.elements[others])
        if direction is None or mesh.dim == 1:
            assert np.array_equal(got.elements, mesh.elements)
            np.testing.assert_allclose(got.coordinates, mesh.coordinates, atol=1e-14)


# first 16 digits of the sha256 of GetElementDofs (int64, lexicographic) of MFEM 4.10, which mends
# the quadrilaterals of the sample disc of which every third is mirrored
FROZEN = {
    (None, 2): "0be09282a5c51e0b",
    (None, 3): "ba782a499cad9f41",
    (0, 2): "ac4fd4f893ab61cb",
    (0, 3): "6c04858b0e45df40",
}


@pytest.mark.parametrize(("direction", "p"), FROZEN)
def test_dofs_of_mended_quadrilaterals_are_those_of_mfem_itself(tmp_path, direction, p):
    write_mfem(mirrored(read_mfem(sample("disc")), slice(0, None, 3), direction), tmp_path / "a")
    numbers = mfem_h1_dofs(read_mfem(tmp_path / "a"), p).astype("<i8")
    assert hashlib.sha256(numbers.tobytes()).hexdigest()[:16] == FROZEN[direction, p]


def test_tangled_elements_stay_errors(tmp_path):
    """Inverted in a part only: also those that are mirrored and tangled."""
    base = box((2, 2), order=3)
    wave = base.coordinates.copy()
    wave[0, 5] += [0.6, 0.6]
    tangled = Mesh.assemble(base.elements, wave, base.num_vertices)
    plain = box((2, 2))
    twisted = plain.elements.copy()
    twisted[1] = twisted[1][[0, 1, 3, 2]]
    crossed = Mesh.assemble(twisted, plain.coordinates[:, [0, 1, 3, 2]], plain.num_vertices)
    for mesh in (tangled, mirrored(tangled, slice(None)), crossed):
        write_mfem(mesh, tmp_path / "a.mesh")
        with pytest.raises(MeshGeometryError, match="inverted"):
            read_mfem(tmp_path / "a.mesh")


def test_arrays_of_a_program_are_not_turned():
    with pytest.raises(MeshGeometryError, match="turn the order of their corners"):
        Mesh.from_arrays([[0, 0], [1, 0], [0, 1], [1, 1]], [[0, 2, 1, 3]])
    with pytest.raises(MeshGeometryError, match=r"corners that go around .* corner_order='vtk'$"):
        Mesh.from_arrays([[0, 0], [1, 0], [1, 1], [0, 1]], [[0, 1, 2, 3]])


@pytest.mark.parametrize("name", ["segments", "disc", "ball"])
def test_mirrored_elements_of_gmsh(tmp_path, name):
    need_gmsh()
    mesh = MESHES[name]()
    (tmp_path / "a.msh").write_text(of_mesh(mirrored(mesh, slice(0, None, 2), 0), mesh.order))
    got = femops.read_mesh(tmp_path / "a.msh", reorder=False)
    assert got.volume() == pytest.approx(mesh.volume(), rel=1e-9)
    assert got.continuous
    np.testing.assert_allclose(got.element_centers(), mesh.element_centers(), atol=1e-8)


def test_tangled_elements_of_gmsh_stay_errors(tmp_path):
    need_gmsh()
    square = [(0, 0, 0), (1, 0, 0), (1, 1, 0), (0, 1, 0)]
    (tmp_path / "a.msh").write_text(document(square, [(3, 1, 1, 1, 3, 2, 4)]))
    with pytest.raises(MeshGeometryError, match="inverted"):
        femops.read_mesh(tmp_path / "a.msh")
