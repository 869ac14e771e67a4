"""Vectors in the numbering of the mesh's file."""

import numpy as np
import pytest

import femops
from femops import H1, L2
from femops_meshes import sample, write_mfem
from support.cases.meshes import MESHES
from support.mesh_files import FILES


def raw_nodes(path):
    """(collection name, values of shape (nodes, dim)) of the nodes of an MFEM mesh file."""
    lines = [line.strip() for line in path.read_text().splitlines()]
    begin = lines.index("nodes")
    header = dict(line.split(":", 1) for line in lines[begin + 2 : begin + 5])
    name, vdim, ordering = (header[key].strip() for key in header)
    values = np.array(" ".join(lines[begin + 5 :]).split(), dtype=float)
    columns = int(vdim)
    by_nodes = int(ordering) == 0
    return name, values.reshape(columns, -1).T if by_nodes else values.reshape(-1, columns)


PATHS = [sample(name) for name in ("ball", "disc", "periodic")]
PATHS += [path for path in FILES if "\nnodes" in path.read_text()]


def check_file_dofs(mesh, path):
    """Coordinates in the order of the file are the file's nodes."""
    name, nodes = raw_nodes(path)
    continuous = not name.startswith("L2")
    family = "gll" if continuous or "_T1_" in name else "gauss"
    space = (H1 if continuous else L2)(mesh, mesh.order, ncomp=mesh.dim, family=family)
    u = space.interpolate(lambda x: x)
    x = space.components(u)
    if name == "Cubic":
        # The nodes of this old collection are equispaced.
        x[space.restriction.indices] = space.sample(u, 4)[1]
    in_file = np.empty_like(nodes)
    in_file[space.file_dofs()] = x.reshape(nodes.shape)
    if name == "Cubic" and mesh.dim == 3:
        # Inside a hexahedron it goes around, not in rows: compare with that undone.
        inside = nodes[-8 * mesh.num_elements :].reshape(-1, 8, 3)
        inside[:] = inside[:, [0, 1, 3, 2, 4, 5, 7, 6]]
    np.testing.assert_allclose(in_file, nodes, atol=1e-12 * np.abs(nodes).max())


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.name)
def test_coordinates_in_file_order_are_the_files_nodes(path):
    for reorder in (True, False):
        check_file_dofs(femops.read_mesh(path, reorder=reorder), path)


@pytest.mark.parametrize("name", ["ball", "disc", "periodic"])
def test_of_a_refined_mesh_the_file_is_that_which_is_written_of_it(tmp_path, name):
    """Not the coarse file, whose vectors are shorter, nor the mesh that MFEM would refine."""
    mesh = femops.read_mesh(sample(name), refine=1)
    write_mfem(mesh, tmp_path / "fine.mesh")
    check_file_dofs(mesh, tmp_path / "fine.mesh")


@pytest.mark.parametrize("name", MESHES)
def test_file_dofs_are_a_permutation(name):
    mesh = MESHES[name]()
    for space in (H1(mesh, 3), H1(mesh, 1), L2(mesh, 2)):
        np.testing.assert_array_equal(np.sort(space.file_dofs()), np.arange(space.ndofs))


def test_l2_follows_the_files_elements():
    mesh = femops.box((3, 3)).reordered(np.arange(9)[::-1])
    space = L2(mesh, 1)
    rows = space.file_dofs().reshape(9, 4)
    np.testing.assert_array_equal(rows, 4 * mesh.file_elements[:, None] + np.arange(4))
