"""Launches of ranks that share dofs, run again under sanitizers: ghosts' buffers and messages."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import femops
from femops_kernels.cuda.device.arguments import Layout
from support.cases.kernels import smooth, turned
from support.cuda.host_device import host_device
from support.cuda.launches import ADDRESS, THREAD, Launch, SanitizerError, replay, require
from support.simulated_ranks import on_ranks


def make(mesh: Any, device: Any) -> Any:
    V = femops.H1(mesh, 3, device=device)
    A = femops.diffusion(V, smooth) + femops.mass(V)
    return A.constrained(V.boundary_dofs())


@cache
def launches() -> list[list[Launch]]:
    """Of each of four ranks, whose results are those of one."""
    mesh, devices = turned(femops.box((8, 8))), [host_device(shared_bytes=4096) for _ in range(4)]
    reference = make(mesh, None)
    u = np.random.default_rng(1).standard_normal(reference.shape[1])

    def program(comm: Any) -> tuple[Any, Any, list[Launch]]:
        A = make(femops.distribute(mesh, comm), devices[comm.rank])
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
def test_nothing_is_found(sanitizer: str) -> None:
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
