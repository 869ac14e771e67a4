"""Tables of what the ways need in which numbers at points come to the kernels of an H200.

    PYTHONPATH=tests python -m support.cuda.ways

`docs/gpu_counts.md` has its output; see `machine_code` for what it needs. Beside the shape that
the model chooses it has, of the shapes that `femops bench gpu --sweep` tries, those of the most
warps without a spill; then shapes of the model at level `matrix-free`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path

from femops.bench.gpu.works import candidates
from femops_kernels.cuda.operator.kernel import CudaKernel
from femops_kernels.cuda.operator.shapes import Shape
from femops_kernels.tuning import database
from support.cuda.machine_code import (
    FORMS,
    ORDERS,
    disassembled,
    instructions,
    kernel_of,
    machine_code,
    show,
)
from support.cuda.paper import PaperDevice

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
    return sum(counts[name] for name in ("fp64", "shared", "others")) / kernel.spec.q1d


def chosen(device: PaperDevice, form: str, p: int, level: str) -> list[str]:
    """Registers and warps of the shape that the model chooses."""
    kernel = kernel_of(device, form, p, level)
    return [f"{device.function(kernel.text).registers}", f"{warps(kernel, device)}"]


def row(device: PaperDevice, form: str, p: int) -> list[str]:
    """Registers, kB of shared memory of a block, warps, instructions; and kB of points there."""
    given = kernel_of(device, form, p, "partial")
    shapes = candidates(given, device)
    cells = [form, str(p), *chosen(device, form, p, "partial")]
    for way in WAYS.values():
        there = [one for one in shapes if (one.staged, one.persistent) == way]
        kernel = best(given, device, there)
        registers, kilobytes = device.function(kernel.text).registers, kernel.shared_bytes / 1e3
        counts = f"{warps(kernel, device)}", f"{per_point(kernel, device):.0f}"
        cells += [f"{registers}", f"{kilobytes:.0f}", *counts]
        if kernel.staged:
            cells.append(f"{resident(kernel, device) * kernel._stream_bytes / 1e3:.0f}")
    return cells


if __name__ == "__main__":
    database.SHIPPED = Path("no table")  # the model chooses all shapes
    on_paper = PaperDevice("sm_90")
    rows = [row(on_paper, *case) for case in product(FORMS, ORDERS)]
    show(cells[:8] for cells in rows)  # of the model, loaded
    show(cells[:2] + cells[8:] for cells in rows)  # staged, persistent
    show(
        [str(p), *(word for form in FORMS for word in chosen(on_paper, form, p, "matrix-free"))]
        for p in ORDERS
    )
