"""Tables of what kernels ask of an H200: amounts by the dof, then instructions by the point.

    PYTHONPATH=tests python -m support.cuda.machine_code

`docs/gpu_counts.md` has its output. It needs NVIDIA's disassembler (the wheel
nvidia-cuda-nvdisasm, or CUDA's on the PATH).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import product
from pathlib import Path

import numpy as np

import femops
from femops.bench.adaptive import in_ball
from femops.operators.execution.device import device_dofs
from femops_kernels.cuda.compiler.cubins import cubin
from femops_kernels.cuda.operator.counts import Work
from femops_kernels.cuda.operator.kernel import CudaKernel
from femops_kernels.tuning import database
from support.cuda.facts import FACTS
from support.cuda.paper import PaperDevice
from support.cuda.variants import collocated, mesh

CLOCK, MEMORY, PEAK = 1.98e9, 4.3e12, 34e12
"""Of an H200: Hz of its multiprocessors; bytes that it copies, and operations, per second."""

CLOCKS = CLOCK * FACTS["multiProcessorCount"]
"""Of all multiprocessors, per second."""

STARTED, FP64, BANKS = 4, 2, 128
"""Of a multiprocessor, per clock: warps' instructions, those of them on float64; shared bytes."""

RARE = {
    "const bool listed = start < 0;": "const bool listed = false;",
    "any(flags != nullptr && (flags[e] & bit))": "any(false)",
    '"@far bra SLOW;\\n"': "",
    '"div.rn.f64 %0, %1, %2;\\n"': "",
}
"""What most elements do not do (turned and constrained dofs, extreme determinants) is left out."""

ORDERS, LEVELS = range(1, 9), ("partial", "matrix-free")
FORMS = {"bp1": femops.mass, "bp3": femops.diffusion, "bp5": collocated}


def machine_code(device: PaperDevice, text: str) -> bytes:
    """That of a kernel which does what most elements do."""
    whole = device.prelude + text
    for found, common in RARE.items():
        assert found in whole, f"no longer in the kernel: {found}"
        whole = whole.replace(found, common)
    return cubin(whole, device.arch).code


def disassembled(code: bytes) -> str:
    """Lines of instructions and labels."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        Path(file.name).write_bytes(code)
        command = [_disassembler(), file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def instructions(text: str) -> Counter[str]:
    """Numbers of instructions, by what does them: float64, multiply-adds of it, shared, others."""
    found: Counter[str] = Counter()
    for name in re.findall(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z]\w+)", text, re.M):
        if name in ("DADD", "DMUL", "DFMA", "DSETP", "DMNMX"):
            found["fp64"] += 1
            found["fma"] += name == "DFMA"
        elif name in ("LDS", "STS"):
            found["shared"] += 1
        elif name != "NOP":
            found["others"] += 1
    return found


def _disassembler() -> str:
    for folder in map(Path, sys.path):
        for found in folder.glob("nvidia/*/bin/nvdisasm"):
            return str(found)
    return "nvdisasm"


def kernel_of(device: PaperDevice, form: str, p: int, level: str) -> CudaKernel:
    """The kernel of a form on elements that are not affine."""
    V = femops.H1(mesh(3, "multilinear"), p, device=device)
    (sweep,) = FORMS[form](V, level=level).compiled.sweeps
    return sweep.kernel


def amounts(device: PaperDevice, form: str, p: int, level: str) -> list[str]:
    """Bytes, operations and atomics of a dof, and the GDoF/s of each limit."""
    kernel, dofs = kernel_of(device, form, p, level), p**3
    work, moved = Work.of(kernel), stored_bytes(kernel, p)
    limits = [MEMORY / moved, BANKS * CLOCKS / work.shared_bytes, PEAK / work.flops]
    each = [f"{number / dofs:.0f}" for number in (moved, work.shared_bytes, work.flops)]
    words = marked([dofs * limit * 1e-9 for limit in limits], min, "{:.0f}")
    return [form, str(p), level, *each, f"{work.atomics / dofs:.1f}", *words]


def marked(numbers: Sequence[float], choose: Callable[..., float], form: str) -> list[str]:
    """Words for numbers, of which the one that is chosen is bold."""
    words = [form.format(number) for number in numbers]
    chosen = form.format(choose(numbers))
    return [f"**{word}**" if word == chosen else word for word in words]


def code(device: PaperDevice, form: str, p: int, level: str) -> list[str]:
    """Instructions of a point, and picoseconds that it keeps memory and units busy."""
    kernel = kernel_of(device, form, p, level)
    points, elements = kernel.spec.q1d**3, kernel.shape.elements
    counts = instructions(disassembled(machine_code(device, kernel.text)))
    each = {name: number / kernel.spec.q1d for name, number in counts.items()}
    warps = -(-kernel.threads // 32) / (elements * kernel.lines)  # instructions of warps, a line's
    clocks = CLOCKS / 1e12  # per picosecond
    started = each["fp64"] + each["shared"] + each["others"]
    times = [
        stored_bytes(kernel, p) / points / MEMORY * 1e12,
        started * warps / STARTED / clocks,
        each["fp64"] * warps / FP64 / clocks,
        int(kernel.bank_lines.rows(kernel.strides)[0]) / (elements * points) / clocks,
    ]
    plain = Work.of(kernel).shared_bytes / points / BANKS / clocks
    floats = f"{each['fp64']:.0f} ({each['fma']:.0f})"
    numbers = floats, f"{each['shared']:.1f}", f"{each['others']:.0f}"
    return [form, str(p), level, *numbers, *marked(times, max, "{:.1f}"), f"{plain:.1f}"]


def hanging(device: PaperDevice, p: int) -> list[str]:
    """Bytes of an element, more bytes if it has hanging nodes, and of 20 % of such elements."""
    V = femops.H1(femops.box((14, 14, 14)).refined(in_ball), p, device=device)
    whole = [stored_bytes(kernel_of(device, "bp3", p, level), p) for level in LEVELS]
    table, carriers = device_dofs(device, V, tabulated=False).hanging, V.mesh.topology.carriers
    assert table is not None
    assert carriers is not None
    (stage,), elements = table.stages, len(np.unique(carriers.hanging[:, 0]))
    lists, dofs = stage.units.nbytes + stage.lists.nbytes, (stage.lists >= 0).sum()
    ghosts = table.ghosts
    before, after = lists + 8 * dofs + 8 * ghosts, lists + 16 * dofs + 16 * ghosts
    more = [before / elements, 24 * ghosts / elements, after / elements]
    shares = [f"{0.2 * sum(more) / each:.0%}".replace("%", " %") for each in whole]
    femops.mass(V).apply(np.zeros(V.size))
    launched = [f for f in device.functions.values() if "TWO_DIRECTIONS" in f.source and f.shapes]
    registers = str(max(f.registers for f in launched if f"int P = {p + 1};" in f.source))
    return [str(p), *(f"{n:.0f}" for n in (*whole, *more)), *shares, registers]


def stored_bytes(kernel: CudaKernel, p: int) -> int:
    """Bytes that an element of a large mesh moves: dofs in and out, where they are, its numbers."""
    numbers = kernel.spec.q1d**3 * kernel.spec.qfunction.numbers.point * kernel.spec.stored.itemsize
    modes = 0 if kernel.spec.geometry is None else 3 * kernel.spec.geometry.g1d**3 * 8
    return numbers + modes + 16 * p**3 + 4 * 27


def show(rows: Iterable[list[str]]) -> None:
    """Print rows; what is as in the row above is left out of the first columns."""
    above: list[str] = []
    for row in rows:
        same = 2 if row[:2] == above[:2] else 1 if row[:1] == above[:1] else 0
        print("| " + " | ".join(["" for _ in range(same)] + row[same:]) + " |", flush=True)
        above = row
    print(flush=True)


if __name__ == "__main__":
    cases = list(product(FORMS, ORDERS, LEVELS))
    database.SHIPPED = Path("no table")  # the model chooses all shapes
    on_paper = PaperDevice("sm_90")
    for table in (amounts, code):
        show(table(on_paper, *case) for case in cases)
    show(hanging(on_paper, p) for p in ORDERS)
