"""Runs of dofs: nodes of an element in pieces, their addresses, lines gathered and scattered."""

import itertools

import numpy as np
import pytest

from femops_kernels.simd.lanes import Lane
from femops_kernels.simd.runs import PIECES, equal_runs
from support.kernels import compiled

SHAPES = [
    equal_runs(dim, p1d, broken)
    for dim, p1d, broken in itertools.product((1, 2, 3), (1, 2, 3, 5), (False, True))
    if p1d > 1 or broken
]


def entity(digits, p1d):
    """Nodes of a vertex, edge, face or interior, x fastest, written out."""
    grid = itertools.product(range(p1d), repeat=len(digits))  # z first
    found = []
    for node in grid:
        kinds = [0 if i == 0 else 2 if i == p1d - 1 else 1 for i in reversed(node)]
        if kinds == list(digits):
            found.append(sum(i * p1d**d for d, i in enumerate(reversed(node))))
    return found


@pytest.mark.parametrize("runs", SHAPES, ids=str)
def test_every_node_is_in_one_run_and_lines_are_made_of_runs(runs):
    nodes = np.concatenate(runs.nodes)
    np.testing.assert_array_equal(np.sort(nodes), np.arange(runs.p1d**runs.dim))
    assert runs.longest == max(len(n) for n in runs.nodes)
    codes = (tuple(reversed(t)) for t in itertools.product(range(3), repeat=runs.dim))
    expected = [entity(digits, runs.p1d) for digits in codes]
    if not any(runs.closed):
        assert len(runs.nodes) == 1
    else:
        assert [n.tolist() for n in runs.nodes] == [n for n in expected if n]
    grid = np.arange(runs.p1d**runs.dim).reshape((runs.p1d,) * runs.dim)
    for along in range(runs.dim):
        lines = np.moveaxis(grid, runs.dim - 1 - along, -1).reshape(-1, runs.p1d)
        for j, line in enumerate(lines):
            pieces = runs.line(along, j)
            got = [runs.nodes[k][a + np.arange(n) * s] for k, a, s, n in pieces]
            np.testing.assert_array_equal(np.concatenate(got), line)


@pytest.mark.parametrize(
    ("runs", "dtype", "ncomp"),
    [
        (equal_runs(3, 4), "float64", 1),
        (equal_runs(3, 2), "float64", 3),
        (equal_runs(2, 3, broken=True), "float32", 3),
    ],
    ids=str,
)
def test_lines_gathered_and_scattered(runs, dtype, ncomp):
    """Slots may share runs, and all of their updates count."""
    width = 8
    lane, rng = Lane(width, dtype), np.random.default_rng(1)
    x = rng.standard_normal((4 * runs.longest, ncomp)).astype(dtype)
    first = rng.integers(0, 3 * runs.longest, (len(runs.nodes), width))
    p1d, lines = runs.p1d, runs.p1d ** (runs.dim - 1)
    last = runs.dim - 1
    gathered = np.zeros((ncomp, lines, p1d, width), dtype)
    y = np.zeros_like(x)

    run = compiled(
        """
        @function
        def run(reads, writes, out):
            for c in range(ncomp):
                for j in range(lines):
                    line = gather_nodes(lane, runs, ncomp, reads, last, j, c)
                    store_line(lane, out, (c * lines + j) * p1d, 1, line)
                    line = gather_nodes(lane, runs, ncomp, reads, 0, j, c)
                    scatter_nodes(lane, runs, ncomp, writes, 0, j, c, line)
        """,
        ncomp=ncomp,
        lines=lines,
        lane=lane,
        runs=runs,
        last=last,
        p1d=p1d,
    ).run

    dof = ncomp * x.itemsize
    reads, writes = x.ctypes.data + first * dof, y.ctypes.data + first * dof
    run(reads.ctypes.data, writes.ctypes.data, gathered.ctypes.data)
    expected, grid = np.zeros_like(x), np.arange(p1d**runs.dim).reshape(p1d, lines)
    values = np.empty((p1d**runs.dim, width, ncomp), dtype)
    for k, nodes in enumerate(runs.nodes):
        dofs = first[k] + np.arange(len(nodes))[:, None]
        values[nodes] = x[dofs]
        np.add.at(expected, dofs, x[dofs])
    np.testing.assert_array_equal(gathered, np.moveaxis(values[grid.T], -1, 0))
    np.testing.assert_allclose(y, expected, rtol=1e-14 if dtype == "float64" else 1e-6)


def test_pieces_have_every_number_once():
    for runs, ncomp, width in itertools.product(SHAPES, (1, 3), (1, 2, 4, 16)):
        seen = [np.zeros(len(nodes) * ncomp, int) for nodes in runs.nodes]
        for n in PIECES:
            for run, first in runs.pieces(n, ncomp, width):
                assert n <= width
                assert first + n <= len(seen[run])
                seen[run][first : first + n] += 1
        assert all((count == 1).all() for count in seen), (runs, ncomp, width)


@pytest.mark.parametrize(
    ("runs", "width", "dtype", "ncomp"),
    [
        (equal_runs(3, 5), 8, "float64", 1),
        (equal_runs(3, 5), 4, "float64", 3),
        (equal_runs(2, 4, broken=True), 16, "float32", 2),
    ],
    ids=str,
)
def test_pieces_read_and_added_to(runs, width, dtype, ncomp):
    """Numbers go where single ones go; slots may share runs, and all of their updates count."""
    lane, rng = Lane(width, dtype), np.random.default_rng(1)
    x = rng.standard_normal((4 * runs.longest, ncomp)).astype(dtype)
    first = rng.integers(0, 3 * runs.longest, (len(runs.nodes), width))
    side = runs.p1d**2
    plane, component = side + 3, (side + 3) * (runs.p1d if runs.dim > 2 else 1) + 2
    out, y = np.zeros((ncomp * component, width), dtype), np.zeros_like(x)

    run = compiled(
        """
        @traced
        def read_and_add(reads, writes, nodes):
            for n in PIECES:
                for k in range(len(runs.pieces(n, ncomp, width))):
                    gather_piece(lane, runs, ncomp, n, (plane, component), reads, nodes, k)
            for n in PIECES:
                for k in range(len(runs.pieces(n, ncomp, width))):
                    scatter_piece(lane, runs, ncomp, n, (plane, component), writes, nodes, k)

        @function
        def run(reads, writes, nodes):
            read_and_add(reads, writes, nodes)
        """,
        lane=lane,
        runs=runs,
        ncomp=ncomp,
        plane=plane,
        component=component,
        width=width,
        PIECES=PIECES,
    ).run

    dof = ncomp * x.itemsize
    reads, writes = x.ctypes.data + first * dof, y.ctypes.data + first * dof
    run(reads.ctypes.data, writes.ctypes.data, out.ctypes.data)
    expected, found = np.zeros_like(x), np.zeros_like(out)
    for k, nodes in enumerate(runs.nodes):
        dofs = first[k] + np.arange(len(nodes))[:, None]
        np.add.at(expected, dofs, x[dofs])
        for c in range(ncomp):
            found[nodes % side + nodes // side * plane + c * component] = x[dofs, c]
    np.testing.assert_array_equal(out, found)
    np.testing.assert_allclose(y, expected, rtol=1e-14 if dtype == "float64" else 1e-6)


@pytest.mark.parametrize(
    ("runs", "width", "dtype", "ncomp"),
    [
        (equal_runs(3, 5), 8, "float64", 1),
        (equal_runs(2, 4), 16, "float32", 3),
        (equal_runs(1, 3), 2, "float64", 1),
        (equal_runs(2, 4, broken=True), 8, "float64", 3),
    ],
    ids=str,
)
def test_shared_numbers_are_added_element_by_element(runs, width, dtype, ncomp):
    """To the bits of NumPy's sum in the order of the slots, of numbers of all magnitudes."""
    lane, rng = Lane(width, dtype), np.random.default_rng(1)
    nodes, own = runs.p1d**runs.dim, {*runs.inside.tolist()}
    shape = nodes, ncomp, width
    values = rng.standard_normal(shape) * 10.0 ** rng.integers(-9, 9, shape)
    values = values.astype(dtype)
    # a run overlaps with those of the other slots, but for nodes that no other element has
    stride, count = runs.longest + 3, len(runs.nodes)
    first = stride * np.arange(count)[:, None] + rng.integers(0, 3, (count, width))
    apart = np.array([nodes[0] in own for nodes in runs.nodes])
    first[apart] = stride * (count + np.arange(width))
    y = rng.standard_normal((stride * (count + width), ncomp)).astype(dtype)
    expected = y.copy()
    for slot, (k, run) in itertools.product(range(width), enumerate(runs.nodes)):
        expected[first[k, slot] + np.arange(len(run))] += values[run, :, slot]
    source = np.ascontiguousarray(values.swapaxes(0, 1))
    turned = np.zeros(source.size, dtype)
    spread = runs.p1d**2, nodes

    run = compiled(
        """
        @traced
        def add(writes, given, spare):
            for n in PIECES:
                begin, end, count = runs.own_pieces(n, ncomp, width)
                for k in range(begin, end):
                    scatter_piece(lane, runs, ncomp, n, spread, writes, given, k)
                for ends in ((0, begin), (end, count)):
                    for k in range(*ends):
                        turn_piece(lane, runs, ncomp, n, spread, given, spare, k)
            for slot in range(width):
                for n in PIECES:
                    begin, end, count = runs.own_pieces(n, ncomp, width)
                    for ends in ((0, begin), (end, count)):
                        for k in range(*ends):
                            add_piece(lane, runs, ncomp, n, writes, spare, slot, k)

        @function
        def run(writes, given, spare):
            add(writes, given, spare)
        """,
        lane=lane,
        runs=runs,
        ncomp=ncomp,
        spread=spread,
        PIECES=PIECES,
        width=width,
    ).run

    writes = y.ctypes.data + first * ncomp * y.itemsize
    run(writes.ctypes.data, source.ctypes.data, turned.ctypes.data)
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("itemsize", [2, 4])
def test_located(itemsize):
    lane, width, n, owned = Lane(4), 4, 5, 37
    kind = {2: np.uint16, 4: np.uint32}[itemsize]
    starts = np.random.default_rng(2).integers(0, 2**15, (n, width)).astype(kind)
    starts[0] = (owned - 1, owned, owned + 1, 2**16 - 1)
    one, two = np.zeros((2, n, width), np.int64)

    run = compiled(
        """
        @function
        def run(starts, one, two):
            sides = (owned, 1000, 50000, one), (owned, 7, -90, two)
            for k in range(n):
                locate(lane, starts, itemsize, k, sides, (8, 24))
        """,
        lane=lane,
        owned=owned,
        itemsize=itemsize,
        n=n,
    ).run

    run(starts.ctypes.data, one.ctypes.data, two.ctypes.data)
    wide = starts.astype(np.int64)
    np.testing.assert_array_equal(one, np.where(wide < owned, 1000, 50000) + 8 * wide)
    np.testing.assert_array_equal(two, np.where(wide < owned, 7, -90) + 24 * wide)
