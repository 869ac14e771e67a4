"""What residuals and Jacobians keep at points is computed on the device."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import femops
from femops_kernels.errors import KernelValueError
from support.cuda import guarded, host_values
from support.cuda.guarded import GuardedDevice, guarded_device
from support.cuda.host_device import host_device
from support.cuda.launches import ADDRESS, THREAD, replay, require
from support.cuda.moves import Moves, moves
from support.cuda.nonlinear_forms import FORMS, space, state

device = guarded.small_device
evaluated = host_values.evaluated
Make = Callable[[Any], Any]


@pytest.mark.parametrize("name", ["space", "flow in space", "functionals alone"])
def test_nothing_at_points_is_copied(
    name: str, device: GuardedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch computes what is kept at points, one looks at its signs."""
    F = FORMS[name][1](device)
    if name == "flow in space":
        F = F.update(nu=0.1)  # of a function the host evaluates numbers
    out, u = F.space.zeros(), device.upload(state(F))
    uploaded: list[int] = []
    plain = device.host.upload

    def upload(array: Any, stream: Any = None) -> Any:
        uploaded.append(array.nbytes)
        return plain(array, stream)

    monkeypatch.setattr(device.host, "upload", upload)
    launches = [device.host.launches]
    F.residual(u, out)
    launches.append(device.host.launches)
    part = F._parts[0]
    points = part.form.geometry.num_elements * part.form.geometry.num_points
    modes = part.form.geometry.mesh.coordinates.nbytes
    assert part.term.qfunction.numbers.point > 0
    assert max(uploaded) <= max(8 * points, modes)
    uploaded.clear()
    F.residual(u, out)
    launches.append(device.host.launches)
    first, second = np.diff(launches)
    assert first - second == 2
    assert not uploaded


@pytest.mark.parametrize("name", ["three in space", "reproducible material"])
def test_nothing_moves(name: str, device: GuardedDevice) -> None:
    """A launch (and a sum of what elements share), and a look at each least value."""
    F = FORMS[name][1](device)
    u, out = device.upload(state(F)), F.space.zeros()
    F.evaluate(u, out)
    with moves(device, launches=2 if name == "reproducible material" else 1):
        F.residual(u, out)
    before = Moves.of(device)
    F.evaluate(u, out)
    after = Moves.of(device)
    assert after.looks - before.looks == len(F.functionals.minima)
    assert after.uploads == before.uploads
    downloads = len(F.functionals.integrals)  # parts of each element
    assert after.downloads - before.downloads == downloads


def test_later_jacobians_take_one_launch_more(device: GuardedDevice, evaluated: list[int]) -> None:
    """Nothing is copied back; the host evaluates a coefficient that is a function of x, once."""
    F = FORMS["three in the plane"][1](device)
    u, x = device.upload(state(F)), device.upload(state(F, 2))
    out = F.space.zeros()
    F.jacobian(u).apply(x, out)
    assert sum(evaluated) == 1
    J = F.jacobian(u)
    before = device.host.launches, device.host.downloads
    J.apply(x, out)
    filled = device.host.launches - before[0]
    before = device.host.launches, device.host.downloads
    J.apply(x, out)
    again = device.host.launches - before[0]
    assert device.host.downloads == before[1]
    assert sum(evaluated) == 1
    assert filled == again + 1


def fills(source: str) -> tuple[int, int] | None:
    """Elements of a block of a kernel that fills, and of one that reads."""
    if "FILLED_PIECES" not in source:
        return None
    group, elements = (
        int(re.findall(rf"constexpr int {name} = (\d+);", source)[0])
        for name in ("GROUP", "ELEMENTS")
    )
    return elements, group


@pytest.mark.sample(2)
@pytest.mark.parametrize("sanitizer", [ADDRESS, THREAD])
@pytest.mark.parametrize("name", ["space, material", "flow in space", "one test function"])
def test_sanitizers_find_nothing_in_residuals(name: str, sanitizer: str) -> None:
    require(sanitizer)
    device = host_device(shared_bytes=12 * 1024)
    F = FORMS[name][1](device)
    with device.recording() as launches:
        F.residual(state(F))
    assert any(fills(launch.source) for launch in launches)
    for launch in launches:
        replay(launch, sanitizer)


@pytest.mark.parametrize("sanitizer", [ADDRESS, THREAD])
def test_sanitizers_find_nothing_in_jacobians(sanitizer: str) -> None:
    """In a kernel whose blocks are parts of those of the kernel that reads, and in one of these."""
    require(sanitizer)
    device = host_device(shared_bytes=24 * 1024)
    F = FORMS["three in space"][1](device)
    J = F.jacobian(state(F))
    with device.recording() as launches:
        for block in (J["v", "p"], J["p", "v"]):
            assert block is not None
            _ = block @ np.ones(block.space.size)
    found = [(fills(launch.source), launch) for launch in launches]
    kinds = [kind for kind, _ in found if kind is not None]
    assert any(elements == group for elements, group in kinds)
    assert any(elements < group for elements, group in kinds)
    for kind, launch in found:
        if kind is not None:
            replay(launch, sanitizer)


def test_what_does_not_fit_is_refused() -> None:
    """The data of a block that is small itself."""
    device = guarded_device(shared_bytes=4 * 1024, options=["-O0"])
    V = space(device, 3, ncomp=3)
    W = femops.Product(v=V, e=femops.L2(V.mesh, 1, device=device))

    def form(v: Any, e: Any) -> Any:
        return {"v": {}, "e": {"value": e * e * femops.det(v.grad)}}

    J = femops.residual(form, W).jacobian(device.upload(np.ones(W.size)))
    block = J["e", "e"]
    assert block is not None
    with pytest.raises(KernelValueError, match=r"an element needs \d+ bytes of shared memory"):
        _ = block @ W.spaces["e"].zeros()
