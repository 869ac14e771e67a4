"""Arrays are written first by the threads that work on them; what is computed stays the same."""

import sys
import threading
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest

import femops
from femops.operators.integrals.arguments import Arguments
from femops.operators.integrals.chunks import chunk_batches, plans
from femops.spaces.boundary_space import boundary_spaces
from femops_kernels.cpu import first_touch as placement
from femops_kernels.cpu import machine, sweep
from femops_kernels.cpu.first_touch import placed, placed_array
from femops_kernels.cpu.identity_rows import IdentityRows
from femops_kernels.cpu.rows import placed_rows

linux = pytest.mark.skipif(sys.platform != "linux", reason="Linux tells each thread's page faults")


@pytest.fixture
def threads():
    """All of them; as many as before afterwards."""
    before = machine.get_threads()
    machine.set_threads(machine.max_threads())
    if machine.max_threads() == 1:
        pytest.skip("one thread has nothing to place")
    yield machine.max_threads()
    machine.set_threads(before)


@pytest.fixture
def touched(monkeypatch, threads):
    """Chunks of the launches that touch, in words, of memory that is not zero beforehand."""
    found = []

    def record(*arguments):
        found.append(arguments[-1])
        return IdentityRows(*arguments)

    monkeypatch.setattr(placement, "IdentityRows", record)
    monkeypatch.setattr(
        placement, "_untouched", lambda nbytes: np.full(nbytes, 0xFF, dtype=np.uint8)
    )
    return found


def partition(cuts, words):
    """Whether each word is in one chunk."""
    return cuts[0] == 0 and cuts[-1] == words and all(a <= b for a, b in pairwise(cuts))


def test_each_word_is_zeroed_in_one_chunk(touched):
    edges = np.array([0, 4, 4, 100, 101, 333])
    for dtype, row in product(("float64", "float32", "uint16"), ((), (7,), (3, 5, 8))):
        array = placed_array((333, *row), dtype, edges)
        assert array.shape == (333, *row)
        assert array.dtype == dtype
        assert array.flags.c_contiguous
        assert not array.view(np.uint8).any()
        cuts = touched[-1]
        assert partition(cuts, -(-array.nbytes // 8))
        # a word is in the chunk of its first byte
        begins = edges * (array.nbytes // 333)
        assert np.all((8 * cuts - begins >= 0) & (8 * cuts - begins < 8))
    assert len(touched) == 9
    # what lies behind the last edge is not touched
    array = placed_array((10,), "uint8", np.array([0, 3, 8]))
    assert array.tolist() == [0] * 8 + [0xFF] * 2


def test_parts_are_equal_where_there_are_no_chunks(touched):
    array = placed_array((10_000,), "float32")
    assert not array.any()
    [cuts] = touched
    assert np.diff(cuts).tolist() == [2048, 2048, 904]


@pytest.mark.parametrize(("dtype", "n"), [("float64", 1000), ("float32", 1001)])
def test_rows_of_several_vectors_are_split_one_by_one(touched, dtype, n):
    vectors = placed_array((4, n), dtype, np.array([0, 200, 900, n]), axis=1)
    assert not vectors.any()
    assert len(touched) == 4
    each = np.concatenate([np.arange(cuts[0], cuts[-1]) for cuts in touched])
    assert np.array_equal(each, np.arange(-(-vectors.nbytes // 8)))


def test_data_have_the_chunks_of_the_sweep(touched):
    V = femops.H1(femops.box((5, 4, 3), mapping=lambda x: x * (1 + 0.1 * x[::-1])), 3)
    A = femops.diffusion(V)
    [sweep_] = A.compiled.sweeps
    data, plan = sweep_.data.points, sweep_.dofs[0].source
    row = data[0].nbytes // 8
    stored, *lists = touched
    assert np.array_equal(stored, plan.first_batch * row)
    assert any(
        np.array_equal(cuts, -(-plan.first_batch * plan.starts[0].nbytes // 8)) for cuts in lists
    )
    assert all(len(cuts) == plan.nchunks + 1 for cuts in touched)


@pytest.mark.parametrize("space", ["volume", "faces"])
def test_chunks_are_known_without_their_plans(space):
    V = femops.H1(femops.box((9, 8, 7)), 2)
    V = V if space == "volume" else boundary_spaces(V, None, slopes=False)[0]
    for width in (2, 8):
        given = Arguments.of(V), Arguments.of(V), np.dtype("float32"), width
        ((source, target),) = plans(*given)
        edges = chunk_batches(*given)
        assert source is target
        assert np.array_equal(edges, source.first_batch)
        assert edges[-1] == len(source.starts)


def test_a_matrix_is_cut_into_its_chunks_of_rows(touched):
    counts = np.random.default_rng(0).integers(0, 99, 2000)
    start = np.concatenate([[0], np.cumsum(counts)])
    columns = np.arange(start[-1], dtype=np.int32)
    values = np.arange(start[-1]) + 0.5
    near = placed_rows(start, columns, values)
    assert all(np.array_equal(a, b) for a, b in zip(near, (start, columns, values), strict=True))
    rows, first_columns, first_values = touched
    assert partition(rows, len(start))
    assert partition(first_values, len(values))
    assert np.array_equal(first_values, [*start[rows[:-1]], len(values)])
    assert np.array_equal(first_columns, -(-first_values // 2))


def test_small_arrays_and_one_thread_touch_nothing(touched, monkeypatch):
    machine.set_threads(1)
    array = np.arange(1000.0)
    assert placed(array) is array
    assert not placed_array((1000,), "float64").any()
    machine.set_threads(2)
    assert placed(array) is not array
    assert np.array_equal(placed(array), array)
    touched.clear()
    monkeypatch.setattr(sweep, "PARALLEL_ENTRIES", 1001)
    assert placed(array) is array
    assert not placed_array((1000,), "float64").any()
    assert touched == []


def faults(thread):
    """Pages that a thread was the first to touch."""
    text = Path(f"/proc/self/task/{thread}/stat").read_text()
    return int(text.rsplit(")", 1)[1].split()[7])


@pytest.fixture
def new_faults(threads, monkeypatch):
    """How many pages each thread was the first to touch while something is done."""
    monkeypatch.delattr(placement.mmap, "MADV_HUGEPAGE", raising=False)
    if not faults(threading.get_native_id()):
        pytest.skip("this system does not count page faults")
    workers = machine.thread_ids()

    def count(work):
        before = [faults(thread) for thread in workers]
        result = work()
        return np.subtract([faults(thread) for thread in workers], before), result

    return count


@linux
def test_pages_are_those_of_the_threads(new_faults):
    placed_array((4096,), "float64")  # compiled
    each, array = new_faults(lambda: placed_array((3 * 2**20,), "float64"))
    assert each.min() > 0
    assert each.max() < 2 * each.min() + 8  # equal parts
    me = threading.get_native_id()
    own = faults(me)
    array += 1.0
    assert faults(me) - own < each.sum() / 4 + 50


@linux
def test_a_result_is_first_touched_by_the_sweep(new_faults, monkeypatch):
    # else a thread that comes late, as where others work too, finds its part done
    monkeypatch.setattr(machine, "team_of", partial(machine.team_of, strict=True))
    A = femops.mass(femops.H1(femops.box((48, 48, 48)), 1))
    x = A @ np.ones(A.shape[0])
    y = placement._untouched(x.nbytes).view(x.dtype)
    each, _ = new_faults(lambda: A.apply(x, y))
    assert each.min() > 0
    assert each.max() < 2 * each.min() + 8
    assert np.array_equal(y, A @ x)


@pytest.mark.parametrize("level", ["full", "element", "partial"])
def test_results_have_the_same_bits(threads, level):
    mesh, dtype = femops.box((9, 8), mapping=lambda x: x * (1 + 0.1 * x[::-1])), "float32"
    results = []
    for count in (1, threads):
        machine.set_threads(count)
        V = femops.H1(mesh, 2)  # with plans of its own
        A = femops.diffusion(V, level=level, dtype=dtype) + femops.mass(V, level=level, dtype=dtype)
        b = np.sin(np.arange(V.size, dtype=dtype))
        solutions = [
            femops.cg(A, b, M=M, rtol=1e-4, maxiter=30, warn=False)[0]
            for M in (None, femops.jacobi(A))
        ]
        results.append([A @ b, A.diagonal(), *solutions])
    assert all(np.array_equal(a, b) for a, b in zip(*results, strict=True))


def test_memory_that_is_not_there_is_said(threads):
    with pytest.raises(MemoryError, match="bytes for an array"):
        placed_array((2**58,), "float64", np.array([0, 2**58]))
