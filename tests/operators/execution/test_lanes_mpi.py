"""The same bits for lanes of any width, and any number of threads and of ranks."""

import numpy as np
import pytest

import femops
from femops.eigen import chebyshev_subspace
from femops.fields.reproducible import random_draws
from femops.fields.vector_hash import vector_hash
from femops.hydro import Lagrangian, Simulation, built_in, problem
from femops.parallel import Serial
from femops_kernels.cpu import sweep
from femops_kernels.simd.lanes import WIDTHS
from support.cases.kernels import bend


@pytest.fixture
def everywhere(comm, monkeypatch):
    """Compare results on all ranks, with lanes of any width and two threads, to one process."""
    monkeypatch.setattr(sweep, "PARALLEL_EFFORT", 1)  # or so small a problem had one thread

    def compare(find, widths=WIDTHS):
        monkeypatch.setenv("FEMOPS_LANES", "8")
        monkeypatch.setenv("FEMOPS_THREADS", "1")
        expected = find(Serial())
        for width, threads in [*((width, 1) for width in widths), (widths[-1], 2)]:
            monkeypatch.setenv("FEMOPS_LANES", str(width))
            monkeypatch.setenv("FEMOPS_THREADS", str(threads))
            assert find(comm) == expected, (width, threads)

    return compare


def shared(comm, mesh):
    """A reproducible mesh that ranks hold parts of."""
    return femops.distribute(mesh if comm.rank == 0 else None, comm, reproducible=True)


def over_magnitudes(V, seed, dtype="float64"):
    return (random_draws(V, seed)() * 10.0 ** (6 * random_draws(V, seed + 1)())).astype(dtype)


def products(V, A):
    """Hashes of products with one vector and with eleven."""
    x = over_magnitudes(V, 0, A.dtype)
    X = np.stack([over_magnitudes(V, k, A.dtype) for k in range(11)], axis=1)
    return [vector_hash(V, np.ascontiguousarray(u)) for u in (A @ x, *(A @ X).T)]


def weak(u, x):
    """A form with sums of products, some of which are fused."""
    return {"value": u * (1 + x[0]) * 3.1 + u.grad[0] * 2.7, "grad": u.grad * (1.3 + x[0] * x[1])}


LEVELS = [
    ("partial", "float64"),
    ("partial", "float32"),
    ("matrix-free", "float64"),
    ("element", "float64"),
    ("full", "float64"),
    ("full", "float32"),
]


@pytest.mark.parallel(1, 2, 3, timeout=600)
@pytest.mark.parametrize(("level", "dtype"), LEVELS)
def test_products_at_all_levels(everywhere, level, dtype):
    """Of a mesh whose last batch is not full, and of three elements."""

    def find(ranks):
        found = []
        for mesh in (femops.disc(2), femops.box((3, 1), mapping=bend, order=3)):
            V = femops.H1(shared(ranks, mesh), 2)
            A = femops.form(weak, V, level=level, dtype=dtype)
            found += products(V, A.constrained(V.boundary_dofs(where=lambda x: x[0] > x[1])))
        return found

    everywhere(find)


@pytest.mark.parallel(1, 2, timeout=600)
def test_sums_and_diagonals_in_three_dimensions(everywhere):
    """Edges and vertices have many elements, and the sum of two terms begins with the first's."""

    def find(ranks):
        V = femops.H1(shared(ranks, femops.box((3, 3, 4))), 3)
        A = femops.diffusion(V) + 0.3 * femops.boundary_mass(V)
        return [vector_hash(V, u) for u in (A @ over_magnitudes(V, 0), A.diagonal())]

    everywhere(find)


@pytest.mark.parallel(1, 2, 3, timeout=600)
def test_solutions(everywhere):
    def find(ranks):
        mesh = shared(ranks, femops.read_mesh(femops.sample("disc.mesh"), refine=1))
        V = femops.H1(mesh, 2)
        A = femops.diffusion(V).constrained(V.boundary_dofs())
        b, found = A.rhs(over_magnitudes(V, 0)), []
        for precond in (femops.jacobi(A), femops.multigrid(A)):
            u, info = femops.cg(A, b, M=precond)
            found += [vector_hash(V, u), info.iterations]
        return found

    everywhere(find, (4,))


@pytest.mark.parallel(1, 2, timeout=600)
def test_eigenpairs(everywhere):
    """Of many lanes: the solver is compiled for them, and its vectors are many."""

    def find(ranks):
        V = femops.H1(shared(ranks, femops.read_mesh(femops.sample("disc.mesh"))), 2)
        A = femops.diffusion(V).constrained(V.boundary_dofs())
        pairs = chebyshev_subspace(A, femops.mass(V), 3)
        vectors = [vector_hash(V, np.ascontiguousarray(u)) for u in pairs.vectors.columns().T]
        return pairs.values.tolist() + vectors + pairs.vectors.norms().tolist()

    everywhere(find, (16,))


@pytest.mark.parallel(1, 2, 3, timeout=600)
def test_gas_dynamics(everywhere):
    def find(ranks):
        case = problem("sedov")
        mesh = shared(ranks, built_in(case.mesh[2]).refine(2))
        run = Simulation.begin(Lagrangian(case, mesh))
        run.run(1.0, max_steps=3)
        return run.t, run.e_norm, vector_hash(run.equations.space, run.state)

    everywhere(find, (2,))
