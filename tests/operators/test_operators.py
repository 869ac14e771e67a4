"""Operators as objects: sums, factors, vectors, essential conditions; always against the oracle."""

import threading

import numpy as np
import pytest
import scipy.sparse

import femops
from femops.operators.integrals.chunks import chunk_words
from femops_kernels.cpu import plan
from femops_kernels.cpu.machine import set_threads, tuning_key
from femops_kernels.tuning.database import trying
from support import fixtures
from support.cases.kernels import Problem, bend, random_vector, smooth, tensor, turned, wave
from support.cases.levels import LEVELS
from support.oracles.naive import Oracle

problem = fixtures.problem


@pytest.fixture(scope="module")
def pair():
    return Problem(ncomp=2)


# --- sums and factors -----------------------------------------------------------------------------


def test_sums_and_factors(problem):
    a, b, u = problem.mass, problem.diffusion, problem.u
    mass, diffusion = problem.dense_mass, problem.dense_diffusion
    cases = [
        (a + b, mass + diffusion),
        (a + 2.5 * b, mass + 2.5 * diffusion),
        (b * 3, 3.0 * diffusion),
        (b - 0.5 * a, diffusion + -0.5 * mass),
        (-a, -1.0 * mass),
        (2 * (a + b) + a, 3.0 * mass + 2.0 * diffusion),
        (sum([a, b / 2]), mass + 0.5 * diffusion),
    ]
    for operator, matrices in cases:
        assert isinstance(operator, femops.Operator)
        assert matrices.error(operator.apply(u), u) < 1e-13
        np.testing.assert_allclose(
            operator.diagonal(), matrices.diagonal(), atol=1e-13 * abs(matrices.diagonal()).max()
        )
        expected = matrices.assembled()
        assert abs(operator.assemble() - expected).max() < 1e-13 * abs(expected).max()


@pytest.mark.parametrize("level", LEVELS)
def test_a_factor_may_be_zero(problem, level):
    """As that of damping that is left out. Conditions of the sum do not go through the zero."""
    V, u = problem.space, problem.u
    K, around = femops.diffusion(V, level=level), femops.boundary_mass(V, 2.0, level=level)
    M = femops.mass(V, smooth, level=level)
    none, dofs = 0.0 * K, np.arange(3)
    assert not (none @ u).any()
    assert not none.diagonal().any()
    np.testing.assert_allclose(
        (none + around).constrained(dofs) @ u, around.constrained(dofs) @ u, rtol=1e-14
    )
    assert problem.dense_mass.error((M + none) @ u, u) < 1e-13
    with pytest.raises(femops.errors.OperatorError, match=r"write \(0.0 \* A.unconstrained\)"):
        0.0 * K.constrained(dofs)


@pytest.mark.parametrize("level", ["partial", "matrix-free"])
@pytest.mark.parametrize("mapping", [None, bend])
def test_a_sum_over_two_rules_of_the_same_points(level, mapping):
    points, weights = femops.basis.gauss(3).points, np.array([0.2, 0.3, 0.5])
    other = femops.basis.Quadrature1D(points, weights, "skewed")
    space = femops.H1(femops.box((3, 2), order=2, mapping=mapping), 2)
    A, B = (femops.mass(space, quadrature=q, level=level) for q in (femops.basis.gauss(3), other))
    u = random_vector(space, "float64")
    expected = A @ u + 2.0 * (B @ u)
    gap = (A + 2.0 * B) @ u - expected
    assert abs(gap).max() < 1e-13 * abs(expected).max()


def test_a_sum_over_two_lane_widths(problem):
    both = femops.mass(problem.space, smooth, lanes=2) + femops.diffusion(problem.space, lanes=8)
    dense = problem.dense_mass + problem.dense_diffusion
    assert dense.error(both.apply(problem.u), problem.u) < 1e-13


def test_constrained_rows_that_cancel_in_a_sum_are_refused(problem):
    """Solutions had zeros in place of the prescribed values: those of K - M, say."""
    dofs = problem.space.boundary_dofs()
    K, M = (A.constrained(dofs) for A in (problem.diffusion, problem.mass))
    with pytest.raises(femops.errors.OperatorError, match=r"the diagonals .* cancel in the sum"):
        K - M
    b = (K - 3.0 * M).rhs(problem.space.zeros(), 5.0)
    np.testing.assert_array_equal(b[dofs], -10.0)


def test_operators_of_different_spaces_or_types_are_not_added(problem):
    other = femops.H1(problem.mesh, 3)
    with pytest.raises(femops.errors.OperatorError, match=r"different spaces.*; make both"):
        problem.mass + femops.mass(other)
    with pytest.raises(femops.errors.OperatorError, match="float32"):
        problem.mass + femops.mass(problem.space, dtype="float32")


@pytest.mark.parametrize(
    ("dtype", "factor", "again"),
    [
        ("float64", 1e-200, 1e-200),
        ("float64", 1e200, 1e200),
        ("float64", 1e-160, 1e-150),  # few digits are left
        ("float32", 1e-30, 1e-30),
        ("float32", 1e-45, 1.0),
        ("float32", 1.0, 1e45),
    ],
)
def test_factors_whose_product_is_out_of_range_are_refused(dtype, factor, again):
    V = femops.H1(femops.box((2, 2)), 1)
    A = femops.diffusion(V, dtype=dtype)
    pair = femops.Product(u=V, v=V)
    both = femops.form(lambda u, v: {"u": {"value": u}, "v": {"value": v}}, pair, dtype=dtype)
    for made in (A, A.constrained([0]), both.constrained([0])):
        with pytest.raises(femops.errors.OperatorError, match="scale the coefficients"):
            again * (factor * made)


def test_factors_and_divisors_that_make_no_sense_are_refused(problem):
    for divisor in (0, 0.0, 1e-310, np.inf, np.nan):
        with pytest.raises(femops.errors.OperatorError, match=f"divided by {divisor}"):
            problem.mass / divisor
    for factor in (np.nan, np.inf):
        with pytest.raises(femops.errors.OperatorError, match="finite"):
            factor * problem.mass


# --- vectors --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:.*column vectors:FutureWarning")  # of SciPy 1.18
def test_every_way_to_apply_gives_the_same_bits(pair):
    operator, u = pair.mass, pair.u
    expected = operator.apply(u)
    assert expected.shape == u.shape == (pair.space.size,) == (2 * pair.space.ndofs,)
    for result in (operator @ u, operator.dot(u), operator * u, operator.matvec(u)):
        assert result.tobytes() == expected.tobytes()
    column = operator.matvec(u[:, None])
    assert column.shape == (pair.space.size, 1)
    assert column.tobytes() == expected.tobytes()
    for transposed in (operator.T @ u, operator.H @ u, operator.rmatvec(u)):
        assert transposed.tobytes() == expected.tobytes()
    many = np.stack([u, 2 * u, -u], axis=1)
    block = operator @ many
    assert block.shape == many.shape
    one_by_one = np.stack([operator @ many[:, k] for k in range(3)], axis=1)
    # with narrow lanes they are done at once, and sums over elements are in another order
    np.testing.assert_allclose(block, one_by_one, rtol=0, atol=1e-14 * np.abs(expected).max())


BAD_VECTORS = [
    (r"has 5 entries, the space has \d+: make one with V.zeros\(\)", lambda n: np.zeros(5)),
    ("entries", lambda n: np.zeros(0)),
    ("shape", lambda n: np.zeros((n, 2))),
    ("float32", lambda n: np.zeros(n, np.float32)),
    ("int64", lambda n: np.zeros(n, np.int64)),
    ("complex128", lambda n: np.zeros(n, complex)),
    ("object", lambda n: np.zeros(n, object)),
    ("list", lambda n: [0.0] * n),
    ("x is None", lambda n: None),
    ("contiguous", lambda n: np.zeros(2 * n)[::2]),
    ("aligned", lambda n: np.zeros(8 * n + 1, np.uint8)[1:].view(np.float64)),
]


@pytest.mark.parametrize(("what", "make"), BAD_VECTORS)
def test_a_vector_that_does_not_fit_is_refused(problem, what, make):
    bad = make(problem.space.size)
    with pytest.raises(femops.errors.VectorError, match=what):
        problem.mass.apply(bad)
    if "entries" in what or what == "object":
        with pytest.raises(femops.errors.VectorError, match=what):
            problem.mass @ bad
    if bad is not None:
        with pytest.raises(femops.errors.VectorError, match=what):
            problem.mass.apply(problem.u, out=bad)


def test_out_that_overlaps_or_is_read_only_is_refused(problem):
    u = problem.u.copy()
    with pytest.raises(femops.errors.VectorError, match="overlaps"):
        problem.mass.apply(u, out=u)
    memory = np.zeros(2 * problem.space.size)
    with pytest.raises(femops.errors.VectorError, match="overlaps"):
        problem.mass.apply(memory[: len(u)], out=memory[1 : len(u) + 1])
    frozen = problem.space.zeros()
    frozen.flags.writeable = False
    with pytest.raises(femops.errors.VectorError, match="read-only"):
        problem.mass.apply(u, out=frozen)


def test_a_product_converts_whole_numbers_and_strides(problem):
    whole = np.arange(problem.space.size)
    expected = problem.mass.apply(whole.astype(float))
    np.testing.assert_array_equal(problem.mass @ whole, expected)
    spaced = np.repeat(whole.astype(float), 2)[::2]
    np.testing.assert_array_equal(problem.mass @ spaced, expected)


def test_two_python_threads_at_once(problem):
    operator = problem.mass + problem.diffusion
    inputs = [random_vector(problem.space, "float64", seed) for seed in range(4)]
    expected = [operator.apply(u).tobytes() for u in inputs]
    wrong = []

    def work(k):
        out = problem.space.zeros()
        for _ in range(20):
            operator.apply(inputs[k], out=out)
            wrong.extend([k] * (out.tobytes() != expected[k]))

    workers = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert not any(worker.is_alive() for worker in workers)
    assert wrong == []


# --- essential conditions -------------------------------------------------------------------------


def masked(matrices, dofs):
    """The matrix with rows and columns of some dofs those of the identity."""
    free = np.ones(matrices.ndofs * matrices.ncomp)
    free[dofs] = 0.0
    keep = scipy.sparse.diags(free)
    return keep @ matrices.assembled() @ keep + scipy.sparse.diags(1 - free)


CHOSEN = ("boundary", "one side", "component", "none", "all", "twice")


@pytest.mark.parametrize(("chosen", "level"), [*zip(CHOSEN, LEVELS * 2, strict=False)])
def test_constrained_operator_is_the_masked_matrix(pair, chosen, level):
    space, size = pair.space, pair.space.size
    dofs = {
        "boundary": space.boundary_dofs(),
        "one side": space.boundary_dofs(1),
        "component": space.boundary_dofs(components=[1]),
        "none": np.zeros(0, np.int64),
        "all": np.arange(size),
        "twice": np.array([7, 3, 7, 3, size - 1]),
    }[chosen]
    total = (pair.diffusion + pair.mass).at_level(level)
    plain = pair.dense_diffusion + pair.dense_mass
    for factor in (1.0, -2.0):
        operator, expected = factor * total.constrained(dofs), factor * masked(plain, dofs)
        most = abs(expected).max()
        assert operator.level == level
        assert np.linalg.norm(operator @ pair.u - expected @ pair.u) < 2e-13 * plain.scale(pair.u)
        assert abs(operator.assemble() - expected).max() < 1e-13 * most
        atol = 1e-13 * most
        np.testing.assert_allclose(operator.diagonal(), expected.diagonal(), rtol=0, atol=atol)
        np.testing.assert_array_equal(operator.constrained_dofs, np.unique(dofs))
        again = operator.constrained(dofs).apply(pair.u)
        assert again.tobytes() == operator.apply(pair.u).tobytes()
        assert (operator.unconstrained @ pair.u).tobytes() == (factor * total @ pair.u).tobytes()


def test_the_diagonal_is_zero_in_columns_that_alone_are_eliminated(problem):
    operator = (problem.diffusion + problem.mass).eliminated(rows=[1, 4], columns=[4, 7])
    matrix = operator.assemble()
    size = abs(matrix).max()
    for some in (operator, operator.T):
        np.testing.assert_allclose(some.diagonal(), matrix.diagonal(), rtol=0, atol=1e-13 * size)
        assert not some.diagonal()[[1, 4, 7]].any()


def test_right_hand_side_imposes_values(pair):
    space, dofs = pair.space, pair.space.boundary_dofs()
    operator = (pair.diffusion + pair.mass).constrained(dofs)
    plain = pair.dense_diffusion + pair.dense_mass
    b, g = pair.oracle.load(2.0), random_vector(space, "float64", 5)
    free, only = np.setdiff1d(np.arange(space.size), dofs), np.zeros(space.size)
    only[dofs] = g[dofs]
    kept = b.copy()
    rhs = operator.rhs(b, g)
    np.testing.assert_array_equal(b, kept)
    np.testing.assert_array_equal(rhs[dofs], g[dofs])
    assert np.linalg.norm((b - plain.assembled() @ only - rhs)[free]) < 1e-13 * plain.scale(only)
    zero = operator.rhs(b)
    assert np.all(zero[dofs] == 0)
    np.testing.assert_array_equal(zero[free], b[free])
    np.testing.assert_array_equal(operator.rhs(b, 3.0)[dofs], 3.0)
    columns = np.stack([b, g], axis=1)
    np.testing.assert_array_equal(operator.rhs(columns[:, 0], columns[:, 1]), rhs)


def test_exchanged_arguments_of_right_hand_sides():
    V = femops.H1(femops.box((3, 3)), 2)
    A = femops.diffusion(V).constrained(dofs := V.boundary_dofs())
    load, values, zero = femops.load(V, 1.0), V.zeros(), V.zeros()
    values[dofs] = 3.0
    with pytest.raises(femops.errors.VectorError, match=r"the arguments are A.rhs\(b, values\)"):
        A.rhs(values, load)
    for b, given in ((load, values), (zero, values), (zero, load), (values, values), (values, 0.0)):
        assert np.array_equal(A.rhs(b, given)[dofs], np.broadcast_to(given, V.size)[dofs])


def test_values_that_no_dof_takes_are_refused(problem):
    A, dofs = problem.mass, problem.space.boundary_dofs()
    product = femops.Product(u=problem.space, v=problem.space)
    block = femops.form(lambda u, v: {"u": {"value": u + v}, "v": {"value": v}}, product)
    for operator in (A, 2.0 * A, A.T, A.eliminated(rows=dofs), block):
        b = random_vector(operator.space, "float64")
        for values in (b, 3.0, np.zeros_like(b)):
            with pytest.raises(
                femops.errors.OperatorError, match=r"A\.constrained\(V\.boundary_dofs"
            ):
                operator.rhs(b, values)
        free = np.setdiff1d(np.arange(len(b)), operator.constrained_dofs)
        np.testing.assert_array_equal(operator.rhs(b)[free], b[free])
        if operator is not block:
            np.testing.assert_array_equal(A.constrained([]).rhs(b, 3.0), b)


def test_what_stands_at_constrained_dofs_does_not_reach_the_others(pair):
    dofs = pair.space.boundary_dofs()
    operator = pair.diffusion.constrained(dofs)
    u = pair.u.copy()
    expected = operator.apply(u)
    u[dofs] = 1e300
    result = operator.apply(u)
    free = np.setdiff1d(np.arange(pair.space.size), dofs)
    np.testing.assert_array_equal(result[free], expected[free])
    np.testing.assert_array_equal(result[dofs], 1e300)


@pytest.mark.parametrize("bad", [[-1], [10**9], [0.5], [[1, 2]], ["a"], 3, None])
def test_dofs_that_make_no_sense_are_refused(problem, bad):
    with pytest.raises(femops.errors.OperatorError, match="dofs"):
        problem.mass.constrained(bad)
    with pytest.raises(femops.errors.OperatorError, match=r"as np.flatnonzero\(dofs\)"):
        problem.mass.constrained(np.ones(problem.space.size, dtype=bool))
    with pytest.raises(femops.errors.OperatorError, match=r"V.boundary_dofs\('inlet'\)"):
        problem.mass.constrained("inlet")


# --- many chunks ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("counts", "p"), [((21, 19), 4), ((9, 7, 5), 2)])
def test_a_mesh_of_many_chunks(counts, p):
    mesh = turned(femops.box(counts, order=2, periodic=(True,) * len(counts), mapping=wave))
    space = femops.H1(mesh, p)
    oracle = Oracle(mesh.coordinates, space.restriction.indices)
    operator, dense = femops.diffusion(space, tensor), oracle.diffusion(tensor)
    u = random_vector(space, "float64")
    results = []
    for threads in (1, 2, 3):
        set_threads(threads)
        results.append(operator.apply(u))
    assert dense.error(results[0], u) < 1e-13
    assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()
    ones = np.ones(space.size)
    assert np.linalg.norm(operator.apply(ones)) < 1e-13 * dense.scale(ones)


# --- copies, sums, quotients ---------------------------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("level", ["partial", "element"])
@pytest.mark.parametrize("grow", [True, False])
def test_operators_outlive_a_change_of_the_tuning_database(level, grow, monkeypatch):
    """Chunks have numbers of 2 bytes before and of 4 after, or the reverse."""
    monkeypatch.setattr(plan, "FEWEST_CHUNKS", 1)
    space = femops.H1(femops.box((34, 34)), 8)
    key = tuning_key(chunk_words(space, space, np.dtype(np.float64)))
    x, dofs, results = random_vector(space, "float64"), space.boundary_dofs(), []
    for large in (not grow, grow):
        with trying(key, {"chunk_bytes": 2**21 if large else 2**17}):
            if not results:
                operator = femops.mass(space, level=level)
                results.append(operator.constrained(dofs) @ x)
                _ = operator @ x  # keeps a kernel
            else:
                results.append(operator.constrained(dofs) @ x)
    assert abs(results[1] - results[0]).max() < 1e-13 * abs(results[0]).max()


def test_what_an_operator_has_instead_of_a_matrix(problem):
    for name, words in (("toarray", r"A.assemble\(\).toarray"), ("solve", r"femops.cg\(A, b\)")):
        with pytest.raises(AttributeError, match=words):
            getattr(problem.mass, name)
    with pytest.raises(AttributeError, match="no attribute 'unlike'"):
        problem.mass.unlike  # noqa: B018
    assert not hasattr(problem.mass, "nnz")


def test_values_that_are_not_imposed():
    V = femops.H1(femops.box((2, 2)), 2)
    dofs = V.boundary_dofs()
    A, b = femops.diffusion(V).constrained(dofs), V.zeros()
    for values, words in (([0.0] * len(dofs), "list"), ("zero", "'zero': give a NumPy array")):
        with pytest.raises(femops.errors.VectorError, match=words):
            A.rhs(b, values)
    with pytest.raises(femops.errors.VectorError, match="b is an Operator: give a NumPy array"):
        A.rhs(A)
    for bad in (np.nan, np.inf):
        g = V.zeros()
        g[dofs[3]] = bad
        for load, values in ((b, g), (b, bad), (b + g, 0.0)):
            with pytest.raises(femops.errors.VectorError, match="not finite"):
                A.rhs(load, values)
        g = np.where(np.isin(np.arange(V.size), dofs), 0.0, bad)
        assert np.isfinite(A.rhs(b, g)).all()  # entries that are not imposed are not looked at
