"""Examples: whole forms, with their spaces, coefficients and dense matrices."""

from __future__ import annotations

import linecache
import re
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

import femops
from support.cases.random_forms.expressions import NAMESPACE, Expr
from support.cases.random_forms.fields import Fields
from support.cases.random_forms.maker import Coefficient, Maker
from support.cases.random_forms.spaces import KINDS, mesh_of, side_of
from support.cases.random_forms.tensors import array_text
from support.oracles.dense_forms import PLACES, DenseForm, Matrix, PointField, Side
from support.oracles.points import Points, faces_of
from support.oracles.running_error import Num, Unsure, single_precision


@dataclass
class Example:
    """A random form: its text, spaces, and what femops and the reference are given."""

    seed: int
    kind: str
    text: str
    names: list[str]
    points: Points
    spaces: dict[str, Any]
    sides: dict[str, Side]
    test: Any
    test_side: Side | None
    coefficients: dict[str, Coefficient]
    where: str
    boundary: Any = None
    state: Any = None
    exact: Any = None
    dense_form: Any = None
    residual: Any = None
    single: bool = False
    update: tuple[str, Coefficient, Matrix] | None = None

    @property
    def described(self) -> str:
        """What a failure prints."""
        precision = "float32" if self.single else "float64"
        lines = [f"seed {self.seed}: {self.kind} on {self.where}, {precision}", self.text]
        lines += [f"  {name}: {c.text}" for name, c in self.coefficients.items()]
        if self.update is not None:
            lines.append(f"  update {self.update[0]}: {self.update[1].text}")
        if self.state is not None:
            lines.append(f"  states: {[state.ravel().tolist() for state in self.state]}")
        return "\n".join(lines)

    def function(self, namespace: dict[str, Any]) -> Any:
        """The form's function with these names; its text can be looked up in messages."""
        file = f"<random form {self.seed}>"
        linecache.cache[file] = (len(self.text), None, self.text.splitlines(keepends=True), file)
        found = dict(namespace)
        exec(compile(self.text, file, "exec"), found)
        return found["form"]

    @cached_property
    def matrix(self) -> Matrix:
        """The whole dense matrix."""
        return whole(self.exact, self.sides)

    @property
    def given(self) -> dict[str, Any]:
        return {name: c.given for name, c in self.coefficients.items()}

    def dense(self) -> DenseForm:
        several = self.kind in ("product", "coupled")
        tests = self.sides if several else {"v": self.test_side or self.sides["u"]}
        values = {name: c.value for name, c in self.coefficients.items()}
        wants = {*PLACES} & set(self.names)
        return DenseForm(self.function(NAMESPACE), self.points, self.sides, tests, values, wants)

    def on(self, device: Any) -> Example:
        """The example with its spaces on a device."""

        def there(space: Any) -> Any:
            kind = type(space)
            return kind(space.mesh, space.order, ncomp=space.ncomp, device=device)

        spaces = {name: there(space) for name, space in self.spaces.items()}
        return replace(self, spaces=spaces, test=self.test and there(self.test))

    def operator(self, level: str) -> Any:
        """The operator of femops, or the form of which it is a Jacobian."""
        function = self.function({"np": np, "femops": femops})
        more = dict(quadrature=self.points.q1d, **self.given)
        if self.single:
            more["dtype"] = "float32"
        if self.boundary is not None:
            more["boundary"] = self.boundary
        if self.kind == "nonlinear":
            return femops.residual(function, self.spaces["u"], **more)
        if self.kind == "coupled":
            return femops.residual(function, femops.Product(**self.spaces), **more)
        if self.kind == "product":
            return femops.form(function, femops.Product(**self.spaces), level=level, **more)
        return femops.form(function, self.spaces["u"], self.test, level=level, **more)


def _space(m: Maker, mesh: Any, ncomp: int) -> tuple[Any, Side]:
    order = int(m.rng.integers(1, min(m.points.q1d, 4)))
    if m.chance(0.75):
        return (space := femops.H1(mesh, order, ncomp=ncomp)), side_of(space, "gll", order)
    return (space := femops.L2(mesh, order, ncomp=ncomp)), side_of(space, "gauss", order)


def _components(m: Maker) -> int:
    return int(m.pick(1, 1, m.points.dim, m.points.dim, 2, 3 if m.points.dim < 3 else 2))


def example(seed: int) -> Example:
    """The example of a number; each fourth is one in float32."""
    rng = np.random.default_rng([20, seed])
    single = seed % 4 == 3
    with single_precision() if single else nullcontext():
        while True:
            try:
                return _attempt(seed, rng, single)
            except Unsure:
                continue


KIND_NAMES = ("one", "one", "pair", "product", "boundary", "nonlinear", "coupled")


def _attempt(seed: int, rng: np.random.Generator, single: bool) -> Example:
    kind = str(rng.choice(KIND_NAMES))
    dim = int(rng.choice([1, 2, 2, 2, 3]))
    mesh_kind = str(rng.choice(KINDS))
    mesh = mesh_of(dim, mesh_kind)
    boundary, faces = None, None
    if kind == "boundary" or (kind in ("product", "nonlinear", "coupled") and rng.random() < 0.3):
        boundary = "all"
        if mesh_kind == "box" and rng.random() < 0.5:  # attributes of a box: 1 is the low end of x
            boundary = int(rng.integers(1, 2 * dim + 1))
            faces = [f for f in faces_of(mesh) if (2 * f[1] + f[2] + 1) == boundary]
    points = Points(
        mesh,
        int(rng.integers(2, 5 if dim < 3 and rng.random() < 0.2 else 4)),
        boundary is not None,
        faces,
    )
    m = Maker(rng, points, wild=kind not in ("nonlinear", "coupled") and not single)
    if kind in ("nonlinear", "coupled"):
        return replace(_nonlinear(seed, kind, m, mesh, mesh_kind, boundary), single=single)
    names = {"product": ["u", "p", "q"][: 2 + int(rng.random() < 0.2)]}.get(kind, ["u"])
    spaces, sides = {}, {}
    for name in names:
        spaces[name], sides[name] = _space(m, mesh, _components(m))
    test = test_side = None
    if kind == "pair" or (kind == "boundary" and m.chance(0.3)):
        test, test_side = _space(m, mesh, _components(m))
    fields = Fields(m, {name: side.ncomp for name, side in sides.items()})

    def part(n: int) -> str:
        parts = []
        if m.chance(0.6):
            parts.append(f'"value": {fields.value(n)}')
        if not parts or m.chance(0.5):
            parts.append(f'"grad": {fields.grad(n)}')
        return "{" + ", ".join(parts) + "}"

    if kind == "product":
        body = "{" + ", ".join(f'"{k}": {part(s.ncomp)}' for k, s in sides.items()) + "}"
    else:
        body = part((test_side or sides["u"]).ncomp)
    where = f"{dim}-D {mesh_kind}"
    made = _example(seed, kind, body, m, spaces, sides, test, test_side, where, boundary)
    return replace(made, single=single)


def _nonlinear(seed: int, kind: str, m: Maker, mesh: Any, mesh_kind: str, boundary: Any) -> Example:
    names = ["u"] if kind == "nonlinear" else ["u", "p"]
    spaces, sides = {}, {}
    for name in names:
        spaces[name], sides[name] = _space(m, mesh, _components(m))
    states = [np.round(m.rng.uniform(-1, 1, spaces[name].shape) + 0.3, 2) for name in names]
    form = DenseForm(None, m.points, sides, sides, {})  # type: ignore[arg-type]
    fields = {
        name: PointField(*form.state(sides[name], state))
        for name, state in zip(names, states, strict=True)
    }
    plain = Fields(m, {name: side.ncomp for name, side in sides.items()})
    m.atoms = [Expr(text, _scalar(eval(text, dict(fields)))) for text in plain.atoms()]
    parts = {name: _nonlinear_part(m, name, side.ncomp) for name, side in sides.items()}
    body = parts["u"]
    if kind == "coupled":
        body = "{" + ", ".join(f'"{name}": {part}' for name, part in parts.items()) + "}"
    where = f"{m.points.dim}-D {mesh_kind}"
    made = _example(seed, kind, body, m, spaces, sides, None, None, where, boundary)
    made.state = states
    made.exact = made.dense_form.jacobian(*states)
    made.residual = made.dense_form.residual(*states)
    return made


def _nonlinear_part(m: Maker, name: str, ncomp: int) -> str:
    """Text of what multiplies a test function: it depends on all fields."""
    parts, dim = [], m.points.dim
    if m.chance(0.7):
        entries = [m.scalar(3).text for _ in range(ncomp)]
        parts.append(
            f'"value": {entries[0] if ncomp == 1 else "np.array([" + ", ".join(entries) + "])"}'
        )
    if not parts or m.chance(0.5):
        if m.chance(0.5):
            parts.append(f'"grad": {m.scalar(2).text} * {name}.grad')
        else:
            entries = [[m.scalar(2).text for _ in range(dim)] for _ in range(ncomp)]
            one = "np.array([" + ", ".join(entries[0]) + "])"
            parts.append(f'"grad": {one if ncomp == 1 else array_text(entries)}')
    return "{" + ", ".join(parts) + "}"


def _scalar(value: Any) -> Num:
    found = getattr(value, "value", value)
    assert isinstance(found, Num)
    return found


def _example(
    seed: int,
    kind: str,
    body: str,
    m: Maker,
    spaces: Any,
    sides: Any,
    test: Any,
    test_side: Any,
    where: str,
    boundary: Any,
) -> Example:
    used = {n: c for n, c in m.coefficients.items() if re.search(rf"\b{n}\b", body)}
    names = sorted([*m.uses, *used])
    m.rng.shuffle(names)
    names = list(sides) + names
    text = f"def form({', '.join(names)}):\n    return {body}\n"
    where += f", {m.points.q1d} points, " + ", ".join(
        f"{k}: {type(s).__name__}({s.order}, ncomp={s.ncomp})"
        for k, s in [*spaces.items(), *([("v", test)] if test is not None else [])]
    )
    if boundary is not None:
        where += f", boundary={boundary!r}"
    made = Example(
        seed, kind, text, names, m.points, spaces, sides, test, test_side, used, where, boundary
    )
    made.dense_form = made.dense()
    if kind not in ("nonlinear", "coupled"):
        made.exact = made.dense_form.matrix()
        made.update = _other_values(made, m)
    return made


def _other_values(made: Example, m: Maker) -> tuple[str, Coefficient, Matrix] | None:
    """New values of one coefficient, and the matrix with them."""
    if not made.coefficients:
        return None
    name = m.pick(*made.coefficients)
    old = made.coefficients[name]
    flat = [float(np.mean(e.v)) for e in np.array(old.value, dtype=object).flat]
    shape = np.shape(old.value)
    values = np.array(flat).reshape(shape) * m.rng.uniform(0.7, 1.4, shape)
    if _is_symmetric(old.value):  # what is not makes another operator
        values = (values + values.T) / 2
    try:
        new = getattr(m, f"_{m.pick('constant', 'points')}")(
            shape, values if shape else float(values)
        )
        form = replace(
            made.dense_form, coefficients=made.dense_form.coefficients | {name: new.value}
        )
        found = whole(form.matrix(), made.sides)
        # one that a product has in no block is not known to it
        return None if np.array_equal(found.v, made.matrix.v) else (name, new, found)
    except Unsure:
        return None


def _is_symmetric(value: Any) -> bool:
    """Whether a coefficient is a matrix that is symmetric to the last bit."""
    shape = np.shape(value)
    return (
        len(shape) == 2
        and shape[0] == shape[1]
        and all(
            np.array_equal(value[i, j].v.astype(float), value[j, i].v.astype(float))
            for i, j in np.ndindex(shape)
        )
    )


def whole(blocks: dict[tuple[str, str], Matrix], sides: Mapping[str, Side]) -> Matrix:
    """One matrix of the blocks of test functions and fields."""
    if len(blocks) == 1:
        return next(iter(blocks.values()))
    rows = [[blocks[test, name] for name in sides] for test in sides]
    return Matrix(*(np.block([[getattr(m, k) for m in row] for row in rows]) for k in "ve"))
