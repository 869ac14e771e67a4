"""Table of what the ways need in which numbers at points come to the kernels of an H200.

    PYTHONPATH=tests python -m support.cuda.ways

`docs/performance.md` has its output; see `machine_code` for what it needs. Of the shapes that
`femops bench gpu --sweep` tries it has those of the most warps without a spill.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import femops
from femops.bench.gpu.tuning import candidates
from femops_kernels.cuda.operator.kernel import CudaKernel
from femops_kernels.cuda.operator.shapes import Shape
from support.cuda.machine_code import FORMS, disassembled, instructions, machine_code
from support.cuda.paper import PaperDevice
from support.cuda.variants import mesh

WAYS = {"loaded": (False, False), "staged": (True, False), "persistent": (True, True)}
"""Whether they are staged, and persistent."""


def best(kernel: CudaKernel, device: PaperDevice, shapes: Sequence[Shape]) -> CudaKernel:
    """The kernel in the shape that gives it the most warps, then the fewest registers."""

    def worth(one: CudaKernel) -> tuple[int, int]:
        return warps(one, device), -device.function(one.text).registers

    found = (replace(kernel, shape=shape) for shape in shapes)
    return max((k for k in found if not device.function(k.text).local_bytes), key=worth)


def resident(kernel: CudaKernel, device: PaperDevice) -> int:
    """Blocks of a multiprocessor."""
    return device.function(kernel.text).resident(kernel.threads, kernel.shared_bytes)


def warps(kernel: CudaKernel, device: PaperDevice) -> int:
    """Warps of a multiprocessor."""
    return resident(kernel, device) * -(-kernel.threads // 32)


def trip(text: str) -> str:
    """What is done for each portion: the longest loop of a kernel with persistent blocks."""
    labels = {found[1]: found.start() for found in re.finditer(r"^(\.L_x_\d+):", text, re.M)}
    jumps = re.finditer(r"\bBRA\b.*`\((\.L_x_\d+)\)", text)
    loops = [(labels[jump[1]], jump.end()) for jump in jumps if labels[jump[1]] < jump.start()]
    begin, end = max(loops, key=lambda ends: ends[1] - ends[0])
    return text[begin:end]


def per_point(kernel: CudaKernel, device: PaperDevice) -> float:
    """Instructions of a warp for a point of each thread."""
    text = disassembled(machine_code(device, kernel.text))
    counts = instructions(trip(text) if kernel.persistent else text)
    return sum(counts[name] for name in ("fp64", "shared", "others")) / kernel.q1d


def row(form: str, p: int) -> list[str]:
    """Registers, kB of shared memory of a block, warps, instructions; and kB of points there."""
    device = PaperDevice("sm_90")
    (sweep,) = FORMS[form](femops.H1(mesh(3, "multilinear"), p, device=device)).compiled.sweeps
    shapes = candidates(sweep.kernel, device)
    cells = [form, str(p)]
    for way in WAYS.values():
        kernel = best(
            sweep.kernel, device, [one for one in shapes if (one.staged, one.persistent) == way]
        )
        registers, kilobytes = device.function(kernel.text).registers, kernel.shared_bytes / 1e3
        counts = f"{warps(kernel, device)}", f"{per_point(kernel, device):.0f}"
        cells += [f"{registers}", f"{kilobytes:.0f}", *counts]
        if kernel.staged:
            cells.append(f"{resident(kernel, device) * kernel._stream_bytes / 1e3:.0f}")
    return cells


if __name__ == "__main__":
    for form, p in product(FORMS, (2, 4, 6, 8)):
        print("| " + " | ".join(row(form, p)) + " |", flush=True)
