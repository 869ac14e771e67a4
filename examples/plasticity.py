"""Plasticity by return mapping: a thick cylinder to its limit, and a perforated strip that hardens.

At each point Newton's method finds the plastic strain, in a loop that Numba compiles and that
becomes part of the kernels. The plastic strain is a history: it changes when a step has converged.
The consistent tangent follows from the loop itself. Needs Numba: pip install numba
"""

import math
from pathlib import Path

import numpy as np
from scipy.sparse.linalg import spsolve

import femops
import femops.numba

SHEAR, BULK = 80.0, 170.0  # moduli in GPa
YIELD = 0.24  # stress in GPa


@femops.numba.law(results=7)
def return_mapping(exx, eyy, exy, pxx, pyy, pxy, age, saturation, rate):
    """Stress and new history (J2, plane strain) from the strain and the old history.

    The yield stress grows with the age, the accumulated plastic strain: by ``saturation`` in all,
    at a ``rate`` (Voce). Simo and Hughes (1998), box 3.2.
    """
    mean = (exx + eyy) / 3.0
    sxx = 2.0 * SHEAR * (exx - mean - pxx)  # the elastic trial
    syy = 2.0 * SHEAR * (eyy - mean - pyy)
    szz = 2.0 * SHEAR * (pxx + pyy - mean)
    sxy = 2.0 * SHEAR * (exy - pxy)
    size = math.sqrt(sxx * sxx + syy * syy + szz * szz + 2.0 * sxy * sxy)
    flow = 0.0
    if size > math.sqrt(2.0 / 3.0) * (YIELD + saturation * (1.0 - math.exp(-rate * age))):
        for _ in range(30):
            grown = math.exp(-rate * (age + math.sqrt(2.0 / 3.0) * flow))
            excess = size - 2.0 * SHEAR * flow
            excess -= math.sqrt(2.0 / 3.0) * (YIELD + saturation * (1.0 - grown))
            change = excess / (2.0 * SHEAR + 2.0 / 3.0 * saturation * rate * grown)
            flow += change
            if 2.0 * SHEAR * abs(change) <= 1e-14 * size:
                break
        else:
            raise ValueError("no return to the yield surface")
        pxx += flow * sxx / size
        pyy += flow * syy / size
        pxy += flow * sxy / size
        age += math.sqrt(2.0 / 3.0) * flow
        kept = 1.0 - 2.0 * SHEAR * flow / size
        sxx, syy, sxy = kept * sxx, kept * syy, kept * sxy
    pressure = 3.0 * BULK * mean
    return sxx + pressure, syy + pressure, sxy, pxx, pyy, pxy, age


def solid(u, old, saturation, rate):
    """Stress at a point, and the next plastic strain."""
    strain = u.sym_grad
    sxx, syy, sxy, *new = return_mapping(
        strain[0, 0], strain[1, 1], strain[0, 1], *old, saturation, rate
    )
    return {"grad": [[sxx, sxy], [sxy, syy]], "history": {"old": new}}


def direct(J, b, rtol):  # noqa: ARG001
    """Solve a linear system by SciPy's factors: at the limit multigrid would not do."""
    return spsolve(J.assemble().tocsc(), b)


def pulled(V, moved, direction, fixed, lengths, saturation, rate, **solver):
    """Move a part of the boundary step by step; the force on it and Newton's steps for each."""
    history = femops.numba.history(V, 4)
    # the flow is associated, so the tangent is symmetric
    F = femops.residual(solid, V, old=history, saturation=saturation, rate=rate, symmetric=True)
    F = F.constrained(np.union1d(moved, fixed))
    u, before, forces, steps = V.zeros(), 0.0, [], []
    for length in lengths:
        u = u * (length / before) if before else V.zeros()
        u[moved] = length * direction[moved]
        u, info = femops.newton(F, u, rtol=1e-10, **solver)
        assert info.converged, info.reason
        forces.append(F.unconstrained.residual(u)[moved] @ direction[moved])
        steps.append(info.iterations)
        F, before = history.commit(F, u), length
    return u, history, np.array(forces), steps


def cylinder(n=4, order=3, inner=1.0, outer=2.0):
    """Pressure in a thick cylinder without hardening, over the limit of plasticity."""

    def polar(x):
        r, angle = inner * (outer / inner) ** x[0], 0.5 * np.pi * x[1]
        return np.array([r * np.cos(angle), r * np.sin(angle)])

    V = femops.H1(femops.box((n, n), order=order, mapping=polar), order, ncomp=2)
    moved = V.boundary_dofs(where=lambda x: np.hypot(*x) < inner * 1.0001)
    fixed = np.union1d(
        V.boundary_dofs(components=1, where=lambda x: x[1] < 1e-9),
        V.boundary_dofs(components=0, where=lambda x: x[0] < 1e-9),
    )
    outward = V.interpolate(lambda x: x / np.hypot(*x))
    lengths = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0]) * 1e-3
    _, _, forces, steps = pulled(V, moved, outward, fixed, lengths, 0.0, 1.0, linear=direct)
    pressure = forces / (0.5 * np.pi * inner)
    limit = 2.0 / np.sqrt(3.0) * YIELD * np.log(outer / inner)
    return pressure / limit, steps


def strip(n=6, order=2, radius=0.4, lengths=(2e-4, 5e-4, 1e-3, 2e-3, 4e-3, 8e-3)):
    """A quarter of a square strip with a hole, pulled at its upper end."""

    def around(x):
        angle = 0.5 * np.pi * x[1]
        circle = np.array([np.cos(angle), np.sin(angle)])
        square = circle / np.maximum(*circle)
        return radius * circle + x[0] * (square - radius * circle)

    V = femops.H1(femops.box((n, 2 * n), order=order, mapping=around), order, ncomp=2)
    moved = V.boundary_dofs(components=1, where=lambda x: x[1] > 1 - 1e-9)
    fixed = np.union1d(
        V.boundary_dofs(components=1, where=lambda x: x[1] < 1e-9),
        V.boundary_dofs(components=0, where=lambda x: x[0] < 1e-9),
    )
    up = V.interpolate(lambda x: np.array([0.0 * x[0], 1.0 + 0.0 * x[0]]))
    return V, *pulled(V, moved, up, fixed, lengths, 0.12, 16.0, preconditioner="multigrid")


def main():
    """Print pressures and forces; the pressure must reach the limit."""
    reached, steps = cylinder()
    print("pressure over the limit:", *(f"{one:.4f}" for one in reached), f"(Newton: {steps})")
    assert abs(reached[-1] - 1.0) < 0.005
    _, _, history, forces, steps = strip()
    age = history.vector.reshape(-1, 4)[:, 3]
    print("force on the strip:", *(f"{one:.4f}" for one in forces), f"(Newton: {steps})")
    print(f"largest plastic strain {age.max():.3f}, plastic at {(age > 0).mean():.0%} of points")
    assert max(steps) < 12
    Path("out").mkdir(exist_ok=True)
    L = femops.L2(history.space.mesh, history.space.order)
    try:
        print(femops.io.picture("out/plasticity.png", L, age, name="plastic strain"))
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    main()
