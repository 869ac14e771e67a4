"""Count of a kernel's work on one element, which gives a bound of its time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

from femops_kernels.cuda.operator.kernel import CudaKernel, LineKernel
from femops_kernels.cuda.operator.sides import alone, runs_of
from femops_kernels.cuda.operator.table_kernel import TableKernel
from femops_kernels.pointwise.recording import Recording
from femops_kernels.spec import PointSpec, used_slots


@final
@dataclass(frozen=True)
class Work:
    """Work of a kernel on one element."""

    flops: int  # floating-point operations of contractions, and of the q-function at all points
    shared_bytes: int  # bytes read from shared memory and written to it
    atomics: int  # numbers that atomic operations add

    @staticmethod
    def of(kernel: CudaKernel) -> Work:
        """Count the work of a kernel."""
        qfunction, points = kernel.spec.qfunction, kernel.points
        read = used_slots(kernel.spec.dim, qfunction.value_in, qfunction.gradient_in)
        ncomp = kernel.spec.source.ncomp
        recording = Recording(qfunction.text, read, ncomp, qfunction.numbers.total)
        return Work(
            _by_whole_tables(kernel.spec).contraction_flops() + points * recording.count,
            shared_numbers(kernel) * kernel.spec.dtype.itemsize + _staged_bytes(kernel),
            _atomics(kernel),
        )


def _by_whole_tables(spec: PointSpec) -> PointSpec:
    """Specification without factors of derivatives, which kernels of a device do not use."""
    sources, targets = (
        tuple(replace(side, slopes=None) for side in sides)
        for sides in (spec.sources, spec.targets)
    )
    return replace(spec, sources=sources, targets=targets)


def _staged_bytes(kernel: CudaKernel) -> int:
    """Bytes of an element's staged qdata, written to shared memory and read from it."""
    if not kernel.staged:
        return 0
    numbers = kernel.spec.qfunction.numbers.point * kernel.points
    return 2 * numbers * kernel.spec.stored.itemsize


def shared_numbers(kernel: CudaKernel) -> int:
    """Numbers that a kernel writes to shared memory and reads there, for one element."""
    if isinstance(kernel, TableKernel):
        return kernel.shared_numbers
    assert isinstance(kernel, LineKernel)
    if kernel.spec.has_end:
        return _face_numbers(kernel)
    if kernel.spec.dim == 1:
        return 0
    q, dim, qfunction = kernel.spec.q1d, kernel.spec.dim, kernel.spec.qfunction
    points, source, target = q**dim, kernel.spec.source, kernel.target
    same_in, same_out = kernel.identity
    read = _interpolation(dim, source.p1d, q, same_in)
    if qfunction.gradient_in:
        # u is written unless it is in shared memory already. Each direction but x reads and writes
        # its lines. The q-function reads the derivatives.
        read += points * (not same_in) + 3 * (dim - 1) * points
    written = _interpolation(dim, target.p1d, q, same_out)
    if qfunction.gradient_out:
        # for each direction but x: the q-function writes factors, the direction reads them and
        # writes its result, and the sum reads the result
        written += 4 * (dim - 1) * points
    return source.ncomp * read + target.ncomp * written


def _interpolation(dim: int, p: int, q: int, identity: bool) -> int:
    """Numbers read and written to interpolate between nodes and points, for one component."""
    if dim == 2:
        return 2 * p * q
    return p * p * q + (not identity) * p * q * (p + q) + q * q * p


def _face_numbers(kernel: LineKernel) -> int:
    """Numbers that ``face.cuh`` writes to shared memory and reads there, for one face."""
    q, dim, qfunction = kernel.spec.q1d, kernel.spec.dim, kernel.spec.qfunction
    numbers, points = 0, kernel.lines
    for side, value, slopes in (
        (kernel.spec.source, qfunction.value_in, qfunction.gradient_in),
        (kernel.target, True, qfunction.gradient_out),  # factors that are zero are written too
    ):
        p, across = side.p1d, q if dim == 3 else 1
        lines = across * (dim > 1) + p * (dim > 2)
        each = (1 + slopes) * (p ** (dim - 1) + lines * (p + q)) + points * (value + dim * slopes)
        if slopes:
            each += (across * (dim > 1) + q * (dim > 2)) * 2 * q
        numbers += side.ncomp * each
    if qfunction.gradient_out and dim > 1:  # derivatives along the face are added to the values
        numbers += kernel.target.ncomp * points * (dim - 1 + 2)
    return numbers


def _atomics(kernel: CudaKernel) -> int:
    target, dim = kernel.target, kernel.spec.dim
    if alone(target) or kernel.spec.reproducible:
        return 0
    if kernel.spec.tabulated:
        inside = 0 if target.on_faces else len(runs_of(target, dim).inside)
        return target.ncomp * (target.num_nodes - inside)
    inside = 0 if target.on_faces else max(target.p1d - 2, 0) ** dim
    layers = target.p1d if target.near_end is None else target.near_end.shape[1]
    return int(target.ncomp * (layers * target.p1d ** (dim - 1) - inside))
