"""Nothing moves between host and device unasked, nothing is allocated twice, launches are few."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import femops
from support.cases import products as product_cases
from support.cases.kernels import smooth, turned
from support.cuda.guarded import guarded_device
from support.cuda.moves import Moves, moves


@pytest.fixture(scope="module")
def device():
    return guarded_device()


Make = Callable[[Any], Any]
"""An operator, of a space."""

OPERATORS = {
    "mass": (1, femops.mass),
    "constrained": (1, lambda V: femops.diffusion(V).constrained(V.boundary_dofs())),
    "sum": (1, lambda V: femops.diffusion(V, smooth) + 2 * femops.mass(V)),
    "two rules": (2, lambda V: femops.diffusion(V) + femops.mass(V, quadrature=5)),
    "boundary": (2, lambda V: femops.diffusion(V) + femops.boundary_mass(V)),
    "matrix-free": (1, lambda V: femops.diffusion(V, level="matrix-free")),
    "fields": (1, lambda V: femops.form(product_cases.waves, of_two(V), k=1.0, loss=2.0)),
}
"""How many launches each takes."""


def of_two(V):
    return femops.Product(real=V, imag=V)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("reproducible", [False, True])
def test_applications(name, reproducible, device):
    launches, make = OPERATORS[name]
    V = femops.H1(turned(femops.disc(1)), 2, device=device, reproducible=reproducible)
    A = make(V)
    x = A.space.zeros()
    out = A.test_space.zeros()
    before = Moves.of(device)
    A.apply(x, out)  # what it needs is copied there
    assert Moves.of(device).uploads > before.uploads
    assert Moves.of(device).downloads == before.downloads
    launches += reproducible * (2 if name == "fields" else launches)  # sums of each test function
    for _ in range(3):
        with moves(device, launches=launches):
            A.apply(x, out)
        with moves(device, launches=launches, made=1):
            A @ x
        with moves(device, launches=launches, made=1):
            A.matvec(x)
    if A.T is not A:
        A.T.apply(x, out)
        with moves(device, launches=launches):
            A.T.apply(x, out)


def test_dofs_are_copied_once_for_a_space(device):
    """For a second operator only its data, here those of the elements of a box.

    At order 3 a launch more sets shared dofs to zero, where else all of them are without one.
    """
    V = femops.H1(femops.box((4, 3)), 3, device=device)
    x = V.zeros()
    _ = femops.mass(V) @ x
    with moves(device, uploads=1, launches=2, made=1):
        _ = femops.diffusion(V) @ x


def test_right_hand_sides(device):
    """Which dofs are held is there already; three facts about the load come back at once."""
    V = femops.H1(turned(femops.disc(1)), 2, device=device)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    b, g = femops.load(V, 1.0), V.interpolate(smooth)
    A.rhs(b, g)
    before = Moves.of(device)
    A.rhs(b, g)
    after = Moves.of(device)
    assert (after.uploads - before.uploads, after.looks - before.looks) == (0, 0)
    assert (after.downloads - before.downloads, after.launches - before.launches) == (1, 1)


def test_conditions_share_the_data(device):
    """Operators that differ in what is held: of the second, only the marks are copied there."""
    V = femops.H1(turned(femops.disc(1)), 2, device=device)
    A, x = femops.diffusion(V), V.zeros()
    _ = A @ x
    C, both = A.constrained(V.boundary_dofs()), A.eliminated([1], [2])
    with moves(device, uploads=4, launches=1, made=1):
        _ = C @ x
    with moves(device, uploads=4, launches=1, made=1):
        _ = both @ x
    with moves(device, launches=1, made=1):
        _ = A.unconstrained @ x


def test_nonlinear_forms(device):
    """Nothing of a state, a residual or a Jacobian goes to the host."""
    V = femops.H1(turned(femops.disc(1)), 2, device=device)
    F = femops.p_laplacian(V, 3.5, 0.2).constrained(V.boundary_dofs())
    u = V.interpolate(smooth)
    out = F.residual(u)
    with moves(device, launches=1):
        F.residual(u, out)
    before = Moves.of(device)
    for _ in range(2):
        J = F.jacobian(u)
        J.apply(u, out)
        J.diagonal()
    assert Moves.of(device).downloads == before.downloads
    with moves(device, made=1):  # a copy of the state
        J = F.jacobian(u)
    before = Moves.of(device)
    J.apply(u, out)  # after its data are computed by a launch
    after = Moves.of(device)
    assert (after.launches - before.launches, after.downloads - before.downloads) == (2, 0)
    with moves(device, launches=1):
        J.apply(u, out)


def test_newton(device):
    """However many steps: no vector goes to the host."""
    V = femops.H1(turned(femops.disc(1)), 2, device=device)
    F = femops.p_laplacian(V, 3.5, 0.2).constrained(V.boundary_dofs())
    b = femops.load(V, 1.0)
    before = Moves.of(device)
    _, info = femops.newton(F, V.zeros(), b)
    assert info.converged
    assert info.iterations > 2
    assert Moves.of(device).downloads == before.downloads


@pytest.mark.parametrize("preconditioned", [False, True])
def test_conjugate_gradients(preconditioned, device):
    """However many iterations: as many copies, arrays and looks."""
    V = femops.H1(turned(femops.disc(4)), 2, device=device)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    b = A.rhs(femops.load(V, smooth))
    M = femops.jacobi(A) if preconditioned else None
    found = []
    for iterations in (0, 4, 24):
        before = Moves.of(device)
        u, info = femops.cg(A, b, rtol=1e-14, maxiter=iterations, M=M, warn=False)
        after = Moves.of(device)
        assert device.owns(u)
        assert info.iterations == iterations
        found.append({name: n - getattr(before, name) for name, n in vars(after).items()})
    assert found[1]["launches"] < found[2]["launches"]
    assert found[1] | {"launches": 0} == found[2] | {"launches": 0}
    assert found[2]["downloads"] == 0


def test_spaces_and_vectors(device):
    V = femops.H1(femops.box((3, 2)), 2, device=device)
    W = femops.Product(u=V, p=V)
    with moves(device, made=1):
        x = W.zeros()
    with moves(device):
        u, p = W.split(x)
    with moves(device, made=1):
        W.join(u=u, p=p)
    with moves(device, uploads=1):
        V.interpolate(1.0)
    with moves(device, uploads=1):
        femops.load(V, 1.0)
    A = femops.mass(V)
    A.diagonal()
    with moves(device, launches=1, made=2):
        A.diagonal()
    with moves(device):
        femops.diffusion(V).assemble()


def test_the_guard_holds(device):
    """What the tests of this folder stand on."""
    x = device.upload(np.arange(3.0))
    with moves(device):
        for use in (np.asarray, np.linalg.norm, lambda x: np.concatenate([x, x]), memoryview):
            with pytest.raises(TypeError):
                use(x)
    with pytest.raises(AssertionError, match="array of the host among"):
        x + np.ones(3)
    with pytest.raises(AssertionError, match="another device"):
        x + guarded_device().upload(np.ones(3))
    with moves(device, made=2, looks=1):
        assert (x + x > 1.0).all() == (x[0] > 0.0)
    with moves(device, made=1, downloads=1):
        assert (2 * x[1:]).get().tolist() == [2.0, 4.0]
