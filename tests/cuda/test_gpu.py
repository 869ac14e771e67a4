"""What CuPy does on a GPU, where there is one: graphs, late copies, lent memory, threads."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import femops
from femops.hydro import Lagrangian, Simulation, built_in, problem
from femops_kernels.cuda.device.arguments import Layout
from femops_kernels.cuda.operator.kernel import staged_shapes
from femops_kernels.cuda.operator.shapes import Shape
from femops_kernels.device import Device
from support.cuda.guarded import gpu

LAYOUT = Layout({"y": "double*", "term": "double", "count": "int"}, np.float64)
PLUS = f"""
using T = double;
{LAYOUT.text}
ENTRY(128, 1, Arguments) {{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < a.count) a.y[i] += a.term;
}}
"""
COUNT = 1000


@pytest.fixture(scope="module")
def device() -> Device:
    return gpu()


def add(device: Device, y: Any, term: float) -> None:
    packed = LAYOUT.pack(device, y=y, term=term, count=COUNT)
    device.function(PLUS).launch(-(-COUNT // 128), 128, 0, packed)


def test_work_is_repeated_by_a_graph(device: Device) -> None:
    y, sums = device.xp.ones(COUNT), device.xp.zeros(COUNT)
    add(device, y, 1.0)  # a kernel that has been launched before

    def work() -> None:
        device.clear(y)
        for term in (1.0, 2.0):
            add(device, y, term)
            add(device, sums, term)

    again = device.repeatable(work)
    assert device.download(sums).tolist() == [0.0] * COUNT  # only noted
    for _ in range(4):
        again()
    assert device.download(y).tolist() == [3.0] * COUNT
    assert device.download(sums).tolist() == [12.0] * COUNT


def test_late_copies_are_of_when_they_began(device: Device) -> None:
    y = device.xp.zeros(COUNT)
    waits = []
    for _ in range(3):
        waits.append(device.download_later(y))
        add(device, y, 1.0)
    assert [wait()[-1] for wait in reversed(waits)] == [2.0, 1.0, 0.0]


def test_memory_of_others_is_taken_as_it_lies(device: Device) -> None:
    own = device.upload(np.arange(6.0).reshape(2, 3))
    by_interface = SimpleNamespace(__cuda_array_interface__=own.__cuda_array_interface__, own=own)
    by_dlpack = SimpleNamespace(__dlpack__=own.__dlpack__, __dlpack_device__=own.__dlpack_device__)
    for lent in (by_interface, by_dlpack):
        taken = device.adopt(lent)
        assert (taken.shape, device.address(taken)) == (own.shape, device.address(own))
    here = np.ones(3)
    for host in (here, SimpleNamespace(__cuda_array_interface__=here.__array_interface__)):
        with pytest.raises(femops.errors.KernelError, match="can't be used"):
            device.adopt(host)


def close(found: Any, expected: Any, tol: float = 1e-12) -> bool:
    """Relative to the largest entry."""
    return bool(abs(found - expected).max() <= tol * abs(expected).max())


@pytest.mark.parametrize("order", [1, 3, 8])
def test_many_vectors_are_those_of_the_host(device: Device, order: int) -> None:
    mesh = femops.box((3, 3, 3), order=2, mapping=lambda x: x + 0.05 * np.sin(3.0 * x[::-1]))
    V, W = femops.H1(mesh, order, device=device), femops.H1(mesh, order)
    for make in (femops.mass, femops.diffusion):
        here, there = (make(U).constrained(U.boundary_dofs()) for U in (W, V))
        for nvec in (2, 8, 21):
            x = np.random.default_rng(nvec).standard_normal((W.size, nvec))
            assert close(device.download(there @ device.upload(x)), here @ x)


@pytest.mark.parametrize("order", [1, 2, 3, 6, 8])
def test_numbers_at_points_through_shared_memory(
    device: Device, order: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where threads wait for their element alone: 4 and 8 points in each direction.

    Persistent blocks are as few as one multiprocessor has, so that each has several portions.
    """
    monkeypatch.setattr(device, "processors", 1)
    mesh = femops.box((7, 5, 2), order=2, mapping=lambda x: (x[0] + 0.1 * x[1] ** 2, x[1], x[2]))
    expected = femops.diffusion(femops.H1(mesh, order))
    (sweep,) = femops.diffusion(femops.H1(mesh, order, device=device)).compiled.sweeps
    u = np.random.default_rng(order).standard_normal(expected.shape[1])
    x, right = device.upload(u), expected @ u
    shapes = [sweep.kernel.shape, Shape(1, 1), Shape(2, 1)]
    staged = staged_shapes(sweep.kernel, device, shapes)
    assert any(shape.persistent for shape in staged) == bool(staged)
    for shape in [*shapes, *staged]:
        y = device.xp.zeros(len(u))
        sweep.reshaped(shape).launch(device.address(x), device.address(y), 1.0, add=False)
        assert close(device.download(y), right)


def test_operators_in_threads(device: Device) -> None:
    """Each thread has a current device and streams of its own."""
    V = femops.H1(femops.box((8, 8)), 3, device=device)
    A, results = femops.diffusion(V) + femops.mass(V), []

    def work() -> None:
        x, out = V.interpolate(lambda x: x[0] * x[1]), V.zeros()
        A.apply(x, out)
        results.append(out.get())

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
        thread.join()
    W = femops.H1(femops.box((8, 8)), 3)
    expected = (femops.diffusion(W) + femops.mass(W)) @ W.interpolate(lambda x: x[0] * x[1])
    assert [close(result, expected) for result in results] == [True] * 3


def test_solvers(device: Device) -> None:
    """femops' own, with and without merged updates, and CuPy's."""
    linalg = pytest.importorskip("cupyx.scipy.sparse.linalg")
    V = femops.H1(femops.box((6, 6)), 3, device=device)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    b, M = A.rhs(femops.load(V, 1.0)), femops.jacobi(A)
    found = [femops.cg(A, b, M=M, rtol=1e-12, merged=merged)[0].get() for merged in (True, False)]
    x, failed = linalg.cg(A, b, M=M, rtol=1e-12, atol=0.0)
    assert not failed
    assert close(found[1], found[0], 1e-9)
    assert close(x.get(), found[0], 1e-9)


@pytest.mark.parametrize("family", ["gauss", "gll", "hermite", "bernstein"])
def test_faces_of_every_basis(device: Device, family: str) -> None:
    """Products, transposes, many vectors; the order of sums is none, so that races would show."""
    mesh = femops.box((5, 4, 3), order=2, mapping=lambda x: x + 0.05 * np.sin(3.0 * x[::-1]))
    V, W = (femops.L2(mesh, 3, family=family, device=where) for where in (device, None))
    for make in (femops.interior_penalty, lambda U: femops.upwind_convection(U, [1.0, 2.0, 3.0])):
        there, here = make(V), make(W)
        x = np.random.default_rng(1).standard_normal((W.size, 11))
        assert close(device.download(there @ device.upload(x)), here @ x)
        first = device.upload(x[:, 0].copy())
        assert close(device.download(there @ first), here @ x[:, 0].copy())
        assert close(device.download(there.T @ first), here.T @ x[:, 0].copy())


@pytest.mark.parametrize("bent", [False, True])
def test_explicit_steps(device: Device, bent: bool) -> None:
    """Convection with the inverse mass, by 1-D matrices in each way, and updates of vectors."""
    mesh = femops.box((6, 5), order=2, mapping=lambda x: x + 0.05 * bent * np.sin(3.0 * x[::-1]))
    ends = []
    for where in (None, device):
        V = femops.L2(mesh, 3, family="gll", device=where)
        A = femops.upwind_convection(V, [1.0, 0.5])
        M = femops.block_jacobi(femops.mass(V, quadrature=4 if bent else 5))
        assert type(M).__name__ == "FactoredBlocks"
        start = V.interpolate(lambda x: np.exp(-20 * (x[0] - 0.5) ** 2))
        for method in ("ssp3", "rk4", "lsrk4", "dp54"):
            end = femops.runge_kutta(lambda t, u: -(M @ (A @ u)), start, 0.05, 0.002, method=method)  # noqa: B023
            ends.append(V.memory.get(end))
    assert all(close(there, here, 1e-11) for here, there in zip(ends[:4], ends[4:], strict=True))


def test_eigenvalues(device: Device) -> None:
    values = []
    for where in (None, device):
        V = femops.H1(femops.box((4, 4, 4)), 3, device=where)
        A = femops.diffusion(V).constrained(V.boundary_dofs())
        for kind in ("float64", "float32"):
            found = femops.eigen.chebyshev_subspace(A, femops.mass(V), 5, filter_dtype=kind)
            values.append(found.values)
        values.append(femops.eigen.lobpcg(A, femops.mass(V), 5, tol=1e-8).values)
    np.testing.assert_allclose(values, [values[0]] * 6, rtol=1e-10)


def test_complex_numbers(device: Device) -> None:
    def damped(u: Any, x: Any) -> dict[str, Any]:
        return {"grad": (1.0 + 1.0j * x[0]) * u.grad, "value": (2.0j - 1.0) * u}

    results = []
    for where in (None, device):
        V = femops.H1(femops.box((4, 3)), 3, device=where)
        A = femops.form(damped, V, dtype="complex128").constrained(V.boundary_dofs()[::2])
        x = np.random.default_rng(2).standard_normal((2, V.size))
        there = V.memory.put(x[0] + 1j * x[1])
        results.append([V.memory.get(A @ there), V.memory.get(A.diagonal())])
    assert all(close(*pair) for pair in zip(*results, strict=True))


def test_gas_dynamics(device: Device) -> None:
    states = []
    for where in (None, device):
        equations = Lagrangian(problem("sedov"), built_in("cube01_hex"), cg_tol=1e-13, device=where)
        run = Simulation.begin(equations)
        run.run(1.0, max_steps=3)
        states.append(equations.space.memory.get(run.state))
    assert close(states[1], states[0], 1e-9)


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128", "complex64"])
@pytest.mark.parametrize("n", [1, 3, 8, 17, 32])
def test_small_products_are_those_of_numpy(device: Device, n: int, dtype: str) -> None:
    random, members = np.random.default_rng(n), 1003
    a, b = (
        (random.standard_normal((members, n, n)) + 1j * random.standard_normal((members, n, n)))
        for _ in range(2)
    )
    kind = np.dtype(dtype)
    a, b = (x.astype(kind) if kind.kind == "c" else x.real.astype(kind) for x in (a, b))
    expected, eps = a @ b, 50 * n * np.finfo(kind).eps
    found = femops.tensor.gemm(device.upload(a), device.upload(b))
    np.testing.assert_allclose(device.download(found), expected, rtol=0, atol=eps)
    for layout in (femops.tensor.Strided("F"), femops.tensor.Interleaved(8)):
        x, y = (femops.tensor.Batch.wrap(one).copy(layout).to("cuda") for one in (a, b))
        z = femops.tensor.gemm(x, y, transpose_a=True)
        turned = a.swapaxes(1, 2) @ b
        np.testing.assert_allclose(z.numpy(), turned, rtol=0, atol=eps)


def test_small_systems_are_solved(device: Device) -> None:
    for n in (2, 5, 12, 20):
        random = np.random.default_rng(n)
        a, b = random.standard_normal((700, n, n)), random.standard_normal((700, n, 2))
        positive = a @ a.swapaxes(1, 2) + n * np.eye(n)
        there = device.upload(positive)
        for assume in ("general", "positive"):
            x = device.download(femops.tensor.solve(there, device.upload(b), assume=assume))
            np.testing.assert_allclose(positive @ x, b, rtol=0, atol=1e-10)
        values, vectors = map(device.download, femops.tensor.eigh(there))
        np.testing.assert_allclose(values, np.linalg.eigvalsh(positive), rtol=1e-12)
        residual = positive @ vectors - vectors * values[:, None]
        assert abs(residual).max() < 1e-11 * abs(positive).max()


def test_batches_move_in_streams(device: Device) -> None:
    stream = device.xp.cuda.Stream(non_blocking=True)
    values = np.random.default_rng(0).standard_normal((5000, 6, 6))
    with stream:
        there = femops.tensor.Batch.wrap(values).to("cuda", stream)
        found = femops.tensor.gemm(there, there).to("cpu", stream)
    stream.synchronize()
    np.testing.assert_allclose(found.numpy(), values @ values, rtol=0, atol=1e-12)
    group = femops.tensor.Group([values[0], values[1, :2]]).to("cuda")
    (first, second) = femops.tensor.group_gemm(group, femops.tensor.Group([group[0]] * 2)).to("cpu")
    np.testing.assert_allclose(first, values[0] @ values[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(second, values[1, :2] @ values[0], rtol=0, atol=1e-12)
