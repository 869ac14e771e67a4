"""An operator on many vectors at once is what it is on each of them, and what its matrix is."""

import numpy as np
import pytest

import femops
from femops.errors import OperatorError, VectorError
from femops_kernels import spec
from femops_kernels.cpu import machine
from femops_kernels.pointwise.qdata import ALIGNMENT, aligned_array
from support.cases.kernels import bend, smooth
from support.cases.levels import LEVELS
from support.teams import each_team

ODD = 11
"""Vectors: a lane of float64, and some that begin inside it."""


def columns(operator, nvec):
    return np.random.default_rng(nvec).standard_normal((operator.shape[1], nvec))


def curved(order=3):
    mesh = femops.box((3, 2, 2), mapping=bend, order=2)
    return femops.H1(mesh, order)


@pytest.fixture(scope="module")
def operator():
    V = curved()
    A = femops.diffusion(V, smooth) + femops.mass(V)
    return A.constrained(V.boundary_dofs())


@pytest.mark.parametrize("nvec", [0, 1, 4, 5, 7, 8, 9, 15, 16, 33])
def test_any_number_of_vectors(operator, nvec):
    """Of any size, in any order of memory."""
    u, matrix = columns(operator, nvec), operator.assemble()
    most = abs(matrix).sum(axis=1).max()
    for scale, order in ((1.0, "C"), (1e-150, "F"), (1e150, "C")):
        given = np.asarray(scale * u, order=order)
        result = operator @ given
        assert result.shape == u.shape
        assert np.abs(result - matrix @ given).max(initial=0.0) <= scale * 1e-13 * most * 5
        alone = np.reshape([operator @ column for column in given.T], u.T.shape).T
        assert np.abs(result - alone).max(initial=0.0) <= 1e-13 * np.abs(alone).max(initial=0.0)


def test_what_is_not_finite_stays_in_its_vector(operator):
    u = columns(operator, ODD)
    clean = operator @ u
    u[:, 3], u[:, ODD - 1] = np.inf, np.nan
    result = operator @ u
    others = [k for k in range(ODD) if k not in (3, ODD - 1)]
    assert np.array_equal(result[:, others], clean[:, others])
    assert not np.isfinite(result[:, 3]).all()


@pytest.mark.parametrize("kind", [np.complex128, np.complex64])
def test_complex_vectors(operator, kind):
    u = columns(operator, 6) + 1j * columns(operator, 7)[:, 1:]
    given = u.astype(kind)
    expected = operator @ given.real.astype(float) + 1j * (operator @ given.imag.astype(float))
    result = operator @ given
    assert result.dtype == np.complex128
    assert np.abs(result - expected).max() < 1e-13 * np.abs(expected).max()
    one = operator @ given[:, 0]
    assert one.shape == (operator.shape[0],)
    assert np.abs(one - expected[:, 0]).max() < 1e-13 * np.abs(expected).max()


@pytest.mark.sample(2)
@pytest.mark.parametrize("level", LEVELS)
def test_levels_sums_and_boundaries(level):
    V = curved(2)
    held = V.boundary_dofs()[::3]
    A = femops.diffusion(V, smooth) - 3.0 * femops.mass(V, smooth, quadrature=5)
    A = (A + femops.boundary_mass(V, smooth)).at_level(level)
    for operator in (A, A.constrained(held), A.eliminated(held[:4], held[2:]), 2.0 * A):
        u, matrix = columns(operator, ODD), operator.assemble()
        most = np.abs(matrix @ u).max()
        assert np.abs(operator @ u - matrix @ u).max() < 1e-13 * most


@pytest.mark.parametrize("elements", [(5, 5, 5), (3, 3, 3)])
def test_the_bits_do_not_depend_on_threads(elements):
    """Chunks are shared out where elements are many, vectors where they are few."""
    V = femops.H1(femops.box(elements, mapping=bend, order=2), 3)
    A = femops.diffusion(V, smooth).constrained(V.boundary_dofs())
    u, found = columns(A, 70), []
    for _ in each_team(*sorted({1, machine.max_threads()})):
        found += [A @ u, A.at_level("element") @ u]
    assert all(np.array_equal(found[k % 2], one) for k, one in enumerate(found))


def shifted(x, numbers):
    """Copy of x that begins ``numbers`` numbers behind the begin of a cache line."""
    memory = aligned_array((x.size + numbers,), x.dtype)[numbers:]
    memory[:] = x.ravel()
    return memory.reshape(x.shape)


@pytest.fixture(scope="module", params=["float64", "float32"])
def on_boxes(request):
    """An operator of 1-D matrices, whose chunks share dofs."""
    V = femops.H1(femops.box((5, 5, 5)), 2)
    return femops.diffusion(V, dtype=request.param).constrained(V.boundary_dofs())


@pytest.mark.sample(3)
@pytest.mark.parametrize("nvec", [8, 9, 33, 56, 64, 72, 100, 129])
def test_rows_may_begin_inside_cache_lines(operator, on_boxes, nvec):
    """Blocks of vectors are shifted; the bits stay the same."""
    for A in (operator, on_boxes):
        x = columns(A, nvec).astype(A.dtype)
        expected = A @ shifted(x, 0)
        for _ in each_team(*sorted({1, machine.max_threads()})):
            for numbers in (1, 2, 5, 7):
                given = shifted(x, numbers)
                result = A @ given
                assert np.array_equal(result, expected)
                padded = x[0].nbytes < ALIGNMENT  # the result is a part of that of more vectors
                assert padded or (result.ctypes.data - given.ctypes.data) % ALIGNMENT == 0


@pytest.mark.parametrize("shifts", [(0, 3), (3, 0), (1, 5)])
def test_vectors_and_results_may_begin_at_different_bytes(on_boxes, shifts):
    x = columns(on_boxes, 80).astype(on_boxes.dtype)
    arrays = zip((x, x * np.nan), shifts, strict=True)
    given, result = (shifted(array[np.newaxis], numbers) for array, numbers in arrays)
    X, Y = (femops.MultiVector(on_boxes.space, a) for a in (given, result))
    on_boxes.apply_many(X, Y)
    assert np.array_equal(result[0], on_boxes @ x)


def test_vectors_between_words(operator):
    """The memory of a packed record is not aligned to its numbers; the result's is."""
    x = columns(operator, 64)
    packed = np.zeros(x.nbytes + 1, dtype=np.uint8)[1:].view(np.float64).reshape(x.shape)
    packed[:] = x
    result = operator @ packed
    assert result.flags.aligned
    assert np.array_equal(result, operator @ x)
    one = packed.reshape(-1)[: len(x)]
    assert np.array_equal(operator @ one, operator @ one.copy())


@pytest.mark.parametrize("make", [femops.mass, femops.diffusion])
def test_points_in_registers_and_in_memory_give_the_same(make, monkeypatch):
    """A q-function of more lines than kernels repeat stores the points of a line."""
    V = curved(2)
    x = columns(make(V), ODD)
    short = make(V, smooth)
    many, one = short @ x, short @ x[:, 0]
    monkeypatch.setattr(spec, "MOST_REPEATED", 0)
    long = make(V, smooth)
    assert np.abs(long @ x - many).max() < 1e-14 * np.abs(many).max()
    assert np.abs(long @ x[:, 0] - one).max() < 1e-14 * np.abs(one).max()


def test_panels_are_columns(operator):
    nvec, count = 9, 3
    x = np.random.default_rng(1).standard_normal((count, operator.shape[1], nvec))
    y = np.full((count, operator.shape[0], nvec), 7.0)
    X, Y = (femops.MultiVector(operator.space, a) for a in (x, y))
    operator.apply_many(X, Y)
    for given_panel, result in zip(x, y, strict=True):
        assert np.array_equal(result, operator @ given_panel)


def test_the_input_is_not_changed_and_may_be_read_only(operator):
    u = columns(operator, ODD)
    kept = u.copy()
    u.flags.writeable = False
    first = operator @ u
    assert np.array_equal(u, kept)
    assert np.array_equal(first, operator @ u)


def test_coefficients_are_those_of_the_operator():
    V = curved(2)
    A = femops.mass(V, rho=2.0)
    u = columns(A, ODD)
    before = A @ u
    B = A.update(rho=4.0)
    assert np.allclose(B @ u, 2.0 * before, rtol=1e-14)
    assert np.array_equal(A @ u, before)


def test_bad_columns(operator):
    n = operator.shape[1]
    with pytest.raises(VectorError, match="columns"):
        operator @ np.zeros((n + 1, 12))
    with pytest.raises(VectorError, match="type object: give numbers"):
        operator @ np.zeros((n, 12), dtype=object)


def test_memory_is_asked_for_beforehand(operator):
    u = np.broadcast_to(np.zeros((operator.shape[1], 1)), (operator.shape[1], 10**9))
    with pytest.raises(OperatorError, match="GiB are free: take fewer at once"):
        operator @ u
