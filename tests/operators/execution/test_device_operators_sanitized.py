"""Operators' own launches, run again under sanitizers: no races, nothing outside of arrays."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import femops
from femops.solvers.multigrid import hierarchy
from femops_kernels.cuda.device.arguments import Layout
from femops_kernels.cuda.operator.shapes import Shape
from support.cases.kernels import bend, smooth, turned
from support.cuda.host_device import HostDevice, host_device
from support.cuda.launches import ADDRESS, THREAD, Launch, SanitizerError, replay, require
from support.simulated_ranks import on_ranks


def make_mass(device: HostDevice | None) -> Any:
    """Values alone, in single precision."""
    V = femops.H1(turned(femops.box((9, 8), order=2, mapping=bend)), 4, device=device)
    return femops.mass(V, smooth, dtype="float32")


def make_constrained(device: HostDevice | None) -> Any:
    """A sum in one kernel; runs of nodes that elements see turned."""
    V = femops.H1(turned(femops.disc(4)), 3, device=device)
    A = femops.diffusion(V, smooth) + femops.mass(V)
    return A.constrained(V.boundary_dofs())


def make_elasticity(device: HostDevice | None) -> Any:
    """Components, and the geometry from the elements' nodes."""
    mesh = turned(femops.box((3, 2, 2), order=2, mapping=bend))
    V = femops.H1(mesh, 2, ncomp=3, device=device)
    return femops.elasticity(V, 1.3, smooth).at_level("matrix-free")


def make_divergence(device: HostDevice | None) -> Any:
    """Between two spaces, one of them not continuous."""
    mesh = turned(femops.box((3, 2, 2), order=2, mapping=bend))
    V, W = femops.H1(mesh, 2, ncomp=3, device=device), femops.L2(mesh, 1, device=device)
    return femops.divergence(V, W)


def make_reproducible(device: HostDevice | None) -> Any:
    """Sums in the order of the elements, in a second launch."""
    V = femops.H1(turned(femops.disc(4)), 3, device=device, reproducible=True)
    return femops.diffusion(V, smooth).constrained(V.boundary_dofs())


def make_faces(device: HostDevice | None) -> Any:
    """Faces of one element, whose nodes they share, with derivatives."""
    V = femops.H1(turned(femops.box((40, 3), order=2, mapping=bend)), 2, device=device)

    def form(u: Any, n: Any) -> Any:
        return {"value": u.value - u.grad @ n, "grad": -u * n}

    return femops.form(form, V, boundary="all")


MAKERS = [
    *(make_constrained, make_reproducible, make_elasticity, make_mass, make_divergence),
    make_faces,
]


@pytest.mark.sample(5)
@pytest.mark.parametrize("sanitizer", [ADDRESS, THREAD])
@pytest.mark.parametrize("make", MAKERS)
def test_nothing_is_found(make: Callable[[HostDevice | None], Any], sanitizer: str) -> None:
    require(sanitizer)
    device, reference = host_device(shared_bytes=12 * 1024), make(None)
    operator = make(device)
    u = np.random.default_rng(1).standard_normal(reference.shape[1]).astype(reference.dtype)
    with device.recording() as launches:
        result = operator @ u
    assert any(launch.shape[0] > 1 for launch in launches)  # so that blocks can be in a race
    tolerance = 1e-12 if reference.dtype == np.float64 else 1e-5
    expected = reference @ u
    np.testing.assert_allclose(result, expected, rtol=0, atol=tolerance * abs(expected).max())
    for launch in launches:
        arrays = replay(launch, sanitizer)
        assert len(arrays) == len(launch.arrays)
    assert any(a.size == result.size and np.allclose(a, result, atol=1e-5) for a in arrays)


@pytest.mark.exhaustive
@pytest.mark.parametrize("sanitizer", [ADDRESS, THREAD])
def test_nothing_is_found_in_a_cycle_of_multigrid(
    sanitizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Transfers, matrices and updates of vectors, each kernel once."""
    require(sanitizer)
    monkeypatch.setattr(hierarchy, "_FEW", 50)
    device = host_device(shared_bytes=12 * 1024)
    V = femops.H1(femops.box((9, 8), mapping=bend), 2, device=device)
    A = femops.diffusion(V) + femops.mass(V)
    M, b = femops.multigrid(A), np.random.default_rng(1).standard_normal(V.size)
    with device.recording() as launches:
        femops.cg(A, b, M=M, rtol=1e-3)
    assert len(M.sizes) == 3
    sources = {launch.source: launch for launch in launches}
    assert len(sources) > 8
    for launch in sources.values():
        replay(launch, sanitizer)


def test_the_bits_are_the_same_with_real_threads() -> None:
    require(THREAD)
    device = host_device(shared_bytes=12 * 1024)
    operator = make_reproducible(device)
    with device.recording() as launches:
        result = operator @ np.random.default_rng(1).standard_normal(operator.shape[1])
    *_, apply, combine = launches  # after data at points, and zeros
    left = {array.tobytes() for array in replay(apply, THREAD)}
    assert apply.shape[0] > 1
    assert all(array.tobytes() in left for array in combine.arrays if array.dtype == np.float64)
    assert result.tobytes() in {array.tobytes() for array in replay(combine, THREAD)}


# --- planted in an operator's kernel --------------------------------------------------------------


@pytest.fixture(scope="module")
def launch() -> Launch:
    device = host_device(shared_bytes=12 * 1024)
    operator = make_elasticity(device)
    with device.recording() as launches:
        _ = operator @ np.random.default_rng(1).standard_normal(operator.shape[1])
    return max(launches, key=lambda launch: len(launch.source))


@pytest.mark.parametrize("which", [0, 1, 3])
def test_an_array_that_is_too_short_is_found(launch: Launch, which: int) -> None:
    """Of the vectors, and of where runs begin."""
    require(ADDRESS)
    arrays = list(launch.arrays)
    arrays[which] = arrays[which].reshape(-1)[:-1]
    with pytest.raises(SanitizerError, match="heap-buffer-overflow"):
        replay(replace(launch, arrays=arrays), ADDRESS)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("at.wait()", "(void)0"),
        ("atomicAdd(add_at<S>(a, at), value)", "*add_at<S>(a, at) += value"),
    ],
)
def test_what_keeps_threads_apart_is_missed(launch: Launch, before: str, after: str) -> None:
    require(THREAD)
    assert before in launch.source
    with pytest.raises(SanitizerError, match="data race"):
        replay(replace(launch, source=launch.source.replace(before, after)), THREAD)


# --- threads that wait for their element alone ----------------------------------------------------


def launch_of_some(order: int, elements: int) -> Launch:
    """A launch of blocks of some elements, each with (order + 2)^2 threads."""
    device = host_device()
    mesh = femops.box((3, 1, 1), order=2, mapping=bend)
    (sweep,) = femops.diffusion(femops.H1(mesh, order, device=device)).compiled.sweeps
    x = device.xp.ones((3 * order + 1) * (order + 1) ** 2)
    other, y = sweep.reshaped(Shape(elements, 1)), device.xp.zeros(len(x))
    with device.recording() as launches:
        other.launch(device.address(x), device.address(y), 1.0, add=False)
    return launches[-1]


@pytest.mark.sample(2)
@pytest.mark.parametrize(("order", "elements"), [(6, 2), (2, 3)])
def test_elements_of_a_block_disturb_nobody(order: int, elements: int) -> None:
    """Parts of a warp (16 threads each), and two warps of an own barrier."""
    require(THREAD)
    launch = launch_of_some(order, elements)
    replay(launch, THREAD)
    shared = "work = shared + slot * SLAB"
    assert shared in launch.source
    close = launch.source.replace(shared, "work = shared + slot * (SLAB / 2)")
    with pytest.raises(SanitizerError, match="data race"):
        replay(replace(launch, source=close), THREAD)


# --- ranks that share dofs: ghosts' buffers and messages ------------------------------------------


def shared(mesh: Any, device: Any) -> Any:
    V = femops.H1(mesh, 3, device=device)
    A = femops.diffusion(V, smooth) + femops.mass(V)
    return A.constrained(V.boundary_dofs())


@cache
def launches() -> list[list[Launch]]:
    """Of each of four ranks, whose results are those of one."""
    mesh, devices = turned(femops.box((8, 8))), [host_device(shared_bytes=4096) for _ in range(4)]
    reference = shared(mesh, None)
    u = np.random.default_rng(1).standard_normal(reference.shape[1])

    def program(comm: Any) -> tuple[Any, Any, list[Launch]]:
        A = shared(femops.distribute(mesh, comm), devices[comm.rank])
        first = A.space.first_dof
        x = u[first : first + A.space.ndofs].copy()
        with devices[comm.rank].recording() as recorded:
            return first, A @ x, recorded

    found, _ = on_ranks(4, program)
    gap = np.concatenate([y for _, y, _ in sorted(found, key=lambda each: each[0])]) - reference @ u
    assert np.abs(gap).max() < 1e-12
    return [recorded for _, _, recorded in found]


@pytest.mark.sample(2)
@pytest.mark.parametrize("sanitizer", [ADDRESS, THREAD])
def test_nothing_is_found_on_ranks(sanitizer: str) -> None:
    require(sanitizer)
    kinds = set()
    for launch in (launch for recorded in launches() for launch in recorded):
        arrays = replay(launch, sanitizer)
        assert len(arrays) == len(launch.arrays)
        kinds.add(launch.source)
    assert len(kinds) == 3  # the operator's, and those that pack and add


def operators_launch() -> Launch:
    """The last rank's, of elements with ghosts."""
    longest = max(len(launch.source) for launch in launches()[-1])
    own = [launch for launch in launches()[-1] if len(launch.source) == longest]
    return max(own, key=lambda launch: len(launch.arrays))


@pytest.mark.parametrize("name", ["ghosts_in", "ghosts_out"])
def test_a_buffer_of_ghosts_that_is_too_short_is_found(name: str) -> None:
    require(ADDRESS)
    launch = operators_launch()
    (fields,) = re.findall(r"struct Arguments \{\n(.*?)\};", launch.source, re.DOTALL)
    kinds = {name: kind for kind, name in re.findall(r" *(.+) (\w+);\n", fields)}
    place = (Layout(kinds, np.float64).dtype.fields or {})[name][1]
    (which,) = [number for offset, number, _ in launch.places if offset == place]
    arrays = list(launch.arrays)
    arrays[which] = arrays[which][:-1]
    with pytest.raises(SanitizerError, match="heap-buffer-overflow"):
        replay(replace(launch, arrays=arrays), ADDRESS)


def test_ranks_that_have_the_same_dof_must_not_meet() -> None:
    """Without atomics the sum of what several ranks have for a dof is a race."""
    require(THREAD)
    (launch,) = [each for each in launches()[0] if "other ranks have" in each.source]
    before, after = "atomicAdd(a.y + at, a.values[i])", "a.y[at] += a.values[i]"
    assert before in launch.source
    with pytest.raises(SanitizerError, match="data race"):
        replay(replace(launch, source=launch.source.replace(before, after)), THREAD)
