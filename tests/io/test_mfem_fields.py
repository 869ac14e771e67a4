"""Files of MFEM's grid functions. Where MFEM is installed, it evaluates what femops wrote."""

import numpy as np
import pytest

import femops
from femops.errors import FileError, SpaceError, VectorError

KINDS = [
    (femops.H1, "gll", "H1"),
    (femops.H1, "bernstein", "H1Pos"),
    (femops.L2, "gauss", "L2"),
    (femops.L2, "gll", "L2_T1"),
    (femops.L2, "bernstein", "L2_T2"),
]


@pytest.mark.parametrize("ncomp", [1, 2])
@pytest.mark.parametrize(("kind", "family", "collection"), KINDS)
def test_dofs_are_those_of_the_file(tmp_path, kind, family, collection, ncomp):
    V = kind(femops.read_mesh(femops.sample("disc.mesh"), refine=1), 3, ncomp=ncomp, family=family)
    u = np.random.default_rng(0).standard_normal(V.size)
    path = femops.save(tmp_path / "u.gf", V, u=u)
    assert path == tmp_path / "u.gf"
    head, values = path.read_text().split("\n\n")
    assert head.splitlines() == [
        "FiniteElementSpace",
        f"FiniteElementCollection: {collection}_2D_P3",
        f"VDim: {ncomp}",
        "Ordering: 1",
    ]
    table = np.array(values.split(), dtype=float).reshape(V.ndofs, ncomp)
    np.testing.assert_array_equal(table[V.file_dofs()].reshape(-1), u)


@pytest.mark.parametrize("sample", ["disc.mesh", "ball.mesh"])
@pytest.mark.parametrize(("kind", "family", "collection"), KINDS)
def test_mfem_reads_the_field(tmp_path, kind, family, collection, sample):
    mfem = pytest.importorskip("mfem.ser", reason="needs the extra peers")
    mesh = femops.read_mesh(femops.sample(sample), refine=1)
    V = kind(mesh, 4, ncomp=2, family=family)
    u = femops.project(V, lambda x: [x[0] * x[mesh.dim - 1] - x[0], 2 * x[0] * x[mesh.dim - 1]])
    femops.save(tmp_path / "u.mesh", mesh)
    femops.save(tmp_path / "u.gf", V, u=u)
    theirs = mfem.Mesh(str(tmp_path / "u.mesh"))
    field = mfem.GridFunction(theirs, str(tmp_path / "u.gf"))
    assert field.FESpace().FEColl().Name().startswith(f"{collection}_")
    at = np.full((1, mesh.dim), 0.11)
    probe = femops.Probe(mesh, at)
    _, elements, points = theirs.FindPoints(at)
    value = [field.GetValue(int(elements[0]), points[0], k + 1) for k in range(2)]
    assert np.allclose(value, probe(V, u)[0], atol=1e-10)


def test_what_a_file_does_not_hold(tmp_path):
    V, path = femops.H1(femops.box((2, 2)), 1), tmp_path / "u.gf"
    u = V.zeros()
    with pytest.raises(FileError, match="holds one field, 2 were given"):
        femops.save(path, V, u=u, v=u)
    with pytest.raises(FileError, match="holds one field, 0 were given"):
        femops.save(path, V)
    with pytest.raises(FileError, match=r"u needs a space: write femops\.save"):
        femops.save(path, u=u)
    H = femops.L2(V.mesh, 2, family="hermite")
    with pytest.raises(FileError, match=r"no basis 'hermite': interpolate the field to femops\.L2"):
        femops.save(tmp_path / "u.gf", H, u=H.zeros())
    with pytest.raises(FileError, match="u needs a space"):
        femops.save(path, V.mesh, u=u)
    with pytest.raises(VectorError, match="u has 2 entries"):
        femops.save(path, V, u=u[:2])
    with pytest.raises(SpaceError, match="is 3: give a"):
        femops.save(path, 3, u=u)
    assert not path.exists()
    product = femops.Product(u=V, p=femops.L2(V.mesh, 0))
    assert femops.save(path, product, p=np.ones(4)).read_text().endswith("1.0\n" * 4)
    field = femops.GridFunction(V, u)
    assert "H1_2D_P1" in femops.save(path, u=field).read_text()


@pytest.mark.parallel(2)
def test_ranks_are_refused(comm, tmp_path):
    V = femops.H1(femops.box((2, 2), comm=comm), 1)
    with pytest.raises(FileError, match=r"take \.vtu or \.pvtu"):
        femops.save(tmp_path / "u.gf", V, u=V.zeros())
