"""Multigrid on a device, beside the host's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy.sparse import random_array

import femops
from femops.errors import SolverError, VectorError
from femops.operators.coarsening import coarse_operator, cycle_level
from femops.operators.execution.host import backend_of
from femops.operators.execution.transfer import summed_interpolation
from femops.solvers.multigrid import hierarchy
from femops_kernels.cuda.multigrid.updates import DeviceCoarsestVectors
from support.cases.kernels import smooth
from support.cuda.guarded import GuardedDevice, guarded_device

SINGLE, DOUBLE = np.dtype(np.float32), np.dtype(np.float64)


def sheared(x: Any) -> Any:
    return x + 0.4 * np.roll(x, 1, axis=0)


MESHES = {
    "box": lambda: femops.box((8, 8)),
    "sheared": lambda: femops.box((3, 2, 2), mapping=sheared),
    "ball": lambda: femops.ball(1),
}
FORMS: dict[str, Any] = {
    "diffusion": (1, lambda V: femops.diffusion(V, smooth)),
    "elasticity": (0, lambda V: femops.elasticity(V, 1.3, smooth)),
    "sum": (1, lambda V: femops.diffusion(V) + 2.0 * femops.mass(V, smooth)),
    "matrix-free": (1, lambda V: femops.diffusion(V, level="matrix-free")),
}
USUAL = "ball", "elasticity", 2
EACH = [
    pytest.param(*case, marks=() if case == USUAL else pytest.mark.exhaustive)
    for case in itertools.product(MESHES, FORMS, (2, 3, 4, 5))
]


@pytest.fixture(scope="module")
def device() -> GuardedDevice:
    return guarded_device()


@pytest.fixture(autouse=True, scope="module")
def _small_matrices() -> Iterator[None]:
    """Boxes as small as these have a level of the coarser mesh."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hierarchy, "_FEW", 50)
        yield


@pytest.fixture(scope="module")
def M(device: GuardedDevice) -> Any:
    return femops.multigrid(operator("box", "sum", 3, device))


def operator(mesh: str, form: str, order: int, device: Any) -> Any:
    made = MESHES[mesh]()
    ncomp, make = FORMS[form]
    V = femops.H1(made, order, ncomp or made.dim, device=device)
    return make(V).constrained(V.boundary_dofs(1))


def noise(A: Any, seed: int = 0) -> Any:
    b = np.random.default_rng(seed).standard_normal(A.shape[0])
    b[A.constrained_dofs] = 0.0
    return A.space.memory.put(b)


@pytest.mark.parametrize(("mesh", "form", "order"), EACH)
def test_a_solve_is_that_of_the_host(
    mesh: str, form: str, order: int, device: GuardedDevice
) -> None:
    found = []
    for where in (None, device):
        A = operator(mesh, form, order, where)
        M = femops.multigrid(A)
        x, info = femops.cg(A, noise(A), M=M, rtol=1e-11)
        assert info.converged
        found.append((A.space.memory.get(x), info.iterations, [level.order for level in M.sizes]))
    (expected, many, orders), (x, count, levels) = found
    assert (count, levels) == (many, orders)
    np.testing.assert_allclose(x, expected, rtol=0, atol=1e-10 * abs(expected).max())


@pytest.mark.sample(2)
@pytest.mark.parametrize("degree", [3, 4])
def test_recorded_cycles_are_those_of_the_host(degree: int, device: GuardedDevice) -> None:
    """Later solves repeat them; those of a smooth load begin with full multigrid."""
    counts = []
    for where in (None, device):
        A = operator("box", "sum", 3, where)
        M, b = femops.multigrid(A, degree=degree), A.rhs(femops.load(A.space, 1.0))
        solves = [femops.cg(A, b, M=M, rtol=1e-12)[1] for _ in range(2)]
        assert all(info.converged for info in solves)
        counts.append([info.iterations for info in solves])
    assert counts[0] == counts[1]


def bent(x: Any) -> Any:
    return x * (1.0 + 0.3 * np.roll(x, 1, axis=0))


@pytest.mark.parametrize(
    ("make", "levels"),
    [
        (lambda: femops.box((3, 2, 2)), ["partial"] * 3),
        (lambda: femops.box((3, 2, 2), mapping=bent), ["matrix-free"] * 3),
        (lambda: femops.ball(1), ["matrix-free", "partial", "partial"]),
    ],
    ids=["affine", "bent", "curved"],
)
def test_levels_of_a_cycle_move_the_fewest_bytes(
    make: Any, levels: list[str], device: GuardedDevice
) -> None:
    """Of the numbers that a product reads: six at a point, or three for each mode."""
    V = femops.H1(make(), 4, device=device)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    spaces = hierarchy._spaces(A)
    assert [cycle_level(A, space) for space in spaces] == levels
    for space, level in zip(spaces, levels, strict=True):
        made = {
            name: coarse_operator(A, space, SINGLE, name) for name in ("partial", "matrix-free")
        }
        moved = {name: each.cost().bytes_moved for name, each in made.items()}
        assert moved[level] == min(moved.values())


def test_nothing_moves_but_the_coarsest_level(
    M: Any, device: GuardedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    A, b = M.operator, noise(M.operator)
    moved: list[int] = []
    fetch, download = DeviceCoarsestVectors.fetch, device.host.download

    def fetched(vectors: DeviceCoarsestVectors) -> Any:
        moved.append(vectors.right.size)
        return fetch(vectors)

    def downloaded(array: Any, *stream: Any) -> Any:
        assert array.size <= 2, "more than the sums"
        return download(array, *stream)

    femops.cg(A, b, M=M, rtol=1e-9)  # vectors of the operator are made, and all is compiled
    monkeypatch.setattr(DeviceCoarsestVectors, "fetch", fetched)
    monkeypatch.setattr(device.host, "download", downloaded)
    before = device.host.uploads, device.host.downloads
    _, info = femops.cg(A, b, M=M, rtol=1e-9)
    assert moved == [M.sizes[-1].dofs] * info.iterations
    assert device.host.uploads == before[0]
    # two norms, two more to see whether the load is smooth, then three sums an iteration
    assert device.host.downloads - before[1] == 4 + 3 * info.iterations


def test_as_a_linear_operator(M: Any, device: GuardedDevice) -> None:
    A, here = M.operator, femops.multigrid(operator("box", "sum", 3, None))
    assert M.device is device
    assert repr(M) == repr(here)
    x, y = noise(A), noise(A, 1)
    product = M @ x
    assert device.owns(product)
    expected = here @ x.get()
    for found in (product, *(M @ (size * x) / size for size in (1e-150, 1e150))):
        np.testing.assert_allclose(found.get(), expected, atol=2e-6 * abs(expected).max())
    assert float(y @ product) == pytest.approx(float(x @ M.matvec(y)), rel=1e-5)
    for b in (x, y):
        found, info = femops.cg(A, b, M=M, rtol=1e-11)
        host, expected = femops.cg(here.operator, b.get(), M=here, rtol=1e-11)
        assert info.iterations == expected.iterations
        np.testing.assert_allclose(found.get(), host, rtol=0, atol=1e-10 * abs(host).max())
    assert [level.order for level in M.sizes][-2:] == [1, 1]
    for found, other in zip(M.report(), here.report(), strict=True):
        assert found.factor == pytest.approx(other.factor, rel=1e-3)
    with pytest.raises(VectorError, match="x is an array of the host"):
        M @ x.get()
    with pytest.raises(SolverError, match=r"make M with femops\.multigrid\(A\)"):
        femops.cg(A, x, M=here)
    for made, b in ((here, x.get()), (M, x)):
        with pytest.raises(VectorError, match="type complex128"):
            femops.cg(made.operator, b * 1j, M=made)


def test_bernstein_coefficients_that_single_precision_does_not_resolve(
    device: GuardedDevice,
) -> None:
    found = []
    for where in (None, device):
        V = femops.H1(femops.box((4, 4)), 3, family="bernstein", device=where)
        A = femops.diffusion(V) + femops.mass(V, 1e-7)
        M, b = femops.multigrid(A), A @ noise(A)
        assert M.precision == DOUBLE
        x, info = femops.cg(A, b, M=M, rtol=1e-9)
        assert info.converged
        sizes = [M @ (size * b) / size for size in (1e-150, 1.0, 1e150)]
        found.append((info.iterations, [V.memory.get(each) for each in (x, *sizes)]))
    (expected, theirs), (iterations, vectors) = found
    assert iterations == expected
    for x, y in zip(vectors, theirs, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-5 * abs(y).max())


def test_jacobians_are_filled_in_single_precision(device: GuardedDevice) -> None:
    infos = []
    for where in (None, device):
        V = femops.H1(femops.disc(2), 2, device=where)
        F = femops.p_laplacian(V, 4.0, 0.01).constrained(V.boundary_dofs())
        start = V.interpolate(lambda x: 1.0 - x[0] ** 2 - x[1] ** 2)
        _, info = femops.newton(F, start, femops.load(V, 1.0), preconditioner="multigrid")
        assert info.converged
        infos.append((info.iterations, info.linear_iterations))
    assert infos[0] == infos[1]


@pytest.mark.parametrize(("orders", "ncomp"), [((1, 2), 1), ((2, 3), 2)])
def test_transfers_are_the_hosts(orders: Any, ncomp: int, device: GuardedDevice) -> None:
    mesh = femops.ball(1) if ncomp == 1 else femops.disc(1)
    pairs = []
    for where in (None, device):
        coarse, fine = (femops.H1(mesh, p, ncomp=ncomp, device=where) for p in orders)
        ends = ((coarse, fine), (fine, coarse))
        for transfer, (source, target) in zip(
            summed_interpolation(coarse, fine, DOUBLE), ends, strict=True
        ):
            x = np.random.default_rng(1).standard_normal(source.size)
            y = target.zeros()
            transfer.apply(source.memory.put(x), y)
            pairs.append((x, target.memory.get(y)))
    for (_, expected), (_, found) in zip(pairs[:2], pairs[2:], strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-13 * abs(expected).max())
    (u, up), (v, down) = pairs[2:]
    assert up @ v == pytest.approx(u @ down, rel=1e-12)


def test_a_product_with_a_matrix(device: GuardedDevice) -> None:
    """With rows that have no entry, and more than fit into whole slices."""
    rng = np.random.default_rng(0)
    matrix = random_array((77, 50), density=0.1, rng=rng, format="csr")
    backend = backend_of(femops.H1(femops.box((1, 1)), 1, device=device))
    product = backend.operator([(-2.0, backend.rows(matrix, DOUBLE))])
    x, y = rng.standard_normal(50), device.upload(np.full(77, np.nan))
    product.apply(device.upload(x), y)
    np.testing.assert_allclose(y.get(), -2.0 * (matrix @ x), atol=1e-14)


@pytest.mark.parametrize("absent", [(), (1,), (2,), (4,), (1, 2, 4)])
def test_a_step_is_the_formula(absent: Any, device: GuardedDevice) -> None:
    rng, updates = np.random.default_rng(0), backend_of_device(device)
    hosts = [rng.standard_normal(1001).astype(np.float32) for _ in range(5)]
    vectors = [updates.vector(1001, SINGLE) for _ in range(5)]
    for vector, host in zip(vectors, hosts, strict=True):
        vector[:] = device.upload(host)
    old, product, right, scales, current = hosts
    a, f, b, c = -0.3, 0.4, 1.2, -0.7
    parts = (0.0, a * product, f * right, 0.0, b * current)
    there = [0.0 if k in absent else part for k, part in enumerate(parts)]
    expected = scales * (there[1] + there[2]) + there[4] + c * old
    given: Any = [None if k in absent else vector for k, vector in enumerate(vectors)]
    updates.step(*given, (a, f, b, c))
    np.testing.assert_allclose(vectors[0].get(), expected, rtol=2e-5, atol=2e-6)


def backend_of_device(device: GuardedDevice) -> Any:
    return backend_of(femops.H1(femops.box((1, 1)), 1, device=device)).updates
