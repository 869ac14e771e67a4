"""Terms whose element matrices are sums of Kronecker products of 1-D matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.geometry.batching import element_blocks
from femops.operators.execution.kernels import sides
from femops.operators.integrals.kernel_term import KernelTerm
from femops.operators.integrals.term import Term
from femops.pointwise.expressions.graph import ancestors
from femops.pointwise.printer import evaluate
from femops.pointwise.qfunction import QFunction
from femops.pointwise.trace import INVERSE
from femops_kernels.cpu.first_touch import placed_array
from femops_kernels.cpu.kernels.separable import SeparableKernel
from femops_kernels.pointwise.qdata import Data, element_values, store_interleaved

# Largest off-diagonal entry of D that counts as round-off of the geometry, relative to the diagonal
# entries of its row and column. By Cauchy and Schwarz such entries add at most this fraction of
# the A-norms of u and v to v A u. Only round-off of maps may be dropped, see `_straight`.
_ROUND_OFF = 1e-13
_NO_MAP = np.empty((0, 0), dtype=object)


def separated(term: KernelTerm, parts: Sequence[Term]) -> tuple[SeparableKernel, Data] | None:
    """Kernel and data of a separable term, or None if the term is not separable.

    A term is separable if D is constant in each element except for the quadrature weights, and is
    diagonal in slots and components. Examples are mass and diffusion with constant coefficients on
    boxes along the reference axes. Where the q-function reads values alone, or writes what
    multiplies values alone, D is a column or a row of slots, and has to be diagonal in components
    only. An example is convection with a constant velocity on parallelepipeds. Collective on a
    reproducible mesh.
    """
    qfunction = term.qfunction
    slots, numbers, mixed = _slots(qfunction), qfunction.numbers, _mixes(qfunction)
    if numbers.point or numbers.mapped or not numbers.weight or not slots:
        return None
    if qfunction.ncomp_in != qfunction.ncomp_out or term.trial.has_end or term.fields.tabulated:
        return None
    width, ne = term.width, term.domain.num_elements
    if not ne:
        _on_any_rank(term, False)
        return None
    ncomp = qfunction.ncomp_in
    shape = (-(-ne // width), 1, ncomp * len(slots), width)
    factors = placed_array(shape, term.dtype, term.chunk_batches)
    found: NDArray[np.float64] | None = None
    for start, stop in element_blocks(ne, (ncomp * len(slots)) ** 2):
        d = qfunction.matrix(_numbers(term, start, stop))
        found = _column(d) if mixed else _diagonal(d)
        if found is None:
            break
        store_interleaved(factors, found[:, np.newaxis], start)
    bent = found is None or not (mixed or all(_straight(part) for part in parts))
    if _on_any_rank(term, bent):
        return None
    kernel = _kernel(term)
    points = np.zeros((len(factors), kernel.target.num_nodes, 0, width), term.dtype)
    return kernel, replace(term.data, points=points, elements=factors[:, 0])


def _mixes(qfunction: QFunction) -> bool:
    """True if values meet derivatives: the q-function reads or writes factors of values alone."""
    return qfunction.slots_in != qfunction.slots_out and [0] in (
        qfunction.slots_in,
        qfunction.slots_out,
    )


def _slots(qfunction: QFunction) -> list[int]:
    """Slots, each with one number in a separable term; none if the term is not separable."""
    if qfunction.slots_in == qfunction.slots_out or _mixes(qfunction):
        return max(qfunction.slots_in, qfunction.slots_out)  # the one with derivatives
    return []


def _straight(term: Term) -> bool:
    """True if D would be diagonal on elements that are exactly parallel to the axes.

    A coefficient that couples derivatives or components is never taken for round-off.
    """
    form = term.source
    apart = form.qfunction.structure * (1 - np.eye(len(form.qfunction.structure), dtype=np.int64))
    nodes = [form.qfunction.distinct[k - 1] for k in np.unique(np.abs(apart)).tolist() if k]
    slopes = form.qfunction.trace.static.get(INVERSE, _NO_MAP)
    used = {node.number for node in [*ancestors(nodes), *slopes.flat]}
    for block in form.center if nodes else ():
        inputs = form.inputs(block, used)
        for row in slopes:  # the largest entry belongs to the axis, the other ones are round-off
            most = np.max([np.abs(inputs[node.number]) for node in row], axis=0)
            for number in (node.number for node in row):
                inputs[number] = np.where(np.abs(inputs[number]) < most, 0.0, inputs[number])
        with np.errstate(all="ignore"):
            if any(np.any(value != 0.0) for value in evaluate(nodes, inputs)):
                return False
    return True


def _on_any_rank(term: KernelTerm, bent: bool) -> bool:
    """True if the term is not separable: on this rank (``bent``), or on any rank.

    On a reproducible mesh any rank decides for all, so that all ranks use the same kernel. Then the
    call is collective. On other meshes the result is ``bent``.
    """
    space = term.spaces[0]
    if space.distributed is None or not space.distributed.reproducible:
        return bent
    return bool(space.comm.max(int(bent)))


def _numbers(term: KernelTerm, start: int, stop: int) -> NDArray[np.float64]:
    """Inputs (n, numbers) of the q-function in elements start <= e < stop, without weights."""
    data, first = term.data, start // term.width
    part = data.elements[first : -(-stop // term.width), np.newaxis]
    elements = element_values(part, stop - first * term.width)[start - first * term.width :, 0]
    n, constants = stop - start, data.constants
    given = [elements, np.ones((n, 1)), np.broadcast_to(constants, (n, len(constants)))]
    return np.concatenate(given, axis=1, dtype=np.float64)


def _diagonal(d: NDArray[Any]) -> NDArray[np.float64] | None:
    """Diagonal (ne, components * slots) of D, component by component.

    None if entries of D off the diagonal are more than round-off.
    """
    slots, ncomp = d.shape[:2]
    flat = np.abs(d).reshape(slots * ncomp, slots * ncomp, -1)
    diagonal: NDArray[np.float64] = np.einsum("icice->eci", d).reshape(len(flat[0, 0]), -1)
    size = np.sqrt(np.einsum("iie->ie", flat))
    rest = flat - np.einsum("ie,ij->ije", size**2, np.eye(len(flat)))
    return None if np.any(rest > _ROUND_OFF * size[:, np.newaxis] * size) else diagonal


def _column(d: NDArray[Any]) -> NDArray[np.float64] | None:
    """Entries (ne, components * slots) of a D of one column or row, component by component.

    None if components are coupled.
    """
    slots, ncomp = max(d.shape[0], d.shape[2]), d.shape[1]
    flat = np.moveaxis(d, 2, 1).reshape(slots, ncomp, ncomp, -1)
    if np.any(flat[:, ~np.eye(ncomp, dtype=np.bool_)] != 0.0):
        return None
    entries: NDArray[np.float64] = np.einsum("icce->eci", flat)
    return entries.reshape(flat.shape[-1], -1)


def _kernel(term: KernelTerm) -> SeparableKernel:
    qfunction, points = term.qfunction, term.quadrature.points
    slots, mixed = _slots(qfunction), _mixes(qfunction)
    mass: list[NDArray[np.float64]] = []
    stiffness: list[NDArray[np.float64]] = []
    for test, trial in zip(term.test.tensor.bases, term.trial.tensor.bases, strict=True):
        slopes = [
            basis.interpolation(points) if mixed and read == [0] else basis.gradient(points)
            for basis, read in ((test, qfunction.slots_out), (trial, qfunction.slots_in))
        ]
        values = test.interpolation(points), trial.interpolation(points)
        for found, (one, two) in ((mass, values), (stiffness, slopes)):
            found.append((one.T * term.quadrature.weights) @ two)
    return SeparableKernel(
        term.trial.dim,
        *sides(term),
        term.dtype,
        term.width,
        tuple(mass),
        tuple(stiffness),
        value=0 in slots,
        gradient=slots != [0],
    )
