"""Messages about unknown names, with the known name that is probably meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

_MEANT: dict[str, tuple[str, ...]] = {
    "M": ("preconditioner",),
    "abstol": ("atol",),
    "components": ("ncomp",),
    "degree": ("order",),
    "density": ("rho",),
    "dim": ("ncomp",),
    "eps": ("rtol",),
    "file": ("path",),
    "filename": ("path",),
    "divergence": ("div",),
    "gradient": ("grad",),
    "guess": ("x0", "u0"),
    "k": ("kappa",),
    "lambda_": ("lam",),
    "levels": ("times", "refine"),
    "lmbda": ("lam",),
    "max_iter": ("maxiter",),
    "maxit": ("maxiter",),
    "n": ("counts",),
    "p": ("order",),
    "pc": ("M", "preconditioner"),
    "prec": ("M", "preconditioner"),
    "preconditioner": ("M",),
    "Pl": ("M", "preconditioner"),
    "refinements": ("refine",),
    "reltol": ("rtol",),
    "shape": ("counts",),
    "solver": ("linear",),
    "tol": ("rtol",),
    "tolerance": ("rtol",),
    "vdim": ("ncomp",),
}
"""Names of arguments in other libraries, and the names of the same arguments here."""

_MOVED = "mesh.mapped(lambda x: 0.001 * x); femops.adjoint.moved(X, u) moves it by a field"
_SPACES = "there are femops.H1 and femops.L2, and no others"

ELSEWHERE: dict[str, str] = {
    "BDM": _SPACES,
    "BilinearForm": "write femops.form(f, V), of a function f of the field at one point",
    "CG": "write femops.H1(mesh, order)",
    "Constant": "give the form a number by name; A.update(name=2.0) changes it",
    "DG": "write femops.L2(mesh, order)",
    "DirichletBC": "write A.constrained(V.boundary_dofs(part)), and A.rhs(b, values)",
    "FacetNormal": "write n, an argument of a form over the boundary",
    "FiniteElementSpace": "write femops.H1(mesh, order) or femops.L2(mesh, order)",
    "Function": "write V.zeros() or V.interpolate(f); a field is femops.GridFunction(V, u)",
    "FunctionSpace": "write femops.H1(mesh, order) or femops.L2(mesh, order)",
    "HCurl": _SPACES,
    "HDiv": _SPACES,
    "LinearForm": "write femops.load(V, f) or femops.boundary_load(V, g, part)",
    "MeshHex": "write femops.box((4, 4, 4)), or femops.read_mesh(path)",
    "MeshQuad": "write femops.box((4, 4)), or femops.read_mesh(path)",
    "N1curl": _SPACES,
    "Nedelec": _SPACES,
    "RT": _SPACES,
    "RaviartThomas": _SPACES,
    "SpatialCoordinate": "write x, an argument of the form's function",
    "TestFunction": "write femops.form(f, V): f returns what multiplies the test function",
    "TrialFunction": "write femops.form(f, V), of a function f of the field at one point",
    "UnitCubeMesh": "write femops.box((4, 4, 4))",
    "UnitSquareMesh": "write femops.box((4, 4))",
    "VTKFile": "write femops.save('u.vtu', V, u=u), or femops.io.TimeSeries('run.pvd')",
    "VectorFunctionSpace": "write femops.H1(mesh, order, ncomp=2)",
    "XDMFFile": "write femops.save('u.vtu', V, u=u), or femops.io.TimeSeries('run.pvd')",
    "advection": "write femops.convection(V, beta)",
    "annulus": "write femops.shell(dim=2)",
    "assemble_matrix": "write A.assemble(), of an operator A",
    "circle": "write femops.disc()",
    "condense": "write A.constrained(dofs), and A.rhs(b, values)",
    "constrain": "write A.constrained(V.boundary_dofs(part)), and A.rhs(b, values)",
    "cube": "write femops.box((4, 4, 4))",
    "derivative": "write femops.residual(f, V).jacobian(u), or femops.functional(f, V).derivative",
    "dirichlet": "write A.constrained(V.boundary_dofs(part)), and A.rhs(b, values)",
    "eigsh": "write femops.eigen.lobpcg(K, M, k), or scipy.sparse.linalg.eigsh(K, k, M)",
    "errornorm": "write femops.l2_error(V, u, exact)",
    "laplace": "write femops.diffusion(V)",
    "functionspace": "write femops.H1(mesh, order) or femops.L2(mesh, order)",
    "neumann": "write femops.boundary_load(V, g, part)",
    "norm": "write femops.l2_norm(V, u)",
    "rectangle": "write femops.box((4, 4), lower=(0, 0), upper=(2, 1))",
    "robin": "write A + femops.boundary_mass(V, alpha, part), and femops.boundary_load(V, g, part)",
    "show": "write femops.plot(V, u)",
    "sphere": "write femops.ball() or femops.shell()",
    "spsolve": "write femops.cg(A, b), or scipy.sparse.linalg.spsolve(A.assemble(), b)",
    "threads": "the environment variable FEMOPS_THREADS sets how many threads there are",
}
"""Names of other libraries, and what to write here."""

OF_MESHES: dict[str, str] = {
    "UniformRefinement": "mesh.refine(1), which returns a new mesh",
    "boundaries": "mesh.boundary_names",
    "load": "femops.read_mesh(path)",
    "nodes": "mesh.coordinates, the nodes of each element; V.dof_coordinates() of a space",
    "move": _MOVED,
    "moved": _MOVED,
    "plot": "femops.plot(mesh)",
    "points": "femops.H1(mesh, order=1).dof_coordinates()",
    "rotate": _MOVED,
    "save": "femops.save(path, mesh)",
    "scale": _MOVED,
    "scaled": _MOVED,
    "subdomains": "mesh.element_names",
    "transform": _MOVED,
    "translate": _MOVED,
    "translated": _MOVED,
    "with_boundaries": "mesh.with_names(boundary={'left': lambda x: x[0] < 1e-9})",
    "with_subdomains": "mesh.with_names({'left': lambda x: x[0] < 0.5})",
    "write": "femops.save(path, mesh)",
}
"""Attributes of other libraries' meshes, and what to write here."""

_SECOND = (
    "a form has no second derivatives: make the gradient a field (docs/advection_diffusion.md)"
)

OF_FIELDS: dict[str, str] = {
    "curl": "u.grad has all derivatives: in 2-D write u.grad[1, 0] - u.grad[0, 1]",
    "dt": "write (u - old) / dt, where old is a coefficient: the field of the step before",
    "dx": "write u.grad[0], or u.grad[i, 0] of component i",
    "hess": _SECOND,
    "hessian": _SECOND,
    "laplacian": _SECOND,
    "rot": "u.grad has all derivatives: in 2-D write u.grad[1, 0] - u.grad[0, 1]",
    "strain": "write u.sym_grad",
}
"""Attributes of other libraries' fields, and what to write in a form."""

_LAME = (
    "give Lame's parameters, lam = E nu / ((1 + nu) (1 - 2 nu)) and mu = E / (2 (1 + nu)), of "
    "Young's modulus E and Poisson's ratio nu"
)
_LUMPED = (
    "a mass with quadrature=femops.basis.lobatto(V.p1d) is diagonal on Gauss-Lobatto nodes, and "
    "its diagonal() is the lumped mass"
)
_YOUNG = frozenset({"E", "nu", "young", "poisson"})


def did_you_mean(name: str, names: Iterable[str], least: float = 0.6) -> str:
    """Return the end of a message about an unknown name, with the most similar known name.

    Return an empty text if no known name is similar, by ``difflib``'s ratio of ``least`` or more.

    >>> did_you_mean("multigird", ["jacobi", "multigrid"])
    ': did you mean multigrid?'
    >>> did_you_mean("x", ["jacobi", "multigrid"])
    ''
    """
    names = list(names)
    known = [one for one in _MEANT.get(name, ()) if one in names]
    similar = known or get_close_matches(name, names, n=1, cutoff=least)
    similar = similar or [one for one in names if one.lower() == name.lower()]
    return f": did you mean {similar[0]}?" if similar else ""


def unknown(function: Callable[..., Any], name: str, names: Iterable[str]) -> str:
    """Return the message for an argument that a function does not have, with a similar argument."""
    names = [one for one in names if one not in {"self", "cls"}]
    hint = did_you_mean(name, names)
    if name in _YOUNG and {"lam", "mu"} <= set(names):
        hint = f": {_LAME}"
    if "lump" in name and "quadrature" in names:
        hint = f": {_LUMPED}"
    if function.__name__ == "chebyshev_subspace" and name in {"preconditioner", "prec", "pc"}:
        hint = ": it needs none, and M is the mass; femops.eigen.lobpcg takes a preconditioner"
    text = f"{_shown(function)}() got an unexpected keyword argument {name!r}"
    return text + (hint or f": it takes {', '.join(names) or 'none'}")


def too_many(
    function: Callable[..., Any],
    count: int,
    places: Sequence[str],
    names: Iterable[str],
    others: bool,
) -> str:
    """Return the message for too many arguments by position; it lists arguments to give by name."""
    named = [f"{name}=..." for name in names if name not in places]
    if places[:1] == ["self"]:
        places, count = places[1:], count - 1
    plural = "" if len(places) == 1 else "s"
    text = f"{_shown(function)}() takes {len(places)} argument{plural} by position"
    text += f" ({', '.join(places)})" * bool(places) + f", not {count}"
    if function.__name__ == "constrained":
        return f"{text}: values are given to A.rhs(b, values)"
    if others and not named:
        return f"{text}: give the others by name, as u=u"
    return text + (f": give the others by name, as {', '.join(named[:3])}" if named else "")


def _shown(function: Callable[..., Any]) -> str:
    """Return the name of a function, or of the class if the function is its ``__init__``."""
    name: str = function.__qualname__
    return name.removesuffix(".__init__")
