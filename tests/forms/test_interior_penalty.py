"""Interior penalty and upwind convection: exact solutions, rates, positive matrices, bad input."""

import numpy as np
import pytest

import femops
from femops.errors import FemopsError, OperatorError

BENT = femops.box((3, 2)).mapped(lambda x: np.stack([x[0] + 0.1 * x[1] ** 2, x[1] + 0.1 * x[0]]))
MESHES = [femops.box((5,)), BENT, femops.box((2, 3, 2))]


@pytest.mark.parametrize("kind", ["number", "diagonal", "general", "tensor", "field"])
def test_linear_solutions_are_exact(kind):
    """Linear functions solve diffusion without sources: the operator and the load agree."""
    mesh = {"number": MESHES[0], "tensor": MESHES[2]}.get(kind, BENT)
    V, K = femops.L2(mesh, order=2), femops.L2(mesh, order=0)
    one = np.eye(mesh.dim)[0]
    kappa = {
        "number": 2.0,
        "diagonal": 1.0 + one,
        "general": np.diag(1.0 + one) + 0.3 * np.eye(mesh.dim, k=1),  # not symmetric
        "tensor": np.diag(1.0 + one),
        "field": femops.GridFunction(K, 3.0 + 0.0 * K.zeros()),
    }[kind]
    exact = lambda x: 1.0 + 2.0 * x[0] - x[-1]  # noqa: E731
    b = femops.dirichlet_load(V, exact, kappa=kappa)
    found = femops.interior_penalty(V, kappa) @ V.interpolate(exact)
    np.testing.assert_allclose(found, b, rtol=0, atol=1e-12 * abs(b).max())


def test_the_solution_of_two_materials():
    mesh = femops.box((4, 2))
    V, K = femops.L2(mesh, order=2), femops.L2(mesh, order=0)
    kappa = femops.GridFunction(K, K.interpolate(lambda x: np.where(x[0] < 0.5, 1.0, 9.0)))
    exact = lambda x: np.where(x[0] < 0.5, 1.8 * x[0], 0.8 + 0.2 * x[0])  # noqa: E731
    attributes = [k for k in range(1, 5) if np.ptp(_sides(mesh, k)) < 1e-12]
    A = femops.interior_penalty(V, kappa, boundary=attributes)
    b = femops.dirichlet_load(V, exact, kappa=kappa, boundary=attributes)
    np.testing.assert_allclose(A @ V.interpolate(exact), b, rtol=0, atol=1e-12 * abs(b).max())


def _sides(mesh, attribute):
    """x of the points of a side of a box."""
    H = femops.H1(mesh, order=1)
    return H.dof_coordinates()[H.boundary_dofs([attribute]), 0]


def test_functions_that_jump_at_faces_are_refused():
    """They have one value on a face. Solutions would be wrong beside it."""

    def jumps(x):
        return np.where(x[0] < 0.5, 1.0, 2.0)

    mesh = femops.box((4, 3))
    V, W = femops.L2(mesh, 2), femops.L2(mesh, 2, ncomp=2)
    for make in (
        lambda: femops.interior_penalty(V, jumps),
        lambda: femops.interior_penalty(V, lambda x: np.multiply.outer(np.eye(2), jumps(x))),
        lambda: femops.interior_penalty(V, lambda x: 1 + x[0]).update(kappa=jumps),
        lambda: femops.elastic_interior_penalty(W, jumps, 1.0),
        lambda: femops.elastic_interior_penalty(W, 1.0, jumps),
    ):
        with pytest.raises(OperatorError, match=r"jumps at 3 face.* first at \(0.5, 0.*GridFunc"):
            make()
    K = femops.L2(mesh, 0)
    A = femops.interior_penalty(V, femops.GridFunction(K, K.interpolate(jumps)))
    assert A.assemble().nnz > 0
    femops.interior_penalty(V, lambda x: np.exp(40 * x[0]))  # steep, and no jump
    ring = femops.L2(femops.box((4,), periodic=True), 2)
    femops.interior_penalty(ring, lambda x: 1 + x[0])  # glued faces have the minus side's value


def test_the_load_has_the_rule_of_the_operator():
    """Operator and load agree with few points, too, where the conductivity varies."""
    V, kappa = femops.L2(BENT, order=2), lambda x: np.exp(4.0 * x[0] * x[1])
    A = femops.interior_penalty(V, kappa, quadrature=3)
    free = femops.interior_penalty(V, kappa, quadrature=3, boundary=None)
    slopes = femops.form(
        lambda u, n, k: {"value": k * u.grad @ n}, V, boundary="all", quadrature=3, k=kappa
    )
    u = V.interpolate(lambda x: x[0] - 3.0 * x[1])
    field = femops.GridFunction(V, u)
    load = femops.dirichlet_load(V, field, kappa, quadrature=3)
    tolerance = 1e-12 * abs(load).max()
    np.testing.assert_allclose(A @ u - free @ u + slopes @ u, load, rtol=0, atol=tolerance)
    assert abs(load - femops.dirichlet_load(V, field, kappa)).max() > 1e6 * tolerance


def test_elasticity_is_exact_and_positive():
    V = femops.L2(BENT, order=2, ncomp=2)
    A = femops.elastic_interior_penalty(V, 2.0, 0.7)
    matrix = A.assemble().toarray()
    np.testing.assert_allclose(matrix, matrix.T, atol=1e-12 * abs(matrix).max())
    assert np.linalg.eigvalsh(matrix)[0] > 0.0
    fixed = V.interpolate(lambda x: (1.0 + 0.0 * x[0], 2.0 * x[0]))
    free = femops.elastic_interior_penalty(V, 2.0, 0.7, boundary=None)
    turn = V.interpolate(lambda x: (-x[1], x[0]))  # a rotation has no stress
    assert abs(free @ turn).max() < 1e-12 < abs(free @ fixed).max()


CUBE = pytest.param(MESHES[2], marks=pytest.mark.exhaustive)


@pytest.mark.parametrize("mesh", [*MESHES[:2], CUBE], ids=["1-D", "2-D", "3-D"])
def test_upwind_convection_conserves_and_loses_energy(mesh):
    V = femops.L2(mesh, order=2, ncomp=2)
    b = np.arange(1.0, mesh.dim + 1.0)
    A = femops.upwind_convection(V, b)
    u = np.random.default_rng(0).standard_normal(V.size)
    out = femops.functional(lambda u, n: np.maximum(b @ n, 0.0) * u.value.sum(), V, boundary="all")
    assert (A @ u).sum() == pytest.approx(out(u), rel=1e-12)
    inside = femops.functional(
        lambda u, n: 0.5 * abs(b @ n) * (u.jump.value**2).sum(), V, faces="interior"
    )
    around = femops.functional(
        lambda u, n: 0.5 * abs(b @ n) * (u.value**2).sum(), V, boundary="all"
    )
    lost = inside(u) + around(u)
    assert u @ (A @ u) == pytest.approx(lost, rel=1e-12)


def test_a_mesh_without_a_boundary():
    V = femops.L2(femops.box((3, 3), periodic=True), order=0)
    A = femops.upwind_convection(V, np.array([2.0, -1.0]))
    for one in (A, A.T):  # constants stay, and nothing is lost
        assert abs(one @ np.ones(V.size)).max() < 1e-13
    assert femops.interior_penalty(femops.L2(V.mesh, order=1)).symmetric


def field(value):
    """A field that has a value in an element, and is 1 elsewhere."""
    K = femops.L2(BENT, order=0)
    numbers = np.ones(K.size)
    numbers[4] = value
    return femops.GridFunction(K, numbers)


@pytest.mark.parametrize(
    ("kappa", "words"),
    [
        (-1.0, "kappa is -1: it must be positive"),
        (0, "kappa is 0: it must be positive"),
        ([1.0, -2.0], "kappa has the entry -2: it must be positive"),
        ([[1.0, 2.0], [2.0, 1.0]], "eigenvalue -1: it must be positive definite"),
        (lambda x: x[0] - 0.5, "somewhere: it must be positive everywhere"),
        (field(-3.0), "kappa is -3 somewhere: it must be positive everywhere"),
        (np.nan, "kappa is nan"),
    ],
)
def test_a_conductivity_is_positive(kappa, words):
    V = femops.L2(BENT, order=1)
    start = np.eye(2) if np.ndim(kappa) == 2 else np.ones(2) if np.ndim(kappa) else 1.0
    for make in (
        lambda: femops.interior_penalty(V, kappa),
        lambda: femops.dirichlet_load(V, 1.0, kappa),
        lambda: femops.interior_penalty(V, start).update(kappa=kappa),
    ):
        with pytest.raises(OperatorError, match=words):
            make()


def test_a_tensor_that_turns_the_flux_is_positive():
    V = femops.L2(BENT, order=1)
    turning = femops.interior_penalty(V, [[1.0, 2.0], [-2.0, 1.0]]).assemble().toarray()
    assert np.linalg.eigvalsh(turning + turning.T)[0] > 0.0


@pytest.mark.parametrize(("dim", "least"), [(1, -2.0), (2, -1.0), (3, -2.0 / 3.0)])
def test_the_least_lame_parameter(dim, least):
    """With mu = 1 the energy of any deformation is positive exactly for a larger lam."""
    V = femops.L2(femops.box((2,) * dim), order=1, ncomp=dim)
    with pytest.raises(
        OperatorError, match=f"lam is {least - 0.01:g} and mu is 1: give a lam above"
    ):
        femops.elastic_interior_penalty(V, least - 0.01)
    matrix = femops.elastic_interior_penalty(V, least + 0.01).assemble().toarray()
    assert np.linalg.eigvalsh(matrix)[0] > 0.0
    swelling = V.interpolate(lambda x: x)
    energy = lambda lam: swelling @ (femops.elasticity(V, lam) @ swelling)  # noqa: E731
    assert energy(least - 0.01) < 0.0 < energy(least + 0.01)


@pytest.mark.parametrize(
    ("lam", "mu", "words"),
    [
        (1.0, -1.0, "mu is -1: it must be positive"),
        (1.0, 0.0, "mu is 0: it must be positive"),
        (lambda x: x[0], -1.0, "mu is -1: it must be positive"),
        (1.0, field(-1.0), "mu is -1 somewhere: it must be positive everywhere"),
        (np.nan, 1.0, "lam is nan"),
    ],
)
def test_lame_parameters_are_those_of_a_material(lam, mu, words):
    V = femops.L2(BENT, order=1, ncomp=2)
    with pytest.raises(OperatorError, match=words):
        femops.elastic_interior_penalty(V, lam, mu)


def test_in_one_dimension_only_the_sum_counts():
    V = femops.L2(MESHES[0], order=1)
    bars = [femops.elastic_interior_penalty(V, *lame) for lame in ((3.0, 0.0), (5.0, -1.0))]
    u = np.random.default_rng(0).standard_normal(V.size)
    np.testing.assert_allclose(bars[0] @ u, bars[1] @ u, rtol=1e-13)


def test_nothing_is_prescribed_inside():
    """Faces inside have the jumps of both sides already."""
    box = femops.box((2, 1))
    mesh = femops.Mesh.from_arrays(
        None,
        box.elements,
        coordinates=box.coordinates,
        boundary=np.vstack([box.boundary, [[1, 4]]]),
        boundary_attributes=[*box.boundary_attributes, 7],
    ).with_names(boundary={"crack": 7})
    V = femops.L2(mesh, order=1)
    for make in (femops.interior_penalty, lambda V, **o: femops.dirichlet_load(V, 1.0, **o)):
        with pytest.raises(femops.errors.SpaceError, match="attribute 7 has faces between"):
            make(V, boundary=["crack", 1])
    W = femops.L2(mesh, order=1, ncomp=2)
    with pytest.raises(femops.errors.SpaceError, match="attribute 7 has faces between"):
        femops.elastic_interior_penalty(W, boundary=7)
    u = V.interpolate(lambda x: 1.0 + x[0])
    loads = [femops.dirichlet_load(V, 1.0, boundary=b) for b in ("all", [1, 2, 3, 4])]
    np.testing.assert_array_equal(*loads)
    forms = [femops.interior_penalty(V, boundary=b) for b in ("all", [1, 2, 3, 4])]
    np.testing.assert_array_equal(*(A @ u for A in forms))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda V: femops.interior_penalty(V, penalty=0.0), "must be a positive number"),
        (lambda V: femops.interior_penalty(V, penalty=np.nan), "penalty is nan"),
        (lambda V: femops.interior_penalty(femops.L2(V.mesh, 0)), "order 1 or more"),
        (femops.elastic_interior_penalty, "space with ncomp=2"),
        (lambda V: femops.interior_penalty(V, [1.0, 2.0, 3.0]), "kappa"),
        (lambda V: femops.interior_penalty(V).update(penalty=-1.0), "penalty is -1"),
        (lambda V: femops.dirichlet_load(V, [1.0, 2.0]), "g has shape"),
        (lambda V: femops.dirichlet_load(V, 1.0, quadrature=2), "use at least 3"),
        (lambda V: femops.upwind_convection(V, 1.0), "velocity"),
        (lambda V: femops.interior_penalty(V.mesh), "V is a Mesh: give a space"),
        (lambda V: femops.interior_penalty(V, boundary="nowhere"), "nowhere"),
    ],
)
def test_bad_input_is_refused(make, words):
    with pytest.raises((OperatorError, FemopsError), match=words):
        make(femops.L2(BENT, order=2))
