"""Q-functions in CUDA C++, compiled for the host: they compute what programs do on NumPy."""

import ctypes
import functools
import re
import shutil
import subprocess

import numpy as np
import pytest

from femops.forms.diffusion import _diffusion
from femops.forms.mass import _mass
from femops.pointwise import (
    CoefficientShape,
    Known,
    LinearQFunction,
    QFunction,
    fuse,
    linear_split,
    trace,
)
from femops.pointwise.expressions.graph import Graph, ancestors
from femops.pointwise.expressions.operations import BINARY, COMPARE, UNARY
from femops.pointwise.qdata_split import make_program
from femops.pointwise.qfunction import NUMPY_FUNCTIONS
from femops_kernels.pointwise.recording import FUNCTIONS
from femops_kernels.spec import QFunctionCode, QFunctionInputs

POINTS = 8
SCALAR = CoefficientShape(())


def of_every_operation():
    """A program whose value results use every operation of the graph on random others."""
    rng = np.random.default_rng(2)
    graph = Graph()
    field, given = [graph.input(f"in[{k}]") for k in range(8)], graph.input("q[0]")
    pool = [*field[:2], given]

    def some():
        return pool[rng.integers(len(pool))]

    operations = [*UNARY, *BINARY, *COMPARE]
    for k in rng.permutation(len(operations)):
        op = operations[k]
        if op in UNARY:
            given_to = 0.6 * np.tanh(some()) if op in ("arcsin", "arccos") else some()
            node = graph.unary(op, given_to)
        elif op in BINARY:
            node = graph.binary(op, some(), some())
        else:
            left = some()
            right = left if op in ("eq", "le", "ge") else some()
            node = graph.where(graph.binary(op, left, right), some(), graph.constant(0.75))
        pool.append(1.0 + 0.5 * np.tanh(node))  # logarithms and powers need moderate numbers
    outputs = [*pool[3:], graph.constant(-2.5) * pool[-1], graph.constant(0.1)]
    assert not {*operations, "where"} - {node.op for node in ancestors(outputs)}
    zeros = [graph.constant(0.0)] * (3 * len(outputs))
    numbers = QFunctionInputs(point=1)
    return make_program(
        1, field, [*outputs, *zeros], (2, len(outputs)), {given.number: "q[0]"}, numbers,
        symmetric=False, scaled=(),
    )  # fmt: skip


@functools.cache
def programs():
    """What is compiled; programs of forms are tried where devices of the host apply them."""
    forms = [
        LinearQFunction(trace(form, 2, {"u": 1}, {"u": 1}, {name: SCALAR}))
        for form, name in ((_mass, "rho"), (_diffusion, "kappa"))
    ]
    fused = fuse([linear_split(step, "matrix-free").qfunction for step in forms])
    return {"fused": fused, "every-operation": of_every_operation()}


# --- the C++ compiler -----------------------------------------------------------------------------

HEAD = """\
#include <cmath>
#define __device__
#define __forceinline__ inline
using namespace std;
template <typename T>
T by_determinant(T a, T det) {
    return a / det;
}
"""
ENTRY = """\
extern "C" void step_{k}(const T* in, T* out) {{
    using namespace step_{k}_;
    const auto& u = *reinterpret_cast<const T (*)[4][NCOMP_IN]>(in);
    auto& v = *reinterpret_cast<T (*)[4][NCOMP_OUT]>(out);
    pointwise(u[0], u[1], u[2], u[3], in + 4 * NCOMP_IN, v[0], v[1], v[2], v[3]);
}}
"""


def source(kind, some):
    """C++ with a function ``step_k`` of field and numbers for each program."""
    parts = [HEAD, f"using T = {kind};\n"]
    for k, program in enumerate(some):
        sizes = f"constexpr int NCOMP_IN = {program.ncomp_in}, NCOMP_OUT = {program.ncomp_out};\n"
        text = program.code.cuda(program.dim, program.ncomp_in)
        parts += [f"namespace step_{k}_ {{\n{sizes}{text}}}\n", ENTRY.format(k=k)]
    return "".join(parts)


def compiled(text, folder):
    """The library that a C++ compiler makes of a text."""
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler (g++, c++): the CUDA text of programs was not compiled")
    file, library = folder / "steps.cpp", folder / "steps.so"
    file.write_text(text)
    strict = ["-Wall", "-Werror", "-Wno-unused-variable", "-Wno-parentheses"]
    options = ["-std=c++17", "-O0", "-shared", "-fPIC", "-ffp-contract=off", *strict]
    command = [compiler, *options, str(file), "-o", str(library)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return ctypes.CDLL(str(library))


def run(step, program, fields, q):
    """Results (4, ncomp_out, points) of compiled text; what it does not set stays unset."""
    out = np.full((4, program.ncomp_out, fields.shape[-1]), np.nan, fields.dtype)
    for k in range(fields.shape[-1]):
        given = np.concatenate([fields[..., k].ravel(), q[:, k]])
        result = np.full((4, program.ncomp_out), np.nan, fields.dtype)
        step(ctypes.c_void_p(given.ctypes.data), ctypes.c_void_p(result.ctypes.data))
        out[..., k] = result
    return out


@pytest.fixture(scope="module", params=["double", "float"])
def steps(request, tmp_path_factory):
    """Type, and compiled steps by program."""
    every = list(programs().values())
    library = compiled(source(request.param, every), tmp_path_factory.mktemp("steps"))
    dtype = np.dtype(np.float64 if request.param == "double" else np.float32)
    return dtype, {program: getattr(library, f"step_{k}") for k, program in enumerate(every)}


def numbers_for(program, rng):
    """What a program is given, (numbers, points): a Jacobian is not far from the identity."""
    q = rng.uniform(0.1, 0.4, (program.numbers.total, POINTS))
    jacobian = program.numbers.slices()[1]
    if program.numbers.jacobian:
        near = 0.2 * rng.standard_normal((program.numbers.jacobian, POINTS))
        q[jacobian] = np.eye(program.dim).reshape(-1, 1) + near
    return q


@pytest.mark.parametrize("name", ["fused", "every-operation"])
def test_compiled_text_computes_what_the_program_does(steps, name):
    dtype, functions = steps
    program, rng = programs()[name], np.random.default_rng(0)
    q = numbers_for(program, rng).astype(dtype)
    fields = rng.uniform(0.01, 0.3, (4, program.ncomp_in, POINTS)).astype(dtype)
    fields[0] *= 6.0  # values on either side of one
    out = run(functions[program], program, fields, q)
    given = {slot: tuple(fields[slot]) for slot in program.slots_in}
    expected = np.full_like(out, np.nan)
    for slot, values in zip(program.slots_out, program.evaluate(given, tuple(q)), strict=True):
        expected[slot] = np.stack([np.broadcast_to(v, POINTS) for v in values])
    set_ = expected[program.slots_out]
    assert np.isfinite(set_).all()
    tolerance = 1e-14 if dtype == np.float64 else 5e-6
    np.testing.assert_allclose(out, expected, rtol=tolerance, atol=tolerance * abs(set_).max())


def test_what_is_written_twice_stands_once():
    for program in programs().values():
        text = program.code.cuda(program.dim, program.ncomp_in)
        right = re.findall(r"const (?:T|bool) t\d+ = (.*);", text)
        assert len(right) == len(set(right)) == program.flops


def by_hand(results):
    text = f"def pointwise(u, ux, uy, uz, q):\n    return ({', '.join(results)},), ux, uy, uz\n"
    every = tuple(range(len(results)))
    code = QFunctionCode(text, QFunctionInputs(), (0, 1), (), every, ())
    return QFunction(code, 1, 2, len(results), symmetric=False, scaled=())


def test_numbers_that_are_not_ordinary(tmp_path):
    results = [
        *("u[0] * 0.0", "u[0] * -0.0", "as_lane(LANE, -0.0)"),
        *("as_lane(LANE, 1e999)", "as_lane(LANE, -1e999)", "as_lane(LANE, 1e999 - 1e999)"),
        *("u[0] * 1e999", "u[0] + 5e-324", "u[0] - 1.7976931348623157e308", "3 - u[0]"),
        *("lane_minimum(u[0], u[1])", "lane_minimum(u[1], u[0])", "lane_minimum(u[0], 2.0)"),
        *("lane_maximum(u[0], u[1])", "lane_maximum(u[1], u[0])", "lane_maximum(2.0, u[0])"),
        *(f"lane_where(lane_{op}(u[0], u[1]), 1.0, 2.0)" for op in COMPARE),
    ]
    program = by_hand(results)
    step = compiled(source("double", [program]), tmp_path).step_0
    pairs = np.array([[1.0, 2.0, np.nan, 1.0, np.inf], [2.0, 2.0, 1.0, np.nan, -np.inf]])
    fields = np.zeros((4, *pairs.shape))
    fields[0] = pairs
    out = run(step, program, fields, np.zeros((0, pairs.shape[1])))[0]
    with np.errstate(invalid="ignore"):
        (values,) = program.evaluate({0: tuple(pairs)}, ())
    for row, value, result in zip(out, values, results, strict=True):
        np.testing.assert_array_equal(row, value, err_msg=result)
        same = np.isnan(row) | (np.signbit(row) == np.signbit(value))
        assert same.all(), result


def test_divisions_are_those_of_the_form_but_for_the_determinant():
    """The faster division of GPUs is for what the split divides by, and for nothing else."""

    def rates(u, c):
        return {"value": u / c, "grad": u.grad / (1.0 + c)}

    known = Known(mapped=True)
    for form, own, others in ((_diffusion, 0, 1), (rates, 4, 1), (_mass, 0, 0)):
        name = "kappa" if form is _diffusion else "rho" if form is _mass else "c"
        step = LinearQFunction(trace(form, 3, {"u": 1}, {"u": 1}, {name: SCALAR}))
        for level, swapped in (("matrix-free", others), ("partial", 0)):
            program = linear_split(step, level, known).qfunction
            text = program.code.cuda(3, 1)
            assert text.count("by_determinant(") == swapped
            assert level == "partial" or text.count(" / ") == own


def test_every_function_of_lanes_has_a_text():
    assert {*FUNCTIONS, "law"} == set(NUMPY_FUNCTIONS)
