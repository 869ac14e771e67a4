"""Persistent thread blocks, which work on one portion of the elements after the other."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import femops
from femops_kernels.cuda.operator import kernel as kernels
from femops_kernels.cuda.operator.shapes import Shape
from femops_kernels.errors import DeviceError
from support.cases.kernels import bend, random_vector, smooth, turned
from support.cuda.guarded import GuardedDevice
from support.cuda.host_device import host_device, plant
from support.cuda.launches import ADDRESS, THREAD, SanitizerError, replay, require
from support.cuda.staging import small_staging_device, stage, sweep_of
from support.cuda.variants import collocated, heat


@pytest.fixture
def device() -> GuardedDevice:
    return small_staging_device()


@pytest.fixture
def persistent(monkeypatch: pytest.MonkeyPatch) -> None:
    """All kernels that a shape is chosen for are persistent, where there is room for an element."""
    stage(monkeypatch, persistent=True)


FORMS = {"bp1": femops.mass, "bp3": femops.diffusion, "bp5": collocated}


@pytest.mark.sample(5)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("counts", "order"),
    [
        *[((9,), 1), ((9,), 8), ((4, 3), 2), ((3, 3), 6)],
        *[((3, 2, 2), 2), ((3, 2, 1), 4), ((2, 1, 1), 7)],
    ],
)
def test_grids_of_all_sizes(form: str, counts: tuple[int, ...], order: int) -> None:
    """More portions than blocks, as many or fewer, a multiple or not; copies early and late."""
    device = host_device(shared_bytes=100 * 1024, options=["-O0"])
    mesh = turned(femops.box(counts, order=2, mapping=bend))
    expected = FORMS[form](femops.H1(mesh, order))
    A = FORMS[form](femops.H1(mesh, order, device=device))
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
            np.testing.assert_allclose(y, right, rtol=0, atol=1e-13 * abs(right).max())


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


# --- several fields -------------------------------------------------------------------------------


def weighted(v: Any, e: Any, x: Any, kappa: Any) -> Any:
    """Functionals beside a form that reads numbers at points."""
    return heat(v, e, x) | {"energy": e * e * kappa, "least": e + v[0]}


def fields_form(device: Any, mesh: femops.Mesh) -> femops.Residual:
    """A vector and a scalar."""
    V = femops.H1(mesh, 2, ncomp=mesh.dim, device=device)
    W = femops.Product(v=V, e=femops.L2(mesh, 1, device=device))
    names: Any = {"integrals": ["energy"], "minima": ["least"]}
    return femops.residual(weighted, W, kappa=smooth, **names)


@pytest.mark.usefixtures("persistent")
@pytest.mark.parametrize("counts", [(4, 3), (3, 2, 1)])
def test_fields_and_functionals(device: GuardedDevice, counts: tuple[int, ...]) -> None:
    mesh = turned(femops.box(counts, order=2, mapping=bend))
    there, here = fields_form(device, mesh), fields_form(None, mesh)
    u = np.random.default_rng(1).standard_normal(here.space.size)
    expected, values = here.evaluate(u)
    for way in (False, True):
        device.host.backwards = way
        with device.host.recording() as launches:
            residual, found = there.evaluate(device.upload(u))
        (main,) = (one for one in launches if "PERSISTENT = true" in one.source)
        assert main.shape[0] == 2
        scale = abs(expected).max()
        np.testing.assert_allclose(residual.get(), expected, rtol=0, atol=1e-12 * scale)
        assert found == pytest.approx(values, rel=1e-12)


# --- faults that are found ------------------------------------------------------------------------

NEXT = "            order_before_copies();\n            __syncthreads();\n"
STEP = "        step(merge, at, numbers, functionals, u, ux);\n"
MOVE = "        portion += gridDim.x;\n        stream.next(a, portion);\n"
BETWEEN = "if constexpr (PERSISTENT && DIM > 1 && NFUNCTIONALS > 0) at.wait();"

FAULTS = {
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


@pytest.mark.usefixtures("persistent")
@pytest.mark.parametrize("fault", FAULTS)
def test_planted_faults(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order of threads, and whether the first copy is made early or late."""
    plant(monkeypatch, *FAULTS[fault], where="PERSISTENT = true")
    device = host_device(shared_bytes=24 * 1024, options=["-O0"])
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


@pytest.mark.usefixtures("persistent")
@pytest.mark.parametrize("order", [1, 2, "functionals"])
def test_sanitizers_find_no_races(order: int | str) -> None:
    """Also where threads wait for their element alone, a part of a warp or some of them."""
    require(THREAD)
    device = host_device()
    device.processors = 1
    with device.recording() as launches:
        if order == "functionals":
            F = fields_form(device, femops.box((3, 2, 1), mapping=bend))
            F.evaluate(np.ones(F.space.size))
        else:
            V = femops.H1(femops.box((3, 1, 1), mapping=bend), order, device=device)
            _ = femops.diffusion(V) @ np.random.default_rng(1).standard_normal(V.size)
    (launch,) = (one for one in launches if "PERSISTENT = true" in one.source)
    assert launch.shape[0] == 1
    assert len(replay(launch, THREAD)) == len(launch.arrays)


ASKED = {
    "nothing": (" || first + ELEMENTS > a.count", " || first + ELEMENTS > a.count"),
    "runs": (" || first + ELEMENTS > a.count", ""),
    "numbers at points": ("if (first && portion + ahead < a.behind) {", "{"),
}


@pytest.mark.usefixtures("persistent")
@pytest.mark.parametrize("fault", ASKED)
def test_nothing_is_asked_for_behind_an_array(fault: str) -> None:
    require(ADDRESS)
    device, (before, after) = host_device(), ASKED[fault]
    device.processors = 2
    A = femops.diffusion(femops.H1(femops.box((5, 1, 1), mapping=bend), 2, device=device))
    with device.recording() as launches:
        _ = A @ np.ones(A.shape[1])
    (launch,) = (one for one in launches if "PERSISTENT = true" in one.source)
    assert launch.source.count(before) == 1
    found = nullcontext() if fault == "nothing" else pytest.raises(SanitizerError, match="overflow")
    with found:
        replay(replace(launch, source=launch.source.replace(before, after)), ADDRESS)
