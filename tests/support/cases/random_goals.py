"""Random goals and residuals with controls of all kinds, for tests of gradients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import femops
from femops.adjoint import moved
from support.cases.random_forms.spaces import mesh_of

CURVED = "curved"


@dataclass
class Case:
    """A goal and a residual: texts, spaces and values of controls, all from one number.

    Attributes
    ----------
    seed : int
    dim : int
    fields : dict of (family, order, ncomp)
    texts : dict of str
        Functions of the goal and of the residual, inside and on the boundary.
    point, direction : dict of arrays
        Value of each control, and a change of it.
    """

    seed: int

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng([31, self.seed])
        self.dim = int(self.rng.choice([1, 2, 2, 2, 3]))
        kind = str(self.rng.choice(["box", "sheared", CURVED, CURVED]))
        mesh = mesh_of(self.dim, kind)
        self.mesh = mesh.with_attributes(1 + np.arange(mesh.num_elements))
        self.nodes = femops.H1(self.mesh, self.mesh.order, ncomp=self.dim)
        names = ["u", "p", "q"][: int(self.rng.choice([1, 1, 2, 2, 3]))]
        self.fields = {name: self._field() for name in names}
        self.at_points = self.seed % 3 == 0
        self.boundary = bool(self.rng.random() < 0.6)
        self._values()
        self.texts = {
            "goal": self._function(self._scalar, boundary=False),
            "goal on the boundary": self._function(self._scalar, boundary=True),
            "residual": self._function(self._factors, boundary=False),
            "residual on the boundary": self._function(self._factors, boundary=True),
        }

    @property
    def described(self) -> str:
        """What a failure prints."""
        return "\n".join(
            [f"seed {self.seed}, {self.dim}-D", str(self.fields), *self.texts.values()]
        )

    def _field(self) -> tuple[str, int, int]:
        family = str(self.rng.choice(["H1", "H1", "L2"]))
        order = int(self.rng.integers(1, 3)) if family == "H1" else int(self.rng.integers(0, 2))
        return family, order, int(self.rng.choice([1, self.dim]))

    def _values(self) -> None:
        """Values of the controls, and their directions."""
        scalars, vectors = femops.H1(self.mesh, 1), femops.L2(self.mesh, 1, ncomp=self.dim)
        shapes: dict[str, tuple[int, ...]] = {
            "k": scalars.shape,
            "w": vectors.shape,
            "m": (self.mesh.num_elements,),
            "a": (),
            "b": (self.dim,),
            "D": (self.dim, self.dim),
        }
        if self.at_points:
            shapes["z"] = (self.mesh.num_elements, 3**self.dim)
        self.point = {n: 0.5 * self.rng.standard_normal(shape) for n, shape in shapes.items()}
        self.direction = {n: self.rng.standard_normal(shape) for n, shape in shapes.items()}
        if not self.at_points:
            self.point["mesh"] = self.nodes.zeros()
            self.direction["mesh"] = 0.05 * self.rng.standard_normal(self.nodes.size)

    # --- texts -----------------------------------------------------------------------------------

    def _atom(self) -> str:
        i, j = self.rng.integers(self.dim, size=2)
        given = ["k", f"w{f'[{i}]' if self.dim > 1 else ''}", "m", "a", f"b[{i}]", f"D[{i}, {j}]"]
        given += ["z"] * (2 * self._inside and self.at_points) + [f"x[{i}]"]
        given += [] if self._inside else [f"n[{i}]", "h"]
        states = []
        for name, (_, _, ncomp) in self.fields.items():
            c = int(self.rng.integers(ncomp))
            states += (
                [name, f"{name}.grad[{i}]"]
                if ncomp == 1
                else [
                    f"{name}[{c}]",
                    f"{name}.grad[{c}, {i}]",
                ]
            )
        return str(self.rng.choice(states if self.rng.random() < 0.5 else given))

    def _scalar(self, depth: int = 2) -> str:
        if depth == 0 or self.rng.random() < 0.1:
            return self._atom()
        e, f = self._scalar(depth - 1), self._scalar(depth - 1)
        return str(
            self.rng.choice(
                [
                    f"({e} + {f})",
                    f"({e} - 0.5 * {f})",
                    f"({e} * {f})",
                    f"({e} * {f})",
                    f"({e} / (2.0 + ({f})**2))",
                    f"np.sin({e})",
                    f"np.cos({e} + {f})",
                    f"np.tanh({e})",
                    f"np.sqrt(1.0 + ({e})**2)",
                    f"np.exp(0.3 * np.sin({e}))",
                    f"np.arctan2({e}, 2.0 + ({f})**2)",
                    f"np.log(1.5 + ({e})**2)",
                    f"(2.0 + np.sin({e})) ** np.cos({f})",
                    f"femops.where(x[0] > 0.3, {e}, {f})" if self._inside else f"({e} * n[0])",
                    f"femops.inner(D @ b, {self._vector()})",
                    f"femops.det(np.eye({self.dim}) + 0.1 * D * {e})",
                ]
            )
        )

    def _vector(self) -> str:
        one = [name for name, (_, _, ncomp) in self.fields.items() if ncomp == 1]
        many = [name for name, (_, _, ncomp) in self.fields.items() if ncomp > 1]
        kinds = [f"{name}.grad" for name in one] + [f"{name}.grad @ b" for name in many] + ["b"]
        kinds += [f"np.array({many[0]})"] if many else []
        return str(self.rng.choice(kinds + (["w"] if self.dim > 1 else [])))

    def _factors(self) -> str:
        parts = {name: self._part(name) for name in self.fields}
        if len(parts) == 1:
            return parts["u"]
        return "{" + ", ".join(f'"{name}": {part}' for name, part in parts.items()) + "}"

    def _part(self, name: str) -> str:
        ncomp = self.fields[name][2]
        found = []
        if self.rng.random() < 0.8:
            entries = ", ".join(self._scalar(1) for _ in range(ncomp))
            found.append(f'"value": np.array([{entries}])' if ncomp > 1 else f'"value": {entries}')
        if not found or self.rng.random() < 0.6:
            flux = f"(1.0 + a) * {name}.grad @ femops.inv(2.0 * np.eye({self.dim}) + 0.1 * D)"
            found.append(f'"grad": {self._scalar(1)} * {name}.grad + {flux}')
        return "{" + ", ".join(found) + "}"

    def _function(self, body: Any, *, boundary: bool) -> str:
        self._inside = not boundary
        text = body()
        names = [n for n in self.point if n != "mesh" and not (boundary and n == "z")]
        places = ["x", "n", "h"] if boundary else ["x"]
        return f"def f({', '.join([*self.fields, *places, *names])}):\n    return {text}\n"

    # --- femops ----------------------------------------------------------------------------------

    def _compiled(self, name: str) -> Any:
        namespace: dict[str, Any] = {"np": np, "femops": femops}
        exec(self.texts[name], namespace)
        return namespace["f"]

    def made(self, point: dict[str, Any], dtype: str = "float64") -> tuple[Any, Any]:
        """Goal and residual at values of the controls."""
        mesh = moved(self.nodes, point["mesh"]) if "mesh" in point else self.mesh
        spaces = {
            name: getattr(femops, family)(mesh, order, ncomp=ncomp)
            for name, (family, order, ncomp) in self.fields.items()
        }
        space = spaces["u"] if len(spaces) == 1 else femops.Product(**spaces)
        values = {n: value for n, value in point.items() if n != "mesh"}
        values["k"] = femops.GridFunction(femops.H1(mesh, 1), point["k"])
        values["w"] = femops.GridFunction(femops.L2(mesh, 1, ncomp=self.dim), point["w"])
        by_number = dict(enumerate(point["m"].tolist(), 1))
        values["m"] = femops.by_attribute(mesh, by_number)
        values["a"] = float(point["a"])
        outside = {n: value for n, value in values.items() if n != "z"}
        options: dict[str, Any] = {"quadrature": 3, "dtype": dtype}
        goal = femops.functional(self._compiled("goal"), space, **values, **options)
        residual = femops.residual(self._compiled("residual"), space, **values, **options)
        if self.boundary and not self.at_points:
            options["boundary"] = "all"
            made = self._compiled("goal on the boundary"), space
            goal = 0.7 * goal + 1.3 * femops.functional(*made, **outside, **options)
            made = self._compiled("residual on the boundary"), space
            residual = residual - 0.5 * femops.residual(*made, **outside, **options)
        return goal, residual
