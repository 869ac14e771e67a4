"""Tracing: call a form's function once with symbols, to get an expression graph."""

from __future__ import annotations

import inspect
import linecache
import re
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, final

import numpy as np

from femops.errors import FemopsError, TraceError
from femops.pointwise.expressions.derivative import derivatives
from femops.pointwise.expressions.graph import Graph, Node, ancestors, substitute, symbol_array
from femops.pointwise.sides import (
    SIDES,
    Argument,
    FieldSymbol,
    Objects,
    TwoSided,
    base_name,
    combined,
    factors_by_side,
    plain_entry,
    sided,
)
from femops_common.hints import did_you_mean

FormFunction = Callable[..., Any]
# Names of the static inputs of the geometry. No coefficient can have these names.
INVERSE, WEIGHT, POSITION, NORMAL = "@inverse", "@weight", "@x", "@n"
OTHER = "@other"  # INVERSE of the plus side, on faces between elements
# Options of forms: a misspelt option looks like a coefficient that the function does not take.
OPTIONS = ("boundary", "faces", "quadrature", "dtype", "data_dtype", "lanes", "level")


@final
@dataclass(frozen=True)
class CoefficientShape:
    """Shape and symmetry of a coefficient."""

    shape: tuple[int, ...]  # shape of the value at a point, ``()`` for a scalar
    # True for a symmetric matrix, whose opposite entries are one symbol. With a third axis, of
    # real and imaginary parts, the matrix is Hermitian.
    symmetric: bool = False
    # True on faces between elements, if the value may differ between the sides. The first axis of
    # ``shape`` has both sides.
    two_sided: bool = False

    @property
    def on_side(self) -> CoefficientShape:
        """Shape and symmetry of the value on one side of a face."""
        return replace(self, shape=self.shape[1:], two_sided=False) if self.two_sided else self


@final
@dataclass(frozen=True)
class Trace:
    """Q-function of a form as an expression graph."""

    graph: Graph
    dim: int
    fields: dict[str, Argument]  # inputs that vary between applications, by name
    # outputs: factors of the test functions and of their reference derivatives, multiplied by the
    # quadrature weight
    tests: dict[str, Argument]
    # inputs that are the same in all applications: INVERSE (dim, dim), d xi_a / d x_i; WEIGHT (),
    # the quadrature weight times det J; POSITION (dim,); and the coefficients by name.  On a
    # boundary also NORMAL (dim,), and WEIGHT has the surface element instead of det J. On faces
    # between elements INVERSE is that of the minus side, OTHER that of the plus side. Fields and
    # tests there are the sides of fields, see `femops.pointwise.sides`.
    static: dict[str, Objects]

    @property
    def has_slopes(self) -> bool:
        """True if the form uses a derivative of a field or of a test function."""
        values, slopes = (
            substitute([node for part in parts for node in part.flat], {})
            for parts in (
                [test.values for test in self.tests.values()],
                [test.derivatives for test in self.tests.values()],
            )
        )
        used = {node.number for node in ancestors(values)}
        into = (node for field in self.fields.values() for node in field.derivatives.flat)
        zero = all(node.is_constant(0.0) for node in slopes)
        return not zero or any(node.number in used for node in into)

    @property
    def of_values(self) -> Trace:
        """Trace of a boundary form without derivatives, in the dimension of the faces."""
        kept = slice(max(self.dim - 1, 1))
        fields, tests = (
            {name: Argument(one.values, one.derivatives[:, kept]) for name, one in side.items()}
            for side in (self.fields, self.tests)
        )
        return replace(self, dim=kept.stop, fields=fields, tests=tests)

    def has_results_of(self, other: Trace) -> bool:
        """True if another trace, in another graph, has the same operations and results."""
        return self._operations() == other._operations()

    def _operations(self) -> list[Any]:
        outputs = [node for test in self.tests.values() for node in test.flat()]
        order = ancestors(outputs)
        line = {node.number: k for k, node in enumerate(order)}
        rows = [(node.op, node.data, [line[a.number] for a in node.args]) for node in order]
        return [*rows, *(line[node.number] for node in outputs)]


def symbols(graph: Graph, name: str, shape: tuple[int, ...], symmetric: bool = False) -> Objects:
    """Array (*shape) of input nodes ``name_i_j``. Opposite entries may share one node."""
    out = np.empty(shape, dtype=object)
    for index in np.ndindex(shape):
        entry = tuple(sorted(index)) if symmetric else index
        out[index] = graph.input("_".join([name, *map(str, entry)]))
    return _fixed(out)


def _hermitian(parts: Objects) -> Objects:
    """Parts (n, n, 2), real and imaginary, of a Hermitian matrix from those above its diagonal."""
    zero, parts = parts[0, 0, 0].graph.constant(0.0), parts.copy()
    for i, j in zip(*np.tril_indices(len(parts)), strict=True):
        parts[i, j] = (parts[j, i, 0], -parts[j, i, 1]) if i > j else (parts[i, i, 0], zero)
    return _fixed(parts)


def _fixed(array: Objects) -> Objects:
    """Array of symbols that a form can't overwrite: read-only."""
    array.flags.writeable = False
    found: Objects = symbol_array(array)
    return found


def name_of(function: FormFunction) -> str:
    """Name of a form's function."""
    return str(getattr(function, "__name__", type(function).__name__))


def trace(
    function: FormFunction,
    dim: int,
    fields: Mapping[str, int],
    tests: Mapping[str, int],
    coefficients: Mapping[str, CoefficientShape],
    *,
    boundary: bool = False,
    two_sided: bool = False,
    unweighted: Container[str] = (),
) -> Trace:
    """Call a form's function with symbols, and return its trace."""
    graph = Graph()
    static: dict[str, Objects] = {
        WEIGHT: symbols(graph, WEIGHT, ()),
        POSITION: symbols(graph, POSITION, (dim,)),
    }
    inverses = [symbols(graph, name, (dim, dim)) for name in (INVERSE, OTHER)[: 1 + two_sided]]
    static |= zip((INVERSE, OTHER), inverses, strict=False)
    place: dict[str, Any] = {"x": static[POSITION]}
    if boundary:
        place["n"] = static[NORMAL] = symbols(graph, NORMAL, (dim,))
        lengths = [1.0 / np.sqrt(np.sum(inverse[-1] ** 2)) for inverse in inverses]
        place["h"] = TwoSided.of_values("h", *lengths) if two_sided else lengths[0]
    arguments = {
        name: Argument(symbols(graph, name, (n,)), symbols(graph, f"d({name})", (n, dim)))
        for name, n in fields.items()
    }
    given = _two_sided(arguments, inverses) if two_sided else _one_sided(arguments, inverses[0])
    known: dict[str, Any] = {}
    for name, shape in coefficients.items():
        hermitian = shape.symmetric and len(shape.shape) > 2
        static[name] = symbols(graph, f"c({name})", shape.shape, shape.symmetric and not hermitian)
        value = static[name] if shape.shape else static[name][()]
        value = _hermitian(value) if hermitian else value
        ends = (value[0], value[1]) if shape.two_sided else (value, value)
        known[name] = TwoSided.of_values(name, *ends) if two_sided else value
    results = _call(function, given, known, place)
    outputs = {}
    shapes = {name: (n, dim) for name, n in tests.items()}
    for name, part in _parts_of(results, shapes, function, graph, two_sided=two_sided).items():
        factors = _factors(graph, part, shapes[name], function)
        if name not in unweighted:
            inverse = inverses[two_sided and name.endswith(SIDES[1])]
            factors = _weighted(factors, part, static[WEIGHT][()], inverse)
        outputs[name] = factors
    return Trace(graph, dim, arguments, outputs, static)


def _weighted(factors: Argument, part: dict[str, Any], weight: Any, inverse: Objects) -> Argument:
    """Multiply factors by the weight, and convert those of a gradient to reference directions."""
    value, flux = weight * factors.values, factors.derivatives
    if "grad" in part:  # without it, the factors stay zero
        flux = (weight * flux) @ inverse.T
    return Argument(value, flux)


def _one_sided(arguments: Mapping[str, Argument], inverse: Objects) -> list[Any]:
    """Symbols of the fields."""
    return [FieldSymbol(name, a, _fixed(a.derivatives @ inverse)) for name, a in arguments.items()]


def _two_sided(arguments: Mapping[str, Argument], inverses: Sequence[Objects]) -> list[Any]:
    """Symbols of the fields on faces between elements, from the arguments of their sides."""
    found: list[Any] = []
    for name in dict.fromkeys(map(base_name, arguments)):
        both = [arguments[side] for side in sided(name)]
        grads = [_fixed(a.derivatives @ j) for a, j in zip(both, inverses, strict=True)]
        found.append(on_both_sides(name, both, grads))
    return found


def on_both_sides(name: str, both: Sequence[Argument], grads: Sequence[Objects]) -> TwoSided:
    """Symbol of a field on faces between elements, from its values and gradients on both sides."""
    parts = [
        FieldSymbol(f"{name}.{part}", a, grad)
        for part, a, grad in zip(("minus", "plus"), both, grads, strict=True)
    ]
    for part in ("jump", "mean"):
        values, slopes = (
            _fixed(combined(part, *pair))
            for pair in ([a.values for a in both], [a.derivatives for a in both])
        )
        grad = _fixed(combined(part, *grads))
        parts.append(FieldSymbol(f"{name}.{part}", Argument(values, slopes), grad))
    return TwoSided(name, *parts)


def _parts_of(
    results: Any,
    tests: Mapping[str, tuple[int, int]],
    function: FormFunction,
    graph: Graph,
    *,
    two_sided: bool,
) -> dict[str, dict[str, Any]]:
    """Factors of each test function, "value" and "grad", from the result of a form's function.

    ``tests`` has the shapes of the test functions' gradients.
    """
    if not two_sided:
        return {name: _result_of(results, name, tests, function) for name in tests}
    names = dict.fromkeys(map(base_name, tests))
    found: dict[str, dict[str, Any]] = {}
    for name in names:
        part = _result_by_name(results, name, names, function)
        if name in tests:  # a functional
            found[name] = _checked_result(part, names, function)
        else:
            explain = f"{definition(function)}{name_of(function)}"
            shaped = partial(_factor, graph, tests[sided(name)[0]], function)
            found |= zip(sided(name), factors_by_side(part, name, explain, shaped), strict=True)
    return found


def _factors(
    graph: Graph, part: dict[str, Any], shape: tuple[int, int], function: FormFunction
) -> Argument:
    """Nodes of the factors of a test function and its gradient, from the function's result."""
    value, grad = (_factor(graph, shape, function, part.get(k), k) for k in ("value", "grad"))
    return Argument(value, grad)


def _factor(
    graph: Graph, shape: tuple[int, int], function: FormFunction, result: Any, kind: str
) -> Objects:
    """Nodes of a factor of a test function, whose gradient has the shape, or of its gradient."""
    return _shaped(graph, result, shape if kind == "grad" else shape[:1], kind, function)


def linearised(traced: Trace, states: Mapping[str, str], *, symmetric: bool = False) -> Trace:
    """Derivative of a traced form at a state, as a trace that is linear in its fields.

    The fields of the result are directions. The fields of ``traced`` become static inputs. Of a
    symmetric derivative the upper half is computed.
    """
    graph = traced.graph
    steps: dict[int, Node] = {}
    directions, static = {}, dict(traced.static)
    for field, state in states.items():
        point = traced.fields[field]
        values = symbols(graph, f"direction({field})", point.values.shape)
        slopes = symbols(graph, f"d(direction({field}))", point.derivatives.shape)
        directions[field] = direction = Argument(values, slopes)
        pairs = zip(point.flat(), direction.flat(), strict=True)
        steps |= {n.number: d for n, d in pairs}
        static |= {state: point.values, f"d{state}": point.derivatives}
    names, counts = list(traced.tests), [len(test.values) for test in traced.tests.values()]
    if symmetric:
        results = _by_upper_half(traced, [directions[name] for name in names])
    else:
        results = [derivatives(test.flat(), steps) for test in traced.tests.values()]
    tests = dict(zip(names, map(Argument.of_flat, results, counts), strict=True))
    return Trace(graph, traced.dim, directions, tests, static)


def _by_upper_half(traced: Trace, directions: Sequence[Argument]) -> list[list[Node]]:
    """Derivatives along directions of the factors of each test function, by symmetry."""
    zero, one = traced.graph.constant(0.0), traced.graph.constant(1.0)
    factors = [node for test in traced.tests.values() for node in test.flat()]
    inputs = [node for name in traced.tests for node in traced.fields[name].flat()]
    still = {node.number: zero for field in traced.fields.values() for node in field.flat()}
    columns = [derivatives(factors, still | {node.number: one}) for node in inputs]
    steps = [node for direction in directions for node in direction.flat()]
    totals: list[Any] = [zero] * len(factors)
    for i, step in enumerate(steps):
        for j in range(len(factors)):
            totals[j] = totals[j] + columns[max(i, j)][min(i, j)] * step
    found = iter(totals)
    return [[next(found) for _ in test.flat()] for test in traced.tests.values()]


def differentiated(traced: Trace, functional: str) -> Trace:
    """Trace of a residual: the derivative of a functional by the fields."""
    graph, value = traced.graph, [*traced.tests[functional].values]
    zero, one = graph.constant(0.0), graph.constant(1.0)
    still = {node.number: zero for field in traced.fields.values() for node in field.flat()}
    tests = {}
    for name, field in traced.fields.items():
        slopes = [derivatives(value, still | {node.number: one})[0] for node in field.flat()]
        tests[name] = Argument.of_flat(slopes, len(field.values))
    return Trace(graph, traced.dim, traced.fields, tests, traced.static)


def _call(
    function: FormFunction,
    fields: Sequence[Any],
    known: dict[str, Any],
    place: dict[str, Any],
) -> Any:
    """Result of a form's function. Errors in it name its line."""
    keywords = _keywords(function, len(fields), known, place)
    try:
        return function(*fields, **keywords)
    except FemopsError as error:
        raise TraceError(f"{line_of(error)}{error}") from error.__cause__
    except Exception as error:  # whatever a user's function may raise
        hint = vector_hint(np.shape(getattr(value, "minus", value)) for value in known.values())
        raise TraceError(f"{line_of(error)}{explain(error)}{hint}") from error


def _keywords(
    function: FormFunction, count: int, known: dict[str, Any], place: dict[str, Any]
) -> dict[str, Any]:
    """Arguments by name of a form's function, after those for ``count`` fields."""
    parameters = inspect.signature(function).parameters
    names = [p.name for p in parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    wanted = names[count:]
    where = f"{definition(function)}{name_of(function)}({', '.join(names)})"
    if len(names) < count:
        raise TraceError(
            f"{where} takes {len(names)} arguments: give it one for each field, {count}"
        )
    for name in place.keys() & known.keys():
        what = {"x": "position", "n": "normal", "h": "extent of the element"}[name]
        raise TraceError(f"{where}: {name!r} is the {what}: rename the coefficient")
    keywords = {name: place.get(name, known.get(name)) for name in wanted}
    missing = [
        name
        for name, value in keywords.items()
        if value is None and parameters[name].default is inspect.Parameter.empty
    ]
    extra = [name for name in known if name not in wanted]
    if missing:
        name, faces = missing[0], " (there is one over faces: boundary=... or faces=...)"
        test = " (there is no test function: return what multiplies it, and its gradient)"
        there = {"n": faces, "h": faces, "v": test}.get(name, "")
        raise TraceError(f"{where}: no coefficient {name!r} is given: pass {name}=...{there}")
    if extra:
        raise TraceError(
            f"{where} takes no coefficient {extra[0]!r}"
            + (did_you_mean(extra[0], [*wanted, *OPTIONS]) or ": make it one of its arguments")
        )
    return {name: value for name, value in keywords.items() if value is not None}


def _result_of(
    results: Any, name: str, tests: Mapping[str, Any], function: FormFunction
) -> dict[str, Any]:
    """Factors of a test function, "value" and "grad"."""
    return _checked_result(_result_by_name(results, name, tests, function), tests, function)


def _result_by_name(
    results: Any, name: str, tests: Mapping[str, Any], function: FormFunction
) -> Any:
    """Result of a form's function that belongs to a test function."""
    if len(tests) == 1:
        return results
    if not isinstance(results, dict) or set(results) - set(tests):
        raise TraceError(
            f"{definition(function)}{name_of(function)} must return a dictionary "
            f"with the keys {', '.join(tests)}"
        )
    if name not in results:
        raise TraceError(
            f"{definition(function)}{name_of(function)} returned no result for {name!r}: "
            f'write "{name}": {{}} if that is zero'
        )
    return results[name]


def _checked_result(part: Any, tests: Mapping[str, Any], function: FormFunction) -> dict[str, Any]:
    """Check that the result for a test function has no other keys than "value" and "grad"."""
    if (
        not isinstance(part, dict)
        or not part.keys() <= {"value", "grad"}
        or (len(tests) == 1 and not part)
    ):
        got = sorted(part) if isinstance(part, dict) else type(part).__name__
        raise TraceError(
            f"{definition(function)}{name_of(function)} returned {got}: return "
            '{"value": ...}, {"grad": ...} or both, '
            "what multiplies the test function and its gradient"
        )
    return part


def _shaped(
    graph: Graph, result: Any, shape: tuple[int, ...], what: str, function: FormFunction
) -> Objects:
    """Nodes of a result in the shape of the test function. Zeros if the result is missing."""
    out = np.empty(shape, dtype=object)
    if result is None:
        out[...] = graph.constant(0.0)
        return out
    array = np.asarray(result, dtype=object)
    plain = shape[1:] if shape[0] == 1 else shape
    if array.shape not in (plain, shape):
        raise TraceError(
            f'{definition(function)}{name_of(function)} returned a "{what}" of shape '
            f"{array.shape}: the test function needs {plain}{vector_hint([array.shape])}"
        )
    try:
        for index in np.ndindex(shape):
            out[index] = graph.number(graph.node(plain_entry(array.reshape(shape)[index])))
    except TraceError as error:
        raise TraceError(f'{definition(function)}in the "{what}": {error}') from error.__cause__
    return out


_FEMOPS = Path(__file__).parent.parent
_NUMPY = Path(np.__file__).parent
_LONGEST_CONSTANT = 9  # entries of a tensor; longer vectors may be those of a space
_LONGEST_LABEL = 80  # characters of a lambda's line
_OF_FIELDS = {"value", "grad", "div", "sym_grad"}
_ARRAYS = (
    "an array of numbers has no place for symbols, and numpy.interp takes none: write "
    "np.array([[a, b], [c, d]]), np.zeros(shape, dtype=object) or femops.interp"
)
_SYMBOL = re.compile(r"'(Node|FieldSymbol)' object|object of type '(Node|FieldSymbol)'")


def line_of(error: BaseException) -> str:
    """File, number and text of the innermost line of user code in an error's traceback."""
    found, step = "", error.__traceback__
    while step is not None:
        file = step.tb_frame.f_code.co_filename
        path = Path(file)  # femops' own forms count as a user's functions
        own = path.is_relative_to(_FEMOPS) and not path.is_relative_to(_FEMOPS / "forms")
        if not own and not path.is_relative_to(_NUMPY):
            found = _place(file, step.tb_lineno)
        step = step.tb_next
    return found


def definition(function: Callable[..., Any]) -> str:
    """File, number and text of the first line of a function."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "" if code is None else _place(code.co_filename, code.co_firstlineno)


def label_of(function: Callable[..., Any]) -> str:
    """Name of a function, without underscores around it. A lambda has its source line instead."""
    name = str(getattr(function, "__name__", type(function).__name__)).strip("_")
    if name != "<lambda>":
        return name
    code = inspect.unwrap(function).__code__
    text = linecache.getline(code.co_filename, code.co_firstlineno).strip()
    if len(text) > _LONGEST_LABEL:
        text = f"{text[: _LONGEST_LABEL - 4]} ..."
    return f"`{text}`" if text else name


def _place(file: str, line: int) -> str:
    text = linecache.getline(file, line).strip()
    return f"{Path(file).name}, line {line}, `{text}`: " if text else f"line {line}: "


def vector_hint(shapes: Iterable[tuple[int, ...]]) -> str:
    """Advice if an array of a form is so long that it may be the vector of a field."""
    long = any(
        isinstance(shape, tuple) and len(shape) == 1 and shape[0] > _LONGEST_CONSTANT
        for shape in shapes
    )
    return "; is it a vector of a space? Give femops.GridFunction(space, vector)" if long else ""


def explain(error: BaseException) -> str:
    """Explanation of an error that Python or NumPy raised on symbols, for a message."""
    text = str(error)
    if "has no callable" in text:
        name = text.split("no callable", 1)[1].split(maxsplit=1)[0]
        return (
            f"numpy.{name} has no meaning for symbols: "
            "use + - * / **, sqrt, exp, log, sin, cos, tan, tanh and the like"
        )
    if "array element with a sequence" in text and isinstance(error.__cause__, TraceError):
        asked = str(error.__cause__)  # NumPy asked a symbol for its truth or its value
        return asked if "where" in asked else _ARRAYS
    if "condlist" in text:
        return "numpy.select and piecewise do not take symbols: write femops.where(condition, a, b)"
    if "Cannot cast ufunc" in text or "from dtype('O')" in text:
        return (
            "numpy.linalg and numpy.interp do not take symbols: use femops.det, femops.inv, "
            "femops.inner, femops.interp"
        )
    if "jax" in text:
        return "JAX's functions do not take symbols: use NumPy's; femops.jax differentiates forms"
    if "read-only" in text:
        return "a form cannot overwrite its arguments: make a new array, such as 2 * u.grad"
    if isinstance(error, AttributeError) and error.name and error.obj is not None:
        if isinstance(error.obj, np.ndarray) and error.name in _OF_FIELDS:
            return (
                f"{text}: only a field has .{error.name}, a coefficient stands for its value "
                "alone; V.gradient(u), at the points, may be another coefficient"
            )
        names = [name for name in dir(error.obj) if not name.startswith("_")]
        text += did_you_mean(error.name, names)
    if _SYMBOL.search(text):
        return (
            f"{_SYMBOL.sub('a symbol', text)}: it stands for a number, so use arithmetic and "
            "NumPy's functions"
        )
    return f"{type(error).__name__}: {text}"
