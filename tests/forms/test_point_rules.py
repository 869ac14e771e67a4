"""Rules whose points are a list: forms equal those by Gauss' points, and published cubature."""

import numpy as np
import pytest

import femops
from femops.basis import PointRule, gauss
from femops.errors import BasisError, OperatorError, SpaceError
from femops.spaces.memory import DeviceMemory
from support.cuda.paper import PaperDevice

MESHES = {
    "segment": lambda: femops.box((5,), mapping=lambda x: x + 0.1 * x**2),
    "disc": lambda: femops.read_mesh(femops.sample("disc.mesh")),
    "ball": lambda: femops.ball(1),
    "hanging": lambda: femops.box((2, 2, 2)).refined([0]),
    "periodic": lambda: femops.box((4, 5), periodic=(True, False)),
}


def error(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


def gauss_points(dim, n=4):
    """Gauss' points as a list, in another order."""
    rule = gauss(n)
    grid = np.meshgrid(*[rule.points] * dim, indexing="ij")
    points = np.stack(grid[::-1], axis=-1).reshape(-1, dim)
    order = np.random.default_rng(dim).permutation(len(points))
    return PointRule(points[order], rule.tensor_weights(dim)[order])


def radon():
    """Radon's seven points, exact to degree 5 on a square."""
    a, b, c = np.sqrt(14 / 15), np.sqrt(3 / 5), np.sqrt(1 / 3)
    points = [[0, 0], [0, a], [0, -a], *[[s * b, t * c] for s in (1, -1) for t in (1, -1)]]
    return PointRule(
        (1 + np.array(points)) / 2, np.array([8 / 7, *[20 / 63] * 2, *[5 / 9] * 4]) / 4
    )


def hammer_stroud():
    """Fourteen points of Hammer and Stroud, exact to degree 5 on a cube."""
    a, b = np.sqrt(19 / 30), np.sqrt(19 / 33)
    corners = 2.0 * np.indices((2, 2, 2)).reshape(3, -1).T - 1
    points = np.concatenate([a * np.eye(3), -a * np.eye(3), b * corners])
    return PointRule((1 + points) / 2, np.array([*[320 / 361] * 6, *[121 / 361] * 8]) / 8)


def skew(u, x):
    return {"value": (1 + x[0]) * u, "grad": u.grad * (2 + x[-1])}


@pytest.mark.parametrize("level", ["partial", "full", "element"])
@pytest.mark.parametrize("name", MESHES)
def test_a_list_of_gauss_points_equals_their_grid(name, level):
    mesh = MESHES[name]()
    rule = gauss_points(mesh.dim)
    for V in (femops.H1(mesh, 2, ncomp=2), femops.L2(mesh, 2)):
        A, B = (femops.form(skew, V, quadrature=each, level=level) for each in (4, rule))
        x = np.random.default_rng(1).standard_normal((V.size, 3))
        assert error(B @ x[:, 0], A @ x[:, 0]) < 1e-13
        assert error(B @ x, A @ x) < 1e-13
        assert error(B.T @ x[:, 0], A.T @ x[:, 0]) < 1e-13
        assert error(B.diagonal(), A.diagonal()) < 1e-13
        assert error(B.assemble().toarray(), A.assemble().toarray()) < 1e-13


@pytest.mark.parametrize("name", MESHES)
def test_states_coefficients_and_loads_at_a_list(name):
    mesh = MESHES[name]()
    V, rule = femops.H1(mesh, 2), gauss_points(mesh.dim)
    u = V.interpolate(lambda x: 2 + np.sin(x[0]))
    kappa = femops.GridFunction(V, u)

    def stiffening(u, kappa):
        return {"value": u**3, "grad": (kappa + u * u) * u.grad}

    F, G = (femops.residual(stiffening, V, kappa=kappa, quadrature=q) for q in (4, rule))
    assert error(G.residual(u), F.residual(u)) < 1e-12
    assert error(G.jacobian(u) @ u, F.jacobian(u) @ u) < 1e-12
    f, g = (
        femops.load(V, lambda x: np.exp(x[0]), flux=lambda x: x, quadrature=q) for q in (4, rule)
    )
    assert error(g, f) < 1e-13
    at_points = V.values(u, rule)
    assert at_points.shape == V.gradient(u, rule).shape[:2] == (mesh.num_elements, 4**mesh.dim)
    A = femops.mass(V, at_points, quadrature=rule)
    assert error(A @ u, femops.mass(V, kappa, quadrature=4) @ u) < 1e-13
    x = V.interpolate(lambda x: x[0])
    assert error(femops.mass(V, quadrature=rule, level="auto") @ x, femops.mass(V) @ x) < 1e-5


@pytest.mark.parametrize(("rule", "dim"), [(radon(), 2), (hammer_stroud(), 3)])
def test_published_cubature_is_exact_for_stiffness_on_boxes(rule, dim):
    V = femops.H1(femops.box((3, 2, 4)[:dim], upper=(1.0, 2.0, 0.5)[:dim]), 1)
    expected = femops.diffusion(V).assemble().toarray()
    assert error(femops.diffusion(V, quadrature=rule).assemble().toarray(), expected) < 1e-14


def test_what_needs_a_grid_refuses_a_list_by_name():
    mesh = femops.box((2, 2))
    V, rule = femops.H1(mesh, 2), gauss_points(2)
    A = femops.diffusion(V, quadrature=rule).constrained(V.boundary_dofs())
    for refused in (
        lambda: femops.boundary_mass(V, quadrature=rule),
        lambda: femops.interior_penalty(femops.L2(mesh, 1), quadrature=rule),
        lambda: femops.multigrid(A),
        lambda: femops.low_order(A),
    ):
        with pytest.raises(BasisError, match=r"same points in each direction.*is a list"):
            refused()
    with pytest.raises(OperatorError, match="level='partial'"):
        femops.mass(V, quadrature=rule, level="matrix-free")
    u = V.interpolate(lambda x: 1 + x[0] ** 2)
    goals = [femops.functional(lambda u: u * u, V, quadrature=one)(u) for one in (rule, gauss(4))]
    assert goals[0] == pytest.approx(goals[1], rel=1e-14)
    with pytest.raises(BasisError, match="has points in 3-D, not in 2-D"):
        femops.mass(V, quadrature=gauss_points(3))
    with pytest.raises(SpaceError, match=r"7 points.* cannot integrate products of 9 functions"):
        femops.mass(V, quadrature=radon())


def test_a_device_needs_a_grid(monkeypatch):
    memory = DeviceMemory(PaperDevice("sm_90"))
    monkeypatch.setattr("femops.spaces.base.find_memory", lambda *_: memory)
    V = femops.H1(femops.box((2, 2)), 1)
    with pytest.raises(BasisError, match="a device needs the same points in each direction"):
        femops.mass(V, quadrature=gauss_points(2)).apply(V.zeros())
    assert not memory.device.functions


@pytest.mark.parametrize(
    ("points", "weights", "message"),
    [
        ([[0.5, 0.5]], [2.0], "sum to 2.0"),
        ([[0.5, 0.5]], [np.nan], "sum to nan"),
        ([[0.5, 1.5]], [1.0], "must lie in"),
        ([[np.nan, 0.5]], [1.0], "must lie in"),
        ([0.5], [1.0], r"shape \(1,\)"),
        ([[0.5, 0.5]], [0.5, 0.5], r"shape \(2,\)"),
        (np.empty((0, 2)), [], "sum to 0"),
        (np.full((1, 4), 0.5), [1.0], r"shape \(1, 4\)"),
    ],
)
def test_rules_that_are_none(points, weights, message):
    with pytest.raises(BasisError, match=message):
        PointRule(points, weights)
