"""Sources that are rewritten: random programs mean what Python means, and some are refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from femops_kernels.errors import KernelError
from support.kernels import check_both, compiled, compiled_program

INTEGERS, REALS = ["n", "m", "a", "b"], ["x", "y", "u", "v"]
SIMPLE = some.sampled_from(["0", "1", "2", "-3", *INTEGERS])
REAL = some.sampled_from(["0.5", "-2.0", "x", "y", "u", "v"])


@some.composite
def integers(draw, deep=2):
    """An integer of few digits, whatever the loops do."""
    if deep == 0 or draw(some.booleans()):
        return draw(SIMPLE)
    first, second = draw(integers(deep - 1)), draw(integers(deep - 1))
    forms = [
        *(f"({first} {sign} {second})" for sign in "+-*&|^"),
        *(f"({first} {sign} {draw(some.sampled_from(['2', '-3', '5']))})" for sign in ("//", "%")),
        f"min({first}, {second})",
        f"max({first}, {second}, {draw(SIMPLE)})",
        f"({first} if {draw(conditions(deep - 1))} else {second})",
        f"(-{first})",
        f"int(not ({draw(conditions(deep - 1))}))",
    ]
    return draw(some.sampled_from(forms))


@some.composite
def reals(draw, deep=2):
    if deep == 0 or draw(some.booleans()):
        return draw(REAL)
    first, second = draw(reals(deep - 1)), draw(reals(deep - 1))
    forms = [
        *(f"({first} {sign} {second})" for sign in "+-*"),
        f"({first} + {draw(integers(deep - 1))})",
        f"({first} / 4)",
        f"max({first}, {second})",
        f"sqrt(abs({first}))",
        f"({first} if {draw(conditions(deep - 1))} else {second})",
    ]
    return draw(some.sampled_from(forms))


@some.composite
def conditions(draw, deep=1):
    sign = draw(some.sampled_from(["<", "<=", "==", "!=", ">", ">="]))
    first, second = draw(integers(deep)), draw(integers(deep))
    forms = [f"{first} {sign} {second}", f"{draw(REAL)} {sign} {draw(REAL)}"]
    forms += [f"{first} < {second} <= {draw(SIMPLE)}", first]
    if deep:
        one, other = draw(conditions(deep - 1)), draw(conditions(deep - 1))
        forms += [f"(({one}) and ({other}))", f"(({one}) or ({other}))", f"not ({one})"]
    return draw(some.sampled_from(forms))


@some.composite
def statements(draw, deep, loops=0):
    """Lines of a block. Variables stay small: integers modulo 97, reals within 4."""
    lines = []
    for _ in range(draw(some.integers(1, 4))):
        kind = draw(some.sampled_from(["set", "set", "write", "pair", "if", "for", "while"]))
        if kind == "set" or deep == 0:
            lines += draw(settings_of_one())
        elif kind == "write":
            lines.append(f"out[{draw(integers(1))} % 32] = {draw(reals(1))}")
        elif kind == "pair":
            lines.append("a, b = b, a")
        elif kind == "if":
            lines += [f"if {draw(conditions())}:", *draw(inside(deep, loops))]
            if draw(some.booleans()):
                lines += [f"elif {draw(conditions())}:", *draw(inside(deep, loops))]
            if draw(some.booleans()):
                lines += ["else:", *draw(inside(deep, loops))]
        elif kind == "for":
            bounds = draw(
                some.sampled_from(["{} % 4", "1, {} % 5", "{} % 3, 5, 2", "2 * ({} % 2)"])
            )
            index, bound = f"i{loops}", bounds.format(draw(integers(1)))
            body = [f"    out[32 + {index}] = {draw(REAL)}", *draw(inside(deep, loops + 1))]
            lines += [f"for {index} in range({bound}):", *body]
        else:
            turn = f"w{loops}"
            body = [*draw(inside(deep, loops + 1)), f"    {turn} += 1"]
            condition = f"{turn} < 3 and ({draw(conditions())})"
            lines += [f"{turn} = 0", f"while {condition}:", *body]
    return lines


@some.composite
def settings_of_one(draw):
    if draw(some.booleans()):
        name, value = draw(some.sampled_from(["a", "b"])), draw(integers())
        sign = draw(some.sampled_from(["=", "+=", "-="]))
        return [f"{name} {sign} {value}", f"{name} = {name} % 97 - 40"]
    name, value = draw(some.sampled_from(["u", "v"])), draw(reals())
    sign = draw(some.sampled_from(["=", "+=", "*="]))
    return [f"{name} {sign} {value}", f"{name} = max(-4.0, min({name}, 4.0))"]


def inside(deep, loops):
    return statements(deep - 1, loops).map(lambda lines: ["    " + line for line in lines])


@settings(max_examples=15)
@given(lines=statements(3))
def test_random_programs(lines):
    """Reals begin and stay reals, or a loop could not carry them."""
    first = ["a, b, u, v = n + 1, 2, x + 0.25, 1.5"]
    last = [f"out[{60 + k}] = {name}" for k, name in enumerate("abuv")]
    cases = [
        {"n": n, "m": m, "x": x, "y": y}
        for n, m, x, y in [(0, 1, 0.5, -1.5), (3, -2, 2.0, 0.25), (-5, 7, -0.75, 3.0)]
    ]
    check_both("\n".join([*first, *lines, *last]), *cases)


LEAVES = {
    "break": "for i in range(n):\n    break",
    "continue": "while n > 0:\n    continue",
    "break in a loop of Python": "for i in (1, 2):\n    if n > i:\n        break",
    "return in a loop": "for i in range(n):\n    if i > 2:\n        return",
    "return in a while loop": "while n:\n    return",
}


@pytest.mark.parametrize("name", LEAVES)
def test_a_loop_that_is_left_early(name):
    with pytest.raises(KernelError, match=r"program: a (loop|function) of a kernel can't"):
        compiled_program(LEAVES[name], {"n": False}, "float64")


def test_functions_that_are_not_decorated_are_left_alone():
    """They are Python, which can't decide by a number of the kernel."""
    text = """
        {}
        def sign(n):
            if n < 0:
                return -1
            return 1 if n > 0 else 0

        @function
        def run(n) -> int:
            return sign(n) + 10 * sign(-2)
        """
    with pytest.raises(KernelError, match="can't decide by a number"):
        compiled(text.format(""))
    run = compiled(text.format("@inner")).run
    assert [run(n) for n in (-3, 0, 3)] == [-11, -10, -9]


def test_results_of_early_returns():
    """Numbers of two kinds, and tuples, are joined."""
    run = compiled("""
        @inner
        def parts(n, x):
            if n < 0:
                return 0, (1, 2)
            if n > 3:
                return n, (x, 0.5)
            m = n * n
            return m, (n, -n)

        @function
        def run(address, n, x: float):
            out = numbers(Lane(2), address)
            first, (second, third) = parts(n, x)
            out[0], out[1], out[2] = first, second, third
        """).run
    out = np.zeros(3)
    for n, expected in ((-1, [0, 1, 2]), (2, [4, 2, -2]), (5, [5, 0.75, 0.5])):
        run(out.ctypes.data, n, 0.75)
        assert out.tolist() == expected


ODD = {
    "a variable that one way sets, compared": """
        if n > 0:
            k = 1
        if n > 0:
            out[0] = k == 1
        """,
    "a variable that one way sets, as condition": """
        if n > 0:
            k = 0
        if n > 0:
            if k:
                out[0] = 1.0
        out[1] = 2.0
        """,
    "a variable that a loop sets, compared": """
        for i in range(n):
            k = i
        out[0] = k == 4
        """,
    "None or a number": """
        k = None if n > 2 else 3
        out[0] = k is None
        """,
    "one text or another": """
        k = "a" if n > 2 else "b"
        out[0] = k == "a"
        """,
    "None before a loop": """
        last = None
        for i in range(n):
            if last is None:
                out[i] = 1.0
            else:
                out[i] = 2.0
            last = i
        """,
    "a text before a loop": """
        last = "first"
        for i in range(n):
            out[i] = last == "first"
            last = "next"
        """,
    "a value of or": "out[0] = n or 7\nout[1] = (n - 5) or 7",
    "a real value of or, and of and": "x = n * 0.5\nout[0] = x or 7\nout[1] = -(n - 5) * 0.5 and 7",
    "a middle of a chain, once": """
        f = lambda: (out.__setitem__(0, out[0] + 1.0), n)[1]
        out[1] = 0 < f() < 9
        """,
    "the variable of a loop behind it": """
        i = 40
        for i in range(n):
            out[i] = 1.0
        out[20] = i
        """,
    "the variable of a loop set in it": """
        for i in range(n):
            out[i] = 1.0
        for i in range(n):
            i = i + 10
            out[i] = 2.0
        """,
    "one variable of two loops": """
        for i in range(n):
            out[i] = 1.0
        for i in range(n):
            out[20 + i] = 2.0
            for i in range(2):
                out[10 + i] = 3.0
        """,
    "else behind a for loop": """
        for i in range(n):
            out[i] = 1.0
        else:
            out[20] = 2.0
        """,
    "else behind a while loop": """
        i = 0
        while i < n:
            i += 1
        else:
            out[20] = i
        """,
    "a name of Python that is set": """
        min = lambda a, b: 42
        out[0] = min(n, 3)
        """,
    "the least of a tuple": "out[0] = min((n, 3))\nout[1] = max((1, 3, 2))",
    "an integer of more than 64 bits": "out[0] = n < 2 ** 70",
    "the sign of an integer": "out[0] = abs(-n) // 2",
    "other signs": "out[0] = +n\nout[1] = ~n\nout[2] = n**2",
    "a function in a function": """
        def f(a):
            if a > 2:
                return 1
            return 2
        out[0] = f(n)
        """,
    "a name set in an expression": """
        if n > 0 and (k := n + 1) > 2:
            out[0] = k
        """,
}


@pytest.mark.parametrize("name", ODD)
def test_python_or_refused(name):
    """What a kernel can't do is refused while it is written, and never done otherwise."""
    try:
        compiled_program(ODD[name], {"n": False}, "float64")
    except (KernelError, TypeError, NameError):
        return
    check_both(ODD[name], {"n": 5})
