"""Kernels whose numbers at points go through shared memory give what those give that load them.

Thread blocks work on one portion of the elements each, or are persistent.
"""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import femops
from femops_kernels.cuda.operator import kernel as kernels
from femops_kernels.cuda.operator.kernel import staged_shapes
from femops_kernels.cuda.operator.many import for_many
from femops_kernels.cuda.operator.shapes import Shape, measured_shape, record
from femops_kernels.cuda.operator.sweep import DeviceSweep
from femops_kernels.errors import DeviceError, KernelValueError
from femops_kernels.tuning import database
from support.cases.kernels import bend, random_vector, smooth, turned
from support.cuda.device_cases import DeviceCase, cover
from support.cuda.guarded import GuardedDevice, guarded_device
from support.cuda.host_device import host_device, plant
from support.cuda.launches import ADDRESS, THREAD, SanitizerError, replay, require
from support.cuda.variants import collocated, heat
from support.simulated_ranks import on_ranks

KINDS = ["staged", "persistent"]
COVER = [case for case in cover() if case.case.level == "partial"]
CASES = {"staged": COVER[::3], "persistent": COVER[1::3]}
IS_PERSISTENT = "PERSISTENT = true"  # in the source of a kernel


@pytest.fixture
def device() -> GuardedDevice:
    """With room for two persistent blocks at a time."""
    made = guarded_device(shared_bytes=24 * 1024)
    made.processors = 2
    return made


def stage(monkeypatch: pytest.MonkeyPatch, *, persistent: bool) -> None:
    """Have all kernels that a shape is chosen for staged, where there is room for an element."""
    choose = kernels.shape_for

    def shape_for(*given: Any) -> Shape:
        shape = choose(*given)
        found = staged_shapes(*given, [Shape(2) if persistent else shape, Shape(1)])
        return next((one for one in found if one.persistent == persistent), shape)

    monkeypatch.setattr(kernels, "shape_for", shape_for)


@pytest.fixture(params=KINDS)
def persistent(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """All kernels that a shape is chosen for are staged: persistent, or not."""
    stage(monkeypatch, persistent=request.param == "persistent")
    return request.param == "persistent"


def sweep_of(A: Any) -> Any:
    """The one launch of an operator."""
    (sweep,) = A.compiled.sweeps
    return sweep


def close(found: Any, expected: Any, tol: float) -> None:
    """Relative to the largest entry."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=tol * abs(expected).max())


@pytest.mark.sample(6)
@pytest.mark.parametrize(
    ("kind", "case"), [(kind, case) for kind in KINDS for case in CASES[kind]], ids=str
)
def test_every_form_is_the_oracles(
    kind: str, case: DeviceCase, device: GuardedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copies are made late, and early where blocks and threads run the other way around."""
    stage(monkeypatch, persistent=kind == "persistent")
    operator, dense = case.build(device)
    u = random_vector(operator.space, case.case.dtype)
    x = device.upload(u)
    for way in (False, True):
        device.host.backwards = way
        assert dense.error(operator.apply(x).get(), u) < case.tolerance


def test_most_are(persistent: bool, device: GuardedDevice) -> None:
    cases = CASES[KINDS[persistent]][::7]
    sweeps = [sweep for case in cases for sweep in case.build(device)[0].compiled.sweeps]
    found = [sweep.kernel for sweep in sweeps if isinstance(sweep, DeviceSweep)]
    kinds = [kernel.persistent if persistent else kernel.staged for kernel in found]
    assert sum(kinds) > 0.6 * len(kinds) > 1


SIZES = [
    *[((9,), 1), ((9,), 8), ((4, 3), 2), ((3, 3), 6)],
    *[((3, 2, 2), 2), ((3, 2, 1), 4), ((2, 1, 1), 7)],
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("make", [femops.mass, femops.diffusion, collocated])
@pytest.mark.parametrize(("counts", "order"), SIZES)
def test_grids_of_all_sizes(make: Any, counts: tuple[int, ...], order: int) -> None:
    """More portions than blocks, as many or fewer, a multiple or not; copies early and late."""
    device = host_device(shared_bytes=100 * 1024)
    mesh = turned(femops.box(counts, order=2, mapping=bend))
    expected, A = make(femops.H1(mesh, order)), make(femops.H1(mesh, order, device=device))
    u = random_vector(expected.space, "float64")
    right = expected @ u
    for elements, processors in ((1, 1), (1, 3), (2, 2), (2, 100), (int(np.prod(counts)), 2)):
        device.processors = processors
        other = sweep_of(A).reshaped(Shape(elements, 1, staged=True, persistent=True))
        portions = -(-mesh.num_elements // elements)
        for way in (False, True):
            device.backwards, y = way, np.zeros(len(u))
            with device.recording() as launches:
                other.launch(device.address(u), device.address(y), 1.0, add=False)
            assert launches[-1].shape[0] == min(portions, processors)
            close(y, right, 1e-13)


@pytest.mark.parametrize("data", ["float64", "float32"])
def test_the_bits_are_those_of_loads(device: GuardedDevice, data: str) -> None:
    """Also of an odd number of numbers in a line, and of blocks that elements do not fill."""
    mesh = turned(femops.box((5, 3), order=2, mapping=bend))
    V = femops.H1(mesh, 2, device=device, reproducible=True)
    A = femops.diffusion(V, smooth, data_dtype=data)
    sweep, x = sweep_of(A), device.upload(random_vector(V, "float64"))
    expected = A.apply(x).get()
    for persistent, elements in ((False, 1), (False, 2), (False, 4), (True, 1), (True, 4)):
        other, y = sweep.reshaped(Shape(elements, 1, True, persistent)), device.xp.zeros(V.size)
        assert (other.kernel.staged, other.kernel.persistent) == (True, persistent)
        other.launch(device.address(x), device.address(y), 1.0, add=False)
        assert y.get().tobytes() == expected.tobytes()


@pytest.mark.parametrize(("dtype", "resident"), [("float64", 1), ("float32", 30)])
def test_conjugate_gradients_and_many_vectors(
    persistent: bool, device: GuardedDevice, dtype: str, resident: int
) -> None:
    """Persistent blocks whose last portion is not full have summed what the others gave."""
    device.host.resident = resident
    single, mesh = dtype == "float32", femops.box((3, 3, 1), mapping=bend)
    spaces = femops.H1(mesh, 3, device=device), femops.H1(mesh, 3)
    sums = (femops.diffusion(U, dtype=dtype) + femops.mass(U, dtype=dtype) for U in spaces)
    A, B = (each.constrained(each.space.boundary_dofs()) for each in sums)
    rtol, b = 1e-4 if single else 1e-10, random_vector(B.space, dtype)
    found, there = femops.cg(A, device.upload(b), rtol=rtol)
    expected, here = femops.cg(B, b, rtol=rtol)
    assert abs(there.iterations - here.iterations) <= 1
    close(found.get(), expected, 100 * rtol)
    X = np.random.default_rng(3).standard_normal((len(b), 5)).astype(dtype)
    many = (A @ device.upload(X)).get()
    np.testing.assert_allclose(many, B @ X, rtol=0, atol=1e-5 if single else 1e-11)
    kernel = sweep_of(A).kernel
    assert (kernel.staged, kernel.persistent) == (True, persistent)
    assert there.merged
    assert not for_many(kernel, device, 8).persistent


@pytest.mark.parametrize("elements", [1, 2])
def test_blocks_of_a_thread(
    device: GuardedDevice, elements: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums over all blocks are joined by blocks of two threads or more."""
    monkeypatch.setattr(kernels, "shape_for", lambda *_: Shape(elements, 1, True, True))
    mesh = femops.box((9,), order=2, mapping=bend)
    A, B = (femops.mass(femops.H1(mesh, 2, device=where), smooth) for where in (device, None))
    assert sweep_of(A).kernel.threads == elements
    assert sweep_of(A).mergeable(A.space.size) == (elements > 1)
    b = random_vector(B.space, "float64")
    found, result = femops.cg(A, device.upload(b), rtol=1e-12)
    assert result.merged == (elements > 1)
    np.testing.assert_allclose(found.get(), femops.cg(B, b, rtol=1e-12)[0], rtol=0, atol=1e-8)


def test_ranks_with_a_device_each(persistent: bool) -> None:
    mesh = femops.box((5, 4), mapping=bend)
    reference = femops.diffusion(femops.H1(mesh, 3), smooth)
    u = random_vector(reference.space, "float64")

    def program(comm: Any) -> tuple[int, Any]:
        device = host_device()
        device.processors = 1
        V = femops.H1(femops.distribute(mesh, comm), 3, device=device)
        A = femops.diffusion(V, smooth)
        kernel = sweep_of(A).kernel
        assert (kernel.staged, kernel.persistent) == (True, persistent)
        return V.first_dof, A @ u[V.first_dof :][: V.ndofs].copy()

    found, _ = on_ranks(3, program)
    joined = np.concatenate([y for _, y in sorted(found, key=lambda each: each[0])])
    np.testing.assert_allclose(joined, reference @ u, rtol=0, atol=1e-12)


def weighted(v: Any, e: Any, x: Any, kappa: Any) -> Any:
    """Functionals beside a form that reads numbers at points."""
    return heat(v, e, x) | {"energy": e * e * kappa, "least": e + v[0]}


def fields_form(device: Any, mesh: femops.Mesh) -> femops.Residual:
    """A vector and a scalar."""
    V = femops.H1(mesh, 2, ncomp=mesh.dim, device=device)
    W = femops.Product(v=V, e=femops.L2(mesh, 1, device=device))
    names: Any = {"integrals": ["energy"], "minima": ["least"]}
    return femops.residual(weighted, W, kappa=smooth, **names)


@pytest.mark.parametrize("counts", [(4, 3), (3, 2, 1)])
def test_fields_and_functionals(
    device: GuardedDevice, counts: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage(monkeypatch, persistent=True)
    mesh = turned(femops.box(counts, order=2, mapping=bend))
    there, here = fields_form(device, mesh), fields_form(None, mesh)
    u = np.random.default_rng(1).standard_normal(here.space.size)
    expected, values = here.evaluate(u)
    for way in (False, True):
        device.host.backwards = way
        with device.host.recording() as launches:
            residual, found = there.evaluate(device.upload(u))
        (main,) = (one for one in launches if IS_PERSISTENT in one.source)
        assert main.shape[0] == 2
        close(residual.get(), expected, 1e-12)
        assert found == pytest.approx(values, rel=1e-12)


# --- shapes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("persistent", [False, True])
def test_a_table_may_ask_for_it(
    persistent: bool, device: GuardedDevice, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.setattr(database, "users_table", lambda: tmp_path / "tuning.json")
    V = femops.H1(femops.box((3, 3), mapping=bend), 2, device=device)
    kernel = sweep_of(femops.mass(V)).kernel
    key, asked = kernel.shape_key(device.name), Shape(2, 3, staged=True, persistent=persistent)
    for shape in (asked, Shape(2, 3)):
        record({key: shape})
        assert measured_shape(key) == sweep_of(femops.mass(V)).kernel.shape == shape
    record({key: Shape(2, 3, persistent=True)})
    with pytest.raises(KernelValueError, match=r"2 elements per block, persistent for a kernel"):
        sweep_of(femops.mass(V))
    record({key: asked})
    monkeypatch.setattr(device, "copies_blocks", False)
    words = "staged, persistent" if persistent else "staged"
    with pytest.raises(KernelValueError, match=rf"2 elements per block, {words} for a kernel that"):
        sweep_of(femops.mass(V))


def test_shapes_that_have_room(device: GuardedDevice) -> None:
    V = femops.H1(femops.box((2, 2, 2), mapping=bend), 2, device=device)
    kernel = sweep_of(femops.diffusion(V)).kernel
    shapes = [Shape(elements, 8) for elements in (1, 2, 1000)]
    single = replace(kernel, shape=Shape(1, staged=True)).shared_bytes
    for blocks in (0, 1, 3):
        room = blocks * (single + 1024) - 1024
        small: Any = SimpleNamespace(shared_bytes=room, copies_blocks=True, name="small")
        found = staged_shapes(kernel, small, shapes)
        plain = [shape for shape in found if not shape.persistent]
        assert found == plain + [replace(shape, persistent=True) for shape in plain]
        assert Shape(1, blocks, staged=True) in found or blocks == 0
        assert all(shape.elements * single < 1.1 * room + 1024 for shape in found)
    old: Any = SimpleNamespace(shared_bytes=10**6, copies_blocks=False, name="old")
    assert not staged_shapes(kernel, old, shapes)
    free = sweep_of(femops.diffusion(V, level="matrix-free"))
    assert not staged_shapes(free.kernel, device, shapes)
    assert not free.reshaped(Shape(1, 8, staged=True, persistent=True)).kernel.staged


# --- faults that are found ------------------------------------------------------------------------

COPIES = {
    "no wait": ("if (n == 0) wait_for_copy(*arrival, parity);", "", "ends before a copy"),
    "over others": ("dynamic_shared() + STAGE_AT, from", "dynamic_shared() + STAGE_AT - 512, from"),
    "no multiple of 16": ("from, STREAM_BYTES);", "from + 8, STREAM_BYTES);", "multiples of 16"),
}


@pytest.mark.parametrize("fault", COPIES)
def test_planted_faults_of_a_copy(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    stage(monkeypatch, persistent=False)
    before, after, *told = COPIES[fault]
    mesh = femops.box((3, 2, 2), mapping=bend)
    x = np.random.default_rng(1).standard_normal(femops.H1(mesh, 2).size)
    expected, y = femops.diffusion(femops.H1(mesh, 2)) @ x, np.zeros_like(x)
    plant(monkeypatch, before, after)
    device = host_device(shared_bytes=24 * 1024)
    A = femops.diffusion(femops.H1(mesh, 2, device=device))
    with pytest.raises(DeviceError, match=told[0]) if told else nullcontext():
        A.apply(x, out=y)
    assert not np.allclose(y, expected)


NEXT = "            order_before_copies();\n            __syncthreads();\n"
STEP = "        step(merge, at, numbers, functionals, u, ux);\n"
MOVE = "        portion += gridDim.x;\n        stream.next(a, portion);\n"
BETWEEN = "if constexpr (PERSISTENT && DIM > 1 && NFUNCTIONALS > 0) at.wait();"

PORTIONS = {
    "no barrier before a copy": (NEXT, "            order_before_copies();\n"),
    "reads not ordered before a copy": (NEXT, "            __syncthreads();\n"),
    "a copy begun before the step": (STEP + MOVE, MOVE + STEP),
    "always the same parity": ("parity ^= 1;", ""),
    "parity begins with 1": (": parity(0)", ": parity(1)"),
    "no copy": ("            bring(a, portion);\n        }\n", "        }\n"),
    "no barrier between portions": (BETWEEN, ""),
    "a copy begun behind the last": ("threadIdx.x == 0 && portion < a.behind", "threadIdx.x == 0"),
    "too few portions": ("while (PERSISTENT && portion < a.behind)", "while (false)"),
}


@pytest.mark.parametrize("fault", PORTIONS)
def test_planted_faults_between_portions(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order of threads, and whether the first copy is made early or late."""
    stage(monkeypatch, persistent=True)
    plant(monkeypatch, *PORTIONS[fault], where=IS_PERSISTENT)
    device = host_device(shared_bytes=24 * 1024)
    device.processors = 1
    mesh = femops.box((3, 2, 1), mapping=bend)
    here = fields_form(None, mesh)
    u = np.random.default_rng(1).standard_normal(here.space.size)
    expected, values = here.evaluate(u)
    for way in (False, True):
        device.backwards = way
        with suppress(DeviceError):
            residual, found = fields_form(device, mesh).evaluate(u)
            assert not np.allclose(residual, expected) or found != pytest.approx(values)


# --- sanitizers -----------------------------------------------------------------------------------

SANITIZED = [
    (False, 2, ADDRESS),
    *((False, 2, THREAD), (True, 1, THREAD), (True, 2, THREAD), (True, "functionals", THREAD)),
]


@pytest.mark.parametrize(("persistent", "order", "sanitizer"), SANITIZED)
def test_sanitizers_find_nothing(
    persistent: bool, order: int | str, sanitizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where threads wait for their element alone, a part of a warp or some of them."""
    require(sanitizer)
    stage(monkeypatch, persistent=persistent)
    device = host_device()
    device.processors = 1
    with device.recording() as launches:
        if order == "functionals":
            F = fields_form(device, femops.box((3, 2, 1), mapping=bend))
            F.evaluate(np.ones(F.space.size))
        else:
            mesh = femops.box((3, 1 if persistent else 3, 1), mapping=bend)
            V = femops.H1(mesh, order, device=device)
            _ = femops.diffusion(V) @ np.random.default_rng(1).standard_normal(V.size)
    (launch,) = (one for one in launches if "begin_copy(*arrival" in one.source)
    assert (IS_PERSISTENT in launch.source) == persistent == (launch.shape[0] == 1)
    assert len(replay(launch, sanitizer)) == len(launch.arrays)


ASKED = {
    "nothing": (" || first + ELEMENTS > a.count", " || first + ELEMENTS > a.count"),
    "runs": (" || first + ELEMENTS > a.count", ""),
    "numbers at points": ("if (first && portion + ahead < a.behind) {", "{"),
}


@pytest.mark.parametrize("fault", ASKED)
def test_nothing_is_asked_for_behind_an_array(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    require(ADDRESS)
    stage(monkeypatch, persistent=True)
    device, (before, after) = host_device(), ASKED[fault]
    device.processors = 2
    A = femops.diffusion(femops.H1(femops.box((5, 1, 1), mapping=bend), 2, device=device))
    with device.recording() as launches:
        _ = A @ np.ones(A.shape[1])
    (launch,) = (one for one in launches if IS_PERSISTENT in one.source)
    assert launch.source.count(before) == 1
    found = nullcontext() if fault == "nothing" else pytest.raises(SanitizerError, match="overflow")
    with found:
        replay(replace(launch, source=launch.source.replace(before, after)), ADDRESS)
