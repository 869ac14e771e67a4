"""Numbers of kernels, and what is done with them, against Python and NumPy."""

from math import inf, nan

import numpy as np
import pytest

from femops_kernels.errors import KernelError
from femops_kernels.simd import values
from support.kernels import check_both, compiled

PAIRS = [{"n": n, "m": m} for n in (-7, -6, -1, 0, 1, 6, 7) for m in (-7, -3, -1, 1, 2, 3, 7)]
REALS = [{"x": x, "y": y} for x in (-2.5, -0.0, 0.0, 1.0, 4.75, inf, nan) for y in (-3.0, 0.5, 1.0)]


def test_integers():
    """Quotients and remainders of all signs, shifts, bits; some operands are constants."""
    check_both(
        """
        out[0], out[1], out[2] = n + m, n - m, n * m
        out[3], out[4], out[5] = n // m, n % m, -n
        out[6], out[7], out[8] = n // 3, n % 3, n % -3
        out[9], out[10], out[11] = n // -3, 17 // m, -17 % m
        out[12], out[13], out[14] = n & m, n | m, n ^ m
        out[15], out[16] = n << m % 5, n >> m % 5
        out[17], out[18] = 3 << m % 5, -100 >> m % 5
        out[19], out[20], out[21] = n & 5, 5 | n, n ^ -1
        out[22], out[23] = n / m, n / 4
        out[24], out[25], out[26] = 2 + n, 2 - n, 2 * n
        out[27], out[28], out[29] = n + 0, 0 + n, n - 0
        out[30], out[31], out[32] = 0 - n, n * 1, 1 * n
        out[33], out[34], out[35] = n // 1, 1 // m, n % 1
        out[36], out[37], out[38] = n * 0, n / 1, 1 / m
        """,
        *PAIRS,
    )


def test_integers_have_64_bits():
    run = compiled("@function\ndef run(n, m) -> int:\n    return n * m + (m >> 40)\n").run
    for n, m in ((2**62, 1), (-(2**62), 2), (1, -(2**62)), (2, 3**38)):
        assert run(n, m) == n * m + (m >> 40)
    assert run(3, 2**62) == 3 * 2**62 - 2**64 + 2**22  # it wraps


def test_comparisons_and_truth_values():
    check_both(
        """
        out[0], out[1], out[2] = n < m, n <= m, n > m
        out[3], out[4], out[5] = n >= m, n == m, n != m
        out[6], out[7], out[8] = n < 2, 2 < n, n == 6
        out[9], out[10] = (n < m) + (n < 2), -(n < m)
        out[11], out[12], out[13] = (n < m) & (n < 2), (n < m) | True, (n < m) ^ (n < 2)
        out[14], out[15], out[16] = (n < m) * 0.5, (n < m) / 2, (n < m) + 0
        out[17], out[18], out[19] = (n < m) == (n < 2), (n < m) < 1, not n < m
        out[20], out[21], out[22] = not n, not not m, not 3
        out[23], out[24] = int(n < m) * 3, float(n < m) / 4
        out[25], out[26], out[27] = (n < m) * 1, (n < m) // 1, (n < m) - 0
        """,
        *PAIRS,
    )
    check_both(
        """
        out[0], out[1], out[2] = x < y, x <= y, x > y
        out[3], out[4], out[5] = x >= y, x == y, x != y
        out[6], out[7], out[8] = x < 1, x == 1, x != x
        out[9], out[10] = not x, 0.5 < y
        """,
        *REALS,
    )


def test_reals():
    check_both(
        """
        out[0], out[1], out[2], out[3] = x + y, x - y, x * y, x / y
        out[4], out[5], out[6] = -x, abs(x), sqrt(abs(y))
        out[7], out[8] = 0.1 * x + 0.3, 0.1 - x * y
        out[9], out[10] = x + 0, x * 1
        out[11], out[12] = x - 0, 1.0 * y
        out[13], out[14], out[15] = sqrt(4), abs(-3), abs(-2.5)
        """,
        *REALS,
    )


def test_minima_and_maxima():
    """Of equal numbers, and of what is no number, Python's choice."""
    check_both(
        """
        out[0], out[1] = min(x, y), max(x, y)
        out[2], out[3] = min(y, x, 0.25), max(-0.0, x, y)
        out[4], out[5] = min(x, 1), max(2, y)
        out[6], out[7] = min(0.0, x), max(0.0, x)
        """,
        *REALS,
    )
    check_both(
        """
        out[0], out[1] = min(n, m), max(n, m)
        out[2], out[3] = min(n, 2, m), max(3, n, m)
        out[4], out[5] = min(n, 2.5), max(n, 0.5, m)
        out[6], out[7] = min(2, 3), max(n < m, m)
        """,
        *PAIRS,
    )


def test_integers_beside_reals():
    cases = [{"n": n, "x": x} for n in (-5, 0, 3) for x in (-2.75, 0.5, 2.0)]
    check_both(
        """
        out[0], out[1], out[2], out[3] = n + x, n - x, n * x, n / x
        out[4], out[5], out[6] = int(x), int(-x * 3), int(n)
        out[7], out[8], out[9] = float(n) / 2, float(x), int(2.75)
        out[10], out[11], out[12] = n < x, n == x, x >= n
        out[13], out[14] = sqrt(n * n), abs(n)
        out[15], out[16], out[17] = (x > 0) * x, (x > 0) + n, 2 * n + 0.5
        """,
        *cases,
    )


def test_single_precision():
    """Two numbers of 32 bits have a result of 32; beside integers and constants it has 64."""
    run = compiled("""
        @function
        def run(given, results, wide, n):
            a, out = numbers(Lane(2, "float32"), given), numbers(Lane(2, "float32"), results)
            exact = numbers(Lane(2), wide)
            x, y = a[0], a[1]
            exact[0], exact[1], exact[2], exact[3] = x * y, x / y, x - y, sqrt(x)
            exact[4], exact[5], exact[6] = x + n, x * 0.1, min(x, y)
            exact[7], exact[8], exact[9] = x + float(y), -x, abs(-y)
            out[0] = x * 0.1
        """).run
    a, out = np.array([0.3, 0.7], np.float32), np.zeros(1, np.float32)
    exact = np.zeros(10)
    run(a.ctypes.data, out.ctypes.data, exact.ctypes.data, 3)
    x, y = a
    wide, other = map(float, a)
    assert exact.tolist() == [
        *(float(v) for v in (x * y, x / y, x - y, np.sqrt(x))),
        *(wide + 3, wide * 0.1, wide, wide + other, -wide, other),
    ]
    assert out[0] == np.float32(wide * 0.1)


def test_constants_write_nothing():
    """What is known while a kernel is written is computed by Python."""
    found = []
    source = """
        @function
        def run(n) -> int:
            values = min(3, 2), max(1.5, 2), abs(-4), int(2.75), float(3), sqrt(9.0), not 0
            found.append((values, 1 < 2 < 3, 0 or 7, 3 and 8, 4 if n is None else 5))
            return n
        """
    assert compiled(source, found=found).run(5) == 5
    assert found == [((2, 2, 4, 2, 3.0, 3.0, True), True, 7, 8, 5)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("out[0] = x % 2", "no mod of real numbers"),
        ("out[0] = x // y", "no floordiv of real numbers"),
        ("out[0] = n & x", "no and of real numbers"),
        ("out[x] = 1.0", "is no integer"),
        ("n[0] = 1.0", "only arrays are indexed"),
        ("out[0] = n[0]", "only arrays are indexed"),
        ("out[0] = 'text'", "is no number"),
        ("out[0] = out", "is no number"),
        ("for i in range(x):\n        pass", "is no integer"),
        ("out[0] = bool(n)", "can't decide by a number"),
        ("out[0] = 3 in (n, 4)", "can't decide by a number"),
        ("out[0] = [4, 5][n]", None),
        ("out[0] = n + None", None),
        ("out[0] = n + 'a'", None),
        ("out[0] = {n: 1}", None),
    ],
)
def test_refused(text, message):
    """In Python, while the kernel is written."""
    source = """
@function
def run(address, n, x: float, y: float):
    out = numbers(Lane(2), address)
    {}
"""
    with pytest.raises(KernelError if message else TypeError, match=message):
        compiled(source.format(text))


def test_only_kernels_write():
    with pytest.raises(KernelError, match="only kernels can call them"):
        values.build()
