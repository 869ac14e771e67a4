"""Strong scaling of a Poisson solve: the same problem on 1, 2, 4, ... ranks, in one run.

    python scaling_mpi.py
    mpiexec -n 4 python scaling_mpi.py --elements 32

Ranks that do not take part wait, each on its own core. `femops bench scaling` measures more, and
with more care.
"""

import argparse
from time import perf_counter

import numpy as np

import femops
from femops.parallel import communicator
from femops_kernels.cpu import machine

try:
    from mpi4py import MPI

    COMM = MPI.COMM_WORLD
except ImportError:  # one process needs no MPI
    COMM = None


def source(x):
    """Right-hand side; the solution is a product of sines, zero on the boundary."""
    return 3 * np.pi**2 * np.prod(np.sin(np.pi * x), axis=0)


def solve(elements, order, comm):
    """Dofs, seconds an application, iterations, seconds of the solve; all ranks of comm call it."""
    ranks = communicator(comm)
    machine.set_threads(1)  # a rank is a core, however many ranks take part
    mesh = femops.box((elements,) * 3, comm=ranks)
    V = femops.H1(mesh, order)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    b = A.rhs(femops.load(V, source))

    out = A @ b
    times = []
    for _ in range(20):
        ranks.barrier()
        begin = perf_counter()
        A.apply(b, out)
        times.append(ranks.max(perf_counter() - begin))

    for _ in range(2):  # the first compiles
        ranks.barrier()
        begin = perf_counter()
        u, info = femops.cg(A, b, M=femops.jacobi(A), rtol=1e-8)
        seconds = ranks.max(perf_counter() - begin)
    assert femops.l2_error(V, u, lambda x: source(x) / (3 * np.pi**2)) < 1e-3
    return V.global_ndofs, float(np.median(times)), info.iterations, seconds


def main():
    """Solve on more and more ranks; rank 0 prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--elements", type=int, default=8, help="in each direction")
    parser.add_argument("--order", type=int, default=4)
    given = parser.parse_args()
    rank, size = (0, 1) if COMM is None else (COMM.rank, COMM.size)
    if rank == 0:
        print("ranks    dofs  apply, ms  iterations  solve, s  efficiency")
    one, ranks = 0.0, 1
    while ranks <= size:
        group = None if COMM is None else COMM.Split(0 if rank < ranks else 1)
        if rank < ranks:
            dofs, apply, iterations, seconds = solve(given.elements, given.order, group)
            one = one or seconds
            if rank == 0:
                efficiency = one / (ranks * seconds)
                row = f"{ranks:5} {dofs:7} {1e3 * apply:10.3f} {iterations:11} {seconds:9.3f}"
                print(f"{row} {efficiency:11.1%}", flush=True)
        if COMM is not None:
            COMM.Barrier()
        ranks *= 2


if __name__ == "__main__":
    main()
