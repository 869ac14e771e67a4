"""The kernels that are compiled for every architecture where there is no GPU, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import eye_array

import femops
from femops.hydro import PROBLEMS
from femops.hydro.qfunctions import corner_force
from femops.operators.execution.choice import backend_of
from femops.operators.execution.transfer import summed_interpolation
from femops_kernels.cg import Reduction
from femops_kernels.cuda.cg.cg import DeviceConjugateGradients
from femops_kernels.cuda.device.device import Device
from femops_kernels.cuda.operator.kernel import staged_shapes
from support.cases.kernels import bend, smooth
from support.cases.levels import own, skewed, wind
from support.simulated_ranks import on_ranks

Application = Callable[[Device], Any]
"""Has a device compile a kernel, by using it."""

VARIANTS: dict[str, Application] = {}
"""By names that say form, dimension, order (p10 is p = 10) and what else there is to a kernel."""


@cache
def mesh(dim: int, kind: str) -> femops.Mesh:
    """Two elements: boxes, multilinear ones or curved ones."""
    counts = (2, 1, 1)[:dim]
    if kind == "affine":
        return femops.box(counts)
    return femops.box(counts, order=1 if kind == "multilinear" else 3, mapping=bend)


def space(device: Device, dim: int, p: int, **options: Any) -> Any:
    """Continuous, on multilinear elements if not told otherwise."""
    kind = options.pop("kind", "multilinear")
    return femops.H1(mesh(dim, kind), p, device=device, **options)


def add(name: str, make: Callable[..., Any], *sizes: tuple[int, int], **options: Any) -> None:
    """List the operators that ``make`` gives on spaces of these dimensions and orders."""
    for dim, p in sizes:
        VARIANTS[f"{name}-{dim}d-p{p}"] = _applied(make, dim, p, options)


def _applied(make: Callable[..., Any], dim: int, p: int, options: dict[str, Any]) -> Application:
    def run(device: Device) -> None:
        V = space(device, dim, p, **options)
        operator = make(V)
        operator.apply(np.zeros(operator.shape[1], operator.dtype))

    return run


def residual(make: Callable[..., Any], dim: int, p: int, **options: Any) -> Application:
    """The residual of a nonlinear form."""

    def run(device: Device) -> None:
        V = space(device, dim, p, **options)
        make(V).residual(V.zeros())

    return run


def collocated(V: Any, level: Any = "partial") -> Any:
    """At the nodes, as BP5 and BP6: nothing is interpolated."""
    return femops.diffusion(V, quadrature=femops.basis.lobatto(V.p1d), level=level)


def helmholtz(V: Any) -> Any:
    """A sum in one kernel."""
    return (femops.diffusion(V, smooth) + femops.mass(V)).constrained(V.boundary_dofs())


def divergence(V: Any) -> Any:
    """To discontinuous functions of lower order."""
    return femops.divergence(V, femops.L2(V.mesh, V.order - 1, device=V.device))


def jacobian(V: Any) -> Any:
    """Of a hyperelastic solid."""
    return femops.neo_hookean(V, 1.3, smooth).jacobian(V.zeros())


def elastic(V: Any, **options: Any) -> Any:
    return femops.elasticity(V, 1.3, smooth, **options)


def hyperelastic(V: Any) -> Any:
    return femops.neo_hookean(V, 1.3, 0.7)


def in_3d(*orders: int) -> list[tuple[int, int]]:
    return [(3, p) for p in orders]


def in_2d(*orders: int) -> list[tuple[int, int]]:
    return [(2, p) for p in orders]


def diagonal(make: Callable[..., Any], dim: int, p: int, **options: Any) -> Application:
    """The diagonal of an operator."""

    def run(device: Device) -> None:
        make(space(device, dim, p, **options)).diagonal()

    return run


# --- volume, data kept at points ------------------------------------------------------------------

add("diffusion", femops.diffusion, *in_3d(*range(1, 11)), *in_2d(1, 4, 8), (1, 1), (1, 10))
add("mass", femops.mass, *in_3d(1, 4, 7, 10), *in_2d(6), (1, 5))
add("collocated", collocated, *in_3d(7))
add("helmholtz", helmholtz, *in_3d(6))
add("diffusion-tensor", lambda V: femops.diffusion(V, skewed), *in_3d(4))
add("diffusion-affine", femops.diffusion, *in_3d(5), kind="affine")
add("convection", lambda V: femops.convection(V, wind), *in_3d(3), *in_2d(5))
add("vector-mass", femops.mass, *in_3d(2, 8), ncomp=3)
add("vector-diffusion", femops.diffusion, *in_3d(2, 5, 8), ncomp=3)
add("elasticity", elastic, *in_3d(2, 4, 6), ncomp=3)
add("elasticity", elastic, *in_2d(3, 8), ncomp=2)
add("divergence", divergence, *in_3d(2, 4), ncomp=3)
add("divergence-transposed", lambda V: divergence(V).T, *in_3d(3), ncomp=3)
add("boundary-mass", lambda V: femops.boundary_mass(V, smooth), *in_3d(4))
add("neo-hookean-jacobian", jacobian, *in_3d(3, 6), ncomp=3)  # and what computes its data


def staged(
    make: Callable[..., Any], p: int, persistent: bool, merged: bool = False, **options: Any
) -> Application:
    """What is stored at points goes through shared memory, where a device can have it copied."""

    def run(device: Device) -> None:
        (sweep,) = make(space(device, 3, p, **options)).compiled.sweeps
        for shape in staged_shapes(sweep.kernel, device, [sweep.kernel.shape]):
            if shape.persistent == persistent:
                sweep = sweep.reshaped(shape)
        sweep.kernel = replace(sweep.kernel, merged=merged)
        sweep.launch(0, 0, 1.0, add=False)

    return run


for _p in (2, 4, 6, 8):
    VARIANTS[f"diffusion-staged-3d-p{_p}"] = staged(femops.diffusion, _p, persistent=False)
VARIANTS["mass-staged-3d-p7"] = staged(femops.mass, 7, persistent=False)
VARIANTS["elasticity-staged-3d-p4"] = staged(elastic, 4, persistent=False, ncomp=3)
for _p in (2, 6, 8):
    VARIANTS[f"diffusion-persistent-3d-p{_p}"] = staged(femops.diffusion, _p, persistent=True)
VARIANTS["mass-persistent-3d-p2"] = staged(femops.mass, 2, persistent=True)
VARIANTS["elasticity-persistent-3d-p4"] = staged(elastic, 4, persistent=True, ncomp=3)
VARIANTS["diffusion-persistent-merged-3d-p6"] = staged(
    femops.diffusion, 6, persistent=True, merged=True
)

# --- geometry on the way --------------------------------------------------------------------------

for _kind, _orders in {"affine": (4,), "multilinear": (2, 6), "curved": (7,)}.items():
    add(
        f"diffusion-none-{_kind}",
        lambda V: femops.diffusion(V, level="matrix-free"),
        *in_3d(*_orders),
        kind=_kind,
    )
add("mass-none-curved", lambda V: femops.mass(V, level="matrix-free"), *in_3d(5), kind="curved")
add("elasticity-none", lambda V: elastic(V, level="matrix-free"), *in_3d(3), ncomp=3)
add("own-none", lambda V: femops.form(own, V, c=smooth, level="matrix-free"), *in_3d(3), *in_2d(4))

# --- diagonals ------------------------------------------------------------------------------------

for _p in (1, 4, 8):
    VARIANTS[f"diffusion-diagonal-3d-p{_p}"] = diagonal(femops.diffusion, 3, _p)
VARIANTS["helmholtz-diagonal-2d-p5"] = diagonal(helmholtz, 2, 5)
VARIANTS["mass-diagonal-1d-p3"] = diagonal(femops.mass, 1, 3)
VARIANTS["elasticity-diagonal-3d-p4"] = diagonal(elastic, 3, 4, ncomp=3)
VARIANTS["jacobian-diagonal-3d-p3"] = diagonal(jacobian, 3, 3, ncomp=3)

# --- nonlinear ------------------------------------------------------------------------------------

VARIANTS["neo-hookean-residual-3d-p2"] = residual(hyperelastic, 3, 2, ncomp=3)
VARIANTS["neo-hookean-residual-2d-p4"] = residual(hyperelastic, 2, 4, ncomp=2)
VARIANTS["p-laplacian-residual-3d-p5"] = residual(lambda V: femops.p_laplacian(V, 3.5, 0.2), 3, 5)

# --- faces, whose functions have derivatives ------------------------------------------------------


def nitsche(V: Any) -> Any:
    """Boundary values in the weak form."""

    def form(u: Any, n: Any, h: Any) -> Any:
        return {"value": 40 * u / h - u.grad @ n, "grad": -u * n}

    return femops.form(form, V, boundary="all")


def wall_jacobian(V: Any) -> Any:
    """And what computes its data."""

    def form(u: Any, n: Any) -> Any:
        return {"value": u.value**3 * (u.grad @ n), "grad": (1 + u * u) * n * u}

    return femops.residual(form, V, boundary="all").jacobian(V.zeros())


def jumps(V: Any) -> Any:
    """Over the faces between elements, with both sides of a field."""

    def form(u: Any, n: Any, h: Any) -> Any:
        fluxes = {"grad": -u.jump * n}
        return {"jump": 9 / h.mean * u.jump - u.mean.grad @ n, "mean": fluxes}

    return femops.form(form, V, faces="interior")


add("jumps", jumps, *in_3d(4))
add("nitsche", nitsche, *in_3d(4, 8), *in_2d(4), (1, 2))
add("wall-jacobian", wall_jacobian, *in_3d(4))
VARIANTS["nitsche-diagonal-3d-p4"] = diagonal(nitsche, 3, 4)

# --- conjugate gradients --------------------------------------------------------------------------


@final
class Ones(Reduction):
    """Sums of ranks that let a solve go on, whatever those of a device that runs nothing are."""

    many = True

    def __call__(self, partial: NDArray[np.float64]) -> NDArray[np.float64]:
        """Ones."""
        return np.ones(len(partial))


def solve(
    make: Callable[..., Any], p: int, merged: bool, sums: Reduction | None = None
) -> Application:
    """The kernels of an iteration; a merged one has updates of vectors in the operator's."""

    def run(device: Device) -> None:
        V = space(device, 3, p)
        A = make(V)
        vectors = [np.ones(V.size, A.dtype) for _ in range(3)]
        DeviceConjugateGradients(A.compiled, *vectors, merged, sums).advance(0.0, 1, 1)

    return run


def single_mass(V: Any) -> Any:
    """In float32."""
    return femops.mass(V, dtype="float32")


for _p in (2, 6, 8):
    VARIANTS[f"diffusion-merged-3d-p{_p}"] = solve(femops.diffusion, _p, merged=True)
VARIANTS["diffusion-none-merged-3d-p6"] = solve(
    lambda V: femops.diffusion(V, level="matrix-free"), 6, merged=True
)
VARIANTS["mass-single-merged-3d-p3"] = solve(single_mass, 3, merged=True)
VARIANTS["mass-apart-3d-p2"] = solve(femops.mass, 2, merged=False)
VARIANTS["mass-apart-ranks-3d-p2"] = solve(femops.mass, 2, False, Ones())
VARIANTS["mass-single-apart-ranks-3d-p3"] = solve(single_mass, 3, False, Ones())

# --- multigrid ------------------------------------------------------------------------------------


def cycle(p: int, coarse: int, **options: Any) -> Application:
    """The kernels of a cycle besides the operators', in single precision."""

    def run(device: Device) -> None:
        spaces = [space(device, 3, order, **options) for order in (coarse, p)]
        single, double = np.dtype(np.float32), np.dtype(np.float64)
        backend = backend_of(spaces[1])
        updates = backend.updates
        up, down = summed_interpolation(*spaces, single)
        x, y = (updates.vector(V.size, single) for V in spaces)
        up.apply(x, y)
        down.apply(y, x)
        updates.step(y, y, y, y, y, (1.0, 1.0, 1.0, 1.0))
        matrix = backend.rows(eye_array(len(x), format="csr"), single)
        backend.operator([(1.0, matrix)]).apply(x, x)
        r, edges = updates.vector(len(y), double), np.array([0, len(y)])
        directions = updates.directions(edges, lambda sums: sums[:, 0], double, single)
        directions.inner(r, y)
        directions.inners(r, r, y)
        directions.move((r, r, r, r, y), 1.0, 1.0)
        directions.turn(r, y, 1.0, 1.0)

    return run


for _p, _coarse in ((2, 1), (4, 2), (8, 4)):
    VARIANTS[f"cycle-3d-p{_p}"] = cycle(_p, _coarse)
VARIANTS["vector-cycle-3d-p5"] = cycle(5, 3, ncomp=3)

# --- many vectors ---------------------------------------------------------------------------------


def many(make: Callable[..., Any], p: int, **options: Any) -> Application:
    """Nine vectors at once."""

    def run(device: Device) -> None:
        A = make(space(device, 3, p, **options))
        _ = A @ np.zeros((A.shape[1], 9), A.dtype)

    return run


for _p in (4, 8):
    VARIANTS[f"mass-many-3d-p{_p}"] = many(femops.mass, _p)
    VARIANTS[f"diffusion-many-3d-p{_p}"] = many(femops.diffusion, _p)
VARIANTS["elasticity-many-3d-p3"] = many(elastic, 3, ncomp=3)

# --- single precision, the same bits --------------------------------------------------------------

add("diffusion-single", lambda V: femops.diffusion(V, dtype="float32"), *in_3d(2, 5, 8))
add("elasticity-single", lambda V: elastic(V, dtype="float32"), *in_3d(4), ncomp=3)
add("mass-single-data", lambda V: femops.mass(V, data_dtype="float32"), *in_3d(4))
add("diffusion-single-data", lambda V: femops.diffusion(V, data_dtype="float32"), *in_3d(3, 7))
add("diffusion-reproducible", femops.diffusion, *in_3d(2, 6), reproducible=True)
add("mass-reproducible", femops.mass, (1, 4), reproducible=True)

# --- several fields -------------------------------------------------------------------------------


def hydro(dim: int, p: int, **options: Any) -> Application:
    """Forces, heating and time step of a gas: position, velocity and energy."""

    def run(device: Device) -> None:
        V = space(device, dim, p, ncomp=dim, **options)
        E = femops.L2(V.mesh, p - 1, family="bernstein", device=device)
        W = femops.Product(position=V, velocity=V, energy=E)
        form = corner_force(PROBLEMS["sedov"], p)
        rule = V.quadrature((4 * p - 2) // 2 + 1)
        numbers = {"rho": 1.0, "gamma": 1.4, "h0": 0.1}
        F = femops.residual(form, W, minima=["step"], quadrature=rule, **numbers)
        F.residual(W.zeros())

    return run


def heat(v: Any, e: Any, x: Any) -> Any:
    """A vector and a scalar, each in the other's equation."""
    return {
        "v": {"grad": (e * e) * v.grad, "value": v.value * (e * x[0])},
        "e": {"value": v[0] * v.div * e, "grad": e.grad * v[0]},
    }


def coupled_jacobian(dim: int, p: int) -> Application:
    """What blocks keep at points, of both fields, and the blocks; on ranks, which is more."""

    def run(device: Device) -> None:
        def apply(comm: Any) -> None:
            box = femops.box((4, 1, 1)[:dim], mapping=bend, comm=comm)
            V = femops.H1(box, p, ncomp=dim, device=device)
            E = femops.L2(box, p - 1, family="bernstein", device=device)
            F = femops.residual(heat, femops.Product(v=V, e=E))
            F.jacobian(F.space.zeros()).apply(F.space.zeros(), F.space.zeros())

        on_ranks(2, apply)

    return run


VARIANTS["hydro-2d-p2"] = hydro(2, 2)
VARIANTS["hydro-2d-p3"] = hydro(2, 3)
VARIANTS["hydro-3d-p2"] = hydro(3, 2)
VARIANTS["coupled-jacobian-ranks-3d-p2"] = coupled_jacobian(3, 2)

# --- many ranks -----------------------------------------------------------------------------------


def of_ranks(dim: int, p: int, **options: Any) -> Application:
    """Diffusion where another rank has some of the dofs."""

    def run(device: Device) -> None:
        def apply(comm: Any) -> None:
            box = femops.box((4, 1, 1)[:dim], mapping=bend, comm=comm)
            V = femops.H1(box, p, device=device, **options)
            femops.diffusion(V).apply(V.zeros())

        on_ranks(2, apply)

    return run


VARIANTS["diffusion-ranks-3d-p4"] = of_ranks(3, 4)
VARIANTS["vector-diffusion-ranks-3d-p2"] = of_ranks(3, 2, ncomp=3)
