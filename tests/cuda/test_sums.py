"""Sums over all threads of a launch, and conjugate gradients' own launches under sanitizers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import fsum

import numpy as np
import pytest

import femops
from femops_kernels.cuda.cg.cg import DEVICE_STATE, memory_of_sums
from femops_kernels.cuda.device.arguments import Layout
from femops_kernels.cuda.operator.kernel import STATE, simple_text
from femops_kernels.skeletons.cg.cg_state import TURN
from support.cases.kernels import bend, smooth, turned
from support.cuda.host_device import host_device
from support.cuda.launches import ADDRESS, THREAD, Launch, SanitizerError, replay, require

ENTRY = """\
ENTRY(THREADS, 1, Arguments) {
    const double x = a.x[blockIdx.x * THREADS + threadIdx.x];
    double sums[2] = {x, x * x};
    if (all_sums(sums, a.partial, a.counters)) {
        a.state[0] = sums[0];
        a.state[1] = sums[1];
        a.state[2] += 1;
    }
}
"""


@pytest.mark.parametrize("threads", [8, 50])
@pytest.mark.parametrize("blocks", [1, 2, 8, 9, 64, 65, 600])
def test_every_number_is_added_once(threads: int, blocks: int) -> None:
    device = host_device()
    layout = Layout({"x": "const T*"} | STATE, np.float64)
    text = simple_text(layout, np.dtype(np.float64), "reduce", THREADS=threads) + ENTRY
    x = np.random.default_rng(blocks).standard_normal(blocks * threads)
    memory, state = memory_of_sums(device, blocks, threads, 2), np.zeros(3)
    packed = layout.pack(device, x=x, state=state, **memory)
    found = []
    for _ in range(2):  # the counters are ready for another launch
        device.function(text).launch(blocks, threads, 2 * 8 * threads, packed)
        assert not memory["counters"].any()
        found.append(state[:2].copy())
    assert state[2] == 2
    np.testing.assert_array_equal(found[0], found[1])
    size = fsum(abs(x))
    np.testing.assert_allclose(found[0], [fsum(x), fsum(x * x)], rtol=1e-14, atol=1e-15 * size)


@cache
def launches(merged: bool) -> tuple[Launch, ...]:
    """Of one iteration that is not the first: several blocks, held rows, a preconditioner."""
    device = host_device(shared_bytes=12 * 1024)
    V = femops.H1(turned(femops.box((9, 8), order=2, mapping=bend)), 4, device=device)
    A = (femops.diffusion(V, smooth) + femops.mass(V)).constrained(V.boundary_dofs())
    b, M = np.random.default_rng(1).standard_normal(V.shape), femops.jacobi(A)
    kept: list[list[Launch]] = []
    with device.recording() as recorded:

        def after(_: object) -> None:
            kept.append(list(recorded))
            recorded.clear()

        femops.cg(A, b, M=M, maxiter=2, merged=merged, callback=after)
    assert len(kept[1]) == (2 if merged else 5)
    assert all(launch.shape[0] > 1 for launch in kept[1])
    return tuple(kept[1] if merged else kept[1][2:])  # but for zeros and the operator alone


@pytest.mark.sample(2)
@pytest.mark.parametrize("sanitizer", [ADDRESS, THREAD])
@pytest.mark.parametrize("merged", [True, False])
def test_nothing_is_found(merged: bool, sanitizer: str) -> None:
    require(sanitizer)
    for launch in launches(merged):
        arrays = replay(launch, sanitizer)
        changed = [
            not np.array_equal(after, before)
            for after, before in zip(arrays, launch.arrays, strict=True)
            if before.shape == (DEVICE_STATE,)
        ]
        assert changed == [f"ACTION = {TURN}" not in launch.source]  # p = M r + beta p sums nothing


FAULTS = [
    ("operator", "dof >= first && dof < behind", "there"),  # all that meet a dof write p
    ("vectors", "            __threadfence();\n", ""),
    (
        "vectors",
        "        __syncthreads();\n        if (shared[0] == 0)",
        "        if (shared[0] == 0)",
    ),
]


@pytest.mark.parametrize(("which", "before", "after"), FAULTS)
def test_planted_races_are_found(which: str, before: str, after: str) -> None:
    require(THREAD)
    launch = launches(True)[which == "vectors"]
    assert before in launch.source
    with pytest.raises(SanitizerError, match="data race"):
        replay(replace(launch, source=launch.source.replace(before, after)), THREAD)
