"""Diagonals of sums of terms on the host, by compiled sweeps for large meshes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.operators.assembly.diagonal import assemble_diagonal, terms_on_diagonal
from femops.operators.assembly.element_matrices import ElementAssembly
from femops.operators.execution.backend import Backend, Step
from femops.operators.execution.kernels import planned, plans_of, sweep
from femops.operators.execution.ranks import compiled_steps
from femops.operators.execution.specs import point_spec
from femops.operators.integrals.constraints import FREE
from femops.operators.integrals.fusion import scaled_data
from femops.operators.integrals.term import DATA_LEVELS, Sum, Term
from femops_kernels.cpu.kernels import DiagonalKernel
from femops_kernels.cpu.sweep import HostLaunch, NoOp

# Fewest quadrature points of all ranks for which a kernel is compiled: NumPy takes about 50 ns for
# each point.
_COMPILED_FROM = 2**17


def diagonal(backend: Backend, summands: Sum) -> NDArray[Any]:
    """Diagonal (size,) of a sum of square terms, without essential conditions. Collective.

    The result is of float64, or of the terms' type if it is rounded to this type anyway.
    """
    space, total = summands.first.spaces[0], None
    for factor, term in summands:
        points = term.domain.num_elements * term.trial.num_points(term.quadrature)
        many = _sweepable(term) and space.comm.sum(points) >= _COMPILED_FROM
        one = _swept(backend, term) if many else assemble_diagonal(Sum([(1.0, term)]))
        if len(summands) > 1 or factor != 1.0:
            one = one.astype(np.float64, copy=False)
            one *= factor
        total = one if total is None else np.add(total, one, out=total)
    assert total is not None
    return total


def compile_kernels(summands: Sum) -> None:
    """Compile the kernels for diagonals of large operators in advance."""
    for _, term in summands:
        if _sweepable(term) and term.domain.num_elements:
            _kernel(term).module  # noqa: B018  (made when asked for)


def _sweepable(term: Term) -> bool:
    """True if a sweep gives the diagonal of a term.

    It does not give entries between the two sides of faces, which share dofs in an H1 space.
    """
    broken = term.trial.volume.element.broken
    apart = broken if term.fields.two_sided else term.test is term.trial
    plain = not (term.fields.tabulated or term.trial.volume.signed)
    return term.level in DATA_LEVELS and apart and plain


def _kernel(term: Term) -> DiagonalKernel:
    points, spec = term.quadrature.points, point_spec(term)
    if spec.hanging:  # the entries of hanging nodes are added by `_swept`
        made = {side: replace(side, masked=True) for side in (*spec.sources, *spec.targets)}
        sources, targets = (
            tuple(made[side] for side in each) for each in (spec.sources, spec.targets)
        )
        spec = replace(spec, sources=sources, targets=targets)
    slopes = (basis.gradient(points) for basis in term.trial.tensor.bases)
    return DiagonalKernel(spec, *planned(spec, plans_of(term)), term.width, tuple(slopes))


def _swept(backend: Backend, term: Term) -> NDArray[Any]:
    """Diagonal (size,) of one term by a compiled sweep in the term's type. Collective.

    The result is of float64 if the term is scaled, else of the term's type.
    """
    space = term.spaces[0]
    launch: HostLaunch = NoOp()  # where the rank has no elements
    if term.domain.num_elements:
        launch = sweep(term, _kernel(term), FREE, 0.0, scaled_data(term, term.scale))
    sides = term.fields.parts, term.tests.parts
    step = Step(1.0, launch, term.fields, term.tests, term.domain.covers)
    compiled = compiled_steps(backend, [step], sides, FREE, term.dtype)
    unread, result = space.zeros(term.dtype), space.zeros(term.dtype)
    compiled.apply(unread, result)
    for _, part in terms_on_diagonal(Sum([(1.0, term)])):
        free = part.trial.restriction.free
        if free is not None:
            e_vec = np.zeros((*free.shape, space.ncomp))
            ElementAssembly(part).replace_hanging(e_vec)
            scaled = part.trial.sum_elements(e_vec, signs=False) * term.scale
            result += scaled.astype(result.dtype)
    if term.scale != 1.0:
        result = result.astype(np.float64, copy=False) / term.scale
    return np.asarray(result)
