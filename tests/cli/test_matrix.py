"""The count of a matrix's nonzeros, against matrices."""

import numpy as np
import pytest

import femops
from femops.cli.problems.matrix import csr_bytes, matrix_nonzeros

MESHES = {
    "segments": lambda: femops.box((5,)),
    "quads": lambda: femops.box((4, 3)),
    "periodic": lambda: femops.box((4, 3), periodic=(True, False)),
    "hexes": lambda: femops.box((3, 2, 2)),
    "disc": lambda: femops.read_mesh(femops.sample("disc.mesh")),
    "ball": lambda: femops.read_mesh(femops.sample("ball.mesh")),
}


def pattern(space):
    """Pairs of nodes that share an element, counted by brute force."""
    pairs = set()
    for nodes in space.restriction.indices.tolist():
        pairs.update((i, j) for i in nodes for j in nodes)
    return len(pairs)


@pytest.mark.parametrize("mesh", MESHES)
def test_counts_pairs_of_dofs_that_share_an_element(mesh):
    mesh = MESHES[mesh]()
    for V in (femops.H1(mesh, 1), femops.H1(mesh, 3), femops.L2(mesh, 0), femops.L2(mesh, 2)):
        assert matrix_nonzeros(V) == pattern(V)
    components = femops.H1(mesh, 2, ncomp=2)  # they do not couple
    assert matrix_nonzeros(components) == 2 * matrix_nonzeros(femops.H1(mesh, 2))


def test_agrees_with_an_assembled_matrix():
    """Mass in the Bernstein basis is positive everywhere: no entry vanishes."""
    V = femops.H1(MESHES["disc"](), 3, family="bernstein")
    matrix = femops.mass(V).assemble()
    assert matrix_nonzeros(V) == matrix.nnz
    parts = (matrix.data, matrix.indices, matrix.indptr)
    assert csr_bytes(V) == sum(np.asarray(part).nbytes for part in parts)
