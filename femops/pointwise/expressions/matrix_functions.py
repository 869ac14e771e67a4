"""Eigenvalues and singular values of small matrices, on symbols and on numbers.

The functions use a fixed number of Jacobi rotations without branches. So all lanes, or threads of a
GPU, do the same work. Each rotation is accurate to round-off, even near double eigenvalues.
"""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np

from femops.errors import TraceError
from femops.pointwise.expressions.tensors import where
from femops_common.arguments import array_of

# Sweeps over all pairs after which no number changes any more, by the size of the matrix.
_EIGEN_SWEEPS = {1: 0, 2: 1, 3: 4}
_SINGULAR_SWEEPS = {1: 0, 2: 2, 3: 4}
# Numbers up to this count as zero, as their squares lose digits: the matrix is diagonal already.
_NOTHING = 1e-140


def _square(matrix: Any, what: str) -> Any:
    a = array_of(matrix, "the matrix", TraceError)
    if a.ndim < 2 or a.shape[0] != a.shape[1] or not 0 < a.shape[0] < 4:
        raise TraceError(
            f"{what} of an array of shape {a.shape}: give a 1 x 1, 2 x 2 or 3 x 3 matrix, of "
            "symbols or of arrays of one shape"
        )
    return a


def _rotation(difference: Any, twice: Any) -> tuple[Any, Any, Any]:
    """Tangent, cosine and sine of the angle that diagonalises [[a, b], [b, a + difference]].

    ``twice`` is 2 b.  The angle is at most 45 degrees. Roots and divisions take most of the time of
    a rotation. Three of them suffice. With root = |(difference, twice)| and far = |difference| +
    root, the tangent is twice / far, and far^2 + twice^2 = 2 far root.
    """
    root = np.sqrt(difference * difference + twice * twice)
    far = abs(difference) + root
    turned = where(difference < 0.0, -twice, twice)
    there = root > _NOTHING
    scale = 1.0 / np.sqrt(where(there, 2.0 * far * root, 1.0))
    cosine, sine = where(there, far * scale, 1.0), where(there, turned * scale, 0.0)
    return where(there, 2.0 * root * scale * sine, 0.0), cosine, sine


def _rotate(columns: list[list[Any]], p: int, q: int, cosine: Any, sine: Any) -> None:
    first, second = columns[p], columns[q]
    pairs = list(zip(first, second, strict=True))
    columns[p] = [cosine * x - sine * y for x, y in pairs]
    columns[q] = [sine * x + cosine * y for x, y in pairs]


def eigh_sym(matrix: Any) -> tuple[Any, Any]:
    """Eigenvalues (n, ...) and eigenvectors (n, n, ...) of a symmetric matrix of up to 3 x 3.

    Parameters
    ----------
    matrix : (n, n, ...) array
        Matrix of symbols or numbers, n up to 3.  Further dimensions are for many matrices of
        numbers.  The diagonal and the entries above it are read.

    Returns
    -------
    values : (n, ...) array
        Ascending.
    vectors : (n, n, ...) array
        Eigenvectors of length one; ``vectors[:, k]`` belongs to ``values[k]``.

    Raises
    ------
    TraceError
        If the array has another shape.

    Notes
    -----
    Entries are squared. So they must lie between 1e-150 and 1e150, in float32 between 1e-18 and
    1e18. At equal eigenvalues, eigenvectors have no derivative. There a Jacobian is right for
    symmetric functions of the eigenvalues, but lacks the change of the eigenvectors. So start
    Newton's method near such a state, not at the state.

    Examples
    --------
    >>> import numpy as np
    >>> from femops import eigh_sym
    >>> values, vectors = eigh_sym(np.array([[2.0, 1.0], [1.0, 2.0]]))
    >>> values.round(12).tolist()
    [1.0, 3.0]
    """
    given = _square(matrix, "the eigenvalues")
    n = len(given)
    a = [[given[min(i, j), max(i, j)] for j in range(n)] for i in range(n)]
    unit = np.zeros_like(given[0, 0], dtype=float) if given.dtype != object else 0.0
    vectors: list[list[Any]] = [[unit + float(i == j) for i in range(n)] for j in range(n)]
    for p, q in [*combinations(range(n), 2)] * _EIGEN_SWEEPS[n]:
        tangent, cosine, sine = _rotation(a[q][q] - a[p][p], 2.0 * a[p][q])
        a[p][p], a[q][q] = a[p][p] - tangent * a[p][q], a[q][q] + tangent * a[p][q]
        a[p][q] = a[q][p] = 0.0 * unit
        for r in range(n):
            if r not in (p, q):
                x, y = a[p][r], a[q][r]
                a[p][r] = a[r][p] = cosine * x - sine * y
                a[q][r] = a[r][q] = sine * x + cosine * y
        _rotate(vectors, p, q, cosine, sine)
    values = [a[k][k] for k in range(n)]
    for k in [0, 1, 0] if n == 3 else [0] * (n - 1):
        _order(values, vectors, k)
    return np.array(values), np.array(vectors).swapaxes(0, 1)


def _order(values: list[Any], vectors: list[list[Any]], k: int) -> None:
    """Exchange eigenvalues k and k + 1, and their vectors, if the second is smaller."""
    turned, (x, y) = values[k + 1] < values[k], values[k : k + 2]
    values[k], values[k + 1] = where(turned, y, x), where(turned, x, y)
    first, second = vectors[k : k + 2]
    pairs = list(zip(first, second, strict=True))
    vectors[k] = [where(turned, b, a) for a, b in pairs]
    vectors[k + 1] = [where(turned, a, b) for a, b in pairs]


def svd_min(matrix: Any) -> Any:
    """Smallest singular value of a matrix of up to 3 x 3.

    Parameters
    ----------
    matrix : (n, n, ...) array
        Matrix of symbols or numbers, n up to 3.  Further dimensions are for many matrices of
        numbers.

    Returns
    -------
    symbol or number

    Raises
    ------
    TraceError
        If the array has another shape.

    Notes
    -----
    Entries are raised to the fourth power. So they must lie between 1e-70 and 1e70, in float32
    between 1e-9 and 1e9.

    Examples
    --------
    >>> import numpy as np
    >>> from femops import svd_min
    >>> bool(abs(svd_min(np.array([[3.0, 0.0], [4.0, 5.0]])) - 5**0.5) < 1e-14)
    True
    """
    given = _square(matrix, "the smallest singular value")
    n = len(given)
    columns = [[given[i, j] for i in range(n)] for j in range(n)]
    for p, q in [*combinations(range(n), 2)] * _SINGULAR_SWEEPS[n]:
        squares = [_dot(columns[i], columns[j]) for i, j in ((p, p), (q, q), (p, q))]
        _, cosine, sine = _rotation(squares[1] - squares[0], 2.0 * squares[2])
        _rotate(columns, p, q, cosine, sine)
    least = _dot(columns[0], columns[0])
    for column in columns[1:]:
        square = _dot(column, column)
        least = where(square < least, square, least)
    return np.sqrt(least)


def _dot(a: list[Any], b: list[Any]) -> Any:
    total = a[0] * b[0]
    for x, y in zip(a[1:], b[1:], strict=True):
        total = total + x * y
    return total
