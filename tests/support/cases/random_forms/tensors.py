"""Random vectors and matrices, of scalar expressions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from support.cases.random_forms.expressions import Expr, literal
from support.cases.random_forms.maker import Maker


def array_text(entries: Any) -> str:
    """Text of an array whose entries are texts."""
    return f"np.array([{', '.join('[' + ', '.join(row) + ']' for row in entries)}])"


@dataclass
class Tensors:
    """Texts of vectors and matrices; what they are at the points is not followed."""

    maker: Maker

    def matrix(self, n: int, m: int | None = None) -> str:
        """Text of an (n, m) array, square if m is None."""
        if m is not None and m != n:
            return f"np.array([{', '.join(self.vector_text(m, 1) for _ in range(n))}])"
        kinds = ["coefficient", "entries", "symmetric", "skew", "alike", "opposite", "near", "near"]
        kind = self.maker.pick(
            *kinds, "scaled", "transposed", "inverse", "sum", "outer", "constant"
        )
        made = str(getattr(self, f"_m_{kind}")(n))
        if self.maker.chance(0.1):
            made = self.maker.pick(
                f"({made} @ np.eye({n}))", f"np.stack([*{made}])", f"({made}.T).T"
            )
        return made

    def vector(self, n: int) -> str:
        """Text of an (n,) array."""
        m = self.maker
        kind = m.rng.random()
        if kind < 0.4:
            return f"np.array({self.vector_text(n, 1)})"
        if kind < 0.65:
            return m.coefficient((n,))
        matrix = self.matrix(n)
        return str(
            m.pick(
                f"{matrix}[{int(m.rng.integers(n))}]",
                f"{matrix}[:, {int(m.rng.integers(n))}]",
                f"({matrix} @ {m.coefficient((n,))})",
                f"({m.scalar(1).text} * {m.coefficient((n,))})",
                f"(np.trace({matrix}) * {m.coefficient((n,))})",
            )
        )

    def vector_text(self, n: int, depth: int) -> str:
        return f"[{', '.join(self.maker.scalar(depth).text for _ in range(n))}]"

    def _m_coefficient(self, n: int) -> str:
        return self.maker.coefficient((n, n))

    def _m_entries(self, n: int) -> str:
        return array_text([[self.maker.scalar(2).text for _ in range(n)] for _ in range(n)])

    def _pairs(self, n: int, off: Callable[[Expr], str], on: Any = None) -> str:
        m = self.maker
        rows = [[""] * n for _ in range(n)]
        shared = m.scalar(1)
        for i in range(n):
            rows[i][i] = (shared if on is None and m.chance(0.5) else on or m.scalar(1)).text
            for j in range(i):
                e = m.compensated() if m.chance(0.3) else m.scalar(2)
                rows[i][j], rows[j][i] = e.text, off(e)
        return array_text(rows)

    def _m_symmetric(self, n: int) -> str:
        return self._pairs(n, lambda e: e.text)

    def _m_skew(self, n: int) -> str:
        zero = literal(0.0) if self.maker.chance(0.3) else None
        return self._pairs(n, lambda e: f"(-{e.text})", zero)

    def _m_alike(self, n: int) -> str:
        return self._pairs(n, lambda e: self.maker.rewritten(e).text)

    def _m_opposite(self, n: int) -> str:
        return self._pairs(n, lambda e: f"(-{self.maker.rewritten(e).text})")

    def _m_near(self, n: int) -> str:
        """A tensor that is nearly symmetric, or nearly diagonal: not quite."""
        m = self.maker
        a = np.array([m.number(False) for _ in range(n * n)]).reshape(n, n)
        tiny = 10.0 ** -int(m.rng.integers(3, 17))
        a = (a + a.T) / 2 if m.chance(0.5) else np.diag(np.diag(a))
        for i in range(n):
            for j in range(i):
                a[i, j], a[j, i] = a[i, j] + tiny, a[j, i] + m.pick(-1, 0, 0.5) * tiny
        return m.coefficient((n, n), a * 10.0 ** int(m.rng.integers(-12, 12)))

    def _m_scaled(self, n: int) -> str:
        return f"({self.maker.scalar(2).text} * {self.matrix(n)})"

    def _m_transposed(self, n: int) -> str:
        inner = self.matrix(n)
        return self.maker.pick(
            f"{inner}.T", f"femops.sym({inner})", f"(0.5 * ({inner} - {inner}.T))"
        )

    def _m_inverse(self, n: int) -> str:
        m = self.maker
        a = np.eye(n) * 2 + m.rng.uniform(-0.5, 0.5, (n, n)).round(2)
        a = (a + a.T) / 2 if m.chance(0.5) else a
        factor = 10.0 ** int(m.rng.integers(-15, 15)) if m.chance(0.3) else 1.0
        name = m.coefficient((n, n), a * factor)
        return m.pick(f"femops.inv({name})", f"(femops.inv({name}) * femops.det({name}))")

    def _m_sum(self, n: int) -> str:
        return f"({self.matrix(n)} {self.maker.pick('+', '-', '@')} {self.matrix(n)})"

    def _m_outer(self, n: int) -> str:
        a, b = self.vector_text(n, 1), self.vector_text(n, 1)
        a, b = f"np.array({a})", f"np.array({a if self.maker.chance(0.5) else b})"
        return f"np.outer({a}, {b})"

    def _m_constant(self, n: int) -> str:
        m = self.maker
        if m.chance(0.5):
            return f"({m.scalar(1).text} * np.eye({n}))"
        if m.chance(0.3):
            return f"np.diag({self.vector_text(n, 2)})"
        rows = [[repr(m.number()) for _ in range(n)] for _ in range(n)]
        return array_text(rows)
