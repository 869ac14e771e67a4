"""Matrices of order 1 on the nodes: beside cut meshes, and on ranks."""

import itertools

import numpy as np
import pytest
import scipy.linalg
from scipy.sparse.linalg import LinearOperator, splu

import femops
from femops.errors import SolverError
from femops.parallel import Serial
from femops_meshes.coordinates.mapping import positions
from support import fixtures
from support.cases.kernels import bend, smooth
from support.cases.rank_operators import piece

one_thread = fixtures.one_thread


def cut(V):
    """A space of order 1 on the elements cut at V's nodes, and V's position of each dof."""
    corners = list(itertools.product((0, 1), repeat=V.dim))
    grid = np.arange(V.p1d**V.dim).reshape((V.p1d,) * V.dim)
    low = itertools.product(range(V.order), repeat=V.dim)
    cells = [[grid[tuple(np.add(at, corner))] for corner in corners] for at in low]
    nodes = V.restriction.indices[:, cells].reshape(-1, 2**V.dim)
    x = positions(V.mesh.coordinates, V.basis.nodes)[:, cells].reshape(-1, 2**V.dim, V.dim)
    Q = femops.H1(femops.Mesh.from_arrays(None, nodes, coordinates=x), 1, ncomp=V.ncomp)
    node = np.empty(Q.ndofs, dtype=np.int64)
    node[Q.restriction.indices] = nodes
    return Q, (node[:, np.newaxis] * V.ncomp + np.arange(V.ncomp)).reshape(-1)


def on_the_boundary(u, n):
    normal = sum(u.grad[d] * n[d] for d in range(len(n)))
    return {"value": 5.0 * u - normal, "grad": -u * n}


FORMS = {
    "elasticity": lambda V: femops.elasticity(V, 1.3, 0.7),
    "convection": lambda V: femops.convection(V, np.arange(1.0, V.dim + 1)),
    "linear": lambda V: femops.diffusion(V, lambda x: 1.0 + x[0]),
    "boundary": lambda V: femops.boundary_mass(V, 3.0) + femops.mass(V),
    "nitsche": lambda V: femops.form(on_the_boundary, V, boundary=True) + femops.diffusion(V),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("dim", [1, 2, 3])
def test_the_forms_on_a_mesh_cut_at_the_nodes(dim, name):
    ncomp = max(dim, 2) if name == "elasticity" else 1
    V = femops.H1(femops.box((2,) * max(dim, ncomp)), order=3, ncomp=ncomp)
    Q, at = cut(V)
    expected = np.zeros((V.size, V.size))
    expected[np.ix_(at, at)] = FORMS[name](Q).assemble().toarray()
    found = femops.low_order(FORMS[name](V)).toarray()
    assert abs(found - expected).max() < 1e-13 * abs(expected).max()


@pytest.mark.parametrize("order", [2, 6])
def test_spectrally_equivalent_on_a_curved_mesh(order):
    """The bounds do not grow with the order: Orszag (1980) has (pi/2)^2 for a line."""
    V = femops.H1(femops.read_mesh(femops.sample("disc.mesh")), order)
    A = femops.diffusion(V, smooth) + femops.boundary_mass(V, attributes=1)
    low = femops.low_order(A).toarray()
    values = scipy.linalg.eigh(A.assemble().toarray(), low, eigvals_only=True)
    assert values[0] > 0.4
    assert values[-1] < 6.0


def test_jacobians_with_stored_coefficients_and_essential_conditions():
    mesh = femops.read_mesh(femops.sample("disc.mesh"))
    V = femops.H1(mesh, order=5, ncomp=2)
    F = femops.neo_hookean(V, lam=1.0, mu=1.0).constrained(V.boundary_dofs())
    u = 0.1 * V.interpolate(lambda x: (np.sin(3 * x[0]), x[0] * x[1]))
    J = F.jacobian(u)
    low = femops.low_order(J)
    held = J.constrained_dofs
    assert np.array_equal(low[held].toarray(), np.eye(V.size)[held])
    assert np.array_equal(low[:, held].toarray(), np.eye(V.size)[:, held])
    assert abs(low - low.T).max() < 1e-12
    b = np.ones(V.size)
    M = LinearOperator(J.shape, splu(low.tocsc()).solve, dtype=float)
    _, info = femops.cg(J, b, M=M)
    _, alone = femops.cg(J, b, M=femops.jacobi(J))
    assert info.converged
    assert info.iterations < alone.iterations / 3


def test_the_operator_s_type_and_order_one():
    V = femops.H1(femops.box((3, 2)), order=1)
    A = femops.diffusion(V, smooth).constrained(V.boundary_dofs(1))
    assert abs(femops.low_order(A) - A.assemble()).max() == 0.0
    W = femops.H1(femops.box((3, 2)), order=3)
    single, double = (femops.low_order(femops.mass(W, dtype=d)) for d in ("float32", "float64"))
    assert single.dtype == np.float32
    assert abs(single - double).max() < 1e-6 * abs(double).max()


@pytest.mark.parallel(2, 3)
def test_ranks_have_the_rows_of_the_whole_matrix(comm):
    def matrix(ranks):
        mesh = femops.read_mesh(femops.sample("disc.mesh"), comm=ranks)
        V = femops.H1(mesh, order=3, ncomp=2)
        A = femops.elasticity(V, 1.0, smooth) + femops.boundary_mass(V)
        return V, femops.low_order(A.constrained(V.boundary_dofs(components=1)))

    (V, mine), (_, whole) = matrix(comm), matrix(Serial())
    rows = piece(V)
    order = np.concatenate(comm_all(V, rows))
    assert mine.shape == (V.size, V.global_size)
    assert abs(mine - whole[rows][:, order]).max() < 1e-13


def comm_all(V, rows):
    """Positions in the serial vector of the entries of each rank's vector."""
    width = V.comm.max(len(rows))
    padded = np.full(width, -1, dtype=np.int64)
    padded[: len(rows)] = rows
    return [part[part >= 0] for part in V.comm.gather_all(padded)]


@pytest.mark.parallel(3)
@pytest.mark.filterwarnings("ignore:.*ranks have no elements")
def test_ranks_without_elements(comm):
    def matrix(ranks):
        V = femops.H1(femops.box((7, 4), reproducible=True, comm=ranks), 3)
        A = femops.diffusion(V) + femops.boundary_mass(V)
        return V.mesh.num_elements, femops.low_order(A.constrained(V.boundary_dofs(1)))

    count, rows = matrix(comm)
    assert comm.max(int(count == 0))  # else this tests nothing
    whole = matrix(Serial())[1]
    sums = [comm.sum(float((part**2).sum())) for part in (rows.data, rows.sum(axis=1))]
    assert sums == pytest.approx([(whole.data**2).sum(), (whole.sum(axis=1) ** 2).sum()])


def test_complex_operators():
    V = femops.H1(femops.box((3, 3), mapping=bend), 4)

    def hermitian(u):
        x, y = u.grad
        return {"value": 2.0 * u, "grad": [x + 0.5j * y, y - 0.5j * x]}

    A = femops.form(hermitian, V, dtype="complex128").constrained(V.boundary_dofs())
    low, high = femops.low_order(A).toarray(), A.assemble().toarray()
    assert low.dtype == high.dtype
    assert abs(low - low.conj().T).max() < 1e-14
    assert np.array_equal(np.diag(low)[A.constrained_dofs], np.ones(len(A.constrained_dofs)))
    ratios = scipy.linalg.eigh(high, low, eigvals_only=True)
    assert 0.2 < ratios[0] < ratios[-1] < 5.0
    plain = femops.form(lambda u: {"grad": (1.0 + 2.0j) * u.grad}, V, dtype="complex128")
    expected = (1.0 + 2.0j) * femops.low_order(femops.diffusion(V)).toarray()
    assert abs(femops.low_order(plain).toarray() - expected).max() < 1e-12


def test_what_has_no_such_matrix_is_refused():
    mesh = femops.box((2, 2))
    V, Q = femops.H1(mesh, 2), femops.H1(mesh, 1)
    W = femops.Product(u=V, p=Q)
    both = femops.form(lambda u, p: {"u": {"value": u}, "p": {"value": p}}, W)
    jump = femops.form(lambda u: {"jump": {"grad": u.jump.grad}}, V, faces="interior")
    cases = {
        "product of spaces": both,
        "between two spaces": femops.form(lambda u: {"value": u}, V, Q),
        "no nodes that neighbours share": femops.mass(femops.L2(mesh, 2)),
        "default basis": femops.mass(femops.H1(mesh, 2, family="bernstein")),
        "faces between elements": femops.mass(V) + jump,
        "A is": femops.mass(V).assemble(),
    }
    for text, A in cases.items():
        with pytest.raises(SolverError, match=text):
            femops.low_order(A)
    assert femops.low_order(both["u", "u"]).shape == (25, 25)
