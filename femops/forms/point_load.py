"""Load vector of point sources: sums of values of the test functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from femops.errors import OperatorError
from femops.fields.probes import Probe
from femops.spaces.base import Space
from femops_common.arguments import checked


@checked(OperatorError)
def point_load(
    V: Space,
    points: ArrayLike,
    values: ArrayLike = 1.0,
    *,
    dtype: DTypeLike = np.float64,
) -> NDArray[Any]:
    r"""Load of point sources or forces, (V.size,): :math:`b_i = \sum_k f_k \cdot v_i(x_k)`.

    To load the same points again, make a `Probe` and use `Probe.load`. On a mesh that ranks share,
    all ranks pass the same points and values. Then the function is collective.

    Parameters
    ----------
    V : Space
        Test space. In an L2 space a point on a face loads the element with the lowest number.
    points : (n, dim) or (dim,) numbers
        Positions in the mesh's unit of length; (dim,) is one point.
    values : number, (n,), (ncomp,) or (n, ncomp) array
        The sources f. With one component, a number for all points or one number per point. With
        several components, a vector for all points or one per point; a number is for all
        components.
    dtype : dtype
        Type of the result, float64 or float32; complex128 or complex64, if values may be complex.

    Returns
    -------
    (V.size,) array

    Raises
    ------
    ProbeError
        If points have another shape, are not finite, or are outside the mesh.
    OperatorError
        If values have the wrong shape or are not finite.
    CommunicatorError
        If ranks pass different points or values.

    Examples
    --------
    >>> import femops
    >>> V = femops.H1(femops.box((4, 4)), order=2, ncomp=2)
    >>> b = femops.point_load(V, [0.3, 0.4], (0.0, -2.0))
    >>> V.components(b).sum(axis=0).round(12).tolist()
    [0.0, -2.0]
    """
    mesh = V.mesh if V.distributed is None else V.distributed
    return Probe(mesh, points).load(V, values, dtype=dtype)
