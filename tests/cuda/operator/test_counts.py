"""What a kernel's work is counted to be, beside counts by hand and counts while it runs."""

from __future__ import annotations

import ctypes
import re
from typing import Any

import numpy as np
import pytest

import femops
from femops.bench.bounds import Bound, Demand
from femops.bench.problems import PROBLEMS, make_mesh
from femops_kernels.cuda.operator.counts import Work, shared_numbers
from femops_kernels.cuda.operator.sweep import DeviceSweep
from femops_kernels.cuda.rates import Amounts, Rates
from support.cuda.building import build
from support.cuda.host_device import SHARED, HostDevice, host_device

ACCESSES = (
    "line[i] = from[i * STRIDE]",
    "to[i * STRIDE] = line[i]",
    "line[i] += from[i * STRIDE]",
    "in_y[c] = at.buffer(OF_Y, c)[at.x_line() + i * STRIDE_X]",
    "in_z[c] = at.buffer(0, c)[at.x_line() + i * STRIDE_X]",
    "at.buffer(OF_Y, c)[at.x_line() + i * STRIDE_X] = out_y[c]",
    "at.buffer(0, c)[at.x_line() + i * STRIDE_X] = out_z[c]",
)
"""Where ``contraction.cuh`` and ``element.cuh`` read from shared memory, or write to it."""

FACE_ACCESS = r"at\.buffer\([A-Z_]+, [^)]*\)\[at\.pencil\(\)\]"
"""Where ``face.cuh`` does, besides lines."""

ATOMIC = "atomicAdd(add_at<S>(a, at), value)"


@pytest.fixture
def device() -> HostDevice:
    return host_device()


def counted(text: str) -> str:
    """The kernel, counting what it does."""
    on_faces = "FACES = true" in text
    for access in ACCESSES[:3] if on_faces else ACCESSES:
        assert text.count(access) == 1, access
        text = text.replace(access, f"touches++, {access}")
    if on_faces:
        text = re.sub(FACE_ACCESS, lambda found: f"(touches++, {found[0]})", text)
        text = text.replace(") += sum", ") += (touches++, sum)")
    assert text.count(ATOMIC) == 1
    text = text.replace(ATOMIC, f"additions++, {ATOMIC}")
    return f'extern "C" {{ long long touches = 0, additions = 0; }}\n{text}'


def counter(text: str, name: str, device: HostDevice) -> int:
    """What a kernel has counted."""
    library = ctypes.CDLL(str(build(text, *SHARED)))
    return ctypes.c_longlong.in_dll(library, name).value


def made(name: str, dim: int, order: int, more: int, ncomp: int, device: HostDevice) -> Any:
    """An operator on a box, with a rule of ``more`` points than nodes (none: at the nodes)."""
    mesh = femops.box((2,) * dim)
    V = femops.H1(mesh, order, ncomp, device=device)
    if name == "mass":
        return femops.mass(V, quadrature=order + 1 + more)
    if name == "laplacian":
        rule = femops.basis.lobatto(order + 1) if more == 0 else order + 1 + more
        return femops.diffusion(V, quadrature=rule)
    if name == "convection":
        return femops.convection(V, np.ones(dim), quadrature=order + 1 + more)
    if name == "divergence":
        Q = femops.H1(mesh, order - 1, device=device)
        return femops.divergence(V, Q, quadrature=order + 1 + more)

    def wall(u: Any, n: Any) -> Any:
        return {"value": u.value + u.grad @ n, "grad": u.grad}

    return femops.form(wall, V, boundary=1, quadrature=order + 1 + more)


CASES = [
    *(("mass", 1, 3, 1, 1), ("mass", 2, 2, 1, 2), ("mass", 3, 1, 1, 1)),
    *(("laplacian", 3, 2, 1, 1), ("laplacian", 3, 2, 0, 1), ("laplacian", 2, 3, 0, 1)),
    *(("convection", 3, 1, 1, 1), ("divergence", 2, 2, 1, 2)),
    *(("wall", 3, 2, 1, 1), ("wall", 2, 3, 1, 2), ("wall", 1, 2, 0, 1)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_kernel_does_what_is_counted(device: HostDevice, case: Any) -> None:
    A = made(*case, device)
    (sweep,) = (one for one in A.compiled.sweeps if isinstance(one, DeviceSweep))
    sweep.kernel.__dict__["text"] = text = counted(sweep.kernel.text)
    A.apply(np.ones(A.shape[1]))
    touches, additions = (counter(text, name, device) for name in ("touches", "additions"))
    kernel, each = sweep.kernel, shared_numbers(sweep.kernel)
    # in the last block others work along, but for the last lines, whose results none asks for
    beyond = -sweep.count % kernel.shape.elements
    lines = kernel.target.ncomp * kernel.target.p1d ** (kernel.spec.dim - 1)
    last = 2 if kernel.spec.has_end else kernel.spec.q1d * (kernel.spec.dim > 1)
    assert touches == sweep.count * each + beyond * (each - lines * last)
    assert additions == sweep.count * Work.of(sweep.kernel).atomics > 0


def test_geometry_is_not_multiplied_by_ones(device: HostDevice) -> None:
    """The first modes are 1 and of slope 1: a product for each other one, none for slopes."""
    A = bp("bp3", 2, "matrix-free", device)
    (sweep,) = A.compiled.sweeps
    product = "factors[m] * modes[m]"
    text = sweep.kernel.text
    assert text.count(product) == 1
    text = text.replace(product, f"(products++, {product})")
    text = f'extern "C" {{ long long products = 0; }}\n{text}'
    sweep.kernel.__dict__["text"] = text
    A.apply(np.ones(A.shape[1]))
    # of 3 components: for 2 modes in x those in z of 2 in y, twice those in y; at 4 points of a
    # line the derivatives by y and z
    line = 3 * (2 * (2 + 2) + 4 * 2)
    assert counter(text, "products", device) == sweep.blocks * sweep.kernel.threads * line


def bp(name: str, order: int, level: str, device: HostDevice) -> Any:
    mesh = make_mesh("multilinear", order, (3 * order + 1) ** 3)
    return PROBLEMS[name].operator(femops.H1(mesh, order, device=device), level)


def test_counts_by_hand(device: HostDevice) -> None:
    # 2 nodes and 3 points a direction, 27 elements, 14 of them in a block of 126 threads
    demand = Demand.of(bp("bp3", 1, "partial", device))
    between = 2 * (2 * 2 * 3 + 2 * 3 * (2 + 3) + 3 * 3 * 2)
    assert demand.shared == 27 * 8 * (between + (7 + 8) * 27)
    assert demand.atomics == 27 * 8
    vectors, starts, turned = 2 * 8 * 64, 27 * 8 * 4, 4
    points = 2 * 126 * 9 * 16  # 18 numbers a line
    assert demand.memory == vectors + starts + turned + points


def test_geometry_instead_of_data(device: HostDevice) -> None:
    none = Demand.of(bp("bp1", 2, "matrix-free", device))
    # 343 dofs; of 27 elements the starts of 27 runs and the modes of 3 components; two constants
    assert none.memory == 2 * 8 * 343 + 27 * 27 * 4 + 4 + 27 * 3 * 8 * 8 + 2 * 8
    assert none.flops > Demand.of(bp("bp1", 2, "partial", device)).flops
    # by sum factorisation, which a mesh that is not affine makes of a mass, as on the CPU
    assert none.flops == bp("bp1", 2, "matrix-free", None).cost().flops


def test_the_longest_binds() -> None:
    demand = Demand(read=6e3, written=2e3, shared=6e3, flops=5e3, atomics=4e3)
    rates = Rates(copied_bytes=4e3, read_bytes=8e3, shared_bytes=2e3, flops=5e3, atomics=4e3)
    bound = demand.bound(rates)
    assert bound == Bound(memory=1.5, shared=3.0, flops=1.0, atomics=1.0)
    assert (bound.seconds, bound.resource) == (3.0, "shared")
    longer = demand.with_vectors(3, 2, 1000).bound(rates)
    assert (longer.seconds, longer.resource) == (36e3 / 4e3 + 12e3 / 8e3, "memory")


def test_rates_by_hand(device: HostDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second for each launch: rates are what is counted of one."""

    def second(_: HostDevice, call: Any) -> float:
        call()
        return 1.0

    monkeypatch.setattr(HostDevice, "seconds", second)
    rates = Rates.of(device, Amounts(copied=5000, added=300, rounds=20, seconds=0.0))
    assert rates.copied_bytes == 2 * 8 * 5000
    assert rates.read_bytes == 8 * 5000
    processors = 4
    assert rates.shared_bytes == 4 * processors * 256 * 20 * (8 + 8) * 8
    assert rates.flops == processors * 2048 * 20 * 8 * 2
    assert rates.atomics == processors * 2048 * 2


def test_tables_are_multiplied_whole(device: HostDevice) -> None:
    """Also where the host multiplies two smaller ones: 10 nodes and 31 points, 3 derivatives."""
    V = femops.H1(femops.box((1, 1, 1)).simplices(), 2, device=device)
    (sweep,) = femops.diffusion(V, lambda x: 1 + x[0], quadrature=4).compiled.sweeps
    assert sweep.kernel.spec.source.slopes is not None
    assert 0 <= Work.of(sweep.kernel).flops - 2 * 2 * 3 * 10 * 31 <= 31 * 50
