"""Fields and test functions of a kernel, as types of C++ that its functions are made for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.cuda.operator.tables import matrix_type
from femops_kernels.simd.matrix import Matrix1D

INPUT = {
    "x": "const T*",
    "starts_in": "const int*",
    "turned_in": "const int*",
    "flags_in": "const unsigned char*",
    "marks_in": "const unsigned char*",
    "ghosts_in": "const T*",
    "owned_in": "long long",
}
"""Arguments of each field; those of the second end in _1, and so on."""
OUTPUT = {
    "y": "T*",
    "starts_out": "const int*",
    "turned_out": "const int*",
    "flags_out": "const unsigned char*",
    "marks_out": "const unsigned char*",
    "parts": "T*",
    "ghosts_out": "T*",
    "owned_out": "long long",
    "touched": "const int*",
}
"""Arguments of each test function."""


@final
@dataclass(frozen=True, eq=False)
class Side:
    """Input or output of a kernel.

    Attributes
    ----------
    ncomp : int
    b1d : (q1d, p1d) float64
        Interpolation to the quadrature points.
    broken : bool
        Whether functions are not continuous: all dofs of an element are one run.
    ghosts : bool
        Whether some dofs may be other ranks'.
    """

    ncomp: int
    b1d: NDArray[np.float64]
    broken: bool
    ghosts: bool = False

    @property
    def end(self) -> None:
        """There are no kernels of faces with derivatives."""

    @property
    def p1d(self) -> int:
        """Nodes per direction."""
        return int(self.b1d.shape[1])

    def words(self) -> str:
        """The properties that a launch shape depends on."""
        return f"{self.ncomp} x {self.p1d} nodes{' broken' * self.broken}"


def suffix(number: int) -> str:
    """End of the names of a side's arguments, and of its type."""
    return f"_{number}" if number else ""


def arguments_of(sources: Sequence[Side], targets: Sequence[Side]) -> dict[str, str]:
    """Names and types of the arguments of all sides."""
    return {
        f"{name}{suffix(k)}": kind
        for sides, arguments in ((sources, INPUT), (targets, OUTPUT))
        for k in range(len(sides))
        for name, kind in arguments.items()
    }


def sides_text(sources: Sequence[Side], targets: Sequence[Side], blocks: Sequence[int]) -> str:
    """The types of all sides, and their matrices: ``Source``, ``Source_1``, ``Target``...

    A test function's type has the vector of the field of its block, too: what constrained rows
    keep of it.
    """
    lines, matrices = ["template <class... S>", "struct Sides {};"], dict[object, str]()
    for kind, sides, arguments, kept in (
        ("Source", sources, INPUT, range(len(sources))),
        ("Target", targets, OUTPUT, blocks),
    ):
        firsts = accumulate((side.ncomp for side in sides), initial=0)
        for k, (side, first) in enumerate(zip(sides, firsts, strict=False)):
            matrix = Matrix1D(side.b1d)
            if matrix.rows not in matrices:
                matrices[matrix.rows] = f"B{len(matrices)}"
                lines.append(matrix_type(matrices[matrix.rows], matrix))
            text = _side(kind, k, side, first, matrices[matrix.rows], arguments)
            vector = f"const T* kept(const Arguments& a) {{ return a.x{suffix(kept[k])}; }}"
            lines.append(f"{text}\n    static __device__ __forceinline__ {vector}\n}};")
        names = ", ".join(f"{kind}{suffix(k)}" for k in range(len(sides)))
        lines.append(f"using {kind}s = Sides<{names}>;")
    return "\n".join([*lines, ""])


def _side(
    kind: str, number: int, side: Side, first: int, matrix: str, arguments: dict[str, str]
) -> str:
    sizes = f"P = {side.p1d}, NCOMP = {side.ncomp}, FIRST = {first}"
    switches = f"BROKEN = {_word(side.broken)}, GHOSTS = {_word(side.ghosts)}"
    lines = [
        f"struct {kind}{suffix(number)} {{",
        f"    static constexpr int {sizes};",
        f"    static constexpr bool {switches};",
        f"    using B = {matrix};",
    ]
    for name, type_ in arguments.items():
        function = "vector" if name in ("x", "y") else name.removesuffix("_in").removesuffix("_out")
        head = f"    static __device__ __forceinline__ {type_} {function}(const Arguments& a)"
        lines.append(f"{head} {{ return a.{name}{suffix(number)}; }}")
    return "\n".join(lines)


def _word(switch: bool) -> str:
    return str(switch).lower()
