"""Diagonals of sums of square terms, without essential conditions."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from femops.operators.assembly.csr import Summands
from femops.operators.assembly.element_matrices import ElementAssembly


def assemble_diagonal(summands: Summands) -> NDArray[np.float64]:
    """Compute the diagonal (size,) of a sum of square terms on the host."""
    total = np.zeros(summands[0][1].spaces[0].size)
    for factor, term in summands:
        assembly, space = ElementAssembly(term), term.trial
        e_vec = np.zeros((space.domain.num_elements, space.p1d**space.dim, space.ncomp))
        for start, stop in assembly.diagonal_blocks():
            e_vec[start:stop] = assembly.diagonals(start, stop)
        total += factor * space.sum_elements(e_vec)
    return total
