"""Shape optimisation: the body with the least drag in Stokes flow, at a given volume.

Far away the fluid moves with velocity 1 along x. The mesh is the half of the flow above the axis.
`femops.gradient` differentiates drag and volume by the nodes of the mesh. The representers in the
inner product of elasticity move all nodes smoothly, except those of the outer rim. A disc becomes
Pironneau's body with two tips (J. Fluid Mech. 59, 1973).
"""

from pathlib import Path

import numpy as np
from scipy.sparse.linalg import splu

import femops

ORDER, FAR, STEP = 3, 4.0, 0.08
BODY, RIM, AXIS = 1, 2, (3, 4)  # attributes of the box that is bent around the body


def half_ring(x):
    """The flow above a disc of radius 1."""
    angle = np.pi * x[1]
    return FAR ** x[0] * np.stack([np.cos(angle), np.sin(angle)])


def stokes(u, p):
    """The Stokes operator, symmetric."""
    return {"u": {"grad": u.grad - p * np.eye(2)}, "p": {"value": -u.div}}


def direct(A, b, _rtol=0.0):
    """Sparse elimination: for two dimensions the shortest way."""
    return splu(A.assemble().tocsc()).solve(b)


def improved(mesh, volume):
    """Return a mesh with less drag and the given volume, and drag and flow on the old mesh."""
    V = femops.H1(mesh, ORDER, ncomp=2)
    W = femops.Product(u=V, p=femops.H1(mesh, ORDER - 1))
    held = [*V.boundary_dofs([BODY, RIM]), *V.boundary_dofs(AXIS, components=1)]
    A = femops.form(stokes, W).constrained(W.positions(u=held, p=[0]))
    far = W.zeros()
    far[W.positions(u=V.boundary_dofs(RIM, components=0))] = 1.0
    w = direct(A, A.rhs(W.zeros(), far))
    u, _ = W.split(w)
    # drag is the power of the friction, as the velocity is 1; p does no work, as div u is 0
    drag = femops.functional(lambda u, p: femops.inner(u.grad, u.grad) - 2 * p * u.div, W)
    X = femops.H1(mesh, mesh.order, ncomp=2)  # displacements of the nodes
    held = [*X.boundary_dofs(RIM), *X.boundary_dofs(AXIS, components=1)]
    inner = femops.elasticity(X, lam=0.0, mu=1.0).constrained(held)
    down = -femops.gradient(drag, A, w, {"mesh": X}, linear=direct).representer("mesh", inner)
    by_volume = femops.gradient(femops.functional(lambda _u: 1.0, V), u=u, wrt={"mesh": X})
    slope, grow = by_volume["mesh"], by_volume.representer("mesh", inner)
    grow /= slope @ grow  # a step that changes the volume by 1, to first order
    step = STEP * (down - (slope @ down) * grow) + (volume - mesh.volume()) * grow
    return femops.adjoint.moved(X, step), drag(w), V, u


def main():
    """Change a disc into the shape of least drag, and draw the flow around it."""
    mesh = femops.box((6, 12), order=2, mapping=half_ring)
    volume, drags = mesh.volume(), []
    for step in range(13):
        mesh, drag, V, u = improved(mesh, volume)
        drags.append(drag)
        error = mesh.volume() - volume
        if step % 3 == 0:
            print(f"step {step:2}: drag {drag:.4f}, error of the volume {error:.0e}")
    assert drags[-1] < 0.85 * drags[0]
    assert abs(error) < 1e-4
    try:
        Path("out").mkdir(exist_ok=True)
        print(femops.io.picture("out/shape_optimisation.png", V, u, name="velocity"))
    except femops.errors.MissingExtraError as missing:
        print(missing)


if __name__ == "__main__":
    main()
