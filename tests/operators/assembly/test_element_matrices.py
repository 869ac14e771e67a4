"""Matrices of elements, by the ways in which they are formed."""

import numpy as np
import pytest

import femops
from femops.operators.assembly.element_matrices import ElementAssembly


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_one_product_per_element_is_what_contractions_give(dim, monkeypatch):
    """Where the matrix from D to an element matrix is small, one product takes the place of all."""
    mesh = femops.box((3, 2, 2)[:dim]).mapped(lambda x: x + 0.1 * x[0] * x[-1], 1)
    V = femops.H1(mesh, order=1, ncomp=dim)
    forms = [femops.mass(V, quadrature=2), femops.diffusion(V, quadrature=2)]
    if dim > 1:
        forms.append(femops.elasticity(V, quadrature=2))
    for A in forms:
        assembly = ElementAssembly(A.summands[0][1])
        found = assembly.matrices(0, 3 * 2 ** (dim - 1))
        with monkeypatch.context() as patch:
            patch.setattr("femops.operators.assembly.element_matrices._DIRECT", 0)
            expected = assembly.matrices(0, 3 * 2 ** (dim - 1))
        np.testing.assert_allclose(found, expected, atol=1e-14 * np.abs(expected).max())


def test_matrices_do_not_depend_on_the_elements_beside():
    """Bit by bit: on ranks, elements are formed with others than in one process."""
    V = femops.H1(femops.box((10, 4, 2)), 3)
    velocity = np.random.default_rng(3).standard_normal(3)
    A = femops.convection(V, velocity, level="matrix-free", lanes=8)
    A @ V.zeros()  # its data are in lanes now
    (_, term), *_ = A.summands
    assembly = ElementAssembly(term)
    together = assembly.matrices(0, 80)
    for first in range(0, 80, 2):
        assert np.array_equal(assembly.matrices(first, first + 2), together[first : first + 2])
