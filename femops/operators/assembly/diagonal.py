"""Diagonals of sums of square terms, without essential conditions."""

from __future__ import annotations

from collections import deque
from functools import partial

import numpy as np
from numpy.typing import NDArray

from femops.operators.assembly.element_matrices import ElementAssembly
from femops.operators.integrals.term import Sum, Term
from femops.spaces.domain_space import DomainSpace
from femops_kernels.cpu.in_order import in_order

Floats = NDArray[np.float64]


def assemble_diagonal(summands: Sum) -> NDArray[np.float64]:
    """Compute the diagonal (size,) of a sum of square terms on the host."""
    total = np.zeros(summands.first.spaces[0].size)
    for factor, term in terms_on_diagonal(summands):
        assembly, space = ElementAssembly(term), term.trial
        if term.test is not space:
            total += factor * _between_sides(assembly)
            continue
        e_vec = np.zeros((space.domain.num_elements, space.element.size, space.ncomp))
        store = partial(_store, e_vec, assembly)
        deque(in_order(store, assembly.diagonal_blocks()), maxlen=0)
        assembly.replace_hanging(e_vec)
        total += factor * space.sum_elements(e_vec, signs=False)
    return total


def _store(out: Floats, assembly: ElementAssembly, ends: tuple[int, int]) -> None:
    out[slice(*ends)] = assembly.diagonals(*ends)


def terms_on_diagonal(summands: Sum) -> Sum:
    """Terms that add to the diagonal: blocks of one side, or of two that share dofs."""
    found = list[tuple[float, Term]]()
    for factor, term in summands:
        broken = term.trial.volume.element.broken
        if not term.fields.two_sided:
            found.append((factor, term))
        else:
            pairs = (pair for pair in term.pairs if pair[0] == pair[1] or not broken)
            found += [(factor, term.block(*pair)) for pair in pairs]
    return Sum(found)


def _between_sides(assembly: ElementAssembly) -> NDArray[np.float64]:
    """Diagonal (size,) of the block of two sides of faces, from the dofs that both sides share."""
    term = assembly.term
    rows, columns = (_global_positions(space) for space in (term.test, term.trial))
    e_vec = np.zeros(rows.shape)
    for start, stop in assembly.blocks():
        same = rows[start:stop, :, np.newaxis] == columns[start:stop, np.newaxis, :]
        face, i, j = np.nonzero(same)
        np.add.at(e_vec, (start + face, i), assembly.matrices(start, stop)[face, i, j])
    by_component = e_vec.reshape(len(rows), term.test.ncomp, term.test.restriction.num_nodes)
    return term.test.sum_elements(by_component.swapaxes(1, 2), signs=False)


def _global_positions(space: DomainSpace) -> NDArray[np.int64]:
    """Global position (ne, ncomp * nodes) of each element's dofs, as `pattern` orders them."""
    dofs, component = np.divmod(space.pattern(), space.ncomp)
    if space.numbering is not None:
        dofs = space.numbering.whole[dofs]
    return np.asarray(dofs * space.ncomp + component)
