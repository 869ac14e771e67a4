"""Groups of matrices that were allocated one by one, on the host and on a device."""

import numpy as np
import pytest

from femops.errors import TensorError
from femops.tensor import Group, group_gemm
from support.cuda import places

place = places.place

SIZES = [(2, 3, 4), (5, 3, 1), (2, 3, 4), (2, 3, 4), (5, 3, 1)]


def groups(dtype="float64"):
    rng = np.random.default_rng(0)
    left, right, out = (
        [rng.standard_normal((sizes[i], sizes[j])).astype(dtype) for sizes in SIZES]
        for i, j in ((0, 2), (2, 1), (0, 1))
    )
    return left, right, out


@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_all_pairs_are_multiplied(place, dtype):
    left, right, out = groups(dtype)
    right[2] = np.asfortranarray(right[2])  # a bucket of its own
    expected = [2 * c - a @ b for a, b, c in zip(left, right, out, strict=True)]
    a, b, c = (place.move(Group(one)) for one in (left, right, out))
    found = group_gemm(a, b, c, alpha=-1.0, beta=2.0)
    for one, other in zip(found.to("cpu"), expected, strict=True):
        assert np.allclose(one, other, rtol=1e-5)
    if place.device is None:
        assert all(one is other for one, other in zip(found, out, strict=True))


def test_transposes_and_empty_groups(place):
    left, right, _ = groups()
    turned = Group(place.put(a).T for a in left)
    found = group_gemm(turned, place.move(Group(right)), transpose_a=True).to("cpu")
    assert all(np.allclose(c, a @ b) for a, b, c in zip(left, right, found, strict=True))
    assert len(group_gemm(Group(), Group())) == 0


def test_extents_of_zero(place):
    left, right = (
        [np.ones(shape) for shape in shapes]
        for shapes in (((2, 0), (2, 2), (0, 4)), ((0, 3), (2, 3), (4, 1)))
    )
    out = [np.full((2, 3), 5.0), np.full((2, 3), 5.0), np.zeros((0, 1))]
    a, b, c = (place.move(Group([x.copy() for x in many])) for many in (left, right, out))
    for one, x, y, z in zip(group_gemm(a, b, c, beta=2.0).to("cpu"), left, right, out, strict=True):
        assert np.array_equal(one, x @ y + 2 * z)
    for one, x, y in zip(group_gemm(a, b).to("cpu"), left, right, strict=True):
        assert np.array_equal(one, x @ y)


def test_bad_groups_are_refused():
    left, right, out = groups()
    a, b, c = Group(left), Group(right), Group(out)
    whole = np.zeros((4, 3))
    for call, message in (
        (lambda: group_gemm(a, Group(right[:2])), "5 and 2 matrices"),
        (lambda: group_gemm(a, b, Group(out[::-1])), "out has matrices of shapes"),
        (lambda: group_gemm(a, b, Group([out[0], out[1], out[0], *out[3:]])), "overlaps"),
        (
            lambda: group_gemm(Group([whole[:2]]), Group([np.eye(3)]), Group([whole[1:3]])),
            "overlaps",
        ),
        (lambda: group_gemm(a, b, beta=1.0), "without out"),
        (lambda: group_gemm(a, Group(x.astype("float32") for x in right)), "one type"),
        (lambda: a.append(np.ones((2, 2), "float32")), "convert it"),
        (lambda: a.append([1.0]), "give NumPy arrays"),
        (lambda: group_gemm(a, a), "columns and b"),
    ):
        with pytest.raises(TensorError, match=message):
            call()
    assert np.array_equal(c[0], groups()[2][0])
