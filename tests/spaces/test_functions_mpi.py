"""Functions of spaces that ranks share: each has its piece of what one process has."""

import numpy as np
import pytest

import femops
from femops import H1, L2
from femops.errors import SpaceError
from support.cases.rank_meshes import SAMPLES
from support.cases.rank_operators import sines as smooth

SPACES = [
    (H1, "gll", 3, 1),
    (H1, "bernstein", 2, 2),
    (L2, "gauss", 1, 2),
    (L2, "bernstein", 2, 1),
    (L2, "hermite", 4, 1),
]


def spaces(mesh, whole):
    for kind, family, p, ncomp in SPACES:
        yield tuple(kind(m, p, ncomp=ncomp, family=family) for m in (mesh, whole))


def close(got, expected):
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-12)


def check_functions(mesh, whole):
    mine = mesh.part.elements
    for V, W in spaces(mesh, whole):
        own = slice(V.first_dof, V.first_dof + V.ndofs)
        close(V.dof_coordinates(), W.dof_coordinates()[own])
        u, w = (S.interpolate(smooth(S.ncomp)) for S in (V, W))
        close(V.components(u), W.components(w)[own])
        for got, expected in zip(V.sample(u, 4), W.sample(w, 4), strict=True):
            close(got, expected[mine])
        close(V.values(u), W.values(w)[mine])
        close(V.gradient(u), W.gradient(w)[mine])
        for S, x in ((V, u), (W, w)):
            assert S.values(x).shape == S.sample(x, S.p1d + 1)[1].shape


@pytest.mark.parallel(1, 2, 4)
@pytest.mark.parametrize("name", ["ball", "disc", "periodic", "line"])
def test_each_has_its_piece(comm, name):
    whole = SAMPLES[name]()
    mesh = femops.distribute(whole, comm)
    check_functions(mesh, whole)
    check_fields_and_predicates(comm, mesh, whole)


def check_fields_and_predicates(comm, mesh, whole):
    """Between spaces on one mesh as in one process; between meshes one process alone."""
    for make, family, p in ((H1, "gll", 4), (H1, "bernstein", 2), (L2, "gauss", 1)):
        (V, coarse), (W, serial) = ((make(m, p, 1, family), H1(m, 2)) for m in (mesh, whole))
        own = slice(V.first_dof, V.first_dof + V.ndofs)
        u, w = (S.interpolate(smooth(1)) for S in (coarse, serial))
        close(V.interpolate((coarse, u)), W.interpolate((serial, w))[own])
        if comm.size > 1:
            for S, of in ((H1(mesh, 2), (serial, w)), (H1(whole, 2), (coarse, u))):
                with pytest.raises(SpaceError, match="where ranks share a mesh"):
                    S.interpolate(of)
        if make is H1:
            dofs, all_dofs = (S.boundary_dofs(lambda x: x[0] < 0.3) for S in (V, W))
            mine = all_dofs[(all_dofs >= own.start) & (all_dofs < own.stop)]
            np.testing.assert_array_equal(dofs + own.start, mine)


@pytest.mark.parallel(1, 2, 4)
def test_dofs_of_elements_of_any_rank(comm):
    """A rank owns dofs of a part of which it has no element."""
    whole = femops.box((6, 5)).with_names({"row": lambda x: x[1] > 0.8})
    mesh = femops.distribute(whole, comm)
    for make in (H1, L2):
        V, W = make(mesh, 2), make(whole, 2)
        dofs, own = W.element_dofs("row"), slice(V.first_dof, V.first_dof + V.ndofs)
        mine = dofs[(dofs >= own.start) & (dofs < own.stop)]
        np.testing.assert_array_equal(V.element_dofs("row") + own.start, mine)


@pytest.mark.parallel(2, 4)
def test_ranks_without_elements(comm):
    mesh, whole = femops.box((1, 1), comm=comm), femops.box((1, 1))
    check_functions(mesh, whole)
    V, W = H1(mesh, 2), H1(whole, 2)
    own = slice(V.first_dof, V.first_dof + V.ndofs)

    def of_some_points(x):
        return x[0] if x.size else pytest.fail("called for no points")

    close(V.interpolate(of_some_points), W.interpolate(of_some_points)[own])
    close(femops.load(V, 3.0), femops.load(W, 3.0)[own])


@pytest.mark.parallel(1, 2, 4)
@pytest.mark.parametrize("name", ["ball", "disc", "square", "line"])
def test_boundaries_of_which_few_ranks_have_a_part(comm, name):
    whole = SAMPLES[name]()
    mesh = femops.distribute(whole, comm)
    V, W = H1(mesh, 2), H1(whole, 2)
    own = slice(V.first_dof, V.first_dof + V.ndofs)
    for attributes in (1, "outer", [1, "outer"], None):
        loads = [femops.boundary_load(S, lambda x: 1 + x[0] ** 2, attributes) for S in (V, W)]
        close(loads[0], loads[1][own])
        faces, all_faces = (
            femops.geometry.BoundaryGeometry(m, femops.basis.gauss(3), attributes)
            for m in (mesh, whole)
        )
        assert comm.sum(faces.num_elements) == all_faces.num_elements
        area = [sum(float(b.weighted_det.sum()) for b in f) for f in (faces, all_faces)]
        assert comm.sum(area[0]) == pytest.approx(area[1], rel=1e-12)
    with pytest.raises(SpaceError, match="no boundary attribute 99"):
        femops.geometry.BoundaryGeometry(mesh, femops.basis.gauss(2), 99)
    with pytest.raises(SpaceError, match="no boundary attribute was chosen"):
        femops.geometry.BoundaryGeometry(mesh, femops.basis.gauss(2), [])


@pytest.mark.parallel(2)
def test_no_boundary_at_all(comm):
    mesh = femops.box((4, 4), periodic=True, comm=comm)
    with pytest.raises(SpaceError, match="the mesh has no boundary"):
        femops.boundary_load(H1(mesh, 1), 1.0)


@pytest.mark.parallel(1, 2, 4)
def test_elements_of_a_rank(comm):
    """What is known of elements is so of the rank's own."""
    whole = SAMPLES["disc"]()
    mesh = femops.distribute(whole, comm)
    mine = mesh.part.elements
    np.testing.assert_array_equal(
        femops.geometry.classify(mesh), femops.geometry.classify(whole)[mine]
    )
    volume = sum(
        float(b.weighted_det.sum()) for b in femops.geometry.Geometry(mesh, femops.basis.gauss(4))
    )
    assert comm.sum(volume) == pytest.approx(whole.volume(), rel=1e-12)


@pytest.mark.parallel(1, 2)
def test_numbers_in_the_file(comm):
    whole = SAMPLES["disc"]()
    mesh = femops.distribute(whole, comm)
    V, Q = H1(mesh, 2), L2(mesh, 1)
    own = slice(Q.first_dof, Q.first_dof + Q.ndofs)
    np.testing.assert_array_equal(Q.file_dofs(), L2(whole, 1).file_dofs()[own])
    if comm.size == 1:
        np.testing.assert_array_equal(V.file_dofs(), H1(whole, 2).file_dofs())
    else:
        with pytest.raises(SpaceError, match="and this rank has only a part"):
            V.file_dofs()


@pytest.mark.parallel(2)
def test_products_of_what_ranks_share_and_what_they_do_not(comm):
    mesh = femops.box((4, 4), comm=comm)
    V = H1(mesh, 2)
    with pytest.raises(SpaceError, match="q is on another mesh than the first"):
        femops.Product(u=V, q=L2(V.mesh, 1))
    W = femops.Product(u=V, q=L2(mesh, 1))
    assert W.interpolate(u=1.0, q=2.0).sum() == V.ndofs + 2 * W.spaces["q"].ndofs


@pytest.mark.parallel(1, 2, 4)
@pytest.mark.parametrize("kind", SPACES)
def test_projections(comm, kind):
    make, family, p, ncomp = kind
    whole = SAMPLES["disc"]()
    found = []
    for mesh in (femops.distribute(whole, comm), whole):
        V, P = H1(mesh, 3, ncomp=ncomp), L2(mesh, 1)
        W, Q = femops.Product(u=V, p=P), make(mesh, p, ncomp=ncomp, family=family)
        w = W.interpolate(u=smooth(ncomp), p=lambda x: x[0] - x[1])
        found.append((Q, femops.project(Q, lambda u, p: (u.grad * p).sum(axis=-1) + u.value, W, w)))
    (Q, mine), (R, serial) = found
    own = slice(Q.first_dof, Q.first_dof + Q.ndofs)
    np.testing.assert_allclose(Q.components(mine), R.components(serial)[own], rtol=0, atol=1e-10)


@pytest.mark.parallel(1, 2, 4)
@pytest.mark.parametrize("name", ["ball", "disc", "line"])
def test_integrals_over_the_boundary(comm, name):
    """Those of one process; of many vectors the bits of each alone."""
    whole = SAMPLES[name]()
    mesh = femops.distribute(whole, comm)
    for V, W in spaces(mesh, whole):
        u, w = (S.interpolate(smooth(S.ncomp)) for S in (V, W))
        for part in ("all", int(whole.boundary_attributes[0])):
            found = femops.integrate(V, u, boundary=part)
            close(found, femops.integrate(W, w, boundary=part))
            many = femops.integrate(V, np.stack([u, -u], axis=1), boundary=part)
            np.testing.assert_array_equal(many, np.stack([found, -np.asarray(found)], axis=-1))
    close(femops.integrate(H1(mesh, 2), lambda x, n: n[0] + 0 * x[0], boundary="all"), 0.0)
