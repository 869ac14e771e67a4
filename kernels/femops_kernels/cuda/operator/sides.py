"""Fields and test functions of a kernel, and their types in C++."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import final

import numpy as np
from numpy.typing import NDArray

from femops_kernels.simd.matrix import Matrix1D
from femops_kernels.simd.runs import DofRuns, equal_runs
from femops_kernels.spec import Side


def table(name: str, values: NDArray[np.float64]) -> str:
    """C++ table of numbers in constant memory, from an array of any shape."""
    numbers = ", ".join(f"T({float(v)!r})" for v in np.asarray(values).ravel())
    return f"__constant__ T {name}[] = {{{numbers}}};\n"


def columns(name: str, values: NDArray[np.float64]) -> str:
    """C++ text of a matrix (rows, columns), and of two masks with a bit for each column.

    A bit of NAME_ZEROS is set if all entries of the column are 0, of NAME_ONES if they are 1.
    """
    lines = [table(name, values)]
    for what, number in (("ZEROS", 0), ("ONES", 1)):
        bits = sum(1 << int(m) for m in np.flatnonzero((values == number).all(axis=0)))
        lines.append(f"constexpr unsigned {name}_{what} = {bits};\n")
    return "".join(lines)


def squares(name: str, value: NDArray[np.float64], slope: NDArray[np.float64]) -> str:
    """C++ table of value**2, value * slope and slope**2. Both arrays have the same shape."""
    return table(name, np.array([value**2, value * slope, slope**2]))


def matrix_type(name: str, matrix: Matrix1D) -> str:
    """C++ type of a matrix, as ``contraction.cuh`` takes it, with its tables."""
    rows, cols = matrix.shape
    split = bool(matrix.symmetry)
    even, odd = matrix.split() if split else (np.array(matrix.rows), np.zeros((1, 1)))
    entries = {"even": even, "odd": odd} if split else {"entry": even}
    tables, functions = "", ""
    for part, values in entries.items():
        if values.size:
            tables += table(f"{name}_{part}", values)
            functions += _entry(part, f"{name}_{part}[r * {values.shape[1]} + c]")
    for part in [p for p in ("even", "odd", "entry") if p not in entries or not entries[p].size]:
        functions += _entry(part, "T(0)")
    return (
        f"{tables}struct {name} {{\n"
        f"    static constexpr int rows = {rows}, cols = {cols}, sign = {matrix.symmetry};\n"
        f"    static constexpr bool identity = {str(matrix.is_identity).lower()};\n"
        f"{functions}}};\n"
    )


def _entry(part: str, value: str) -> str:
    head = f"    static __device__ __forceinline__ T {part}(int r, int c)"
    return f"{head} {{ (void)r; (void)c; return {value}; }}\n"


INPUT = {
    "x": "const T*",
    "starts_in": "const int*",
    "turned_in": "const int*",
    "flags_in": "const unsigned char*",
    "marks_in": "const unsigned char*",
    "ghosts_in": "const T*",
    "owned_in": "long long",
}
"""Arguments of each field. The names for the second field end in _1, and so on."""
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


def alone(side: Side) -> bool:
    """True if no two elements share dofs."""
    return side.broken and not side.on_faces


def runs_of(side: Side, dim: int, *, tabulated: bool = False) -> DofRuns:
    """Runs of an element's nodes. Their `inside` lists the nodes that no other element has.

    A kernel by tables (``tabulated``) takes the nodes of a square or cube one by one.
    """
    sizes, listed = side.sizes, len(side.shape) < dim
    if tabulated and not (sizes or listed):
        sizes = (*(1,) * side.num_nodes, 0)
    if sizes or listed:
        return DofRuns((side.num_nodes,), (not side.broken,), side.on_faces, sizes=sizes)
    return equal_runs(dim, side.p1d, side.broken, single=side.on_faces)


def words_of(side: Side) -> str:
    """Properties on which the launch shape depends, in words for the tuning database."""
    return f"{side.ncomp} x {side.p1d} nodes{' broken' * side.broken}"


def suffix(number: int) -> str:
    """End of the names of side ``number``: of its arguments and of its type."""
    return f"_{number}" if number else ""


def arguments_of(sources: Sequence[Side], targets: Sequence[Side]) -> dict[str, str]:
    """Names and types of the arguments of all sides."""
    return {
        f"{name}{suffix(k)}": kind
        for sides, arguments in ((sources, INPUT), (targets, OUTPUT))
        for k in range(len(sides))
        for name, kind in arguments.items()
    }


class SideTexts(ABC):
    """First C++ lines of the types of sides, and the text that stands before the types."""

    texts: list[str]

    @abstractmethod
    def lines(self, name: str, side: Side, first: int) -> list[str]:
        """First lines of a side's type. ``first`` is the number of its first component."""


def sides_text(
    sources: Sequence[Side],
    targets: Sequence[Side],
    blocks: Sequence[int],
    *,
    many: bool = False,
    by: SideTexts | None = None,
) -> str:
    """C++ text of the types of all sides and their matrices: ``Source``, ``Source_1``, ``Target``.

    Each type has a function that moves the vector's beginning. The type of a test function also has
    the vector of the field of its block, which constrained rows multiply by ``keep``. If there are
    ``many`` vectors, the numbers of each ghost stand next to each other as well.
    """
    made, structs = _Matrices({}, []) if by is None else by, list[str]()
    for kind, sides, arguments, kept in (
        ("Source", sources, INPUT, range(len(sources))),
        ("Target", targets, OUTPUT, blocks),
    ):
        firsts = accumulate((side.ncomp for side in sides), initial=0)
        for k, (side, first) in enumerate(zip(sides, firsts, strict=False)):
            text = made.lines(f"{kind}{suffix(k)}", side, first)
            vector = f"const T* kept(const Arguments& a) {{ return a.x{suffix(kept[k])}; }}"
            rows = many and side.halves is not None
            functions = [*_functions(arguments, k, rows=rows), f"{_FUNCTION} {vector}"]
            structs.append("\n".join([*text, *functions, "};"]))
        names = ", ".join(f"{kind}{suffix(k)}" for k in range(len(sides)))
        structs.append(f"using {kind}s = Sides<{names}>;")
    head = "template <class... S>\nstruct Sides {};"
    if many and any(side.halves is not None for side in (*sources, *targets)):
        head = f"{head}\n{_ROWS}"
    return "\n".join([head, *made.texts, *structs, ""])


_FUNCTION = "    static __device__ __forceinline__"


@final
@dataclass(frozen=True)
class _Matrices(SideTexts):
    """C++ types of matrices: a dict of their names, by the rows of the matrix, and their text."""

    names: dict[object, str]
    texts: list[str]

    def name(self, values: NDArray[np.float64]) -> str:
        """Name of the type of a matrix. Equal matrices have one type."""
        matrix = Matrix1D(values)
        if matrix.rows not in self.names:
            self.names[matrix.rows] = f"B{len(self.names)}"
            self.texts.append(matrix_type(self.names[matrix.rows], matrix))
        return self.names[matrix.rows]

    def lines(self, name: str, side: Side, first: int) -> list[str]:
        sizes = f"P = {side.p1d}, NCOMP = {side.ncomp}, FIRST = {first}"
        lines = [
            f"struct {name} {{",
            f"    static constexpr int {sizes};",
            f"    static constexpr bool BROKEN = {_word(side.broken)}, {switches(side)};",
            f"    using B = {self.name(side.bases[0])};",
        ]
        end = side.near_end
        return lines if end is None else [*lines, f"    using End = {self.name(end)};"]


def switches(side: Side) -> str:
    """C++ switches of a side: whether it has ghosts, and whether its elements are faces."""
    ghosts = side.ghosts or side.halves is not None  # hanging nodes are ghosts
    return f"GHOSTS = {_word(ghosts)}, ON_FACES = {_word(side.on_faces)}"


_ROWS = """// Numbers of ghosts, each with a row of numbers of many vectors.
template <class N>
struct Rows {
    N* first;
    int row;
    __device__ __forceinline__ N* operator+(long long at) const { return first + at * row; }
};"""


def _functions(arguments: dict[str, str], number: int, *, rows: bool) -> list[str]:
    """C++ functions of a side's type that return its arguments, and one that moves its vector.

    With ``rows`` its ghosts are `_ROWS`, and move with the vector.
    """
    lines = []
    for name, type_ in arguments.items():
        function = "vector" if name in ("x", "y") else name.removesuffix("_in").removesuffix("_out")
        argument = f"a.{name}{suffix(number)}"
        if rows and function == "ghosts":
            kind = f"Rows<{type_.removesuffix('*')}>"
            made = f"return {kind}{{{argument}, a.row}};"
            lines.append(f"{_FUNCTION} {kind} ghosts(const Arguments& a) {{ {made} }}")
            continue
        lines.append(f"{_FUNCTION} {type_} {function}(const Arguments& a) {{ return {argument}; }}")
        if function == "vector":
            moved = f"{argument} += by;"
            if rows:
                moved += f" a.ghosts_{'in' if name == 'x' else 'out'}{suffix(number)} += by;"
            lines.append(f"{_FUNCTION} void move(Arguments& a, long long by) {{ {moved} }}")
    return lines


def _word(switch: bool) -> str:
    return str(switch).lower()
