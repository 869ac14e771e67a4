"""Texts that are linear in fields."""

from __future__ import annotations

from dataclasses import dataclass

from support.cases.random_forms.maker import Maker
from support.cases.random_forms.tensors import Tensors


@dataclass
class Fields:
    """Texts that are linear in fields: name -> components."""

    maker: Maker
    fields: dict[str, int]

    def atoms(self) -> list[str]:
        """All scalars that fields offer."""
        dim, out = self.maker.points.dim, []
        for name, ncomp in self.fields.items():
            out += [name, f"{name}.value"] if ncomp == 1 else [f"{name}[{c}]" for c in range(ncomp)]
            if ncomp == 1:
                out += [f"{name}.grad[{d}]" for d in range(dim)]
            else:
                out += [f"{name}.grad[{c}, {d}]" for c in range(ncomp) for d in range(dim)]
            if ncomp == dim:
                out += [f"{name}.div", f"{name}.sym_grad[0, {dim - 1}]"]
        return out

    def scalar(self, depth: int) -> str:
        """A scalar that is linear in the fields."""
        m = self.maker
        atoms = self.atoms()
        if depth <= 0 or m.chance(0.1):
            return m.pick(*atoms)
        inner = self.scalar(depth - 1)
        kind = m.rng.random()
        if kind < 0.3:
            return m.pick(f"({m.scalar(2).text} * {inner})", f"({inner} * {m.scalar(2).text})")
        if kind < 0.38:
            return f"({inner} / {m.nonzero(1).text})"
        if kind < 0.6:
            return f"({inner} {m.pick('+', '-')} {self.scalar(depth - 1)})"
        if kind < 0.64:
            return f"(-{inner})"
        if kind < 0.84:
            if m.chance(0.5):  # so that derivatives choose between numbers
                inner = m.pick(*atoms)
                inner, other = self.by_literal(inner), m.pick(inner, self.by_literal(inner))
            else:
                other = self.scalar(depth - 1) if m.chance(0.7) else "0.0"
            sides = m.pick([inner, other], [other, inner])
            return f"femops.where({m.condition(1).text}, {', '.join(sides)})"
        if kind < 0.92:
            c, least = m.condition(1).text, m.pick("femops.minimum", "np.maximum")
            a, b = m.literal().text, m.literal().text
            return m.pick(
                f"({c} * {inner})",
                f"({inner} * {c})",
                f"(femops.where({c}, {a}, {b}) * {inner})",
                f"({inner} * {least}({m.scalar(1).text}, {a}))",
            )
        a = m.scalar(2)
        return f"(({a.text} - {m.rewritten(a).text}) * {inner} + {m.pick(*atoms)})"

    def by_literal(self, scalar: str) -> str:
        """Its derivative is a number, perhaps one that is yet to be computed."""
        literal = self.maker.literal().text
        return str(self.maker.pick(f"({scalar} / {literal})", f"({literal} * {scalar})"))

    def value(self, n: int) -> str:
        """What multiplies a test function of n components."""
        m, t = self.maker, Tensors(self.maker)
        if n == 1:
            return self.scalar(3)
        same = [name for name, ncomp in self.fields.items() if ncomp == n]
        kind = m.rng.random()
        if same and kind < 0.6:
            name = m.pick(*same)
            inner = m.pick(name, f"{name}.value")
            if m.chance(0.2):
                return f"({m.scalar(2).text} * {inner})"
            return f"({t.matrix(n)} @ {inner})"
        if same and kind < 0.7:
            name = m.pick(*same)
            if m.chance(0.3):
                return f"({m.scalar(1).text} * {name}.grad[:, {int(m.rng.integers(m.points.dim))}])"
            return f"({name}.grad @ {t.vector(m.points.dim)})"
        if self.fields and kind < 0.8:
            scalars = [name for name, ncomp in self.fields.items() if ncomp == 1]
            name = m.pick(*(scalars or self.fields))
            if scalars:
                return f"({name} * {t.vector(n)})"
            dot = t.vector(self.fields[name])
            return f"({m.pick(f'({name} @ {dot})', f'np.dot({dot}, {name})')} * {t.vector(n)})"
        return f"np.array([{', '.join(self.scalar(2) for _ in range(n))}])"

    def grad(self, n: int) -> str:
        """What multiplies the gradient of a test function of n components."""
        m, dim = self.maker, self.maker.points.dim
        same = [name for name, ncomp in self.fields.items() if ncomp == n]
        kind = m.rng.random()
        if same and kind < 0.7:
            name = m.pick(*same)
            return self._tensors(name, n)
        if n == 1:
            return f"np.array([{', '.join(self.scalar(2) for _ in range(dim))}])"
        rows = ", ".join(f"[{', '.join(self.scalar(1) for _ in range(dim))}]" for _ in range(n))
        return f"np.array([{rows}])"

    def _tensors(self, name: str, n: int) -> str:
        m, dim = self.maker, self.maker.points.dim
        t = Tensors(m)
        grad = f"{name}.grad"
        choices = [lambda: f"({m.scalar(2).text} * {grad})", lambda: f"({grad} @ {t.matrix(dim)})"]
        if n == 1:
            choices += [lambda: f"({t.matrix(dim)} @ {grad})"] * 3
            choices += [lambda: f"({name} * {t.vector(dim)})"]
            choices += [lambda: f"(({t.vector(dim)} @ {grad}) * {t.vector(dim)})"]
        else:
            choices += [lambda: f"({t.matrix(n)} @ {grad})"] * 2
            choices += [lambda: f"np.outer({name}, {t.vector(dim)})"]
            choices += [lambda: f"np.outer({t.vector(n)}, {grad}[{int(m.rng.integers(n))}])"]
        if n == dim and n > 1:
            choices += [
                lambda: (
                    f"({m.scalar(1).text} * {name}.div * np.eye({dim})"
                    f" + {m.scalar(1).text} * {name}.sym_grad)"
                ),
                lambda: f"({m.scalar(1).text} * {grad}.T + {m.scalar(1).text} * {grad})",
                lambda: f"femops.sym({t.matrix(dim)} @ {grad})",
                lambda: f"({name}.div * {t.matrix(dim)})",
                lambda: f"(femops.inner({t.matrix(dim)}, {grad}) * {t.matrix(dim)})",
            ]
        return str(m.pick(*choices)())
