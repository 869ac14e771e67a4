"""Every form at every level of assembly: what they are tried on, and the oracle's matrix."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from functools import cache
from typing import Any, final

import numpy as np

import femops
from support.cases.kernels import diagonal, make_mesh, smooth, tensor
from support.cases.pairwise import Pairwise, Values
from support.oracles import boundary as boundary_oracle
from support.oracles.forms import AtPoints, Dense, FormOracle, Nodal
from support.oracles.naive import Array

LEVELS = ("full", "element", "partial", "matrix-free")
TOLERANCE = {"float64": 1e-13, "float32": 1e-5}

# --- coefficients ---------------------------------------------------------------------------------


def wind(x: Array) -> Array:
    """A velocity."""
    return np.stack([1.2 + np.sin(x[d - 1] + d) + 0.3 * x[d] for d in range(len(x))])


def skewed(x: Array) -> Array:
    """A full tensor that is not symmetric."""
    result = tensor(x)
    for i, j in np.ndindex(len(x), len(x)):
        result[i, j] += 0.4 * (i - j) * np.cos(x[0] + x[-1])
    return result


def bulge(ncomp: int) -> Callable[[Array], Any]:
    """A state that turns no element inside out."""
    parts = [(0.03 + 0.01 * k, 0.5 - k) for k in range(ncomp)]

    def state(x: Array) -> Any:  # with the period of periodic meshes
        turn = 2 * np.pi * x
        values = [a * np.sin(turn[0] + b) + 0.02 * np.cos(turn[-1]) for a, b in parts]
        return values[0] if ncomp == 1 else values

    return state


# --- forms, at a point ----------------------------------------------------------------------------


def mass(u: Any, c: Any) -> Any:
    return {"value": c * np.asarray(u)}


def diffusion(u: Any, c: Any) -> Any:
    return {"grad": c * u.grad}


def tensor_diffusion(u: Any, c: Any) -> Any:
    return {"grad": c @ u.grad}


def helmholtz(u: Any, c: Any, kappa: Any) -> Any:
    return {"value": -c * c * np.asarray(u), "grad": kappa * u.grad}


def convection(u: Any, c: Any) -> Any:
    return {"value": u.grad @ c}


def elasticity(u: Any, c: Any, lam: Any) -> Any:
    strain = (u.grad + u.grad.T) / 2
    return {"grad": lam * np.trace(u.grad) * np.eye(len(strain)) + 2 * c * strain}


def divergence(u: Any) -> Any:
    return {"value": np.trace(np.atleast_2d(u.grad))}


def own(u: Any, x: Any, c: Any) -> Any:
    """A user's form with x, and functions of x and of the coefficient, in it."""
    flux = [np.sqrt(2.0 + x[0] ** 2) * g for g in u.grad]
    flux[0] = flux[0] + x[-1] * u
    return {"value": np.exp(0.3 * x[0]) * u / c + x[-1] * c * u.grad[0], "grad": flux}


def p_laplacian(u: Any, c: Any, p: Any) -> Any:
    return {"grad": (c**2 + np.sum(u.grad * u.grad)) ** (0.5 * p - 1.0) * u.grad}


def neo_hookean(u: Any, c: Any, lam: Any) -> Any:
    deformation = np.eye(len(u.grad)) + u.grad
    back = np.linalg.inv(deformation).T
    return {"grad": c * (deformation - back) + lam * np.log(np.linalg.det(deformation)) * back}


@final
@dataclass(frozen=True)
class Form:
    """One form: how femops makes it, and what it is at a point.

    The coefficient that varies is called ``c``; ``rest`` has other ones, the same everywhere.
    """

    make: Callable[..., Any]
    plain: Callable[..., Any]
    ncomp: str = "1"
    shape: Callable[[Array], Any] | None = smooth
    name: str = "c"
    rest: tuple[tuple[str, Any], ...] = ()
    nonlinear: bool = False

    def components(self, dim: int) -> int:
        """Of the trial space."""
        return dim if self.ncomp == "dim" else int(self.ncomp)


LAM, KAPPA = (("lam", 1.3),), (("kappa", smooth),)
FORMS = {
    "mass": Form(femops.mass, mass, name="rho"),
    "diffusion": Form(femops.diffusion, diffusion, name="kappa"),
    "diffusion-diagonal": Form(femops.diffusion, diffusion, "1", diagonal, "kappa"),
    "diffusion-tensor": Form(femops.diffusion, tensor_diffusion, "1", skewed, "kappa"),
    "helmholtz": Form(femops.helmholtz, helmholtz, name="k", rest=KAPPA),
    "convection": Form(femops.convection, convection, "1", wind, "beta"),
    "vector-mass": Form(femops.mass, mass, "2", name="rho"),
    "vector-diffusion": Form(femops.diffusion, diffusion, "2", name="kappa"),
    "elasticity": Form(femops.elasticity, elasticity, "dim", name="mu", rest=LAM),
    "divergence": Form(femops.divergence, divergence, "dim", None),
    "boundary-mass": Form(femops.boundary_mass, mass, name="alpha"),
    "own": Form(lambda V, **k: femops.form(own, V, **k), own),
    "p-laplacian": Form(
        femops.p_laplacian, p_laplacian, name="epsilon", rest=(("p", 3.5),), nonlinear=True
    ),
    "neo-hookean": Form(
        femops.neo_hookean, neo_hookean, "dim", name="mu", rest=LAM, nonlinear=True
    ),
}

# --- cases ----------------------------------------------------------------------------------------

FACTORS: dict[str, list[Any]] = {
    "form": list(FORMS),
    "level": list(LEVELS),
    "mesh": ["box", "sheared", "multilinear", "curved", "periodic", "unstructured"],
    "dim": [1, 2, 3],
    "p": [1, 2, 3, 5, 8],
    "rule": ["gauss", "lobatto"],
    "more": [1, 2, 3],
    "lanes": [None, 2, 4, 16],
    "dtype": ["float64", "float32"],
    "coefficient": ["number", "function", "array", "field", "elements"],
    "space": ["h1", "h1-bernstein", "l2"],
    "size": ["one", "few", "many"],
    "held": [False, True],
    "transposed": [False, True],
}
FAVOURED = {("level", "full"): 2.0, ("level", "element"): 2.0, ("dtype", "float64"): 2.0}
FAVOURED |= {
    ("dim", 2): 3.0,
    ("p", 1): 6.0,
    ("p", 2): 2.0,
    ("rule", "gauss"): 4.0,
    ("lanes", None): 6.0,
    ("more", 2): 3.0,
    ("space", "h1"): 2.0,
}
FAVOURED |= {("form", "neo-hookean"): 0.2, ("form", "elasticity"): 0.5}
LEAST = {"form": "mass", "level": "full", "mesh": "box", "dim": 2, "p": 1, "more": 2}
LEAST |= {"dtype": "float64", "coefficient": "number", "space": "h1", "size": "few"}
LEAST |= {"held": False, "transposed": False, "rule": "gauss", "lanes": None}


@final
@dataclass(frozen=True)
class Case:
    """One point of the product of all factors; the rule has p + ``more`` points."""

    form: str
    level: str
    mesh: str
    dim: int
    p: int
    rule: str
    more: int
    lanes: int | None
    dtype: str
    coefficient: str
    space: str
    size: str
    held: bool
    transposed: bool

    def __str__(self) -> str:
        return "-".join(str(value) for value in astuple(self))

    @property
    def tolerance(self) -> float:
        """What the error over the norm of |A| |u| must stay below."""
        return TOLERANCE[self.dtype]

    @property
    def options(self) -> dict[str, Any]:
        """What all forms take."""
        points = getattr(femops.basis, self.rule)(self.p + self.more)
        return {"quadrature": points, "dtype": self.dtype, "lanes": self.lanes}


def sensible(case: Values) -> bool:
    """Whether a case exists and is small enough for a naive oracle."""
    form, dim = case["form"], case["dim"]
    if case["size"] == "one" and case["mesh"] in ("periodic", "unstructured"):
        return False
    if dim == 1 and form in ("elasticity", "neo-hookean", "diffusion-tensor", "diffusion-diagonal"):
        return False
    if form == "boundary-mass" and (
        case["mesh"] == "periodic"
        or case["space"] == "l2"
        or case["coefficient"] not in ("number", "function")
        or (case["more"], case["rule"]) != (2, "gauss")
    ):
        return False
    if form == "diffusion-tensor" and case["coefficient"] in ("field", "elements"):
        return False
    if form == "divergence" and case["coefficient"] != "number":
        return False
    few = case["size"] != "many" and case["mesh"] != "unstructured"
    if dim < 3:
        return case["p"] < 5 or few
    one = case["size"] == "one" and FORMS[form].ncomp == "1"
    most = 5 if one else 2 if few else 1
    return bool(case["p"] <= most and (few or case["space"] != "l2"))


def kernel(case: Values) -> Values:
    """What decides which kernel a case takes; affine meshes take others, too."""
    names = {"full": ("level", "dtype"), "element": ("level", "dtype", "form", "dim", "p")}
    most = ("level", "dtype", "form", "dim", "p", "rule", "more", "lanes", "space")
    most += ("coefficient", "transposed")
    return {name: case[name] for name in names.get(case["level"], most)}


PAIRWISE = Pairwise(FACTORS, sensible, LEAST, kernel, FAVOURED)


@cache
def cover() -> tuple[Case, ...]:
    """Cases such that every two values of two factors meet in one of them (where they can)."""
    return tuple(Case(**values) for values in PAIRWISE.cover)


def product(form: str, level: str, dim: int, p: int) -> Iterator[Case]:
    """All meshes and sizes; what decides which kernel is taken changes with form, level and p.

    So there are a few kernels for each: thousands, kept to the end, would fill the memory.
    """
    turn = list(FORMS).index(form) + LEVELS.index(level) + dim + p
    values = {"form": form, "level": level, "dim": dim, "p": p, "transposed": bool(turn // 2 % 2)}
    values |= {"dtype": "float32" if turn % 3 == 0 else "float64"}
    values |= {"more": 2 if form == "boundary-mass" else FACTORS["more"][turn % 3], "lanes": None}
    values |= {"rule": "gauss" if form == "boundary-mass" else FACTORS["rule"][turn % 2]}
    spaces = FACTORS["space"][: 2 if form == "boundary-mass" else 3]
    values |= {"space": spaces[turn % len(spaces)]}
    kinds = FACTORS["coefficient"]
    for k, (mesh, size) in enumerate(itertools.product(FACTORS["mesh"], FACTORS["size"])):
        values |= {"mesh": mesh, "size": size, "held": bool(k % 2)}
        # the next kind that the form takes
        turns = (values | {"coefficient": kinds[(turn + i) % len(kinds)]} for i in range(5))
        found = next((case for case in turns if sensible(case)), None)
        if found is not None:
            yield Case(**found)


# --- both sides -----------------------------------------------------------------------------------


def make_spaces(case: Case, mesh: Any = None, **where: Any) -> tuple[Any, Any]:
    """Trial and test space; one and the same but for the divergence.

    On another mesh if given; ``where`` is the device, and whether it is ``reproducible``.
    """
    mesh = make_mesh(case.mesh, case.dim, case.size) if mesh is None else mesh
    ncomp = FORMS[case.form].components(case.dim)
    broken = {name: value for name, value in where.items() if name != "reproducible"}
    if case.space == "l2":
        trial: Any = femops.L2(mesh, case.p, ncomp=ncomp, **broken)
    else:
        family = "bernstein" if case.space.endswith("bernstein") else "gll"
        trial = femops.H1(mesh, case.p, ncomp=ncomp, family=family, **where)
    if case.form != "divergence":
        return trial, trial
    if case.space == "l2":
        return trial, femops.H1(mesh, case.p, **where)
    return trial, femops.L2(mesh, case.p - 1, **broken)


def given(case: Case, oracle: FormOracle, mesh: Any) -> tuple[Any, Any]:
    """The coefficient of a case as femops takes it, and as the oracle does."""
    function = FORMS[case.form].shape
    assert function is not None
    if case.coefficient == "number":
        value = function(np.linspace(0.3, 0.7, case.dim))
        return value, value
    if case.coefficient == "function":
        return function, function
    if case.coefficient == "array":
        at = oracle.at_points(function)
        return at.values, at
    ncomp = case.dim if function in (diagonal, wind) else 1
    constant = case.coefficient == "elements"
    space = femops.L2(mesh, 0, ncomp=ncomp) if constant else femops.H1(mesh, 2, ncomp=ncomp)
    vector = space.interpolate(function)
    at = oracle.field(Nodal.of(space), vector)
    if case.dim == 1 and function is wind:
        at = AtPoints(at.values[..., None])
    return femops.GridFunction(space, vector), at


def build(case: Case, data_dtype: str | None = None, **where: Any) -> tuple[Any, Dense]:
    """The operator of a case and the oracle's matrix; for ``where`` see `make_spaces`."""
    form, (trial, test) = FORMS[case.form], make_spaces(case, **where)
    oracle = FormOracle.of(trial, test, case.rule, case.p + case.more)
    mine, plain = dict(form.rest), dict(form.rest)
    if form.shape is not None:
        mine[form.name], plain["c"] = given(case, oracle, trial.mesh)
    options = case.options
    if form.nonlinear:
        state = trial.interpolate(bulge(trial.ncomp)).astype(case.dtype)
        operator = form.make(trial, **mine, **options).jacobian(state).at_level(case.level)
        state = state if trial.device is None else trial.device.download(state)
        dense = oracle.matrix(form.plain, state, **plain)
    else:
        spaces = (trial,) if trial is test else (trial, test)
        options |= {} if data_dtype is None else {"data_dtype": data_dtype}
        operator = form.make(*spaces, **mine, **options, level=case.level)
        if case.form == "boundary-mass":
            dense = Dense(boundary_oracle.matrix(trial, trial, None, at_faces(case, plain["c"])))
        else:
            dense = oracle.matrix(form.plain, **plain)
    return finish(case, operator, dense)


def at_faces(case: Case, c: Any) -> Callable[[Array, Array], Any]:
    """The coefficient of a boundary mass at a point of a face."""
    if case.coefficient == "number":
        return lambda x, n: [[c]]
    return lambda x, n: [[smooth(x)]]


def finish(case: Case, operator: Any, dense: Dense) -> tuple[Any, Dense]:
    """Both with rows and columns held, and transposed, if the case says so."""
    rows, columns = np.arange(1, operator.shape[0], 4), np.arange(1, operator.shape[1], 3)
    if case.held and operator.space is operator.test_space:
        operator, dense = operator.constrained(rows), dense.eliminated(rows, rows)
        dense.matrix[rows, rows] = 1.0
    elif case.held:
        operator, dense = operator.eliminated(rows, columns), dense.eliminated(rows, columns)
    return (operator.T, dense.T) if case.transposed else (operator, dense)
