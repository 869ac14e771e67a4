"""Sedov's blast: gas dynamics on a curved mesh that moves with the gas.

All the energy is in one corner of the domain. A shock runs outwards and leaves almost no gas behind
it. The density is compared with the exact, self-similar solution, on two meshes.
"""

from pathlib import Path

import numpy as np

import femops
from femops.hydro import Blast, Lagrangian, Simulation, Snapshot, built_in, problem


def blast(refine, t_final=0.5):
    """Run to a time, and return the fields there."""
    case = problem("sedov")
    equations = Lagrangian(case, built_in("square01_quad").refine(refine))
    run = Simulation.begin(equations)
    run.run(t_final)
    print(f"{equations.mesh.num_elements} elements: {run.steps} steps, |e| = {run.e_norm:.6f}")
    return Snapshot.of(run)


def error(fields, t=0.5):
    """Norm of the difference between the density and the exact one."""
    exact, rho = Blast(dim=2), fields.density
    return femops.l2_error(rho.space, rho.vector, lambda x: exact.density(np.hypot(*x), t))


def main():
    """Compare two meshes, draw the finer one's density."""
    coarse, fine = blast(2), blast(3)
    errors = error(coarse), error(fine)
    print(f"L2 error of the density {errors[0]:.3f}, {errors[1]:.3f}")
    assert errors[1] < 0.8 * errors[0]
    rho = fine.density
    try:
        Path("out").mkdir(exist_ok=True)
        print(femops.io.picture("out/sedov.png", rho.space, rho.vector, name="density"))
    except femops.errors.MissingExtraError as error_of_extra:
        print(error_of_extra)


if __name__ == "__main__":
    main()
