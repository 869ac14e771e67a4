"""Uses of a device that launch kernels: each works with operators in its own way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from scipy.sparse import eye_array

import femops
from femops import tensor
from femops.fields.multivector import MultiVector
from femops.operators.execution.host import backend_of
from femops.tensor import Batch, Interleaved, Layout, Strided
from femops_kernels.cuda.operator.shapes import Shape
from femops_kernels.cuda.operator.sweep import DeviceSweep
from femops_kernels.cuda.weighted_sums import set_sums
from support.cases.kernels import bend, shear, smooth, turned
from support.cuda.forms import FORMS, MESHES, Site, cases
from support.cuda.nonlinear_forms import of_flow, of_three, state
from support.cuda.variants import heat, nitsche
from support.refined import REFINED
from support.simplex_meshes import curved, graded
from support.simulated_ranks import on_ranks

Use = Callable[[Any], Any]
"""Works on a device."""

USES: dict[str, Use] = {}
"""By names that say what is done, the dimension, and what else there is to it."""


def mesh(dim: int) -> Any:
    """Curved elements that see each other turned."""
    return turned(femops.box((9, 4, 2)[:dim] if dim < 3 else (3, 2, 2), order=2, mapping=bend))


def random(A: Any, *more: int) -> Any:
    """A vector, or several columns."""
    return np.random.default_rng(1).standard_normal((A.shape[1], *more)).astype(A.dtype)


def add(name: str, make: Callable[[Any, int], Any], *ways: Use, dims: Any = (1, 2, 3)) -> None:
    """List an operator, made on a device in a dimension, in several ways to work with it."""
    for dim, way in product(dims, ways):

        def use(device: Any, dim: int = dim, way: Use = way) -> Any:
            return way(make(device, dim))

        USES[f"{name}, {way.__name__}, {dim}-D"] = use


# --- ways -----------------------------------------------------------------------------------------


def applied(A: Any) -> None:
    _ = A @ random(A)


def transposed(A: Any) -> None:
    _ = A.T @ random(A.T)


def diagonal(A: Any) -> None:
    A.diagonal()


def many(A: Any) -> None:
    """Fewer vectors than a block takes, and more than several blocks take."""
    for nvec in (3, 19):
        _ = A @ random(A, nvec)


def panels(A: Any) -> None:
    """Several panels, the last of which is not full."""
    _ = A @ MultiVector.from_columns(A.space, random(A, 12), width=5)


def complex_vectors(A: Any) -> None:
    """Many vectors whose parts are vectors."""
    _ = A @ (random(A, 3) + 1j)


def at_state(F: Any) -> None:
    """Residual, functionals and derivative of a form that is not linear."""
    at = state(F)
    F.residual(at)
    J = F.jacobian(at)
    _ = J @ at
    J.diagonal()


def solved(A: Any) -> None:
    """Conjugate gradients, whose vectors are updated in the operator's kernel if they can be."""
    femops.cg(A, random(A), rtol=0.0, maxiter=3, warn=False)
    femops.cg(A, random(A), rtol=0.0, maxiter=3, M=femops.jacobi(A), warn=False)


def reshaped(persistent: bool, A: Any) -> None:
    """What is stored at points goes through shared memory."""
    x = random(A)
    for sweep in (each for each in A.compiled.sweeps if isinstance(each, DeviceSweep)):
        elements = 1 if sweep.kernel.spec.dim == 1 else 2  # a line has two faces
        other = sweep.reshaped(Shape(elements, 1, True, persistent))
        y = np.zeros(A.shape[0], A.dtype)
        assert other.kernel.staged
        addresses = (A.space.device.address(vector) for vector in (x, y))
        other.launch(*addresses, 1.0, add=False)


def staged(A: Any) -> None:
    reshaped(False, A)


def persistent(A: Any) -> None:
    reshaped(True, A)


def solved_by_persistent_blocks(A: Any) -> None:
    """Vectors are updated by blocks that work on one portion after the other."""
    (sweep,) = A.compiled.sweeps
    A.compiled.sweeps = (sweep.reshaped(Shape(2, 1, True, True)),)
    assert A.compiled.mergeable(A.shape[0], many=False)
    solved(A)


# --- operators ------------------------------------------------------------------------------------


def constrained(device: Any, dim: int, **options: Any) -> Any:
    """A sum over elements in one kernel."""
    V = femops.H1(mesh(dim), 2, device=device, **options)
    return (femops.diffusion(V, smooth) + femops.mass(V)).constrained(V.boundary_dofs())


def mixed(device: Any, dim: int, **options: Any) -> Any:
    """A sum over elements and faces."""
    V = femops.H1(mesh(dim), 3 if dim < 3 else 2, device=device, **options)
    A = femops.diffusion(V, smooth) + femops.mass(V) - 2.0 * femops.boundary_mass(V, smooth)
    return (A + nitsche(V)).constrained(V.boundary_dofs(1))


def slopes_at_walls(device: Any, dim: int, **options: Any) -> Any:
    return nitsche(femops.H1(mesh(dim), 2, device=device, **options))


def walls(device: Any, dim: int, **options: Any) -> Any:
    """Values alone, of functions that are not continuous."""

    def form(u: Any, n: Any) -> Any:
        return {"value": u * (n[0] + 2.0)}

    V = femops.L2(mesh(dim), 2, family="gll", device=device, **options)
    return femops.form(form, V, boundary="all")


def elastic(device: Any, dim: int, **options: Any) -> Any:
    V = femops.H1(mesh(dim), 2, ncomp=dim, device=device)
    return femops.elasticity(V, 1.3, smooth, **options).eliminated(V.boundary_dofs())


def divergence(device: Any, dim: int) -> Any:
    V = femops.H1(mesh(dim), 2, ncomp=dim, device=device)
    return femops.divergence(V, femops.L2(V.mesh, 1, device=device))


def convection(device: Any, dim: int) -> Any:
    return femops.convection(femops.H1(mesh(dim), 2, device=device), [1.0, 2.0, 3.0][:dim])


def stokes(device: Any, dim: int) -> Any:
    """A product of spaces, over elements and over the boundary."""

    def inside(u: Any, p: Any) -> Any:
        return {"u": {"grad": u.grad - p * np.eye(dim)}, "p": {"value": -u.div}}

    def outside(u: Any, p: Any, n: Any) -> Any:
        return {"u": {"value": p * n}, "p": {"value": u @ n}}

    V = femops.H1(mesh(dim), 2, ncomp=dim, device=device)
    W = femops.Product(u=V, p=femops.H1(V.mesh, 1, device=device))
    A = femops.form(inside, W) + femops.form(outside, W, boundary="all")
    return A.constrained(W.positions(u=V.boundary_dofs(1)))


def penalty(device: Any, dim: int, order: int = 2, dtype: Any = None, **options: Any) -> Any:
    """Both sides of faces, with derivatives, beside elements."""
    return femops.interior_penalty(
        femops.L2(mesh(dim), order, device=device, **options), smooth, dtype=dtype or "float64"
    )


def upwind(device: Any, dim: int, order: int = 2, **options: Any) -> Any:
    V = femops.L2(mesh(dim), order, device=device, **options)
    return femops.upwind_convection(V, [1.0, -0.5, 2.0][:dim])


def between(device: Any, dim: int) -> Any:
    """Two spaces of functions on both sides of faces."""

    def form(u: Any, n: Any) -> Any:
        return {"jump": u.mean @ n, "mean": u.jump @ n}

    m = mesh(dim)
    spaces = femops.L2(m, 2, ncomp=dim, device=device), femops.L2(m, 1, device=device)
    return femops.form(form, *spaces, faces="interior")


def continuous(device: Any, dim: int, **options: Any) -> Any:
    """Jumps of derivatives of continuous functions, whose dofs on a face are of both sides."""

    def form(u: Any, h: Any) -> Any:
        return {"jump": {"grad": h.mean * u.jump.grad}, "mean": u.mean}

    V = femops.H1(mesh(dim), 2, device=device, **options)
    return femops.form(form, V, faces="interior")


def lines(device: Any, dim: int) -> Any:
    """Enough elements of a line for several blocks of the default shape."""
    assert dim == 1
    V = femops.H1(femops.box((600,)), 3, device=device)
    return femops.diffusion(V, smooth).constrained(V.boundary_dofs())


def coupled(device: Any, dim: int) -> Any:
    """A residual of two fields."""
    V = femops.H1(mesh(dim), 2, ncomp=dim, device=device)
    return femops.residual(heat, femops.Product(v=V, e=femops.L2(V.mesh, 1, device=device)))


def nonlinear_faces(device: Any, dim: int) -> Any:
    """Over faces between elements, of values and derivatives."""

    def flux(u: Any, n: Any) -> Any:
        return {"jump": u.mean**2 * u.jump - u.mean.grad @ n, "mean": {"grad": -(u.jump**2) * n}}

    return femops.residual(flux, femops.L2(mesh(dim), 2, device=device), faces="interior")


ON_THE_HOST = ("load, boundary_load", "point_load")
"""Forms that launch no kernel."""

for _name, _dim in (case for case in cases() if case[0] not in ON_THE_HOST):

    def _form(device: Any, name: str = _name, dim: int = _dim) -> None:
        FORMS[name](Site(MESHES[dim](), device))

    USES[f"{_name}, {_dim}-D"] = _form

add("sum", constrained, solved, many, panels, diagonal, staged, persistent)
add("sum", constrained, solved_by_persistent_blocks)
add("sum, none", partial(constrained), complex_vectors, dims=(2,))
add("sum, reproducible", partial(constrained, reproducible=True), applied, solved, many, diagonal)
add("sum over faces too", mixed, applied, many, panels, diagonal, staged, persistent)
add("sum over faces too, reproducible", partial(mixed, reproducible=True), applied, diagonal)
add("slopes at walls", slopes_at_walls, applied, transposed, diagonal, many, persistent)
add("slopes at walls, reproducible", partial(slopes_at_walls, reproducible=True), applied, diagonal)
add("walls", walls, applied, transposed, diagonal, many)
add("elastic", elastic, many, transposed, diagonal, staged, persistent, dims=(2, 3))
add("elastic, float32", partial(elastic, dtype="float32"), applied, many, dims=(2, 3))
add("elastic, none", partial(elastic, level="matrix-free"), many, diagonal, dims=(2, 3))
add("divergence", divergence, many, transposed, staged, persistent, dims=(2, 3))
add("convection", convection, many, transposed, diagonal)
add("stokes", stokes, applied, transposed, many, panels, dims=(2, 3))
add("penalty", penalty, transposed, many, panels, staged, persistent)
add("penalty, float32", partial(penalty, dtype="float32"), applied, many)
add("between", between, applied, transposed, many, dims=(2, 3))
add("continuous", continuous, applied, transposed, many)
add("continuous, reproducible", partial(continuous, reproducible=True), applied)
add("lines", lines, solved, many, dims=(1,))
add("two fields", coupled, at_state, dims=(2, 3))
add("faces", nonlinear_faces, at_state)

for _family, _order, _dim in product(("gauss", "gll", "bernstein", "hermite"), range(1, 5), (2, 3)):
    if (_family, _order) in (("hermite", 1), ("hermite", 2)) or _order > 5 - (_dim == 3):
        continue
    _options = {"order": _order, "family": _family}
    add(f"penalty, {_family} {_order}", partial(penalty, **_options), applied, many, dims=(_dim,))
    add(f"upwind, {_family} {_order}", partial(upwind, **_options), applied, many, dims=(_dim,))


# --- locally refined meshes -----------------------------------------------------------------------


def refined(device: Any, dim: int, **options: Any) -> Any:
    """Elements of two sizes, with essential conditions."""
    V = femops.H1(REFINED[dim](), 3, device=device, **options)
    A = femops.diffusion(V, smooth) + femops.mass(V) + nitsche(V)
    return A.constrained(V.boundary_dofs(1))


def refined_elastic(device: Any, dim: int, **options: Any) -> Any:
    V = femops.H1(REFINED[dim](), 2, ncomp=dim, device=device)
    return femops.elasticity(V, 1.3, smooth, **options).eliminated(V.boundary_dofs())


def refined_penalty(device: Any, dim: int, **options: Any) -> Any:
    """Both sides of faces of two sizes."""
    return femops.interior_penalty(femops.L2(REFINED[dim](), 2, device=device, **options), smooth)


def refined_slopes(device: Any, dim: int, **options: Any) -> Any:
    """Faces of two sizes of elements whose own nodes hang."""

    def form(u: Any) -> Any:
        return {"jump": {"grad": u.jump.grad}}

    V = femops.H1(REFINED[dim](), 2, device=device, **options)
    return femops.form(form, V, faces="interior")


def refined_cycle(device: Any, dim: int) -> None:
    V = femops.H1(REFINED[dim](), 4 if dim < 3 else 2, device=device)
    A = femops.diffusion(V, smooth).constrained(V.boundary_dofs())
    femops.cg(A, random(A), M=femops.multigrid(A), rtol=0.0, maxiter=2, warn=False)


add("refined", refined, applied, many, panels, diagonal, dims=(2, 3))
add("refined elastic", refined_elastic, many, panels, dims=(2, 3))
add("refined elastic, float32", partial(refined_elastic, dtype="float32"), applied, dims=(2, 3))
add("refined, reproducible", partial(refined, reproducible=True), applied, dims=(2, 3))
add("refined penalty", refined_penalty, applied, many, dims=(2, 3))
add("refined slopes", refined_slopes, applied, dims=(2, 3))
add("refined slopes, reproducible", partial(refined_slopes, reproducible=True), applied, dims=(2,))
for _dim in (2, 3):
    USES[f"refined multigrid, {_dim}-D"] = partial(refined_cycle, dim=_dim)


# --- simplices, by tables ------------------------------------------------------------------------


def of_simplices(device: Any, dim: int, p: int = 3, **options: Any) -> Any:
    """Elements and boundary faces, some elements mirrored, with essential conditions."""
    V = femops.H1(curved(dim, degree=2), p, device=device, **options)
    A = femops.diffusion(V, smooth) + femops.mass(V) + nitsche(V)
    return A.constrained(V.boundary_dofs(1))


def in_modes(device: Any, dim: int, p: int = 2) -> Any:
    V = femops.H1(graded(dim, 3), p, device=device)
    return femops.diffusion(V).constrained(V.boundary_dofs())


def by_component(device: Any, dim: int) -> Any:
    """Too many numbers for a thread: it has one component of an element."""
    V = femops.H1(graded(dim), {2: 7, 3: 3}[dim], ncomp=dim, device=device)
    return femops.elasticity(V, 1.3, smooth).constrained(V.boundary_dofs())


def simplex_penalty(device: Any, dim: int) -> Any:
    return femops.interior_penalty(femops.L2(graded(dim), 2, device=device), smooth)


def simplex_cycle(device: Any) -> None:
    V = femops.H1(graded(3), 4, device=device)
    A = femops.diffusion(V).constrained(V.boundary_dofs())
    femops.cg(A, random(A), M=femops.multigrid(A), rtol=0.0, maxiter=2, warn=False)


add("simplices", of_simplices, applied, many, diagonal, dims=(2, 3))
add("simplices, 5", partial(of_simplices, p=5), applied, many, diagonal, dims=(3,))
add("simplices, reproducible", partial(of_simplices, reproducible=True), applied, dims=(2, 3))
add("simplices in modes", in_modes, applied, solved, many, diagonal, dims=(2, 3))
add("simplices in modes, 5", partial(in_modes, p=5), solved, dims=(3,))
add("simplices by component", by_component, applied, solved, many, dims=(2, 3))
add("simplex penalty", simplex_penalty, applied, many, dims=(2, 3))
USES["simplex multigrid"] = simplex_cycle


# --- several operators ----------------------------------------------------------------------------


def inverse_mass(device: Any, kind: str, ncomp: int) -> None:
    sheared = turned(femops.box((3, 3, 2), mapping=shear))
    V = femops.L2(sheared if kind == "directions" else mesh(2), 2, ncomp=ncomp, device=device)
    points = {"directions": 5, "points": 3}[kind]
    M = femops.block_jacobi(
        femops.mass(V, smooth if kind != "directions" else 2.0, quadrature=points)
    )
    _ = M @ np.ones(V.size)


def cycle(device: Any, dim: int, order: int, ncomp: int) -> None:
    V = femops.H1(mesh(dim), order, ncomp=ncomp, device=device)
    A = femops.diffusion(V) if ncomp == 1 else femops.elasticity(V, 1.0, 2.0)
    A = A.constrained(V.boundary_dofs())
    for dtype, relaxation in (("float32", "elements"), ("float64", "points")):
        M = femops.multigrid(A, dtype=dtype, relaxation=relaxation)
        femops.cg(A, random(A), M=M, rtol=0.0, maxiter=2, warn=False)


def rows(device: Any) -> None:
    """Products with sparse matrices of several blocks."""
    V = femops.H1(mesh(2), 2, device=device)
    launch = backend_of(V).rows(eye_array(700, format="csr"), np.dtype(np.float64))
    backend_of(V).operator([(1.0, launch)]).apply(np.ones(700), np.zeros(700))


def weighted_sums(device: Any, dtype: str) -> None:
    """Of several blocks, a sum that reads the one before, and one with all terms and a mean."""
    x, y, *more = np.random.default_rng(2).standard_normal((9, 700)).astype(dtype)
    set_sums(device, [(x, ((0.5, y), (2.0, x)), None), (y, ((2.0, x), (1.0, y)), (0.5, x))])
    set_sums(device, [(x, [(0.5, each) for each in (y, *more)], (0.5, y))])


def small(device: Any, name: str, n: int, dtype: str, layout: Layout) -> None:
    """Batches of small matrices of several blocks, by the threads of each."""
    numbers = np.random.default_rng(1).standard_normal((2, 300, n, n))
    values = (numbers[0] + 1j * numbers[1]) if dtype.startswith("complex") else numbers[0]
    values = (values @ values.conj().swapaxes(1, 2) + n * np.eye(n)).astype(dtype)
    a, b, c = (Batch.wrap(values).copy(layout).to(device) for _ in range(3))
    if name == "gemm":
        tensor.gemm(a, b, c, alpha=2.0, beta=1.0)
    elif name == "solve":
        tensor.solve(a, Batch.wrap(values[:, 0]).copy(layout).to(device))
    else:
        getattr(tensor, name)(a)


def ranks(device: Any, make: Callable[[Any, Any], Any]) -> None:
    """Three ranks on one device: their launches are in one list."""

    def program(comm: Any) -> None:
        A = make(femops.distribute(mesh(2), comm), device)
        _ = A @ np.ones(A.shape[1])
        _ = A @ np.ones((A.shape[1], 3))
        A.diagonal()

    on_ranks(3, program)


def sum_on_ranks(m: Any, device: Any) -> Any:
    V = femops.H1(m, 3, device=device)
    A = femops.diffusion(V, smooth) + femops.mass(V) + nitsche(V)
    return A.constrained(V.boundary_dofs(1))


def penalty_on_ranks(m: Any, device: Any) -> Any:
    return femops.interior_penalty(femops.L2(m, 2, device=device), smooth)


def stokes_on_ranks(m: Any, device: Any) -> Any:
    def form(u: Any, p: Any) -> Any:
        return {"u": {"grad": u.grad - p * np.eye(2)}, "p": {"value": -u.div}}

    V = femops.H1(m, 2, ncomp=2, device=device)
    return femops.form(form, femops.Product(u=V, p=femops.H1(m, 1, device=device)))


def simplices_on_ranks(device: Any) -> None:
    def program(comm: Any) -> None:
        V = femops.H1(femops.distribute(graded(2, 4), comm), 3, device=device)
        A = femops.diffusion(V, smooth).constrained(V.boundary_dofs())
        _ = A @ np.ones(A.shape[1])
        A.diagonal()

    on_ranks(3, program)


for _kind, _ncomp in product(("points", "directions"), (1, 2)):
    USES[f"inverse mass, {_kind}, {_ncomp}"] = partial(inverse_mass, kind=_kind, ncomp=_ncomp)
for _dim, _order, _ncomp in ((1, 4, 1), (2, 4, 1), (3, 2, 1), (2, 2, 2), (3, 2, 3)):
    USES[f"multigrid, {_dim}-D, {_order}, {_ncomp}"] = partial(
        cycle, dim=_dim, order=_order, ncomp=_ncomp
    )
USES["rows"] = rows
for _dtype in ("float64", "float32"):
    USES[f"weighted sums, {_dtype}"] = partial(weighted_sums, dtype=_dtype)
USES["simplices on ranks"] = simplices_on_ranks
for _make in (sum_on_ranks, penalty_on_ranks, stokes_on_ranks):
    USES[_make.__name__] = partial(ranks, make=_make)
for _function, _n, _dtype, _layout in product(
    ("gemm", "cholesky", "eigh", "solve"),
    (3, 8),
    ("float64", "complex64"),
    (Strided(), Interleaved(8)),
):
    USES[f"{_function}, {_n}, {_dtype}, {type(_layout).__name__}"] = partial(
        small, name=_function, n=_n, dtype=_dtype, layout=_layout
    )
for _name, _make in {"flow": of_flow(2, 0.5), "three": of_three(2, (2, 1, 2))}.items():
    USES[_name] = lambda device, make=_make: at_state(make(device))
