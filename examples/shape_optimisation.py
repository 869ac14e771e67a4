"""Shape optimisation: the body with the least drag in Stokes flow, at a given volume.

Far away the fluid moves with velocity 1 along x. Half of the flow is computed, that above the axis.
`femops.gradient` differentiates drag and volume by the nodes of the mesh. Their representers in the
inner product of elasticity are smooth displacements of the whole mesh, which leave the outer rim
where it is. A disc becomes Pironneau's body with two tips (J. Fluid Mech. 59, 1973).
"""

from pathlib import Path

import numpy as np
from scipy.sparse.linalg import splu

import femops

ORDER, FAR, STEP = 3, 4.0, 0.08
BODY, RIM, AXIS = 1, 2, (3, 4)  # attributes of the box that is bent around the body


def half_ring(x):
    """The flow above a disc of radius 1."""
    radius, angle = FAR ** x[0], np.pi * x[1]
    return np.stack([radius * np.cos(angle), radius * np.sin(angle)])


def stokes(u, p):
    """The Stokes operator, symmetric."""
    return {"u": {"grad": u.grad - p * np.eye(2)}, "p": {"value": -u.div}}


def friction(u, p):
    """Power of the friction, which is the drag at velocity 1. Pressure does no work: div u is 0."""
    return femops.inner(u.grad, u.grad) - 2 * p * u.div


def direct(A, b, _rtol=0.0):
    """Sparse elimination: for two dimensions the shortest way."""
    return splu(A.assemble().tocsc()).solve(b)


def flow(mesh):
    """The Stokes operator, and the vector of velocity and pressure."""
    V, Q = femops.H1(mesh, ORDER, ncomp=2), femops.H1(mesh, ORDER - 1)
    W, start = femops.Product(u=V, p=Q), V.zeros()
    held = [*V.boundary_dofs([BODY, RIM]), *V.boundary_dofs(AXIS, components=1)]
    A = femops.form(stokes, W).constrained(W.positions(u=np.unique(held), p=[0]))
    start[V.boundary_dofs(RIM, components=0)] = 1.0
    return A, direct(A, A.rhs(W.zeros(), W.join(u=start, p=Q.zeros())))


def improved(mesh, volume):
    """A mesh with less drag and the given volume; drag and flow until now."""
    A, w = flow(mesh)
    V, u = A.space.spaces["u"], A.space.split(w)[0]
    X = femops.H1(mesh, mesh.order, ncomp=2)
    held = [*X.boundary_dofs(RIM), *X.boundary_dofs(AXIS, components=1)]
    inner = femops.elasticity(X, lam=0.0, mu=1.0).constrained(np.unique(held))
    drag, fluid = femops.functional(friction, A.space), femops.functional(lambda _u: 1.0, V)
    down = -femops.gradient(drag, A, w, {"mesh": X}, linear=direct).representer("mesh", inner)
    by_volume = femops.gradient(fluid, u=u, wrt={"mesh": X})
    out, slope = by_volume.representer("mesh", inner), by_volume["mesh"]
    down -= (slope @ down) / (slope @ out) * out  # keeps the volume, but for a small error
    mend = (volume - fluid(u)) / (slope @ out) * out
    return femops.adjoint.moved(X, STEP * down + mend), drag(w), V, u


def main():
    """Change a disc into the shape of least drag, and draw the flow around it."""
    mesh = femops.box((6, 12), order=2, mapping=half_ring)
    volume, drags = mesh.volume(), []
    for step in range(13):
        mesh, drag, V, u = improved(mesh, volume)
        drags.append(drag)
        if step % 3 == 0:
            print(
                f"step {step:2}: drag {drag:.4f}, error of the volume {mesh.volume() - volume:.0e}"
            )
    assert drags[-1] < 0.85 * drags[0]
    assert abs(mesh.volume() - volume) < 1e-4
    try:
        Path("out").mkdir(exist_ok=True)
        print(femops.io.picture("out/shape_optimisation.png", V, u, name="velocity"))
    except femops.errors.MissingExtraError as error:
        print(error)


if __name__ == "__main__":
    main()
