"""What one application of an operator costs, counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

from femops.operators.term import Term
from femops_kernels.sweep import Sweep


@final
@dataclass(frozen=True)
class Cost:
    """What one application of an operator costs.

    Attributes
    ----------
    flops : int
        Floating-point operations (an FMA is two), contractions as emitted and pointwise steps as
        counted.
    bytes_moved : int
        Least traffic with memory, bytes: stored data and indices read once, x read, y written.
    stored_bytes : int
        Bytes kept between applications, vectors not counted.
    """

    flops: int
    bytes_moved: int
    stored_bytes: int


def cost_of(terms: Sequence[Term], sweeps: Sequence[Sweep]) -> Cost:
    """Cost of a sum of terms.

    Parameters
    ----------
    terms : sequence of Term
        On one pair of spaces.
    sweeps : sequence of Sweep
        What applies each of them.
    """
    first = terms[0]
    ne, itemsize = first.trial.mesh.num_elements, first.dtype.itemsize
    flops, stored = 0, 0
    moved = (first.trial.size + first.test.size) * itemsize
    for term, sweep in zip(terms, sweeps, strict=True):
        points = term.quadrature.q1d**term.trial.dim
        flops += ne * (sweep.kernel.contraction_flops() + points * term.program.flops)
        moved += sweep.qdata.nbytes + sweep.index_bytes
        stored += sweep.stored_bytes
    return Cost(flops, moved, stored)
