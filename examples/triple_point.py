"""The triple point: a shock meets two gases of different density and rolls them up.

Three states meet in a point. The shock is faster in the light gas above than in the heavy gas
below, so the boundary between them turns into a vortex, and the mesh with it.
"""

from pathlib import Path

import femops
from femops.hydro import Lagrangian, Simulation, Snapshot, built_in, problem


def main():
    """Run the beginning, write a series for ParaView, draw the end."""
    out = Path("out")
    out.mkdir(exist_ok=True)
    equations = Lagrangian(problem("triple-point"), built_in("rectangle01_quad").refine(1), 3, 2)
    run = Simulation.begin(equations, "rk2avg")
    before = equations.total_energy(run.state)
    with femops.io.TimeSeries(out / "triple_point.pvd", existing="replace") as series:
        for t in (0.5, 1.0, 1.5):
            Snapshot.of(run).save(series, run.t)
            run.run(t)
        fields = Snapshot.of(run)
        fields.save(series, run.t)
    change = equations.total_energy(run.state) / before - 1
    print(f"{run.steps} steps, the energy has changed by {change:.1e} of itself")
    assert abs(change) < 1e-9
    rho = fields.density
    try:
        print(femops.io.picture(out / "triple_point.png", rho.space, rho.vector, name="density"))
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    main()
