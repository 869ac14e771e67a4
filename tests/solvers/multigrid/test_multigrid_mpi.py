"""Multigrid on many ranks: the same iterations, and the same bits on a reproducible mesh."""

from contextlib import nullcontext

import numpy as np
import pytest

import femops
from femops.errors import ConvergenceWarning, SolverError
from femops.parallel import Serial
from femops.solvers.multigrid import blocks, choice, hierarchy
from support.cases.rank_operators import here, of_rank_0, piece
from support.cuda import guarded

ORDER, COUNTS = 2, (4, 4, 4)


def bent(x):
    return x + 0.05 * np.sin(3 * x[::-1])


device = guarded.small_device


def solved(comm, reproducible, counts=COUNTS, device=None):
    mesh = femops.box(counts, mapping=bent, comm=comm, reproducible=reproducible)
    return solved_on(femops.H1(mesh, ORDER, device=device), [1, 3])


def source(x):
    return np.sin(5 * x[0]) * x[1] + x[2]


def solved_on(V, held):
    sides = V.boundary_dofs(held)
    A = (femops.diffusion(V) + femops.boundary_mass(V, 2.0, [2])).constrained(sides)
    b = V.interpolate(source if V.ncomp == 1 else lambda x: (source(x), -2.0 * source(x)))
    b[V.memory.put(sides)] = 0.0
    M = femops.multigrid(A)
    return V, M, femops.cg(A, b, M=M, rtol=1e-9)


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("reproducible", [False, True])
def test_ranks_take_the_iterations_of_one(comm, reproducible):
    def found(V, M, solution):
        x, info = solution
        assert info.converged
        largest = [level.largest for level in M.levels]
        return x, info.iterations, repr(M).splitlines()[1:], largest

    mine = solved(comm, reproducible)
    V, (x, *told, largest) = mine[0], found(*mine)
    y, *expected, others = of_rank_0(comm, lambda: found(*solved(Serial(), reproducible)))
    assert told == expected
    if reproducible:
        np.testing.assert_array_equal(x, y[piece(V)])
        assert largest == others
    else:
        np.testing.assert_allclose(x, y[piece(V)], atol=1e-7)


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize(
    ("make", "ncomp", "reproducible"),
    [
        (lambda: femops.box((5, 11, 9), mapping=bent), 1, False),
        (lambda: femops.shell(4, 7), 1, True),
        (lambda: femops.cylinder(2, 4), 2, False),
        (lambda: femops.l_shape(5, dim=3), 1, True),
    ],
    ids=["box", "shell", "cylinder", "corner"],
)
def test_meshes_that_were_refined_are_undone_on_ranks(comm, make, ncomp, reproducible, monkeypatch):
    monkeypatch.setattr(hierarchy, "_FEW", 100)
    mesh = make()

    def found(ranks):
        V = femops.H1(femops.distribute(mesh, ranks, reproducible=reproducible), 2, ncomp)
        M, (x, info) = solved_on(V, 1)[1:]
        assert [size.order for size in M.sizes][:3] == [2, 1, 1]
        assert info.converged
        return V, (x, info.iterations, repr(M).splitlines()[1:])

    V, (x, *told) = found(comm)
    y, *expected = of_rank_0(comm, lambda: found(Serial())[1])
    assert told == expected
    if reproducible:
        np.testing.assert_array_equal(x, y[piece(V)])
    else:
        np.testing.assert_allclose(x, y[piece(V)], atol=1e-7 * abs(y).max())


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("reproducible", [False, True])
def test_ranks_agree_on_basis_precision_and_what_is_eliminated(comm, reproducible):
    """An operator that float32 does not resolve, of Bernstein coefficients."""

    def solutions(ranks):
        found = []
        mesh = femops.box((8, 6), mapping=bent, comm=ranks, reproducible=reproducible)
        V = femops.H1(mesh, 3, family="bernstein")
        held = V.boundary_dofs([1])
        A = femops.diffusion(V) + femops.mass(V, 1e-7)
        for B in (A, A.constrained(held), A.eliminated(held, held)):
            b = B @ V.interpolate(lambda x: np.sin(5 * x[0]) * x[1] + x[1])
            M = femops.multigrid(B)
            assert M.precision == (np.float32 if B is not A and not reproducible else np.float64)
            x, info = femops.cg(B, b, M=M, rtol=1e-9)
            assert info.converged
            found.append((M @ b, x, info.iterations))
        scaled = (2.0**40 * A).constrained(held)  # the size of numbers decides nothing
        assert femops.multigrid(scaled).precision == (np.float64 if reproducible else np.float32)
        return V, found

    V, mine = solutions(comm)
    alone = of_rank_0(comm, lambda: solutions(Serial())[1])
    for (*vectors, count), (*others, expected) in zip(mine, alone, strict=True):
        assert count == expected
        for x, y in zip(vectors, others, strict=True):
            if reproducible:
                np.testing.assert_array_equal(x, y[piece(V)])
            else:
                np.testing.assert_allclose(x, y[piece(V)], atol=5e-5 * abs(y).max())


@pytest.mark.parallel(2)
def test_boxes_that_ranks_make_know_coarser_ones(comm, monkeypatch):
    monkeypatch.setattr(hierarchy, "_FEW", 100)

    def sizes(ranks):
        """Of all levels, and the iterations."""
        V = femops.H1(femops.box((5, 6, 5), mapping=bent, comm=ranks), 2)
        M, (_, info) = solved_on(V, 1)[1:]
        return [size.dofs for size in M.sizes], info.iterations

    found = sizes(comm)
    assert len(found[0]) == 3
    assert found == of_rank_0(comm, lambda: sizes(Serial()))


@pytest.mark.parallel(2)
def test_ranks_agree_on_what_is_refused_and_measured(comm):
    V, M, _ = solved(comm, False)
    factors = [level.factor for level in M.report()]
    assert factors == comm.broadcast(factors)
    with pytest.raises(femops.errors.SolverError, match="not to be positive"):
        femops.multigrid(-1.0 * femops.diffusion(V))


@pytest.mark.parallel(2, 3)
def test_ranks_with_a_device_each_take_the_iterations_of_one(comm, device):
    counts = (3, 2, 2)
    V, M, (x, info) = solved(comm, False, counts, device)
    y, expected = of_rank_0(comm, lambda: solved(Serial(), False, counts)[2])
    assert M.device is device
    assert info.converged
    assert info.iterations == expected.iterations
    np.testing.assert_allclose(here(x), y[piece(V)], atol=1e-8 * abs(y).max())


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize("relaxation", [None, "elements", "lines", "patches", "direct"])
def test_ranks_take_other_relaxations(comm, relaxation):
    """Each rank has all of their blocks."""

    def found(ranks):
        V = femops.H1(femops.box((12, 12), comm=ranks), 4)
        A = femops.diffusion(V, kappa=np.diag([1.0, 1e-3])).constrained(V.boundary_dofs())
        M = femops.multigrid(A, relaxation=relaxation)
        assert M.relaxation == (relaxation or "lines")
        x, info = femops.cg(A, A.rhs(femops.load(V, 1.0)), M=M, rtol=1e-9)
        assert info.converged
        return V, x, info.iterations

    V, x, iterations = found(comm)
    y, expected = of_rank_0(comm, lambda: found(Serial())[1:])
    assert iterations == expected
    np.testing.assert_allclose(x, y[piece(V)], atol=1e-8 * abs(y).max())


@pytest.mark.parallel(2)
@pytest.mark.parametrize("relaxation", ["lines", "patches"])
def test_a_rank_that_is_short_of_memory_decides_for_all(comm, relaxation, monkeypatch):
    def fail(*args, **options):
        raise MemoryError

    if comm.rank == 1:
        monkeypatch.setattr(blocks, "splu", fail)
        monkeypatch.setattr(blocks, "_inverses", fail)
    V = femops.H1(femops.box((20, 20), comm=comm), 4)
    A = femops.diffusion(V, kappa=np.diag([1.0, 1e-3])).constrained(V.boundary_dofs())
    warned = pytest.warns(ConvergenceWarning, match="rank 1 of 2 failed: MemoryError")
    with warned if comm.rank == 0 else nullcontext():
        M = femops.multigrid(A, relaxation=relaxation)
    assert M.relaxation == "points"
    reason = "memory does not suffice" if comm.rank else "rank 1 of 2 failed: MemoryError: "
    assert M.relaxation_reason == f"relaxation={relaxation!r} is not possible: {reason}"


@pytest.mark.parallel(2)
def test_ranks_choose_alike_where_they_measure_otherwise(comm, monkeypatch):
    """On machines of several kinds, cycles on levels that each rank has are rounded otherwise."""
    measured = choice.factor
    monkeypatch.setattr(choice, "factor", lambda *of: measured(*of) * (0.5 if comm.rank else 1.0))
    V = femops.H1(femops.box((20, 20), comm=comm), 4)
    A = femops.diffusion(V, kappa=np.diag([1.0, 1e-3])).constrained(V.boundary_dofs())
    M = femops.multigrid(A)
    assert (M.relaxation, M.relaxation_reason) == comm.broadcast(("lines", M.relaxation_reason))


@pytest.mark.parallel(2, 3)
@pytest.mark.parametrize(
    ("order", "ncomp", "long"),
    [(4, 1, 5.0), pytest.param(3, 2, 20.0, marks=pytest.mark.exhaustive)],
)
def test_reproducible_ranks_relax_by_elements(comm, order, ncomp, long):
    def found(ranks):
        mesh = femops.box((6, 4, 3), upper=(1.0, long, 1.0), comm=ranks, reproducible=True)
        V, M, (x, info) = solved_on(femops.H1(mesh, order, ncomp), [1, 3])
        assert M.relaxation == "elements"
        return V, x, info.iterations

    V, x, iterations = found(comm)
    y, expected = of_rank_0(comm, lambda: found(Serial())[1:])
    assert iterations == expected
    np.testing.assert_array_equal(x, y[piece(V)])


@pytest.mark.parallel(2, 3)
def test_reproducible_ranks_keep_points(comm):
    mesh = femops.box((20, 20), comm=comm, reproducible=True)
    V = femops.H1(mesh, 4)
    A = femops.diffusion(V, kappa=np.diag([1.0, 1e-3])).constrained(V.boundary_dofs())
    M = femops.multigrid(A, relaxation="points")
    assert M.relaxation == "points"
    with pytest.raises(SolverError, match="relaxation='lines' does not give the same bits"):
        femops.multigrid(A, relaxation="lines")
