"""MFEM's format and numbering, against its own results."""

import hashlib
import os
import stat
from math import comb
from unittest import mock

import numpy as np
import pytest

from femops_meshes import (
    Mesh,
    MeshArgumentError,
    MeshFileError,
    box,
    disc,
    mfem_h1_dofs,
    read_mesh,
    read_mfem,
    sample,
    samples,
    scrambled,
    write_mfem,
)
from femops_meshes.coordinates.mapping import equispaced, gauss_legendre, gauss_lobatto, positions
from femops_meshes.generators.sample_files import write_samples


def bend(x):
    return x + 0.04 * np.sin(3 * x[::-1] + 1)


# first 16 digits of the sha256 of GetElementDofs (int64, lexicographic) of MFEM 4.10 on the samples
FROZEN = {
    ("ball", 2): "e26335e8cce5b20a",
    ("ball", 3): "cfec0c2a249c45b2",
    ("ball", 4): "cd0103e632b443c5",
    ("disc", 2): "0be09282a5c51e0b",
    ("disc", 3): "ba782a499cad9f41",
    ("disc", 4): "14e5d37c23834e53",
    ("periodic", 2): "58680fe92535613c",
    ("periodic", 3): "a0005df943818b95",
    ("periodic", 4): "a607ce2b41b9adf6",
}


@pytest.mark.parametrize(("name", "p"), FROZEN)
def test_h1_numbers_are_those_of_mfem_itself(name, p):
    mesh = read_mfem(sample(name))
    numbers = mfem_h1_dofs(mesh, p).astype("<i8")
    assert hashlib.sha256(numbers.tobytes()).hexdigest()[:16] == FROZEN[name, p]
    order = np.random.default_rng(0).permutation(mesh.num_elements)
    np.testing.assert_array_equal(mfem_h1_dofs(mesh.reordered(order), p), numbers[order])
    np.testing.assert_array_equal(mfem_h1_dofs(mesh, 1), mesh.elements)


def test_h1_numbers_of_segments():
    """Vertices, then what is inside, along the element."""
    line = Mesh.from_arrays([[0.0], [2.0], [1.0]], [[0, 2], [2, 1]])
    assert mfem_h1_dofs(line, 3).tolist() == [[0, 3, 4, 2], [2, 5, 6, 1]]


def test_h1_degree_below_one_is_refused():
    for p in (0, 1.5, True):
        with pytest.raises(MeshArgumentError, match="p >= 1"):
            mfem_h1_dofs(box(3), p)


def same(first, second, atol=0.0):
    for name in ("elements", "element_attributes", "boundary", "boundary_attributes"):
        np.testing.assert_array_equal(getattr(first, name), getattr(second, name))
    np.testing.assert_allclose(first.coordinates, second.coordinates, rtol=0, atol=atol)


@pytest.mark.parametrize("order", [1, 2, 5])
@pytest.mark.parametrize("dim", [1, 2, 3])
@pytest.mark.parametrize("periodic", [False, True])
def test_written_is_read_back_to_the_last_bit(tmp_path, order, dim, periodic):
    mesh = scrambled(box((3, 4, 3)[:dim], periodic=periodic, mapping=bend, order=order), 3)
    mesh = mesh.with_attributes(np.arange(mesh.num_elements) % 3 + 1)
    if not periodic:  # round-off between neighbours is not kept: write what H1 keeps
        write_mfem(mesh, tmp_path / "once.mesh")
        mesh = read_mfem(tmp_path / "once.mesh")
    write_mfem(mesh, tmp_path / "a.mesh")
    again = read_mfem(tmp_path / "a.mesh")
    same(mesh, again)
    assert again.continuous != periodic
    same(mesh, read_mfem((tmp_path / "a.mesh").read_text()))


def test_elements_are_written_in_the_file_s_order(tmp_path):
    mesh = read_mfem(sample("ball"))
    turned = mesh.reordered(np.random.default_rng(1).permutation(mesh.num_elements))
    write_mfem(mesh, tmp_path / "a.mesh")
    write_mfem(turned, tmp_path / "b.mesh")
    assert (tmp_path / "a.mesh").read_bytes() == (tmp_path / "b.mesh").read_bytes()


def with_nodes(mesh, name, values, ordering, spread=1):
    """Text of a file whose nodes are `values` (ndofs, dim) in the collection `name`.

    Vertex k gets the number k * spread + spread - 1; those between are of no element.
    """
    corner = [0, 1, 3, 2, 4, 5, 7, 6][: 2**mesh.dim]
    rows = (mesh.elements * spread + spread - 1)[:, corner]
    parts = [
        f"MFEM mesh v1.0\ndimension\n{mesh.dim}\nelements\n{mesh.num_elements}",
        *(f"1 {2 * mesh.dim - 1} " + " ".join(map(str, row)) for row in rows.tolist()),
        f"boundary\n0\nvertices\n{mesh.num_vertices * spread}\nnodes\nFiniteElementSpace",
        f"FiniteElementCollection: {name}\nVDim: {mesh.dim}\nOrdering: {ordering}",
        *(" ".join(map(repr, row)) for row in (values if ordering else values.T).tolist()),
    ]
    return "\n".join(parts) + "\n"


def bernstein(p, x):
    return np.stack([comb(p, i) * x**i * (1 - x) ** (p - i) for i in range(p + 1)], axis=1)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_legacy_collections_are_equispaced_h1(dim):
    mesh = scrambled(box((3, 2, 2)[:dim], mapping=bend, order=3), 5)
    for p, name in ((1, "Linear"), (2, "Quadratic"), (3, "Cubic")):
        numbers = mfem_h1_dofs(mesh, p)
        if name == "Cubic" and dim == 3:  # the one whose cell interiors go around like corners
            inside = [i + 4 * j + 16 * k for k in (1, 2) for j in (1, 2) for i in (1, 2)]
            around = [inside[k] for k in (0, 1, 3, 2, 4, 5, 7, 6)]
            numbers = numbers.copy()
            numbers[:, around] = numbers[:, inside]
        at = positions(mesh.coordinates, equispaced(p + 1))
        values = np.empty((numbers.max() + 1, dim))
        values[numbers] = at
        got = read_mfem(with_nodes(mesh, name, values, p % 2))
        np.testing.assert_allclose(positions(got.coordinates, equispaced(p + 1)), at, atol=1e-14)
        assert got.order == p


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_discontinuous_collections_by_their_points(dim):
    mesh = box((3, 3, 3)[:dim], periodic=True, mapping=bend, order=3)
    for tag, points in (
        ("", gauss_legendre(4)[0]),
        ("_T0", gauss_legendre(4)[0]),
        ("_T1", gauss_lobatto(4)[0]),
        ("_T3", np.arange(1, 5) / 5),
        ("_T4", equispaced(4)),
        ("_T5", (np.arange(4) + 0.5) / 4),
    ):
        values = positions(mesh.coordinates, points).reshape(-1, dim)
        got = read_mfem(with_nodes(mesh, f"L2{tag}_{dim}D_P3", values, 1))
        np.testing.assert_allclose(got.coordinates, mesh.coordinates, atol=1e-13)


def test_bernstein_collections():
    mesh = scrambled(disc(2, order=3), 1)
    to_gll = bernstein(3, gauss_lobatto(4)[0])
    back = np.linalg.inv(np.kron(to_gll, to_gll))
    coefficients = np.einsum("km,nmc->nkc", back, mesh.coordinates)
    got = read_mfem(with_nodes(mesh, "L2_T2_2D_P3", coefficients.reshape(-1, 2), 1))
    np.testing.assert_allclose(got.coordinates, mesh.coordinates, atol=1e-13)
    values = np.empty((mfem_h1_dofs(mesh, 3).max() + 1, 2))
    values[mfem_h1_dofs(mesh, 3)] = coefficients
    got = read_mfem(with_nodes(mesh, "H1Pos_2D_P3", values, 0))
    np.testing.assert_allclose(got.coordinates, mesh.coordinates, atol=1e-13)


def test_vertices_of_no_element_are_dropped_before_nodes_are_numbered():
    mesh = scrambled(disc(1, order=2), 3)
    numbers = mfem_h1_dofs(mesh, 2)
    values = np.empty((numbers.max() + 1, 2))
    values[numbers] = mesh.coordinates
    text = with_nodes(mesh, "H1_2D_P2", values, 1, spread=3)
    assert f"vertices\n{3 * mesh.num_vertices}" in text
    got = read_mfem(text)
    np.testing.assert_array_equal(got.elements, mesh.elements)
    np.testing.assert_allclose(got.coordinates, mesh.coordinates, atol=1e-15)


def test_comments_blank_lines_and_line_ends_do_not_matter():
    text = sample("disc").read_text()
    dressed = text.replace("\nboundary", "\n# a word\n\n\n   # another\nboundary").replace(
        "\n", "\r\n"
    )
    same(read_mfem(dressed), read_mfem(text))
    tagged = text.replace("MFEM mesh v1.0", "MFEM mesh v1.2") + "\nmfem_mesh_end\n"
    same(read_mfem(tagged), read_mfem(text))


def test_samples_are_what_the_generator_writes(tmp_path):
    write_samples(tmp_path)
    assert samples() == sorted(path.name for path in tmp_path.iterdir())
    for name in samples():
        assert sample(name).stat().st_size <= 60_000
        same(read_mfem(sample(name)), read_mfem(tmp_path / name), atol=1e-6)
    mesh = read_mesh(sample("ball"), refine=1)
    assert mesh.order == 3
    assert mesh.volume() == pytest.approx(4 / 3 * np.pi, rel=2e-4)
    with pytest.raises(MeshArgumentError, match=r"ball\.mesh"):
        sample("cube")


def test_reading_refines_and_reorders():
    plain = read_mesh(sample("ball"), refine=1, reorder=False)
    curve = read_mesh(sample("ball"), refine=1)
    np.testing.assert_array_equal(plain.coordinates[curve.file_elements], curve.coordinates)
    steps = [
        np.linalg.norm(np.diff(m.element_centers(), axis=0), axis=1).mean() for m in (plain, curve)
    ]
    assert steps[1] < steps[0]


@pytest.mark.parametrize(
    ("function", "error"), [("fsync", OSError(28, "full")), ("replace", KeyboardInterrupt("full"))]
)
def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path, monkeypatch, function, error
):
    target = tmp_path / "a.mesh"
    target.write_text("old")
    monkeypatch.setattr(os, function, mock.Mock(side_effect=error))
    told = MeshFileError if isinstance(error, OSError) else KeyboardInterrupt
    with pytest.raises(told, match="full"):
        write_mfem(box(3), target)
    assert [path.name for path in tmp_path.iterdir()] == ["a.mesh"]
    assert target.read_text() == "old"


def test_writing_where_it_cannot_be(tmp_path):
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "missing" / "a.mesh", tmp_path / "folder"):
        with pytest.raises(MeshFileError, match="can't be written"):
            write_mfem(box(3), path)
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_written_files_have_the_usual_rights_and_links_are_not_followed(tmp_path):
    (tmp_path / "plain").write_text("")
    (tmp_path / "link").symlink_to("plain")
    write_mfem(box(3), tmp_path / "link")
    assert not (tmp_path / "link").is_symlink()
    assert (tmp_path / "plain").read_text() == ""
    rights = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("plain", "link")]
    assert rights[0] == rights[1]
