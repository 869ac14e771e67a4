"""Bases of which a face needs two layers of nodes: the oracle, other bases, and what is read."""

import numpy as np
import pytest
from scipy.sparse.linalg import spsolve

import femops
from femops.operators.integrals.chunks import plans
from femops.spaces.side_space import side_spaces
from femops_meshes.coordinates.mapping import tensor_apply
from support.cases.meshes import bend, scrambled_box
from support.cuda.host_device import host_device
from support.oracles.interior import Oracle

FAMILIES = ("hermite", "bernstein")
MESHES = {
    "line": lambda: femops.box((23,)),
    "rectangle": lambda: femops.box((16, 13)),
    "turned flat": lambda: scrambled_box((13, 15), 4, bend, 2),
    "torus": lambda: femops.box((12, 16), periodic=True),
    "cuboid": lambda: femops.box((7, 8, 6)),
    "turned": lambda: scrambled_box((5, 4, 6), 9, bend, 2),
    "glued": lambda: femops.box((6, 4, 5), periodic=True),
    "few": lambda: femops.box((3, 2, 3)),
    "ball": lambda: femops.read_mesh(femops.sample("ball.mesh")),
}
"""Some have more than one chunk of faces, so that elements are copied."""


def random(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def close(found, expected, tolerance=1e-12):
    """Equal up to round-off."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * abs(expected).max())


def all_parts(u, n, h, x, k):
    """Values and gradients of both sides, tested with both, and not symmetric."""
    return {
        "jump": {"value": k / h.plus * u.jump + u.minus.grad @ n, "grad": n * u.plus},
        "plus": {"value": x[0] * u.minus + u.plus.grad[0], "grad": u.jump.grad * h.minus},
    }


def inner(u):
    return {"value": u, "grad": u.grad}


def outer(u, n, h):
    return {"value": u / h - u.grad @ n, "grad": -n * u}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("counts", "p"), [((4,), 1), ((6,), 4), ((2, 2), 3), ((2, 2, 1), 2)])
def test_against_the_oracle(family, counts, p):
    """On curved elements that are turned at random."""
    V = femops.L2(scrambled_box(counts, 7, bend, 2), p, family=family)
    dense = Oracle(
        all_parts, {"u": V}, {"v": V}, p + 2 if V.dim > 1 else 1, {"k": lambda _: 1.5}
    ).matrix()
    A, x = femops.form(all_parts, V, faces="interior", k=1.5), random(V.size)
    close(A @ x, dense @ x)
    close(A.T @ x, dense.T @ x)
    close(A.assemble().toarray(), dense)
    close(A.diagonal(), np.diag(dense))


def in_basis(space, other, x, *, transposed=False):
    """Coefficients of ``space`` as those of ``other``; or the transpose, from other to space."""
    nodes = np.linspace(0.1, 0.9, space.p1d)
    line = np.linalg.solve(other.basis.interpolation(nodes), space.basis.interpolation(nodes))
    table = x.reshape(space.mesh.num_elements, space.p1d**space.dim, space.ncomp)
    return tensor_apply([line.T if transposed else line] * space.dim, table).reshape(-1)


@pytest.mark.parametrize(
    ("mesh", "p", "ncomp", "family", "dtype"),
    [
        ("line", 3, 2, "hermite", "float64"),
        ("rectangle", 4, 3, "bernstein", "float32"),
        ("torus", 4, 1, "hermite", "float64"),
        ("turned", 2, 3, "hermite", "float64"),
        *(
            pytest.param(*case, marks=pytest.mark.exhaustive)
            for case in (
                ("line", 1, 1, "hermite", "float64"),
                ("line", 8, 1, "bernstein", "float64"),
                ("rectangle", 2, 1, "hermite", "float64"),
                ("rectangle", 7, 1, "hermite", "float64"),
                ("turned flat", 3, 1, "bernstein", "float64"),
                ("turned flat", 6, 2, "hermite", "float64"),
                ("cuboid", 2, 1, "bernstein", "float64"),
                ("cuboid", 3, 2, "hermite", "float64"),
                ("cuboid", 5, 1, "hermite", "float32"),
                ("turned", 4, 1, "bernstein", "float64"),
                ("glued", 3, 1, "hermite", "float64"),
                ("ball", 4, 1, "hermite", "float64"),
                ("few", 8, 1, "hermite", "float64"),
            )
        ),
    ],
)
def test_against_another_basis(mesh, p, ncomp, family, dtype):
    """Of the same functions: Gauss's, all of whose nodes are read."""
    made = MESHES[mesh]()
    V, G = (femops.L2(made, p, ncomp, one) for one in (family, "gauss"))

    def operator(space):
        functions = {"cells": inner, "interior": all_parts, "boundary": outer}
        if ncomp > 1:
            return femops.interior_penalty(space, 1.5, dtype=dtype)
        if mesh in ("torus", "glued"):
            functions.pop("boundary")
        return femops.form(functions, space, k=1.5, dtype=dtype)

    A, B, x = operator(V), operator(G), random(V.size)
    tolerance = 1e-5 if dtype == "float32" else 1e-11
    x = x.astype(dtype)

    def expected(of, x):
        y = of @ np.ascontiguousarray(in_basis(V, G, x.astype(float)), dtype=dtype)
        return in_basis(V, G, y.astype(float), transposed=True)

    close(A @ x, expected(B, x), tolerance)
    close(A.T @ x, expected(B.T, x), tolerance)


@pytest.mark.parametrize(
    "mesh",
    [
        *("rectangle", "turned"),
        *(pytest.param(name, marks=pytest.mark.exhaustive) for name in ("turned flat", "cuboid")),
    ],
)
def test_diagonals_and_levels(mesh, monkeypatch):
    monkeypatch.setattr(femops.operators.execution.host, "_COMPILED_FROM", 0)
    V = femops.L2(MESHES[mesh](), 2, family="hermite")
    A = femops.form(all_parts, V, faces="interior", k=1.5) + femops.mass(V)
    matrix, x = A.assemble(), random(V.size)
    close(A.diagonal(), matrix.diagonal())
    close(A @ x, matrix @ x)
    for level in ("element", "full", "matrix-free"):
        close(A.at_level(level) @ x, matrix @ x)
    fixed = np.array([0, 5, V.size - 1])
    C = A.constrained(fixed)
    free = x.copy()
    free[fixed] = 0.0
    product = matrix @ free
    product[fixed] = x[fixed]
    close(C @ x, product)
    close((3.0 * A) @ x, 3.0 * (matrix @ x))


def test_a_device_reads_all_nodes():
    """And gets the same numbers."""
    V, D = (
        femops.L2(MESHES["rectangle"](), 3, family="hermite", device=d)
        for d in (None, host_device())
    )
    here, there = (femops.form(all_parts, W, faces="interior", k=1.5) for W in (V, D))
    x = random(V.size)
    close(D.memory.get(there @ D.memory.put(x)), here @ x)
    close(there.diagonal(), here.diagonal())
    A = femops.interior_penalty(D)
    b = femops.load(D, 1.0)
    u, info = femops.cg(A, b, M=femops.multigrid(A), rtol=1e-10)
    assert info.iterations <= 8
    expected = spsolve(femops.interior_penalty(V).assemble().tocsc(), femops.load(V, 1.0))
    close(D.memory.get(u), expected, 1e-8)


def test_several_fields_of_different_bases():
    """Each side has its own number of layers, in one sweep."""
    mesh = MESHES["turned flat"]()
    V, W = femops.L2(mesh, 4, family="hermite"), femops.L2(mesh, 3, 2)

    def function(u, w, n):
        return {
            "u": {"jump": u.jump.grad @ n, "mean": {"grad": w.jump.value}},
            "w": {"mean": {"value": n * u.mean, "grad": np.multiply.outer(n, u.jump.grad)}},
        }

    A = femops.form(function, femops.Product(u=V, w=W), faces="interior")
    x = random(A.shape[1])
    close(A @ x, A.assemble() @ x)


def test_complex_vectors():
    V = femops.L2(MESHES["rectangle"](), 3, family="hermite")

    def function(u, n):
        return {"jump": (2.0 + 1j) * u.jump + 1j * (u.mean.grad @ n)}

    A = femops.form(function, V, faces="interior", dtype="complex128")
    x = random(V.size) + 1j * random(V.size, seed=1)
    close(A @ x, A.assemble() @ x)


@pytest.mark.parametrize(
    ("family", "p", "layers"),
    [("hermite", 2, 2), ("hermite", 6, 2), ("bernstein", 4, 2), ("gauss", 3, 0), ("gll", 3, 0)],
)
def test_what_is_read(family, p, layers):
    """Copies of elements of other chunks have no other nodes, too. 0 stands for all nodes."""
    V = femops.L2(MESHES["cuboid"](), p, family=family)
    sides = femops.operators.integrals.arguments.Arguments.on_sides(V)[0]
    for source, target in plans(sides, sides, np.dtype(np.float64), 8):
        assert source.runs.layers == target.runs.layers == layers
    copied = len(plans(sides, sides, np.dtype(np.float64), 8)[1][1].nonowned_dofs)
    assert copied > 0
    assert copied % ((layers or p + 1) * (p + 1) ** 2) == 0
    for plan in plans(sides, sides, np.dtype(np.float64), 8, layered=False)[0]:
        assert plan.runs.layers == 0


def test_continuous_functions_are_read_whole():
    H = femops.H1(MESHES["cuboid"](), 3, family="bernstein")
    side = side_spaces(H, 0)[0]
    sides = femops.operators.integrals.arguments.Arguments.of(side)
    (pair,) = plans(sides, sides, np.dtype(np.float64), 8)
    assert pair[0].runs.layers == 0
