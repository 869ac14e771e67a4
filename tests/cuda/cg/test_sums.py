"""Sums over all threads of a launch, and conjugate gradients' own launches under sanitizers."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import fsum
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import femops
from femops.solvers.inner_products import Sums
from femops_kernels.cuda.cg.cg import DEVICE_STATE, DeviceConjugateGradients, memory_of_sums
from femops_kernels.cuda.device.arguments import Layout
from femops_kernels.cuda.device.sources import simple_text
from femops_kernels.cuda.operator.inputs import STATE
from femops_kernels.skeletons.cg.cg_state import FAR, TURN
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
def test_every_number_is_added_once(threads: int) -> None:
    device = host_device()
    layout = Layout({"x": "const T*"} | STATE, np.float64)
    text = simple_text(layout, np.dtype(np.float64), "reduce", THREADS=threads) + ENTRY
    for blocks in (1, 2, 8, 9, 64, 65, 600):
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
def launches(kind: str) -> tuple[Launch, ...]:
    """Of an iteration that touches x for two, but for zeros and the operator alone.

    Of several blocks, held rows, a preconditioner.
    """
    device = host_device(shared_bytes=14 * 1024)
    V = femops.H1(turned(femops.box((6, 6), order=2, mapping=bend)), 4, device=device)
    A = (femops.diffusion(V, smooth) + femops.mass(V)).constrained(V.boundary_dofs())
    b, M = np.random.default_rng(1).standard_normal(V.shape), femops.jacobi(A)
    sums = Sums(V)
    sums.many = kind == "ranks"
    solve = DeviceConjugateGradients(A.compiled, b, None, M.inverse, kind == "merged", sums)
    solve.advance(0.0, 9, 2)
    with device.recording() as recorded:
        solve.advance(0.0, 9, 3 if sums.many else 2, show=False)
    last = recorded[-{"merged": 2, "apart": 5, "ranks": 4}[kind] :]
    states = [a for launch in last for a in launch.arrays if is_state(a)]
    assert any(state[FAR] != 0.0 for state in states)
    assert all(launch.shape[0] > 1 for launch in last)
    return tuple(launch for launch in last if any(map(is_state, launch.arrays)))


def is_state(array: NDArray[Any]) -> bool:
    """True for the state of a solve."""
    return array.shape == (DEVICE_STATE,)


@pytest.mark.sample(3)
@pytest.mark.parametrize("sanitizer", [ADDRESS, THREAD])
@pytest.mark.parametrize("kind", ["merged", "apart", "ranks"])
def test_nothing_is_found(kind: str, sanitizer: str) -> None:
    require(sanitizer)
    for launch in launches(kind):
        arrays = replay(launch, sanitizer)
        changed = [
            not np.array_equal(after, before)
            for after, before in zip(arrays, launch.arrays, strict=True)
            if is_state(before)
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
    """By the sanitizer, or by threads that a race has led to different barriers."""
    require(THREAD)
    launch = launches("merged")[which == "vectors"]
    assert before in launch.source
    with pytest.raises(SanitizerError, match=r"data race|barrier in line .* not reached"):
        replay(replace(launch, source=launch.source.replace(before, after)), THREAD)
