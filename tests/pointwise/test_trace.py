"""Traced forms: what is stored, D against formulas, programs joined and printed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import femops
from femops.forms.convection import _convection
from femops.forms.diffusion import _diffusion
from femops.forms.divergence import _divergence
from femops.forms.elasticity import _elasticity
from femops.forms.helmholtz import _helmholtz
from femops.forms.mass import _mass
from femops.pointwise import (
    CoefficientShape,
    Known,
    LinearQFunction,
    fuse,
    linear_split,
    trace,
)
from femops.pointwise.expressions.graph import Graph
from femops.pointwise.qfunction import assignments, evaluate
from femops_kernels.spec import QFunctionCode, QFunctionInputs

POINTS = 6
DIMS = [1, 2, 3]


@dataclass
class Case:
    """A form and what its D is at a point, (slots_out, ncomp_out, slots_in, ncomp_in)."""

    function: Any
    dim: int
    components: tuple[int, int]
    shapes: dict[str, CoefficientShape]
    formula: Any

    def step(self):
        ins, outs = ({"u": n} for n in self.components)
        return LinearQFunction(trace(self.function, self.dim, ins, outs, self.shapes))

    def statics(self):
        """Random values of all that is known beforehand, points last."""
        rng = np.random.default_rng(self.dim)
        jacobian = np.eye(self.dim) + 0.3 * rng.standard_normal((POINTS, self.dim, self.dim))
        reference = rng.uniform(0.5, 2.0, POINTS)
        values = {
            "jacobian": np.moveaxis(jacobian, 0, -1),
            "inverse": np.moveaxis(np.linalg.inv(jacobian), 0, -1),
            "reference": reference,
            "weight": reference * np.linalg.det(jacobian),
            "x": rng.uniform(size=(self.dim, POINTS)),
        }
        for name, shape in self.shapes.items():
            values[name] = rng.uniform(0.5, 2.0, (*shape.shape, POINTS))
            if shape.symmetric:
                values[name] = values[name] + values[name].swapaxes(0, 1)
        return values

    def expected(self):
        given = {k: v for k, v in self.statics().items() if k not in ("jacobian", "reference")}
        return np.asarray(self.formula(**given))

    def given(self, step, cut):
        """The numbers that a program is given, (points, n), in their order."""
        values, numbers = self.statics(), cut.qfunction.numbers
        at_one = {**values, "weight": values["weight"] / values["reference"]}
        jacobian = values["jacobian"].reshape(-1, POINTS)
        rows = [
            *evaluate(cut.element, self.inputs(step, at_one)),
            *jacobian[: numbers.jacobian],
            *values["x"][: numbers.position],
            *[values["reference"]] * numbers.weight,
            *evaluate(cut.constant, self.inputs(step, values)),
            *evaluate(cut.point, self.inputs(step, values)),
        ]
        return np.stack([np.broadcast_to(row, POINTS) for row in rows], axis=-1)

    @staticmethod
    def inputs(step, values):
        """Arrays of the static inputs by node."""
        return {
            # the names of what every form has begin with @, which no coefficient's can
            node.number: values[name.removeprefix("@")][index]
            for name, nodes in step.trace.static.items()
            for index, node in np.ndenumerate(nodes)
        }

    def cuts(self, step, *, transpose=False):
        """For every level, of meshes that are affine and not, with coefficients of every kind."""
        names = frozenset(self.shapes)
        known = [Known(a, c, 8) for a in (False, True) for c in (frozenset[str](), names)]
        return [
            linear_split(step, level, k, transpose=transpose)
            for level in ("points", "partial", "matrix-free")
            for k in known
        ]


def identity(n):
    return np.eye(n)


def mass_d(dim, ncomp):
    return lambda inverse, weight, x, rho: np.einsum(
        "ik,n->ikn", identity(ncomp), weight * rho
    ).reshape(1, ncomp, 1, ncomp, POINTS)


def tensor_of(kappa, dim):
    if kappa.ndim == 1:
        return np.einsum("ij,n->ijn", identity(dim), kappa)
    return np.einsum("ij,jn->ijn", identity(dim), kappa) if kappa.ndim == 2 else kappa


def diffusion_d(dim, ncomp):
    def formula(inverse, weight, x, kappa):
        full = tensor_of(kappa, dim)
        return np.einsum("n,bin,ijn,ajn,cd->bcadn", weight, inverse, full, inverse, identity(ncomp))

    return formula


def convection_d(inverse, weight, x, beta):
    return np.einsum("n,ain,in->an", weight, inverse, beta)[np.newaxis, np.newaxis, :, np.newaxis]


def helmholtz_d(dim):
    def formula(inverse, weight, x, k, kappa):
        d = np.zeros((1 + dim, 1, 1 + dim, 1, POINTS))
        d[0, 0, 0, 0] = -weight * k**2
        d[1:, 0, 1:, 0] = np.einsum("n,bin,ain->ban", weight * kappa, inverse, inverse)
        return d

    return formula


def divergence_d(inverse, weight, x):
    """The sum over components i and reference directions a of d xi_a / d x_i."""
    return np.einsum("n,ain->ain", weight, inverse)[np.newaxis, np.newaxis]


def elasticity_d(dim):
    eye = identity(dim)
    volume = np.einsum("ij,kl->ijkl", eye, eye)
    shear = np.einsum("ik,jl->ijkl", eye, eye) + np.einsum("il,jk->ijkl", eye, eye)

    def formula(inverse, weight, x, lam, mu):
        stiffness = volume[..., np.newaxis] * lam + shear[..., np.newaxis] * mu
        return np.einsum("n,bjn,ijkln,aln->biakn", weight, inverse, stiffness, inverse)

    return formula


def _gradient(u, c):
    """From one component to dim of them: neither square nor symmetric."""
    return {"value": c * u.grad}


def gradient_d(inverse, weight, x, c):
    d = np.einsum("n,ain->ian", weight * c, inverse)  # (ncomp_out, slots_in, n)
    return d[np.newaxis, :, :, np.newaxis]


SCALAR = CoefficientShape(())


def cases(dim):
    """Forms, and how many numbers of D are distinct."""
    symmetric = CoefficientShape((dim, dim), symmetric=True)
    general = CoefficientShape((dim, dim))
    diagonal, vector = CoefficientShape((dim,)), CoefficientShape((dim,))
    half = dim * (dim + 1) // 2
    scalar_d, lame = diffusion_d(dim, 1), {"lam": SCALAR, "mu": SCALAR}
    found = {
        "mass": (Case(_mass, dim, (1, 1), {"rho": SCALAR}, mass_d(dim, 1)), 1),
        "vector mass": (Case(_mass, dim, (2, 2), {"rho": SCALAR}, mass_d(dim, 2)), 1),
        "diffusion": (Case(_diffusion, dim, (1, 1), {"kappa": SCALAR}, scalar_d), half),
        "diagonal": (Case(_diffusion, dim, (1, 1), {"kappa": diagonal}, scalar_d), half),
        "symmetric": (Case(_diffusion, dim, (1, 1), {"kappa": symmetric}, scalar_d), half),
        "general": (Case(_diffusion, dim, (1, 1), {"kappa": general}, scalar_d), dim**2),
        "vector diffusion": (
            Case(_diffusion, dim, (3, 3), {"kappa": SCALAR}, diffusion_d(dim, 3)),
            half,
        ),
        "convection": (Case(_convection, dim, (1, 1), {"beta": vector}, convection_d), dim),
        "helmholtz": (
            Case(_helmholtz, dim, (1, 1), {"k": SCALAR, "kappa": SCALAR}, helmholtz_d(dim)),
            1 + half,
        ),
        "divergence": (Case(_divergence, dim, (dim, 1), {}, divergence_d), dim**2),
    }
    if dim == 1:  # a field of one component is a scalar: no gradient is one, nor a strain
        return found
    return found | {
        "gradient": (Case(_gradient, dim, (1, dim), {"c": SCALAR}, gradient_d), dim**2),
        "elasticity": (
            Case(_elasticity, dim, (dim, dim), lame, elasticity_d(dim)),
            {2: 10, 3: 45}[dim],
        ),
    }


every_case = [pytest.param(dim, name, id=f"{name}-{dim}d") for dim in DIMS for name in cases(dim)]


def test_distinct_entries():
    for dim in DIMS:
        for name, (case, count) in cases(dim).items():
            assert len(case.step().distinct) == count, (dim, name)


def test_what_elasticity_stores():
    """The frontier: J^-1, w det(J), lam and mu, where D has 45 distinct numbers."""
    step = cases(3)["elasticity"][0].step()
    stored = linear_split(step, "points").point
    assert len(stored) == 12
    inputs = {node.data for node in stored if node.op == "input"}
    assert inputs == {f"@inverse_{i}_{j}" for i in range(3) for j in range(3)} | {
        "@weight",
        "c(lam)",
    }
    assert [repr(node) for node in stored if node.op != "input"] == ["mul(c(mu), 2.0)"]
    constants = frozenset({"lam", "mu"})
    curved = linear_split(step, "partial", Known(constants=constants, points=27)).qfunction.numbers
    assert curved == QFunctionInputs(point=10, constant=2)
    affine = linear_split(step, "partial", Known(True, constants, 27)).qfunction.numbers
    assert affine == QFunctionInputs(element=10, weight=1, constant=2)
    nothing = linear_split(
        step, "matrix-free", Known(constants=constants, points=27)
    ).qfunction.numbers
    assert nothing == QFunctionInputs(jacobian=9, weight=1, constant=3)


@pytest.mark.sample(3)
@pytest.mark.parametrize(("dim", "name"), every_case)
def test_d_is_the_formula(dim, name):
    """Transposed, too; and numbers said to scale the form do."""
    case = cases(dim)[name][0]
    step = case.step()
    expected = case.expected()
    turned = expected.transpose(2, 3, 0, 1, 4)
    for transpose, wanted in ((False, expected), (True, turned)):
        for cut in case.cuts(step, transpose=transpose):
            q = case.given(step, cut)
            d, atol = cut.qfunction.matrix(q), 1e-12 * np.abs(wanted).max()
            np.testing.assert_allclose(d, wanted, rtol=1e-12, atol=atol)
            assert cut.qfunction.symmetric == step.symmetric
            q[:, list(cut.qfunction.scaled)] *= -2.5
            np.testing.assert_allclose(cut.qfunction.matrix(q), -2.5 * d, rtol=1e-13)
    assert (cut.qfunction.ncomp_in, cut.qfunction.ncomp_out) == case.components[::-1]
    symmetric = expected.shape == turned.shape and np.allclose(expected, turned, rtol=1e-12)
    assert step.symmetric == (symmetric and name not in ("convection", "divergence", "gradient"))


@pytest.mark.parametrize(("dim", "affine", "level"), [(1, True, 0), (2, False, 1), (3, True, 2)])
def test_fused_programs_add(dim, affine, level):
    names = ["mass", "general", "convection", "diffusion"]
    found, qs, total = [], [], np.zeros((1 + dim, 1, 1 + dim, 1, POINTS))
    for name in names:
        case = cases(dim)[name][0]
        step = case.step()
        cut = case.cuts(step)[4 * level + 2 * affine]
        q, program = case.given(step, cut), cut.qfunction
        found.append(program)
        qs.append(q)
        total[np.ix_(program.slots_out, [0], program.slots_in, [0])] += program.matrix(q)
    together = fuse(found)
    parts = [[q[:, k] for k in p.numbers.slices()] for p, q in zip(found, qs, strict=True)]
    own = [True, False, False, False, True, True]
    columns = [
        np.concatenate(kind if mine else [max(kind, key=lambda k: k.shape[1])], axis=1)
        for mine, kind in zip(own, zip(*parts, strict=True), strict=True)
    ]
    d = together.matrix(np.concatenate(columns, axis=1))
    np.testing.assert_allclose(d, total, rtol=1e-12, atol=1e-13)
    assert together.numbers.counts() == tuple(k.shape[1] for k in columns)
    assert not together.symmetric
    assert fuse(found[:1]) is found[0]
    assert fuse([found[0], found[3]]).symmetric
    # the sums: value of mass and convection, derivatives of the two diffusions
    most = sum(p.flops for p in found) + 1 + dim
    assert together.flops == most if level == 0 else together.flops <= most


@pytest.mark.parametrize("dim", DIMS)
def test_flops_are_counted(dim):
    flops = {
        name: linear_split(cases(dim)[name][0].step(), "points").qfunction.flops
        for name in cases(dim)
    }
    assert flops["mass"] == 1
    assert flops["vector mass"] == 2
    assert flops["diffusion"] == flops["general"] == dim * (2 * dim - 1)
    assert flops["vector diffusion"] == 3 * flops["diffusion"]
    assert flops["convection"] == 2 * dim - 1


def test_functions_are_flops():
    """Calls count as one operation each."""
    graph = Graph()
    u, q = graph.input("u"), graph.input("q")
    statements, (result,) = assignments([np.exp(q) * u], {u.number: "u[0]", q.number: "q[0]"})
    body = "\n".join(f"    {s}" for s in statements)
    text = f"@inner\ndef pointwise(u, ux, uy, uz, q):\n{body}\n    return ({result},), ux, uy, uz\n"
    program = femops.pointwise.QFunction(
        QFunctionCode(text, QFunctionInputs(point=1), (0,), (), (0,), ()), 1, 1, 1, True, ()
    )
    assert program.flops == 2
    np.testing.assert_allclose(program.matrix(np.array([[2.0]])), np.full((1,) * 5, np.exp(2.0)))


def test_a_name_is_needed_for_every_input():
    graph = Graph()
    with pytest.raises(KeyError, match="no name for the input y"):
        assignments([graph.input("x") * graph.input("y")], {graph.input("x").number: "x"})


# --- forms that once came out wrong --------------------------------------------------------------


def test_a_condition_is_not_stored():
    W = femops.H1(femops.box((2, 2, 1)), 1, ncomp=3)

    def two_materials(u, x, mu):
        soft, stiff = mu * u.sym_grad + u.div * np.eye(3), 2 * mu * u.sym_grad
        return {"grad": femops.where(x[0] < 0.5, stiff, soft)}

    A = femops.form(two_materials, W, mu=lambda x: 1 + x[0])
    u = np.random.default_rng(0).standard_normal(W.size)
    np.testing.assert_allclose(A @ u, A.assemble() @ u, atol=1e-13)


def test_where_between_constants():
    V = femops.H1(femops.box((4, 2)), 2)
    A = femops.form(lambda u, x: {"value": femops.where(x[0] < 0.5, 5.0, 0.0) * u}, V)
    ones = np.ones(V.size)
    assert ones @ (A @ ones) == pytest.approx(2.5)
    F = femops.residual(lambda u: {"value": femops.where(u.value > 0.0, 5.0, 0.0)}, V)
    assert F.residual(ones).sum() == pytest.approx(5.0)
