"""A beam of rubber bends under its weight: neo-Hookean elasticity, Newton's method, no matrix.

The stress is one Python function (`femops.neo_hookean`); the Jacobian that Newton's method needs
comes from the same function, by differentiation of the traced expressions.
"""

from pathlib import Path

import femops

LENGTH, WEIGHT = 4.0, 0.004
LAM, MU = 1.5, 1.0


def bend(order):
    """Space, displacement and how Newton's method went."""
    mesh = femops.box((8, 2, 2), upper=(LENGTH, 1.0, 1.0))
    V = femops.H1(mesh, order, ncomp=3)
    clamped = V.boundary_dofs(attributes=1)  # the low end of x
    F = femops.neo_hookean(V, LAM, MU).constrained(clamped)
    weight = femops.load(V, lambda x: [0 * x[0], 0 * x[0], -WEIGHT + 0 * x[0]])
    u, info = femops.newton(F, V.zeros(), weight, rtol=1e-9)
    assert info.converged, info.reason
    return V, u, info


def main():
    """Bend at two orders, compare with each other and with the theory of slender beams."""
    tips = []
    for order in (2, 3):
        V, u, info = bend(order)
        tips.append(V.components(u)[:, 2].min())
        print(
            f"order {order}: {V.size} unknowns, {info.iterations} Newton steps, "
            f"{info.linear_iterations} iterations of cg, tip {tips[-1]:.4f}"
        )
    # Timoshenko: w L^4 / (8 E I) + w L^2 / (2 k G A) with I = 1/12, k = 5/6, unit cross-section
    young = MU * (3 * LAM + 2 * MU) / (LAM + MU)
    slender = -(WEIGHT * LENGTH**4 / (8 * young / 12) + WEIGHT * LENGTH**2 / (2 * 5 / 6 * MU))
    print(f"theory of slender beams: {slender:.4f}")
    assert abs(tips[1] / tips[0] - 1) < 0.01
    assert abs(tips[1] / slender - 1) < 0.05
    try:
        Path("out").mkdir(exist_ok=True)
        options = {"name": "displacement", "deform": 1.0}
        print(femops.io.picture("out/hyperelastic_beam.png", V, u, **options))
    except femops.errors.MissingExtraError as error:
        print(error)
    Path("out").mkdir(exist_ok=True)
    femops.save("out/hyperelastic_beam.vtu", V, displacement=u)


if __name__ == "__main__":
    main()
