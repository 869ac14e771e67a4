"""Diagonals of sums of square terms, without essential conditions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.operators.assembly.csr import Summands
from femops.operators.assembly.element_matrices import ElementAssembly
from femops.operators.constraints import FREE
from femops.operators.execution.device import terms_of
from femops.operators.execution.ranks import AnyTerms, End, rank_terms
from femops.spaces.base import Space
from femops.spaces.devices import arrays
from femops_kernels.cuda.operator.sweep import DeviceHold, DeviceSweep, DeviceTerms
from femops_kernels.cuda.ranks.rank_terms import DeviceRankTerms


def assemble_diagonal(summands: Summands) -> NDArray[np.float64]:
    """Diagonal on the host, (size,)."""
    total = np.zeros(summands[0][1].spaces[0].size)
    for factor, term in summands:
        assembly, space = ElementAssembly(term), term.trial
        e_vec = np.zeros((space.mesh.num_elements, space.p1d**space.dim, space.ncomp))
        for start, stop in assembly.diagonal_blocks():
            e_vec[start:stop] = assembly.diagonals(start, stop)
        total += factor * space.sum_elements(e_vec).reshape(-1)
    return total


def device_diagonal(terms: AnyTerms, space: Space, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Diagonal where a device has the data of an operator's terms, (size,). Collective."""
    plain = terms.terms if isinstance(terms, DeviceRankTerms) else terms
    assert isinstance(plain, DeviceTerms)
    launches = [
        (alpha, sweep.diagonal() if isinstance(sweep, DeviceSweep) else sweep)
        for alpha, sweep in zip(plain.alphas, plain.sweeps, strict=True)
        if not isinstance(sweep, DeviceHold)
    ]
    end = End(space, FREE.rows)
    adding = terms_of(plain.device, launches)
    ranked = rank_terms(adding, [end], [end], [(0, 0)] * len(launches), dtype)
    nothing: NDArray[Any] = arrays(space).zeros(space.size, dtype)
    out: NDArray[Any] = arrays(space).zeros(space.size, dtype)
    ranked.apply(nothing, out)
    return out
