"""Qdata that a device computes from fields in its memory, or from the geometry alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

from femops_kernels.cuda.operator.data import (
    copied,
    prefetched,
    streams,
    tables_of,
    uploaded,
)
from femops_kernels.cuda.operator.dofs import DeviceDofs
from femops_kernels.cuda.operator.hanging import Interpolation
from femops_kernels.cuda.operator.inputs import STATE
from femops_kernels.cuda.operator.kernel import CudaKernel
from femops_kernels.cuda.operator.order import Order
from femops_kernels.cuda.operator.sides import OUTPUT, suffix
from femops_kernels.cuda.operator.sweep import input_arguments
from femops_kernels.device import Device
from femops_kernels.pointwise.qdata import Data


@final
@dataclass(frozen=True, eq=False)
class FieldVector:
    """Field on a device from which the kernel computes data at quadrature points."""

    dofs: DeviceDofs
    vector: Any = None  # None if the data depend on the geometry alone
    ghosts: Any = None  # values of ghosts


def filled_streams(
    device: Device,
    kernel: CudaKernel,
    fields: Sequence[FieldVector],
    data: Data,
    order: Order,
    *,
    again: bool,
) -> Any:
    """Compute the qdata of another kernel, ``kernel.reader``, by one launch.

    Shapes: returned (blocks, pieces, threads, 16 // itemsize).
    """
    reader, count = kernel.reader, len(fields[0].dofs.indices)
    assert reader is not None
    out = streams(device, reader, kernel.target.ncomp, order.blocks)
    parts = order.of_parts(kernel.shape.elements)
    values: dict[str, Any] = dict.fromkeys((*OUTPUT, *STATE, "r", "inverse", "p"))
    values |= {"alpha": 1.0, "keep": 0.0, "add": 0, "count": count, "first_portion": 0}
    values |= {"row": 1, "groups": 1, "panel_in": 0, "panel_out": 0, "owned_out": 0}
    pieces = out.view(kernel.spec.dtype)  # whole pieces of any type
    values |= {"functionals": None, "parts": pieces}
    values |= {"order": device.upload(parts.elements) if kernel.ordered else None}
    values |= (uploaded if again else copied)(device, kernel, data, count, parts)
    values |= prefetched(device, kernel, parts) | tables_of(device, kernel)
    for k, (side, field) in enumerate(zip(kernel.spec.sources, fields, strict=True)):
        given, ghosts = input_arguments(side, field.dofs, suffix(k)), field.ghosts
        if field.dofs.hanging is not None and field.vector is not None:
            kind, table = kernel.spec.dtype, field.dofs.hanging
            ghosts = device.xp.zeros(table.ghosts * side.ncomp, kind)
            if field.ghosts is not None:
                ghosts[: len(field.ghosts)] = field.ghosts
            made = Interpolation(device, table, None, ghosts, side.ncomp, back=False)
            made.launch(device.address(field.vector))
        values |= given | {f"x{suffix(k)}": field.vector, f"ghosts_in{suffix(k)}": ghosts}
    packed = kernel.layout.pack(device, **values)
    function = device.function(kernel.text)
    function.launch(parts.blocks, kernel.threads, kernel.shared_bytes, packed)
    return out
