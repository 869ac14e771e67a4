"""Copies to shared memory, as the compiler orders what asks and waits for them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest

import femops
from femops_kernels.cuda.compiler import nvrtc
from femops_kernels.cuda.operator.kernel import CudaKernel
from femops_kernels.cuda.operator.shapes import Shape
from femops_kernels.errors import DeviceError
from support.cases.kernels import bend
from support.cuda.paper import PaperDevice

ORDERED = r"mbarrier\.[^;\s]+|fence\.proxy[^;\s]+|cp\.async\.bulk\.shared[^;\s]+|bar\.sync"
NAMES = {
    "mbarrier.init.shared::cta.b64": "prepare",
    "mbarrier.arrive.expect_tx.shared::cta.b64": "expect",
    "mbarrier.try_wait.parity.shared::cta.b64": "wait",
    "fence.proxy.async.shared::cta": "fence",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint": "copy",
    "bar.sync": "barrier",
}


@pytest.fixture(scope="module", params=[(False, False), (True, False), (True, True)], ids=str)
def kernel(request: Any) -> CudaKernel:
    """A kernel whose threads wait for parts of a warp, and whose runs are no whole pieces."""
    try:
        nvrtc.version()
    except DeviceError as error:
        pytest.skip(str(error))
    persistent, merged = request.param
    V = femops.H1(femops.box((2, 2, 2), mapping=bend), 2, device=PaperDevice("sm_90"))
    shape = Shape(5, 1, staged=True, persistent=persistent)
    return replace(femops.diffusion(V).compiled.sweeps[0].kernel, shape=shape, merged=merged)


@pytest.fixture(scope="module")
def text(kernel: CudaKernel) -> str:
    """What the compiler makes of it before it knows the machine."""
    output = nvrtc._output

    def instead(program: Any, what: str) -> bytes:
        return output(program, "PTX" if what == "CUBIN" else what)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nvrtc, "_output", instead)
        source = PaperDevice("sm_90").prelude + kernel.text
        return nvrtc.compile_cubin(source, "sm_90")[0].decode().rstrip("\0")


def test_all_is_in_order(kernel: CudaKernel, text: str) -> None:
    """One phase per copy: its bytes are expected before it begins, all threads wait for it."""
    found = [NAMES[one] for one in re.findall(ORDERED, text)]
    begun = ["prepare", "fence", "expect", "copy", "barrier", "wait"]
    again = ["fence", "barrier", "expect", "copy"] * kernel.persistent
    assert found[: len(begun + again)] == begun + again
    # what else there is are barriers of sums over threads
    assert set(found[len(begun + again) :]) <= {"barrier"}


def test_numbers_and_places_agree(kernel: CudaKernel, text: str) -> None:
    size, stage = (
        int(re.findall(rf"{name} = (\d+);", kernel.text)[0])
        for name in ("STREAM_BYTES", "STAGE_AT")
    )
    values = dict(re.findall(r"(?:mov\.u32|add\.s32)\s+(%\w+), (?:%\w+, )?(\d+);", text))
    assert re.findall(r"mbarrier\.init\S+ \[%\w+\], (\d+);", text) == ["1"]
    expected = re.findall(r"mbarrier\.arrive\S+ _, \[(%\w+)\], (%\w+);", text)
    copy = r"cp\.async\.bulk\.shared\S+ \[(%\w+)\], \[%\w+\], (%\w+), \[(%\w+)\]"
    copies = re.findall(copy, text)
    assert [(place, count) for _, count, place in copies] == expected
    assert len(copies) == 1 + kernel.persistent
    found = {tuple(int(values[name]) for name in one) for one in copies}
    assert found == {(stage, size, stage + size)}


def test_whole_pieces_are_asked_for(kernel: CudaKernel, text: str) -> None:
    values = dict(re.findall(r"(?:mov\.u32|and\.b32)\s+(%\w+), (?:%\w+, )?(-?\d+);", text))
    sizes = re.findall(r"cp\.async\.bulk\.prefetch\S+ \[%\w+\], (%\w+);", text)
    assert len(sizes) == (3 if kernel.persistent else 1)
    assert all(int(values[size]) % 16 == 0 for size in sizes)


def test_a_wait_is_repeated_until_it_is_over(kernel: CudaKernel, text: str) -> None:
    """Of one parity and the other, where there are several."""
    wait = (
        r"\n(?P<begin>\$L\w+):[^$@]*mbarrier\.try_wait\S+ done, \[%\w+\], (?P<parity>%\w+);"
        r"\s*selp\.u32 (?P<there>%\w+), 1, 0, done;[^$@]*"
        r"setp\.eq\.s32\s+(?P<not>%\w+), (?P=there), 0;\s*@(?P=not) bra\s+(?P=begin);"
    )
    (found,) = re.finditer(wait, text)
    turned = rf"xor\.b32\s+{found['parity']}, {found['parity']}, 1;"
    assert len(re.findall(turned, text)) == kernel.persistent


def test_copies_are_read_between(kernel: CudaKernel, text: str) -> None:
    """After the wait, and before what orders reads before the next copy."""
    before, _, behind = text.partition("mbarrier.try_wait")
    between, _, after = behind.partition("fence.proxy.async")
    pieces = kernel.spec.q1d * kernel.spec.qfunction.numbers.point // 2
    counts = [part.count("ld.shared.v2") for part in (before, between)]
    assert counts == [0, pieces]
    assert kernel.merged or "ld.shared.v2" not in after  # where sums over threads are read so
