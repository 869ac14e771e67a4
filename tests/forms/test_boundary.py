"""Integrals over the boundary: operators, loads and users' forms, against the oracle."""

import copy
import pickle

import numpy as np
import pytest

import femops
from femops.operators.assembly import csr as assembly
from support.cases.boundary import mesh
from support.cases.kernels import random_vector
from support.cases.products import error, held
from support.oracles import boundary as boundary_oracle

TOLERANCE = {"float64": 1e-12, "float32": 1e-5}


def smooth(x):
    return 1.5 + np.sin(2 * x[0] + 1) + 0.3 * x[-1] ** 2


def full(x):
    return np.stack([[smooth(x), x[0]], [0.5 * x[-1], 2 + x[0] ** 2]])


def slip(x, n):
    """A coefficient that depends on the normal."""
    return 2 + np.einsum("i...,i...->...", x, n)


KINDS = {  # coefficient, components, what it is at a point
    "number": (2.5, 1, lambda x, n: [[2.5]]),
    "function": (smooth, 1, lambda x, n: [[smooth(x)]]),
    "normal": (slip, 1, lambda x, n: [[slip(x, n)]]),
    "vector": (smooth, 2, lambda x, n: smooth(x) * np.eye(2)),
    "diagonal": (lambda x: [smooth(x), x[0]], 2, lambda x, n: np.diag([smooth(x), x[0]])),
    "matrix": (full, 2, lambda x, n: full(x)),
    "constant matrix": ([[2.0, 1.0], [0.0, 3.0]], 2, lambda x, n: [[2.0, 1.0], [0.0, 3.0]]),
}

# mesh, order, family, coefficient, attributes, dtype, level beside "full"
CASES = [
    ("segment", 2, "gll", "matrix", None, "float64", "partial"),
    ("line", 2, "gll", "function", [2], "float64", "element"),
    ("square", 1, "gll", "diagonal", [2, 3], "float64", "element"),
    ("disc", 2, "gll", "constant matrix", None, "float32", "partial"),
    ("half-periodic", 2, "gll", "number", None, "float64", "matrix-free"),
    ("cube", 1, "bernstein", "vector", [1, 6], "float64", "partial"),
    ("ball", 2, "gll", "normal", None, "float64", "matrix-free"),
]


@pytest.mark.sample(2)
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case[:4])))
def test_mass(case):
    kind, p, family, coefficient, attributes, dtype, level = case
    alpha, ncomp, weak = KINDS[coefficient]
    V = femops.H1(mesh(kind), p, ncomp=ncomp, family=family)
    dense = boundary_oracle.matrix(V, V, attributes, weak)
    u, tolerance = random_vector(V, dtype), TOLERANCE[dtype]
    R = femops.boundary_mass(V, alpha, attributes, dtype=dtype)
    assert R.space is V
    assert R.shape == (V.size, V.size)
    volume = femops.mass(V, dtype=dtype)
    dofs = V.boundary_dofs()[::2]
    constrained, alone = (
        held(matrix, dofs) for matrix in (volume.assemble().toarray() - 2 * dense, dense)
    )
    for at in ("full", level):
        A, M = R.at_level(at), volume.at_level(at)
        assert error(dense, A @ u, u) < tolerance
        assert error(dense.T, A.T @ u, u) < tolerance
        np.testing.assert_allclose(A.diagonal().ravel(), dense.diagonal(), atol=tolerance)
        assert abs(A.assemble() - dense).max() < tolerance * abs(dense).max()
        whole = (-2 * A + M).constrained(dofs)
        assert error(constrained, whole @ u, u) < tolerance
        assert abs(whole.assemble() - constrained).max() < tolerance * abs(constrained).max()
        assert error(alone, A.constrained(dofs) @ u, u) < tolerance


def test_many_faces():
    """Two groups of faces that share an element, each of several chunks."""
    box = femops.box((6, 5, 2))
    for V in (femops.L2(box, 1), femops.L2(box, 1, family="gll"), femops.H1(box, 1)):
        dense = boundary_oracle.matrix(V, V, None, lambda x, n: [[x[0] + n[1] + 2.0]])
        A, u = femops.boundary_mass(V, lambda x, n: x[0] + n[1] + 2.0), random_vector(V, "float64")
        assert error(dense, A @ u, u) < 1e-13
        assert error(dense, A @ np.stack([u, u], 1) @ [0.5, 0.5], u) < 1e-13


@pytest.mark.parametrize(
    ("kind", "ncomp"), [("segment", 1), ("square", 2), ("disc", 1), ("cube", 1), ("ball", 2)]
)
def test_load(kind, ncomp):
    V = femops.H1(mesh(kind), 2, ncomp=ncomp)
    attributes = [1]
    geometry = femops.geometry.BoundaryGeometry(V.mesh, femops.basis.gauss(5), attributes)
    given = [
        (1.5, lambda x, n: 1.5),
        (smooth, lambda x, n: smooth(x)),
        (slip, slip),
        (lambda x, factor=2.0: factor * x[0], lambda x, n: 2 * x[0]),
        (np.concatenate([slip(*map(columns, (b.points, b.normals))) for b in geometry]), slip),
    ]
    if ncomp == 2:
        given += [
            ((1.0, -2.0), lambda x, n: (1.0, -2.0)),
            (lambda x: (smooth(x), x[0]), lambda x, n: (smooth(x), x[0])),
            (lambda x, n: (n[0], slip(x, n)), lambda x, n: (n[0], slip(x, n))),
        ]
    for g, at in given:
        expected = boundary_oracle.load(V, attributes, at, 5).reshape(V.shape)
        b = femops.boundary_load(V, g, attributes, quadrature=5)
        assert b.shape == V.shape
        np.testing.assert_allclose(b, expected, atol=1e-13 * abs(expected).max())
        assert abs(b.ravel()[V.boundary_dofs(1)]).max() == abs(b).max() > 0
    assert femops.boundary_load(V, 1.0, dtype="float32").dtype == np.float32


def columns(array):
    """(n, nq, dim) as functions take it, one face after the other: (dim, n, nq)."""
    return np.moveaxis(array, -1, 0)


# --- forms of the user's own ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["segment", "disc", "ball"])
def test_fields_as_coefficients(kind):
    """On curved faces, and where they jump between elements."""
    V = femops.H1(mesh(kind), 2)
    for W in (femops.H1(V.mesh, 3), femops.L2(V.mesh, 1), femops.L2(V.mesh, 2, family="gll")):
        vector = random_vector(W, "float64")
        values = [
            face.values @ vector[face.nodes] for face in boundary_oracle.faces(W, None, V.order + 2)
        ]
        A = femops.boundary_mass(V, femops.GridFunction(W, vector))
        B = femops.boundary_mass(V, np.array(values))
        u = random_vector(V, "float64")
        np.testing.assert_allclose(A @ u, B @ u, atol=1e-13)


def test_matrices_on_as_many_faces_as_a_face_has_points():
    """Three components, on three faces of three points: an array (3, 3) has two meanings."""
    V, sides = femops.H1(femops.box((2, 3)), 1, ncomp=3), (1, 3)
    alpha = np.array([[2.0, 0.5, 0.1], [0.3, 1.0, 0.2], [0.0, 0.7, 3.0]])
    with pytest.raises(femops.errors.OperatorError, match=r"one matrix or a number at each point"):
        femops.boundary_mass(V, alpha, 1)
    one, rows = V.interpolate((1.0, 2.0, 3.0)), V.components
    for side in sides:  # its length is 1
        A = femops.boundary_mass(V, lambda x: alpha.tolist(), side)
        np.testing.assert_allclose(rows(A @ one).sum(axis=0), alpha @ [1.0, 2.0, 3.0], rtol=1e-13)
    values = np.arange(1.0, 10.0).reshape(3, 3)
    A = femops.boundary_mass(V, values[..., np.newaxis, np.newaxis] * np.eye(3), 1)
    B = femops.boundary_mass(femops.H1(V.mesh, 1), values, 1)
    np.testing.assert_allclose(rows(A @ one), np.outer(B.assemble().sum(axis=1), [1.0, 2.0, 3.0]))


def test_multigrid_with_a_matrix_on_faces_with_as_many_points_on_a_coarser_level():
    V = femops.H1(femops.box((2, 3)), 3, ncomp=3)
    alpha = 2.0 * np.eye(3) + np.outer([1.0, 0.0, 1.0], [1.0, 0.0, 1.0])
    A = femops.diffusion(V) + femops.boundary_mass(V, alpha, 1)
    assert max(level.factor for level in femops.multigrid(A).report()) < 0.4


# --- known integrals ------------------------------------------------------------------------------


def area(mesh, attributes=None, points=8):
    geometry = femops.geometry.BoundaryGeometry(mesh, femops.basis.gauss(points), attributes)
    return sum(float(block.weighted_det.sum()) for block in geometry)


def test_areas():
    box = femops.box((3, 2, 4), upper=(2.0, 3.0, 5.0))
    V = femops.H1(box, 1)
    sides = [15.0, 15.0, 10.0, 10.0, 6.0, 6.0]  # low and high x, y, z
    for attribute, side in enumerate(sides, start=1):
        assert femops.boundary_load(V, 1.0, attribute).sum() == pytest.approx(side, rel=1e-14)
    ones = np.ones(V.size)
    assert ones @ (femops.boundary_mass(V) @ ones) == pytest.approx(62.0, rel=1e-14)
    segment = femops.box((4,), lower=-1.0, upper=2.0)
    assert area(segment) == 2.0
    assert femops.boundary_load(femops.H1(segment, 3), lambda x, n: x[0] * n[0]).sum() == 3.0
    errors = [abs(area(femops.disc(n, order=3)) - 2 * np.pi) for n in (1, 2)]
    assert errors[1] < min(errors[0] / 10, 1e-4)
    errors = [abs(area(femops.ball(n, order=2)) - 4 * np.pi) for n in (1, 2, 4)]
    assert errors[2] < errors[1] / 4 < errors[0] / 16


def test_an_entry_listed_twice_counts_once():
    """A face with two attributes is one face where both are asked for."""
    box = femops.box((2, 1))
    twice = femops.Mesh.from_arrays(
        None,
        box.elements,
        coordinates=box.coordinates,
        boundary=np.concatenate([box.boundary, box.boundary[:1]]),
        boundary_attributes=[*box.boundary_attributes, 9],
    )
    assert area(twice) == pytest.approx(area(box))
    one, nine = int(box.boundary_attributes[0]), area(twice, 9)
    assert area(twice, [one, 9]) == pytest.approx(area(box, one))
    assert 0 < nine <= area(box, one)


def test_names():
    box = femops.box((2, 3))
    V = femops.H1(box.with_names(boundary={"ends": (1, 2), "all": (3,)}), 2)
    u = random_vector(V, "float64")

    def weigh(attributes):
        return femops.boundary_mass(V, smooth, attributes) @ u

    np.testing.assert_array_equal(weigh("ends"), weigh([1, 2]))
    np.testing.assert_array_equal(weigh(["ends", 4]), weigh([4, 2, 1]))
    # a piece of the boundary that is called "all" is meant by that name
    third = femops.form(lambda u: {"value": u}, V, boundary="all")
    np.testing.assert_array_equal(third @ u, femops.boundary_mass(V, 1.0, 3) @ u)
    whole = femops.form(lambda u: {"value": u}, V, boundary=True)
    np.testing.assert_array_equal(whole @ u, femops.boundary_mass(V) @ u)


# --- as an operator among others ------------------------------------------------------------------


def test_sums_fuse_by_domain():
    V = femops.H1(mesh("disc"), 1)
    A, M, u = femops.diffusion(V), femops.mass(V), random_vector(V, "float64")
    first = femops.boundary_mass(V, 2.0, attributes=1)
    second = femops.form(lambda u, n: {"value": n[0] * u}, V, boundary=[1])
    whole = first + A + second + M
    assert len(whole.compiled.sweeps) == 2
    expected = sum(part.assemble() for part in (A, M, first, second)) @ u
    np.testing.assert_allclose(whole @ u, expected, atol=1e-13)
    assert len((first + second).compiled.sweeps) == 2  # a start and a sweep
    assert len(whole.at_level("element").compiled.sweeps) == 2
    parts, total = [(A + M).cost(), (first + second).cost()], whole.cost()
    assert total.flops == sum(part.flops for part in parts)
    assert total.stored_bytes == sum(part.stored_bytes for part in parts)
    assert total.assembly_flops == sum(part.assembly_flops for part in parts)


def test_update_and_copies():
    V = femops.H1(mesh("ball"), 2)
    u, held = random_vector(V, "float64"), V.boundary_dofs()[:7]
    A = (femops.diffusion(V) + femops.boundary_mass(V, 3.0)).constrained(held)
    B = (femops.diffusion(V) + femops.boundary_mass(V, smooth)).constrained(held)
    np.testing.assert_array_equal(A.update(alpha=smooth) @ u, B @ u)
    for again in (copy.deepcopy(B), pickle.loads(pickle.dumps(B))):
        np.testing.assert_array_equal(again @ u, B @ u)
    values, free = V.interpolate(lambda x: x[0]), np.setdiff1d(np.arange(V.size), held)
    for one in (B, femops.boundary_mass(V, smooth).constrained(held)):
        lifted = one.unconstrained.assemble()[:, held] @ values[held]
        b = one.rhs(V.zeros(), values)
        np.testing.assert_allclose(b[held], values[held])
        np.testing.assert_allclose(b[free], -lifted[free], atol=1e-13)


def test_storage_of_a_boundary_operator():
    V = femops.H1(femops.box((6, 6, 6)), 2)
    faces = 6 * 36
    R = femops.boundary_mass(V)
    matrix = R.assemble()
    assert matrix.nnz <= faces * 81
    assert np.array_equal(np.unique(matrix.nonzero()[0]), V.boundary_dofs())
    assert R.at_level("element").cost().stored_bytes < 2 * faces * 81 * 8
    # couplings on faces are among those of the elements
    whole = (femops.diffusion(V) + femops.mass(V)).assemble()
    assert ((femops.mass(V) + R).assemble() != 0).nnz <= (whole != 0).nnz


def test_a_matrix_that_does_not_fit_is_refused(monkeypatch):
    V = femops.H1(femops.box((6, 6, 6)), 2)
    A, R = femops.diffusion(V), femops.boundary_mass(V)
    alone = assembly.csr_bytes(R._summands)
    both = assembly.csr_bytes((A + R)._summands)
    assert both == alone + assembly.csr_bytes(A._summands)
    monkeypatch.setattr(assembly, "available_memory", lambda: both - 1)
    with pytest.raises(femops.errors.OperatorError, match="level='full' needs"):
        (A + R).at_level("full")
    R.at_level("full")


def test_what_pickle_restores_is_fused_with_new_integrals():
    V = femops.H1(femops.disc(), 2)
    A, x = femops.mass(V) + femops.boundary_mass(V), random_vector(V, "float64")
    expected = (A + femops.boundary_mass(V)) @ x
    for B in (pickle.loads(pickle.dumps(A)), copy.deepcopy(A)):
        total = B + femops.boundary_mass(B.space)
        assert len(total.compiled.sweeps) == 2  # elements, faces
        assert np.array_equal(total @ x, expected)
