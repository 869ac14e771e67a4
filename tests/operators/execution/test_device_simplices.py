"""Triangles and tetrahedra on a device: dense sums, the host's products, bits, launches."""

import numpy as np
import pytest

import femops
from femops.basis import simplex_rule
from femops.errors import OperatorError
from femops_kernels.cuda.operator.table_kernel import PARTS, TableKernel
from femops_kernels.errors import KernelValueError
from support.cuda import guarded
from support.cuda.guarded import guarded_device
from support.oracles import simplices as oracle
from support.simplex_meshes import MESHES, curved, graded, periodic

device = guarded.small_device


def error(found, expected):
    return np.abs(np.asarray(found) - expected).max() / np.abs(expected).max()


def random(size, *more, seed=0):
    return np.random.default_rng(seed).standard_normal((size, *more))


def kernel_of(A):
    (sweep,) = A.compiled.sweeps
    assert isinstance(sweep.kernel, TableKernel)
    return sweep.kernel


def form(u, x):
    return {"value": (1 + x[0]) * u, "grad": (2 + x[-1]) * u.grad + 0.5 * u.grad}


@pytest.mark.parametrize(
    ("name", "dim", "p"),
    [
        *(("graded", 3, 1), ("periodic", 2, 3), ("curved", 3, 2), ("graded", 3, 3)),
        pytest.param("periodic", 3, 4, marks=pytest.mark.exhaustive),
        pytest.param("curved", 2, 5, marks=pytest.mark.exhaustive),
    ],
)
def test_forms_equal_dense_sums(device, name, dim, p):
    mesh = MESHES[name](dim)
    rule = simplex_rule(dim, 30 if name == "curved" else 11)
    for kind, ncomp in ((femops.H1, 2 if p < 3 else 1), (femops.L2, 1)):
        V = kind(mesh, p, ncomp=ncomp, device=device)
        u = random(V.size)

        def dense(value, slope, x):
            return (1 + x[:, :1]) * value, (2.5 + x[:, -1, None, None]) * slope

        expected = oracle.product(V, dense, u, points=16 if name == "curved" else 8)
        A = femops.form(form, V, quadrature=rule)
        found = A @ device.upload(u)
        assert error(found.get(), expected) < (1e-9 if name == "curved" else 2e-13)


def sums(V):
    A = femops.diffusion(V, lambda x: 1 + x[0] ** 2) + femops.mass(V, 3.0)
    return A.constrained(V.boundary_dofs())


def elastic(V):
    W = femops.H1(V.mesh, V.order, V.dim, device=V.device)
    return femops.elasticity(W, 1.3, lambda x: 1 + x[0]).constrained(W.boundary_dofs())


CASES = [
    # order, dimension, mesh, operator, threads of an element
    *((1, 3, graded, femops.diffusion, 1), (2, 2, curved, sums, 1)),
    *((3, 3, graded, femops.diffusion, 1), (4, 2, periodic, femops.mass, 1)),
    *((6, 2, curved, femops.diffusion, 1), (5, 3, graded, sums, PARTS)),
    (3, 3, graded, elastic, 3),
    pytest.param(2, 3, curved, elastic, 1, marks=pytest.mark.exhaustive),
    pytest.param(7, 2, curved, elastic, 2, marks=pytest.mark.exhaustive),
    pytest.param(4, 3, graded, sums, 1, marks=pytest.mark.exhaustive),
    pytest.param(6, 3, curved, sums, PARTS, marks=pytest.mark.exhaustive),
    pytest.param(8, 2, graded, femops.mass, PARTS, marks=pytest.mark.exhaustive),
]


@pytest.mark.parametrize(("p", "dim", "make", "of", "parts"), CASES)
def test_products_and_diagonals_are_the_hosts(device, p, dim, make, of, parts):
    mesh = make(dim)
    A, B = (of(femops.H1(mesh, p, device=place)) for place in (device, None))
    assert kernel_of(A).lines == parts
    u = random(B.space.size)
    solved = (A, device.upload(u)), (B, u)
    assert error((A @ device.upload(u)).get(), B @ u) < 1e-13
    assert error(A.diagonal().get(), B.diagonal()) < 1e-13
    for count in (3, 9):
        X = random(B.space.size, count)
        assert error((A @ device.upload(X)).get(), B @ X) < 1e-13
    x, y = (femops.cg(C, b, rtol=0.0, maxiter=3, warn=False)[0] for C, b in solved)
    assert error(x.get(), y) < 1e-11


def test_modes_take_the_place_of_points(device):
    """As on the host: 10 numbers of degree 2 in place of 31 points."""
    for k, points in ((None, 10), (lambda x: 1 + x[0], 31)):
        V = femops.H1(graded(3), 3, device=device)
        A = femops.diffusion(V) if k is None else femops.diffusion(V, k)
        assert kernel_of(A).points == points


@pytest.mark.parametrize(("dim", "p"), [(2, 2), (3, 3)])
def test_residuals_on_affine_elements(device, dim, p):
    """What is not linear is computed at the points, though its data are those of elements."""
    found = []
    for place in (device, None):
        F = femops.neo_hookean(femops.H1(graded(dim), p, dim, device=place), 1.0, 2.0)
        at = 1e-3 * random(F.space.size)
        there = at if place is None else place.upload(at)
        J = F.jacobian(there)
        results = F.residual(there), J @ there, J.diagonal()
        found.append([one if place is None else one.get() for one in results])
    assert max(map(error, *found)) < 1e-11


@pytest.mark.parametrize(("dim", "p"), [(2, 4), (3, 2)])
def test_the_same_bits_in_any_order(device, dim, p):
    V = femops.H1(graded(dim), p, device=device, reproducible=True)
    A = femops.diffusion(V, lambda x: 1 + x[0]).constrained(V.boundary_dofs())
    u = device.upload(random(V.size))
    once = (A @ u).get()
    device.host.backwards = True
    try:
        assert (A @ u).get().tobytes() == once.tobytes()
    finally:
        device.host.backwards = False
    W = femops.H1(V.mesh, p)
    B = femops.diffusion(W, lambda x: 1 + x[0]).constrained(W.boundary_dofs())
    assert error(once, B @ random(V.size)) < 1e-13


@pytest.mark.parametrize("data", [None, "float32"])
def test_numbers_that_are_stored_or_rounded(device, data):
    """An odd number of elements, of which the last ones of a block are none."""
    mesh = femops.box((3, 1)).simplices().refine()
    places = (device, None)
    A, B = (
        femops.mass(femops.L2(mesh, 2, device=one), lambda x: 1 + x[0], data_dtype=data)
        for one in places
    )
    u = random(B.space.size)
    assert error((A @ device.upload(u)).get(), B @ u) < 1e-13
    assert A.compiled._clearing(A.space.size) is not None  # there is nothing to clear


def test_conjugate_gradients_in_one_kernel(device):
    mesh = graded(3)
    found = []
    for place in (device, None):
        V = femops.H1(mesh, 2, device=place)
        A = femops.diffusion(V).constrained(V.boundary_dofs())
        b = random(V.size) if place is None else place.upload(random(V.size))
        x, _ = femops.cg(A, b, rtol=0.0, maxiter=9, warn=False)
        found.append(x if place is None else x.get())
        if place is not None:
            assert A.compiled.mergeable(V.size, many=False)
    assert error(*found) < 1e-11


def test_multigrid_takes_the_hosts_iterations(device):
    mesh, found = femops.box((2, 2, 2)).simplices().refine(), []
    for place in (device, None):
        V = femops.H1(mesh, 4, device=place)
        A = femops.diffusion(V, lambda x: 1 + x[0]).constrained(V.boundary_dofs())
        b = A.rhs(femops.load(V, 1.0), 0.0)
        found.append(femops.cg(A, b, M=femops.multigrid(A), rtol=1e-9))
    (u, one), (v, two) = found
    assert one.converged
    assert one.iterations == two.iterations
    assert error(u.get(), v) < 1e-8


def test_the_level_auto(device):
    V = femops.H1(graded(2), 2, device=device)
    assert femops.diffusion(V, level="auto").level == "partial"


def test_what_is_refused(device):
    V = femops.H1(graded(2), 2, device=device)
    with pytest.raises(OperatorError, match="take level='partial'"):
        femops.diffusion(V, level="matrix-free")
    with pytest.raises(OperatorError, match="no kernels for level 'element'"):
        femops.diffusion(V, level="element")
    tiny = guarded_device(shared_bytes=256)
    W = femops.H1(graded(3), 5, device=tiny)
    with pytest.raises(KernelValueError, match="lower order"):
        _ = femops.mass(W) @ W.zeros()
