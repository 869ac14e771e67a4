"""Level matrix-free: the kernel computes the geometry, and numbers constant in an element."""

import copy
import itertools
import pickle

import numpy as np
import pytest

import femops
from support.cases.kernels import bend, random_vector, shear, smooth, tensor, turned
from support.cases.levels import LEVELS, convection, diffusion, mass, own, skewed, wind
from support.oracles.forms import Dense, FormOracle, Nodal

MESHES = {
    "affine": lambda: turned(femops.box((4, 3), mapping=shear)),
    "multilinear": lambda: turned(femops.box((4, 3), mapping=bend)),
    "curved": lambda: turned(femops.box((4, 3), order=2, mapping=bend)),
}


def space(kind="curved"):
    return femops.H1(MESHES[kind](), 2)


def check(operator, dense, tolerance=1e-13):
    u = random_vector(operator.space, str(operator.dtype))
    assert dense.error(operator.apply(u), u) < tolerance


# --- sums -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "level"), [("affine", "partial"), ("curved", "matrix-free")])
def test_sums_are_fused_whatever_they_are_given(kind, level):
    """Constants, functions, arrays; with and without a Jacobian; with factors."""
    V = space(kind)
    oracle = FormOracle.of(V)
    values = oracle.at_points(smooth)
    terms = [
        (2.0, femops.diffusion(V, 3.0), oracle.matrix(diffusion, c=3.0)),
        (-0.5, femops.mass(V, 5.0), oracle.matrix(mass, c=5.0)),
        (1.0, femops.mass(V, smooth), oracle.matrix(mass, c=smooth)),
        (3.0, femops.mass(V, values.values), oracle.matrix(mass, c=values)),
        (-2.0, femops.convection(V, wind), oracle.matrix(convection, c=wind)),
        (0.25, femops.form(own, V, c=2.0), oracle.matrix(own, c=2.0)),
    ]
    chosen = terms if kind == "affine" else terms[::-1]
    operator = sum(factor * A.at_level(level) for factor, A, _ in chosen)
    dense = Dense(sum(factor * d.matrix for factor, _, d in chosen))
    assert operator.level == level
    assert len(operator.compiled.sweeps) == 1
    check(operator, dense)
    check(operator.T, dense.T)
    held = np.arange(0, V.size, 3)
    fixed = dense.eliminated(held, held)
    fixed.matrix[held, held] = 1.0
    check(operator.constrained(held), fixed)


def test_the_same_form_twice_with_other_constants():
    V = space()
    one, two = (femops.mass(V, c, level="matrix-free") for c in (2.0, 5.0))
    oracle, operator = FormOracle.of(V), one - 3.0 * two
    check(operator, oracle.matrix(mass, c=2.0 - 15.0))
    check(operator.update(rho=4.0), oracle.matrix(mass, c=4.0 - 12.0))


# --- update ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        ("affine", "full"),
        ("multilinear", "element"),
        ("curved", "partial"),
        ("multilinear", "matrix-free"),
        ("affine", "auto"),
    ],
)
def test_update_from_constant_to_function_and_back(kind, level):
    V = space(kind)
    oracle = FormOracle.of(V)
    array = oracle.at_points(lambda x: 2.0 + x[0])
    field_space = femops.H1(V.mesh, 1)
    vector = field_space.interpolate(smooth)
    field = oracle.field(Nodal.of(field_space), vector)
    operator = femops.diffusion(V, 2.0, level=level) + femops.mass(V, 1.5, level=level)
    rest = 1.5 * oracle.matrix(mass, c=1.0)
    for new, plain in (
        (smooth, smooth),
        (3.0, 3.0),
        (array.values, array),
        (femops.GridFunction(field_space, vector), field),
    ):
        operator = operator.update(kappa=new)
        assert operator.level in LEVELS if level == "auto" else operator.level == level
        check(operator, oracle.matrix(diffusion, c=plain) + rest)


def test_a_tensor_is_updated_in_the_transpose():
    def other(x):
        return skewed(x) + 0.3 * tensor(x)

    V = space()
    dense = FormOracle.of(V).matrix(lambda u, c: {"grad": c @ u.grad}, c=other)
    for level in ("matrix-free", "partial"):
        operator = femops.diffusion(V, skewed, level=level).T.update(kappa=other)
        check(operator, dense.T)
        check(operator.T, dense)


# --- transposes -----------------------------------------------------------------------------------


def test_a_transpose_keeps_its_level():
    """There and back: the numbers kept are those of the level, not of the one before."""
    V = femops.H1(femops.disc(1), 2)
    A = femops.convection(V, wind)
    oracle = FormOracle.of(V).matrix(convection, c=wind)
    for first, level in itertools.permutations(("partial", "matrix-free", "element"), 2):
        twice = A.at_level(first).T.at_level(level).T
        assert twice.level == level
        assert twice.cost().stored_bytes == A.at_level(level).cost().stored_bytes
        assert twice.cost().flops == A.at_level(level).cost().flops
        check(twice, oracle)
        check(twice.T, oracle.T)


# --- copies ---------------------------------------------------------------------------------------


def test_copies_and_pickles_choose_their_level():
    V = space("affine")
    operator = femops.form(own, V, c=smooth, level="auto").constrained([1, 2])
    u = random_vector(V, "float64")
    expected = operator.at_level("partial").apply(u)
    for when in ("before", "after"):  # its first use
        for twin in (copy.deepcopy(operator), pickle.loads(pickle.dumps(operator))):
            assert twin.asked == "auto"
            np.testing.assert_allclose(twin.apply(u), expected, rtol=0, atol=1e-12)
            assert when == "before" or twin.level == operator.level
        operator.apply(u)


# --- apply ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "dtype"), [("affine", "float64"), ("multilinear", "float32"), ("curved", "float64")]
)
def test_lanes_that_elements_do_not_fill(kind, dtype):
    """What stands in the empty slots changes nothing, and is no cause for infinities."""
    whole = MESHES[kind]()
    mesh = femops.Mesh.from_arrays(
        None, np.array(whole.elements[:7]), coordinates=np.array(whole.coordinates[:7])
    )
    space = femops.H1(mesh, 2)
    dense = FormOracle.of(space).matrix(own, c=smooth)
    options = {"dtype": dtype, "lanes": 4, "level": "matrix-free"}
    operator = femops.form(own, space, c=smooth, **options)
    check(operator, dense, 1e-13 if dtype == "float64" else 1e-5)


def test_only_the_geometry_is_shared():
    """Nothing is kept where coefficients are constant; the modes are the mesh's, kept once."""
    V = femops.H1(MESHES["multilinear"](), 3)
    A, B = femops.diffusion(V, 2.0, level="matrix-free"), femops.mass(V, level="matrix-free")
    assert A.cost().stored_bytes <= 64
    assert (A + B).cost().shared_bytes == A.cost().shared_bytes
    sweeps = [operator.compiled.sweeps[0].data.modes for operator in (A, B, A + B)]
    assert sweeps[0] is sweeps[1] is sweeps[2]


# --- bad input ------------------------------------------------------------------------------------


def root(u, x):
    return {"value": np.sqrt(x[0] - 0.5) * u}


def pole(u, x):
    return {"value": u / femops.maximum(x[0] - 0.5, 0.0)}


def root_of(u, c):
    return {"value": np.sqrt(c) * u}


def quotient(u, c):
    return {"grad": u.grad / c}


def logarithm(u, x, c):
    return {"value": u.grad[0] * np.log(c), "grad": x[0] * u.grad}


def swing(x):
    return x[0] - 0.4


def jump(x):
    return np.where(x[0] > 0.4, 1.0, 0.0)


BAD = [
    (root, {}),
    (pole, {}),
    (root_of, {"c": swing}),
    (root_of, {"c": -1.0}),
    (quotient, {"c": jump}),
    (quotient, {"c": 0.0}),
    (logarithm, {"c": swing}),
]


@pytest.mark.parametrize(
    ("kind", "level"),
    [
        *(("affine", level) for level in ("full", "partial", "matrix-free", "auto")),
        *(("multilinear", level) for level in ("element", "matrix-free")),
        *(("curved", level) for level in ("partial", "matrix-free")),
    ],
)
def test_what_is_not_finite_is_refused_at_every_level(kind, level):
    V = space(kind)
    for form, given in BAD:
        with pytest.raises(femops.errors.OperatorError, match=f"{form.__name__} is not finite at"):
            femops.form(form, V, level=level, **given)
        if "c" in given and level != "auto":  # as an update, too
            operator = femops.form(form, V, level="partial", c=lambda x: 1.0 + x[0] ** 2)
            with pytest.raises(femops.errors.OperatorError, match="is not finite at"):
                operator.at_level(level).update(c=given["c"])


def test_a_branch_may_do_what_it_is_there_to_prevent():
    def guarded(u, x):
        return {"value": femops.where(x[0] > 0.5, np.sqrt(abs(x[0] - 0.5)), 1.0) * u}

    def plain(u, x):
        return {"value": (np.sqrt(x[0] - 0.5) if x[0] > 0.5 else 1.0) * np.asarray(u)}

    V = space()
    dense = FormOracle.of(V).matrix(plain)
    for level in ("partial", "matrix-free"):
        check(femops.form(guarded, V, level=level), dense)


@pytest.mark.parametrize("order", [1, 2])
def test_inverted_elements_are_refused_at_every_level(order):
    mesh = femops.box((3, 2)).curved(order)
    coordinates = mesh.coordinates.copy()
    coordinates[4] = coordinates[4][::-1] * [1.0, -1.0]
    fields = (mesh.element_attributes, mesh.boundary, mesh.boundary_attributes)
    inverted = femops.Mesh.assemble(mesh.elements, coordinates, mesh.num_vertices, *fields)
    V, makers = femops.L2(inverted, 1), (femops.mass, femops.diffusion)
    for make, level in itertools.product(makers, [*LEVELS, "auto"]):
        with pytest.raises(
            femops.errors.GeometryError, match=r"1 element has .*: 4; turn or repair"
        ):
            make(V, level=level)
