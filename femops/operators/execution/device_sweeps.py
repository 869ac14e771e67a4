"""Kernels of a device for terms and for products with 1-D matrices, and dofs in its memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from femops.operators.execution.backend import Work
from femops.operators.execution.kernels import blocks_of_tests, geometry_map
from femops.operators.execution.modes import ElementModes, scaling, value_code
from femops.operators.integrals.constraints import FREE
from femops.operators.integrals.kernel_term import KernelTerm
from femops.spaces.base import Space
from femops.spaces.boundary_space import end_of
from femops.spaces.domain_space import DomainSpace
from femops.spaces.h1_l2 import L2
from femops_kernels.cpu.kernels.kernel import Kernel
from femops_kernels.cpu.kernels.separable import SeparableKernel
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.operator.dofs import (
    DeviceDofs,
    DeviceEnd,
    DeviceShared,
    DofTable,
    Shared,
)
from femops_kernels.cuda.operator.kernel import CudaKernel
from femops_kernels.cuda.operator.sides import Side
from femops_kernels.cuda.operator.sweep import DeviceSweep
from femops_kernels.pointwise.qdata import Data
from femops_kernels.pointwise.qfunction import QFunctionCode, QFunctionInputs
from femops_kernels.simd.runs import DofRuns
from femops_meshes.coordinates.interpolation import lagrange_derivative_matrix

_dofs: WeakKeyDictionary[DomainSpace, DeviceDofs] = WeakKeyDictionary()


def kernel_of(device: Device, term: KernelTerm) -> CudaKernel:
    """Kernel of a term, with a launch shape that suits the device."""
    points, code = term.quadrature.points, term.qfunction.code
    sources, targets = (
        tuple(side_of(space, points) for space in side.spaces.values())
        for side in (term.fields, term.tests)
    )
    return CudaKernel.fitting(
        device,
        dim=term.trial.dim,
        sources=sources,
        targets=targets,
        blocks=blocks_of_tests(term),
        minima=term.minima,
        sums=term.sums,
        d1d=lagrange_derivative_matrix(points, points),
        qfunction=code,
        dtype=term.dtype,
        weights=term.quadrature.weights,
        geometry=geometry_map(term, code),
        data_dtype=term.data_dtype,
        reproducible=term.spaces[1].reproducible,
    )


def side_of(space: DomainSpace, points: NDArray[np.float64]) -> Side:
    """Side of a kernel: a space, and its basis at the 1-D quadrature points."""
    ghosts = space.halo is not None
    end = end_of(space.basis)[:, : space.basis.layers(slopes=True)] if space.has_end else None
    b1d, on_faces = space.basis.interpolation(points), not space.domain.covers
    return Side(space.ncomp, b1d, _broken(space), ghosts, end, on_faces)


@final
@dataclass(frozen=True, eq=False)
class Products:
    """Products of element dofs with a 1-D matrix in each direction, and its counterpart back."""

    spaces: tuple[DomainSpace, DomainSpace]  # of the field and of the test function
    # ((points, p1d), (points, p1d)): 1-D matrices for the field and for the test function
    bases: tuple[NDArray[np.float64], NDArray[np.float64]]
    code: QFunctionCode  # Q-function of values alone
    data: Data  # numbers of the q-function. Vectors are of their type.


def inverse_sweep(device: Device, term: KernelTerm, work: Work) -> DeviceSweep:
    """See `Backend.launch_inverse`, on a rank that has elements. Points are as many as nodes."""
    (host, data), space = work, term.trial
    if isinstance(host, SeparableKernel):  # its matrices multiply nodes
        bases, numbers = (np.eye(space.p1d), host.mass), QFunctionInputs(element=1)
        data = replace(data, elements=data.elements[:, :1])  # the same for all components
    else:
        assert isinstance(host, Kernel)
        bases, numbers = (host.source.b1d, host.target.b1d), QFunctionInputs(point=1)
    code = scaling(space.ncomp, numbers)
    return product_sweep(device, Products((space, space), bases, code, data))


def element_product(
    source: Space, target: Space, matrix: NDArray[np.float64], dtype: np.dtype[Any]
) -> Products:
    """See `Backend.element_products`, on a rank that has elements."""
    to, fro = matrix.shape
    bases = (matrix, np.eye(to)) if to >= fro else (np.eye(fro), matrix.T)
    code, data = (
        value_code("u", source.ncomp, QFunctionInputs()),
        Data(np.zeros((0, 0, 0, 1), dtype)),
    )
    return Products((source, target), bases, code, data)


def mode_products(space: Space, modes: ElementModes, dtype: np.dtype[Any]) -> Products:
    """See `Backend.launch_modes`, on a rank that has elements."""
    bases, code = (modes.vectors.T,) * 2, scaling(space.ncomp, QFunctionInputs(point=1))
    return Products((space, space), bases, code, modes.data(1, dtype))


def product_kernel(device: Device, products: Products) -> CudaKernel:
    """Kernel of products, with a launch shape that suits the device."""
    sides = [
        Side(space.ncomp, b1d, _broken(space), space.volume.halo is not None)
        for space, b1d in zip(products.spaces, products.bases, strict=True)
    ]
    points = len(products.bases[0])
    return CudaKernel.fitting(
        device,
        dim=products.spaces[0].dim,
        sources=(sides[0],),
        targets=(sides[1],),
        d1d=np.eye(points),
        qfunction=products.code,
        dtype=products.data.points.dtype,
        weights=np.ones(points),
        reproducible=products.spaces[1].volume.reproducible,
    )


def product_sweep(device: Device, products: Products) -> DeviceSweep:
    """Bind the kernel of products to dofs and data on a device."""
    kernel = product_kernel(device, products)
    nodes, into = ([DeviceEnd(device_dofs(device, space), FREE.rows)] for space in products.spaces)
    return DeviceSweep(device, kernel, nodes, into, products.data, 0.0)


def _broken(space: DomainSpace) -> bool:
    return space.p1d == 1 or isinstance(space.volume, L2)


def device_dofs(device: Device, space: DomainSpace) -> DeviceDofs:
    """Dof tables of a space on the device, uploaded once."""
    if space not in _dofs:
        indices, sizes = space.restriction.indices, (space.dim, space.p1d, _broken(space))
        table = DofTable.of(indices, DofRuns(*sizes))
        shared = None
        if space.volume.reproducible:
            runs = DofRuns(*sizes, single=not space.domain.covers)
            shared = DeviceShared.of(device, Shared.of(indices, runs))
        touched = _touched(space)
        starts, turned = device.upload(table.starts), device.upload(table.turned)
        on_device, num_touched = device.upload(touched), int(touched[-1])
        owned = None if space.halo is None else space.volume.ndofs
        size = space.volume.ndofs
        tables, inside = (starts, turned, on_device, indices), table.inside(DofRuns(*sizes))
        _dofs[space] = DeviceDofs(*tables, num_touched, shared, owned, size, inside)
    return _dofs[space]


def _touched(space: DomainSpace) -> NDArray[np.int32]:
    """Ranges (ne + 1,) of dofs that each element touches first, see `first_touch`."""
    if not space.domain.covers:
        return np.zeros(space.domain.num_elements + 1, dtype=np.int32)
    return space.restriction.first_touch.astype(np.int32)
