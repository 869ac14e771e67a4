"""Command ``femops info``."""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING, Any

from femops.cli.options import JsonOption, paragraphs
from femops.cli.output import Output, one_line_warnings, quantity
from femops.cli.record import version_of

if TYPE_CHECKING:
    from femops.parallel import Communicator

PACKAGES = ("numpy", "scipy", "llvmlite", "matplotlib", "pyvista")


@paragraphs
def info(json: JsonOption = False) -> None:
    """Print machine, lanes, threads, GPUs and versions.

    Also prints the folder of compiled kernels. A bug report needs all of this. Under mpiexec one
    report has the threads and cores of all ranks.

    \b
    Examples:
      femops info
      femops info --json
      mpiexec -n 4 femops info
    """
    from femops.parallel import world

    output, comm = Output(json), world()
    with one_line_warnings():
        facts = describe()
    if comm.size > 1:
        facts["parallel"] = describe_ranks(comm)
    if comm.rank > 0:
        return
    output.json(facts)
    output.facts("Machine", [(k.replace("_", " "), str(v)) for k, v in facts["machine"].items()])
    output.facts("GPUs", _gpu_rows(facts["gpu"]))
    output.facts("Versions", [(name, v or "absent") for name, v in facts["versions"].items()])
    if comm.size > 1:
        output.facts("Ranks", _rank_rows(facts["parallel"]))
    output.say(f"Compiled kernels are kept in {facts['cache_folder']}{_until()}")


def _until() -> str:
    """Text about a temporary cache folder. Empty for a permanent folder."""
    from femops_kernels.codegen.cache import cache_folder, is_temporary

    return " until this command ends: set FEMOPS_CACHE" if is_temporary(cache_folder()) else ""


def describe() -> dict[str, Any]:
    """Facts about machine and installation."""
    import femops
    from femops_kernels.codegen.cache import cache_folder
    from femops_kernels.cpu import machine
    from femops_kernels.cuda.device import cupy_device

    own = {"femops": femops.__version__, "python": platform.python_version()}
    versions = own | {name: version_of(name) for name in PACKAGES}
    facts = {k: v for k, v in machine.describe().items() if k not in versions}
    found = {"machine": facts, "gpu": cupy_device.describe(), "versions": versions}
    return found | {"cache_folder": str(cache_folder())}


def _gpu_rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Rows to print about GPUs (or the reason why there is none) and about the compiler."""
    rows = [(f"cuda:{number}", _gpu(gpu)) for number, gpu in enumerate(facts["devices"])]
    missing = [("none", facts["missing"])] if facts["missing"] else []
    return [*rows, *missing, ("NVRTC", facts["nvrtc"] or "absent")]


def _gpu(facts: dict[str, Any]) -> str:
    memory = quantity(facts["memory_bytes"], "B")
    return f"{facts['name']}, {facts['arch']}, {facts['processors']} multiprocessors, {memory}"


def describe_ranks(comm: Communicator) -> dict[str, Any]:
    """Facts about the ranks of a communicator."""
    import numpy as np

    from femops.parallel import launch
    from femops_kernels.cpu import machine

    mine = np.array([comm.node.first, comm.node.cores, machine.get_threads()])
    first, cores, threads = comm.gather_all(mine).T
    leads = np.unique(first)
    facts = {"ranks": comm.size, "nodes": len(leads), "threads": threads.tolist()}
    facts |= {"cores": int(cores[leads].sum()), "mpi": launch.library()}
    return facts | {"mpi4py": version_of("mpi4py")}


def _rank_rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Rows to print about ranks: the numbers of ranks, threads and cores."""
    least, most = min(facts["threads"]), max(facts["threads"])
    threads = str(least) if least == most else f"{least} to {most}"
    return [
        ("ranks x threads", f"{facts['ranks']} x {threads} = {sum(facts['threads'])}"),
        ("cores", f"{facts['cores']} on {facts['nodes']} node{'s' * (facts['nodes'] > 1)}"),
        ("MPI", facts["mpi"]),
        ("mpi4py", facts["mpi4py"] or "absent"),
    ]
