"""Conditions and loops of kernels: the same text as a kernel and by Python."""

import pytest

from femops_kernels.errors import KernelError
from support.kernels import check_both, compiled_program

COUNTS = [{"n": n} for n in (-2, 0, 1, 2, 3, 7)]
PAIRS = [{"n": n, "m": m} for n in (-1, 0, 1, 2, 5) for m in (0, 1, 3)]

CONDITIONS = {
    "one branch": """
        a = 1
        if n > 2:
            a = n
        out[0] = a
        """,
    "both branches, of other kinds": """
        a, b = 3, m
        if n > m:
            a, c, b = n, 0.5, b + 1
        else:
            c = 2
            a = -0.0
        out[0], out[1], out[2] = a, b, c
        """,
    "zeros of both signs": """
        if n > m:
            a, b = 0.0, True
        else:
            a, b = -0.0, 1
        out[0], out[1] = a, b
        """,
    "many": """
        if n < 0:
            a = 1
        elif n == 0:
            a = 2.5
        elif n < m:
            a = n
        elif m == 0:
            pass
            a = m
        else:
            a = 10 * n
        out[0] = a
        """,
    "nested": """
        a = b = 0
        if n > 0:
            if m > 0:
                a = 1
                if n > m:
                    b = n
            else:
                b = 2
                if n > 1:
                    a, b = b, a
            out[5] = a
        elif m > 1:
            a = 3
        out[0], out[1] = a, b
        """,
    "names of one value": """
        a = n
        b = a
        if m > 0:
            a = a + 1
        c = b
        if n > 1:
            b = a
        out[0], out[1], out[2] = a, b, c
        """,
    "tuples": """
        a, rest = (n, 1.5), (1, (m, 2))
        if n > m:
            a, rest = (m, 0.5), (2, (3, n))
        (first, second), (one, (two, three)) = a, rest
        out[0], out[1], out[2], out[3], out[4] = first, second, one, two, three
        """,
    "by integers, reals and constants": """
        if n:
            out[0] = 1.0
        if m * 0.5:
            out[1] = 2.0
        else:
            out[1] = 3.0
        if 2 > 3:
            out[2] = 4.0
        elif "text":
            out[3] = 5.0
        a = 0
        if None:
            a = n
        else:
            a = a + m
        out[4] = a
        """,
    "a kind that only one way sets, not read": """
        a = n
        if n > m:
            a = (1, 2)
            out[0] = a[1]
        else:
            b = "text"
            out[1] = len(b)
        a = b = m
        out[2], out[3] = a, b
        """,
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_conditions(name):
    check_both(CONDITIONS[name], *PAIRS)


RETURNS = {
    "early": """
        out[0] = 1.0
        if n < 0:
            return
        out[0] = 2.0
        if n > m:
            out[1] = 3.0
            if m > 0:
                return
            out[2] = 4.0
        elif n == 0:
            return
        for k in (1, 2):
            if m > k:
                out[2 + k] = min(n, k) if n < m else 1 < n < 5
        a = 0
        for k in range(n):
            a += k if k % 2 else 1
        out[5] = not a
        """,
    "in both branches": """
        if n > m:
            if m:
                return
            else:
                out[0] = 1.0
        else:
            return
        out[1] = 2.0
        """,
    "at the end": """
        out[0] = n
        return
        """,
}


@pytest.mark.parametrize("name", RETURNS)
def test_early_returns(name):
    check_both(RETURNS[name], *PAIRS)


LOOPS = {
    "bounds": """
        a = b = c = d = 0
        for i in range(n):
            a += i
        for i in range(2, n):
            b += i * i
        for i in range(1, n, 2):
            c = 10 * c + i
        for i in range(m, n, 3):
            d = 10 * d + i
        out[0], out[1], out[2], out[3] = a, b, c, d
        """,
    "constant bounds": """
        a = b = c = d = 0
        for i in range(0):
            a = n
        for i in range(1):
            b += n + i
        for i in range(3, 8, 2):
            c = 10 * c + i + n
        for i in range(3, 8, 5):
            d += i
        out[0], out[1], out[2], out[3] = a, b, c, d
        """,
    "bounds that change": """
        k = n
        for i in range(k):
            k = k - 1
            out[i] = k
        out[20] = k
        """,
    "carried": """
        a, b, s, last = 0, 1, 0.5, m
        for i in range(n):
            a, b = b, a + b
            s = s * 0.5 + b
            last = i
        out[0], out[1], out[2], out[3] = a, b, s, last
        """,
    "tuples": """
        pair, deep = (0, 1.0), ((n, m), 0.0)
        for i in range(n):
            pair = pair[0] + i, pair[1] * 2
            deep = (deep[0][1], deep[0][0]), deep[1] + pair[1]
        out[0], out[1] = pair
        (out[2], out[3]), out[4] = deep
        """,
    "nested": """
        s = t = 0
        for i in range(n):
            t = 0
            for j in range(i, m + i):
                t += j
                for k in range(2):
                    s += i * j - k
            out[i] = t
        out[20], out[21] = s, t
        """,
    "nested with conditions": """
        s, best = 0, -1.5
        for i in range(n):
            for j in range(m):
                if (i + j) % 2:
                    s += i
                elif j > i:
                    best = s
                    continue_at = j
                    out[10 + j] = continue_at
                else:
                    s -= 1
            if s > best:
                best = s + 0.5
        out[0], out[1] = s, best
        """,
    "other kinds before, in and after": """
        a, b = 0.5, (1, 2)
        for i in range(n):
            a = i
            b = a * 0.25
            a = (b, i)
            out[i] = a[0] + a[1] + b
            a = i
            if i > 1:
                c = "text"
            else:
                c = i
        a, b, c = n, m, 3
        out[20], out[21], out[22] = a, b, c
        """,
    "an integer becomes real": """
        a = 0.0
        for i in range(n):
            a = i
        b = 1.5
        for i in range(n):
            b = b + m
            if i == 1:
                b = 3
        out[0], out[1] = a, b
        """,
    "of Python": """
        s = 0
        for k in (1, n, 3):
            if k > m:
                s += k
            for i in range(k):
                s += i
        for k, name in enumerate(("a", "bc")):
            s += k * len(name)
        out[0] = s
        out[1] = sum(k * n for k in range(4) if k != 2)
        """,
    "names of loops again": """
        s = 0
        for i in range(n):
            s += i
        for i in range(m):
            s += 2 * i
            for j in range(i):
                s += j
        for j in range(n):
            s = 2 * s + j
        out[0] = s
        """,
}


@pytest.mark.parametrize("name", LOOPS)
def test_loops(name):
    check_both(LOOPS[name], *PAIRS)


WHILES = {
    "several variables": """
        a, b, count = n, 1.0, 0
        while a > 0:
            a -= 1 + a % 2
            b = 2 * b + a
            count += 1
        out[0], out[1], out[2] = a, b, count
        """,
    "tuples": """
        state = n, (0, 0.5)
        while state[0] > 0 and state[1][1] < 5:
            state = state[0] - 1, (state[1][0] + state[0], 2 * state[1][1])
        out[0], (out[1], out[2]) = state
        """,
    "nested": """
        a = s = 0
        while a < n:
            b = a
            while b < 3:
                b += 1
                if b == 2:
                    s += 10
            for i in range(b):
                s += i
            a += 1
            out[a] = b
        out[20] = s
        """,
    "an integer as condition": """
        a = max(n, 0)
        while a:
            a = a // 2
            out[a] = a
        out[20] = a
        """,
}


@pytest.mark.parametrize("name", WHILES)
def test_while(name):
    check_both(WHILES[name], *COUNTS)


SHORT = {
    "values": """
        out[0], out[1] = n > 1 and m > 1, n > 1 or m > 1
        out[2], out[3] = n > 1 and m > 1 and n > m, n > 3 or m > 1 or n == m
        out[4], out[5] = n > 1 and (m > 2 or n > m), not (n > 1 and m)
        out[6], out[7] = 0 and n, 3 and n
        out[8], out[9] = 0 or n, 3 or n
        out[10] = n > 1 and 5
        out[11] = n > 1 and 0.5
        """,
    "what follows is done if needed": """
        f = lambda k: at(out, k)
        if n > 1 and f(0) > m:
            out[10] = 1.0
        if n > 1 or f(1) > m:
            out[11] = 1.0
        if 0 and f(2):
            out[12] = 1.0
        if 1 or f(3):
            out[13] = 1.0
        out[14] = f(4) if n > 1 else f(5)
        if n < m < f(6):
            out[15] = 1.0
        """,
    "chains": """
        out[0], out[1] = 0 < n < 3, n <= m <= 2
        out[2], out[3] = 0 < n < m < 9, n == m != 1
        out[4] = 1 < 2 < n
        out[5] = 2 < 1 < n
        """,
    "expressions": """
        out[0] = n if n > m else m
        out[1] = 0.5 if n > m else 2
        out[2] = 1 if n > 2 else 2 if n > 1 else 3 if m else -0.0
        a, b = (n, 1) if m > n else (0.5, m)
        out[3], out[4] = a, b
        out[5] = n if "text" else n[0]
        out[6] = (m if n else 3) // (n if n > 0 else 2)
        """,
}


@pytest.mark.parametrize("name", SHORT)
def test_parts_of_expressions(name):
    text = SHORT[name]
    if "at(out" in text:  # counts how often it is called
        text = text.replace("at(out, k)", "(out.__setitem__(k, out[k] + 1.0), k)[1]")
    check_both(text, *PAIRS)


REFUSED = {
    "a variable that becomes real": """
        a = 0
        for i in range(n):
            a = a + 0.5
        out[0] = a
        """,
    "and in a while loop": """
        a, k = 0, 0
        while k < n:
            out[k] = a
            k, a = k + 1, 0.5
        """,
    "a truth value that becomes an integer": """
        a = n > 2
        for i in range(n):
            a = a + i
        """,
    "a tuple that grows": """
        a = (0,)
        for i in range(n):
            a = (*a, i)
        """,
    "a kind that changes, read by the test of a loop": """
        k = -1
        while k < 0:
            k = n * 0.5
            out[0] = 1.0
        """,
    "a kind that changes, read as an index": """
        k = 0
        for i in range(n):
            out[k] += 1.0
            k = n * 0.5
        """,
    "steps down": """
        for i in range(n, 0, -1):
            out[i] = 1.0
        """,
    "no steps": """
        for i in range(0, n, 0):
            out[i] = 1.0
        """,
    "steps that are not known": """
        for i in range(0, 9, n):
            out[i] = 1.0
        """,
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    with pytest.raises(KernelError):
        compiled_program(REFUSED[name], {"n": False}, "float64")
