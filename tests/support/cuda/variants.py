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
from femops import tensor
from femops.hydro import PROBLEMS
from femops.hydro.qfunctions import corner_force
from femops.operators.execution.host import backend_of
from femops.operators.execution.transfer import summed_interpolation
from femops.tensor import Batch, Interleaved, Layout, Strided
from femops_kernels.compiled import Reduction
from femops_kernels.cuda.cg.cg import DeviceConjugateGradients
from femops_kernels.cuda.operator.kernel import staged_shapes
from femops_kernels.cuda.weighted_sums import set_sums
from femops_kernels.device import Device
from support.cases.kernels import bend, smooth
from support.cases.levels import own, skewed, wind
from support.mixed_meshes import mixed_mesh
from support.simulated_ranks import on_ranks

Use = Callable[[Any], Any]
"""Has the device of an operator compile a kernel, by using it."""

VARIANTS: dict[str, Callable[[Device], Any]] = {}
"""By names that say form, dimension, order (p10 is p = 10) and what else there is to a kernel."""


@cache
def mesh(dim: int, kind: str) -> Any:
    """Two elements: boxes, multilinear ones or curved ones; or one, and the halves of another.

    Or parts of these, or some elements of three shapes.
    """
    counts = (2, 1, 1)[:dim]
    if kind == "simplices":
        return femops.box(counts).simplices()
    if kind == "prisms":
        return femops.box(counts).prisms()
    if kind == "shapes":
        return mixed_mesh(1)
    if kind == "refined":
        return femops.box(counts, mapping=bend).refined([0])
    if kind == "affine":
        return femops.box(counts)
    return femops.box(counts, order=1 if kind == "multilinear" else 3, mapping=bend)


def space(device: Device, dim: int, p: int, **options: Any) -> Any:
    """Continuous, on multilinear elements if not told otherwise."""
    kind = options.pop("kind", "multilinear")
    return femops.H1(mesh(dim, kind), p, device=device, **options)


def in_3d(*orders: int) -> list[tuple[int, int]]:
    return [(3, p) for p in orders]


def in_2d(*orders: int) -> list[tuple[int, int]]:
    return [(2, p) for p in orders]


# --- ways to use an operator ----------------------------------------------------------------------


def applied(A: Any) -> None:
    A.apply(np.zeros(A.shape[1], A.dtype))


def diagonal(A: Any) -> None:
    A.diagonal()


def residual(F: Any) -> None:
    """The residual of a nonlinear form."""
    F.residual(F.space.zeros())


def many(A: Any) -> None:
    """Nine vectors at once."""
    _ = A @ np.zeros((A.shape[1], 9), A.dtype)


def staged(persistent: bool, merged: bool = False) -> Use:
    """What is stored at points goes through shared memory, where a device can have it copied."""

    def use(A: Any) -> None:
        (sweep,) = A.compiled.sweeps
        for shape in staged_shapes(sweep.kernel, A.space.device, [sweep.kernel.shape]):
            if shape.persistent == persistent:
                sweep = sweep.reshaped(shape)
        sweep.kernel = replace(sweep.kernel, merged=merged)
        sweep.launch(0, 0, 1.0, add=False)

    return use


@final
class Ones(Reduction):
    """Sums of ranks that let a solve go on, whatever those of a device that runs nothing are."""

    many = True

    def __call__(self, partial: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.ones(len(partial))


def solved(merged: bool, sums: Reduction | None = None) -> Use:
    """An iteration of conjugate gradients, whose operator updates vectors if it is merged."""

    def use(A: Any) -> None:
        vectors = [np.ones(A.space.size, A.dtype) for _ in range(3)]
        DeviceConjugateGradients(A.compiled, *vectors, merged, sums).advance(0.0, 1, 1)

    return use


def add(
    name: str, make: Callable[..., Any], *sizes: tuple[int, int], use: Use = applied, **options: Any
) -> None:
    """List the operators that ``make`` gives on spaces of these dimensions and orders."""
    for dim, p in sizes:
        VARIANTS[f"{name}-{dim}d-p{p}"] = lambda device, dim=dim, p=p: use(
            make(space(device, dim, p, **options))
        )


# --- forms ----------------------------------------------------------------------------------------


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
    """Of a hyperelastic solid, and what computes its data."""
    return femops.neo_hookean(V, 1.3, smooth).jacobian(V.zeros())


def elastic(V: Any, **options: Any) -> Any:
    return femops.elasticity(V, 1.3, smooth, **options)


def hyperelastic(V: Any) -> Any:
    return femops.neo_hookean(V, 1.3, 0.7)


def free_diffusion(V: Any) -> Any:
    return femops.diffusion(V, level="matrix-free")


def single_mass(V: Any) -> Any:
    return femops.mass(V, dtype="float32")


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


# data kept at points
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
add("neo-hookean-jacobian", jacobian, *in_3d(3, 6), ncomp=3)

# the same data through shared memory
add("diffusion-staged", femops.diffusion, *in_3d(2, 4, 6, 8), use=staged(False))
add("mass-staged", femops.mass, *in_3d(7), use=staged(False))
add("elasticity-staged", elastic, *in_3d(4), ncomp=3, use=staged(False))
add("diffusion-persistent", femops.diffusion, *in_3d(2, 6, 8), use=staged(True))
add("mass-persistent", femops.mass, *in_3d(2), use=staged(True))
add("elasticity-persistent", elastic, *in_3d(4), ncomp=3, use=staged(True))
add("diffusion-persistent-merged", femops.diffusion, *in_3d(6), use=staged(True, merged=True))

# geometry on the way
add("diffusion-none-affine", free_diffusion, *in_3d(4), kind="affine")
add("diffusion-none-multilinear", free_diffusion, *in_3d(2, 6))
add("diffusion-none-curved", free_diffusion, *in_3d(7), kind="curved")
add("mass-none-curved", lambda V: femops.mass(V, level="matrix-free"), *in_3d(5), kind="curved")
add("elasticity-none", lambda V: elastic(V, level="matrix-free"), *in_3d(3), ncomp=3)
add("own-none", lambda V: femops.form(own, V, c=smooth, level="matrix-free"), *in_3d(3), *in_2d(4))

add("diffusion-diagonal", femops.diffusion, *in_3d(1, 4, 8), use=diagonal)
add("helmholtz-diagonal", helmholtz, (2, 5), use=diagonal)
add("mass-diagonal", femops.mass, (1, 3), use=diagonal)
add("elasticity-diagonal", elastic, *in_3d(4), ncomp=3, use=diagonal)
add("jacobian-diagonal", jacobian, *in_3d(3), ncomp=3, use=diagonal)

add("neo-hookean-residual", hyperelastic, *in_3d(2), ncomp=3, use=residual)
add("neo-hookean-residual", hyperelastic, *in_2d(4), ncomp=2, use=residual)
add("p-laplacian-residual", lambda V: femops.p_laplacian(V, 3.5, 0.2), *in_3d(5), use=residual)

# faces, whose functions have derivatives
add("jumps", jumps, *in_3d(4))
add("nitsche", nitsche, *in_3d(4, 8), *in_2d(4), (1, 2))
add("wall-jacobian", wall_jacobian, *in_3d(4))
add("nitsche-diagonal", nitsche, *in_3d(4), use=diagonal)

# conjugate gradients
add("diffusion-merged", femops.diffusion, *in_3d(2, 6, 8), use=solved(merged=True))
add("diffusion-none-merged", free_diffusion, *in_3d(6), use=solved(merged=True))
add("mass-single-merged", single_mass, *in_3d(3), use=solved(merged=True))
add("mass-apart", femops.mass, *in_3d(2), use=solved(merged=False))
add("mass-apart-ranks", femops.mass, *in_3d(2), use=solved(False, Ones()))
add("mass-single-apart-ranks", single_mass, *in_3d(3), use=solved(False, Ones()))

add("mass-many", femops.mass, *in_3d(4, 8), use=many)
add("diffusion-many", femops.diffusion, *in_3d(4, 8), use=many)
add("elasticity-many", elastic, *in_3d(3), ncomp=3, use=many)

# locally refined meshes: nodes that hang, and larger elements of which faces have a part
add("refined-diffusion", femops.diffusion, *in_3d(1, 2, 4, 8, 10), *in_2d(1, 4), kind="refined")
add("refined-elasticity", elastic, *in_3d(3), ncomp=3, kind="refined")
add("refined-diffusion-many", femops.diffusion, *in_3d(2, 4, 8), kind="refined", use=many)
add("refined-single", single_mass, *in_3d(4), kind="refined")
add("refined-reproducible", femops.diffusion, *in_3d(4), kind="refined", reproducible=True)
add("refined-jumps", jumps, *in_3d(3), kind="refined")
add("refined-jacobian", jacobian, *in_3d(2), ncomp=3, kind="refined")

# simplices, by tables: in modes where D is constant in each element, else at points
add("simplices-diffusion", femops.diffusion, *in_3d(1, 2, 3, 4, 5), *in_2d(6), kind="simplices")
add("simplices-points", lambda V: femops.diffusion(V, smooth), *in_3d(2, 3, 4, 6), kind="simplices")
add("simplices-mass", femops.mass, *in_3d(2, 4), kind="simplices")
add(
    "simplices-elasticity",
    lambda V: femops.elasticity(V, 1.3, 0.7),
    *in_3d(2, 3),
    kind="simplices",
    ncomp=3,
)
add("simplices-single", lambda V: femops.diffusion(V, dtype="float32"), *in_3d(3), kind="simplices")
add("simplices-merged", femops.diffusion, *in_3d(2, 3), kind="simplices", use=solved(merged=True))
add("simplices-diagonal", femops.diffusion, *in_3d(3, 5), kind="simplices", use=diagonal)
add("simplices-many", femops.diffusion, *in_3d(2, 5), kind="simplices", use=many)
add("simplices-jacobian", jacobian, *in_3d(2), kind="simplices", ncomp=3)
add("simplices-jumps", jumps, *in_3d(2), kind="simplices")
add("simplices-reproducible", femops.diffusion, *in_3d(2), kind="simplices", reproducible=True)

# prisms, by tables at points; faces between hexahedra, prisms and tetrahedra
add("prisms-diffusion", femops.diffusion, *in_3d(1, 2, 3, 4, 5), kind="prisms")
add("prisms-mass", femops.mass, *in_3d(2, 4), kind="prisms")
add("prisms-elasticity", elastic, *in_3d(1, 2, 3), kind="prisms", ncomp=3)
add("prisms-single", lambda V: femops.diffusion(V, dtype="float32"), *in_3d(3), kind="prisms")
add("prisms-merged", femops.diffusion, *in_3d(2), kind="prisms", use=solved(merged=True))
add("prisms-diagonal", femops.diffusion, *in_3d(3, 4), kind="prisms", use=diagonal)
add("prisms-many", femops.diffusion, *in_3d(2, 4), kind="prisms", use=many)
add("prisms-jacobian", jacobian, *in_3d(2), kind="prisms", ncomp=3)
add("shapes-jumps", jumps, *in_3d(1, 2, 3), kind="shapes")
add("shapes-nitsche", nitsche, *in_3d(2), kind="shapes")

# single precision, the same bits
add("diffusion-single", lambda V: femops.diffusion(V, dtype="float32"), *in_3d(2, 5, 8))
add("elasticity-single", lambda V: elastic(V, dtype="float32"), *in_3d(4), ncomp=3)
add("mass-single-data", lambda V: femops.mass(V, data_dtype="float32"), *in_3d(4))
add("diffusion-single-data", lambda V: femops.diffusion(V, data_dtype="float32"), *in_3d(3, 7))
add("diffusion-reproducible", femops.diffusion, *in_3d(2, 6), reproducible=True)
add("mass-reproducible", femops.mass, (1, 4), reproducible=True)


# --- several spaces -------------------------------------------------------------------------------


def cycled(V: Any, coarse: int) -> None:
    """The kernels of a multigrid cycle besides the operators', in single precision."""
    spaces = [femops.H1(V.mesh, coarse, V.ncomp, device=V.device), V]
    single, double = np.dtype(np.float32), np.dtype(np.float64)
    backend = backend_of(V)
    updates = backend.updates
    up, down = summed_interpolation(*spaces, single)
    x, y = (updates.vector(each.size, single) for each in spaces)
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


def stepped(V: Any) -> None:
    """Updates of vectors in explicit steps."""
    for dtype in (np.float64, np.float32):
        x, y = (V.zeros().astype(dtype) for _ in range(2))
        set_sums(V.device, [(x, ((1.0, y),), None), (y, ((2.0, x), (1.0, y)), (0.5, x))])


def hydro(V: Any) -> Any:
    """Forces, heating and time step of a gas: position, velocity and energy."""
    p = V.order
    E = femops.L2(V.mesh, p - 1, family="bernstein", device=V.device)
    W = femops.Product(position=V, velocity=V, energy=E)
    rule = V.quadrature((4 * p - 2) // 2 + 1)
    numbers = {"rho": 1.0, "gamma": 1.4, "h0": 0.1}
    form = corner_force(PROBLEMS["sedov"], p)
    return femops.residual(form, W, minima=["step"], quadrature=rule, **numbers)


def heat(v: Any, e: Any, x: Any) -> Any:
    """A vector and a scalar, each in the other's equation."""
    return {
        "v": {"grad": (e * e) * v.grad, "value": v.value * (e * x[0])},
        "e": {"value": v[0] * v.div * e, "grad": e.grad * v[0]},
    }


def coupled_jacobian(V: Any, box: Any) -> Any:
    """What blocks keep at points, of both fields, and the blocks."""
    E = femops.L2(box, V.order - 1, family="bernstein", device=V.device)
    F = femops.residual(heat, femops.Product(v=V, e=E))
    return F.jacobian(F.space.zeros())


def add_on_ranks(name: str, make: Callable[..., Any], p: int, ncomp: int = 1) -> None:
    """List a 3-D operator of two ranks, which each have some of the other's dofs."""

    def run(device: Device) -> None:
        def apply(comm: Any) -> None:
            box = femops.box((4, 1, 1), mapping=bend, comm=comm)
            A = make(femops.H1(box, p, ncomp, device=device), box)
            A.apply(A.space.zeros())

        on_ranks(2, apply)

    VARIANTS[f"{name}-ranks-3d-p{p}"] = run


for _p, _coarse in ((2, 1), (4, 2), (8, 4)):
    add("cycle", lambda V: V, (3, _p), use=lambda V, coarse=_coarse: cycled(V, coarse))
add("vector-cycle", lambda V: V, (3, 5), ncomp=3, use=lambda V: cycled(V, 3))
add("explicit-step", lambda V: V, (3, 2), use=stepped)
add("hydro", hydro, *in_2d(2, 3), ncomp=2, use=residual)
add("hydro", hydro, *in_3d(2), ncomp=3, use=residual)
add_on_ranks("coupled-jacobian", coupled_jacobian, 2, ncomp=3)
add_on_ranks("diffusion", lambda V, _: femops.diffusion(V), 4)
add_on_ranks("vector-diffusion", lambda V, _: femops.diffusion(V), 2, ncomp=3)


# --- small tensors --------------------------------------------------------------------------------


def gemm(n: int, dtype: str = "float64", layout: Layout | None = None) -> Callable[[Device], Any]:
    """Products that are added to what is there."""

    def run(device: Device) -> None:
        a, b, c = (Batch((n, n), 100, dtype, layout or Strided(), device) for _ in range(3))
        tensor.gemm(a, b, c, alpha=2.0, beta=1.0)

    return run


def solver(
    name: str, n: int, dtype: str = "float64", *more: tuple[int, ...]
) -> Callable[[Device], Any]:
    """A factorisation, or a solution, of contiguous matrices."""

    def run(device: Device) -> None:
        operands = [Batch(shape, 100, dtype, device=device) for shape in ((n, n), *more)]
        getattr(tensor, name)(*operands)

    return run


TENSORS: dict[str, Callable[[Device], Any]] = {
    "gemm-contiguous-n3": gemm(3),
    "gemm-contiguous-n16": gemm(16),
    "gemm-single-contiguous-n32": gemm(32, "float32"),
    "gemm-complex-contiguous-n8": gemm(8, "complex128"),
    "gemm-interleaved-n4": gemm(4, layout=Interleaved(8)),
    "gemm-interleaved-n16": gemm(16, layout=Interleaved(8)),
    "gemm-complex-interleaved-n6": gemm(6, "complex64", Interleaved(16)),
    "cholesky-n8": solver("cholesky", 8),
    "eigh-n4": solver("eigh", 4),
    "solve-n5": solver("solve", 5, "float64", (5,)),
    "cholesky-complex-n5": solver("cholesky", 5, "complex128"),
    "eigh-complex-n3": solver("eigh", 3, "complex64"),
    "solve-complex-n4": solver("solve", 4, "complex64", (4,)),
}
"""Kernels of small tensors, whose entries lie together or apart, by name."""
