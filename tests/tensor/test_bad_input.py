"""Bad input gets one error, which names the cure, and writes nothing."""

import numpy as np
import pytest

from femops.errors import TensorError
from femops.tensor import (
    Batch,
    Index,
    Interleaved,
    Layout,
    Mapped,
    Tiled,
    einsum,
    gemm,
    limit,
    solve,
)

A, B, C = np.ones((5, 3, 4)), np.ones((5, 4, 2)), np.zeros((5, 3, 2))
i, j, k = (Index(name) for name in "ijk")


def frozen():
    array = C.copy()
    array.flags.writeable = False
    return array


def overlapping_members():
    return np.lib.stride_tricks.as_strided(np.zeros(64), (5, 3, 2), (8, 16, 8))


class _Gaps(Layout):
    """Every other place in groups of four."""

    def lanes(self, dtype):
        return 4

    def offsets(self, shape):
        return 2 * np.arange(np.prod(shape)).reshape(shape)


CASES = {
    "inner sizes": (lambda: gemm(A, A), "4 columns and b 3 rows"),
    "members": (lambda: gemm(A, B[:3]), r"\[3, 5\] members"),
    "mixed types": (lambda: gemm(A, B.astype("float32")), "float32, float64.*: convert"),
    "integers": (lambda: gemm(A.astype(int), B), "int64: convert"),
    "a list": (lambda: gemm([[1.0]], B), "list: give a NumPy array"),
    "dimensions": (lambda: gemm(np.ones(3), B), "give 3 dimensions"),
    "shape of out": (lambda: gemm(A, B, C[:, :2]), "give"),
    "out that can't be written": (lambda: gemm(A, B, frozen()), "can't be written"),
    "out that overlaps an operand": (
        lambda: gemm(A[:, :, :3], A[:, :, 1:], A[:, :, :3]),
        "rows|overlaps",
    ),
    "out that is an operand": (lambda: gemm(np.eye(3), X := np.ones((5, 3, 3)), X), "overlaps"),
    "members that overlap": (lambda: gemm(A, B, overlapping_members()), "overlap"),
    "one place for all": (lambda: gemm(A, B, np.broadcast_to(0.0, C.shape)), "can't be written"),
    "beta alone": (lambda: gemm(A, B, beta=1.0), "without out"),
    "complex factor": (lambda: gemm(A, B, alpha=1j), "give a real one"),
    "unknown index": (lambda: einsum("ij,jk->iz", A, B), "index z is in no operand"),
    "repeated index": (lambda: einsum("ij,jk->ii", A, B), "index i is twice"),
    "ellipsis": (lambda: einsum("...ij,jk->ik", A, B), "a batch has none"),
    "operands": (lambda: einsum("ij->ij", A, B), "names 1 operands"),
    "sizes": (lambda: einsum("ij,ik->jk", A, B), "index i is 3 long"),
    "batch": (lambda: einsum("ij,jk->ik", A, B, batch=3), "no such dimension"),
    "two indices at one place": (
        lambda: Batch((2, 2), 3, layout=Mapped(lambda i, j: i + j)),
        r"\(0, 1\) and \(1, 0\)",
    ),
    "a place below zero": (lambda: Batch((2,), 3, layout=Mapped(lambda i: i - 1)), "count from 0"),
    "tiles": (lambda: Batch((2, 2), 3, layout=Tiled((2,))), "a size >= 1 for each"),
    "groups": (lambda: Interleaved(3), "choose 2, 4, 8 or 16"),
    "a part of a group": (
        lambda: Batch((2,), 20, layout=Interleaved(8))[3:9],
        "begin and end with groups",
    ),
    "member out of bounds": (lambda: Batch((2,), 3)[3], "member 3 of 3"),
    "range out of bounds": (lambda: Batch((2,), 3)[:, 5], "out of bounds"),
    "index beyond": (lambda: Batch((2, 2), 3)[i, Index("m", 0, 3)], "m runs from 0 to 3"),
    "backward range": (lambda: Index("m", 3, 2), "0 <= start <= stop"),
    "range beyond no entries": (lambda: Batch((0,), 3)[Index("m", 1)], "the tensor has 0 there"),
    "sizes of entries": (lambda: Batch((-1,), 3), "sizes >= 0"),
    "inner sizes of which one is 0": (lambda: gemm(A, B[:, :0]), "4 columns and b 0 rows"),
    "a layout of two indices": (
        lambda: Batch((2,), 3, layout=Mapped(lambda i, j: i + j, "pairs")),
        r"Mapped\(pairs\) has no offsets .*: give a layout that takes 1 indices",
    ),
    "gaps of groups": (lambda: Batch.wrap(np.zeros((2, 3, 4)), _Gaps()), "without gaps"),
    "no members to limit": (lambda: limit("ij,jk->ik", A[:0], B[:0]), "one or more"),
    "no entries to limit": (lambda: limit("ij->i", A[:, :0]), "sizes of 1 or more"),
    "values": (lambda: Batch((2,), 3).assign(np.ones((3, 4))), "values of shape"),
    "right sides": (lambda: solve(np.ones((5, 3, 3)), B), "right sides of shape"),
    "None": (lambda: solve(np.ones((5, 3, 3)), None), "NoneType in place of an array"),
    "square": (lambda: solve(A, B), "give \\(members, n, n\\)"),
    "mixed solves": (
        lambda: solve(np.ones((2, 2, 2), complex), np.ones((2, 2))),
        "right sides of float64 for matrices of complex128",
    ),
    "assumption": (lambda: solve(np.ones((1, 2, 2)), np.ones((1, 2)), assume="banded"), "assume"),
}


def test_refused():
    for call, message in CASES.values():
        with pytest.raises(TensorError, match=message):
            call()


def test_indexed_updates_are_checked_before_anything_is_written():
    a, c = Batch.wrap(A), Batch((3, 4), 5)
    for wrong, message in (
        (lambda: a[i, j] * 1.0 + a[i, k], "index j"),
        (lambda: a[i, k] * c[k, j], "4 and 3|overlaps|long in one"),
        (lambda: np.ones(3), "give products"),
    ):
        with pytest.raises(TensorError, match=message):
            c[i, j] += wrong()
    with pytest.raises(TensorError, match="twice in the result"):
        c[i, i] = a[i, j]
    with pytest.raises(TensorError, match="indices for tensors"):
        c[i]
    assert not c.numpy().any()


def test_what_is_added_to_one_tensor_is_not_set_to_another():
    first, second, c, d = (Batch((2, 2), 3).assign(value) for value in (1.0, 2.0, 3.0, 4.0))
    added = c[i, j]
    added += first[i, k] * second[k, j]
    for target, parts in ((d, (i, j)), (c, (j, i)), (c, (i, k))):
        with pytest.raises(TensorError, match="other entries"):
            target[parts] = added
    assert (c.numpy() == 3.0).all()
    assert (d.numpy() == 4.0).all()
    c[i, j] = added
    assert (c.numpy() == 7.0).all()
