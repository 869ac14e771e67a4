"""Partitions by METIS: parts of about equal weight with few faces between them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops_meshes.errors import MeshExtraError
from femops_meshes.mesh import Mesh
from femops_meshes.mixed import MixedMesh
from femops_meshes.shared_faces import inner_faces

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_TOTAL_WEIGHT = 2**30
"""Sum of METIS' whole-number weights, which must fit into 32 bits in some builds."""


def metis_owner(mesh: Mesh | MixedMesh, size: int, weights: Floats | None = None) -> Ints:
    """Owner (ne,) of each element in METIS' partition of the graph of elements that share faces.

    Parts are numbered in the order of their first elements. Empty parts come last. If there are no
    more elements than parts, each element has its own part.

    Notes
    -----
    G. Karypis and V. Kumar, "A fast and high quality multilevel scheme for partitioning irregular
    graphs", SIAM Journal on Scientific Computing 20 (1998), 359.
    """
    pymetis = _pymetis()
    count = mesh.num_elements
    if count <= size:
        return np.arange(count, dtype=np.int64)
    whole = pymetis.zero_copy_dtype()
    starts, others, faces = _graph(mesh)
    heaviness = None
    if weights is not None:
        heaviness = np.maximum(1, np.rint(weights * (_TOTAL_WEIGHT / weights.sum()))).astype(whole)
    found = pymetis.part_graph(
        size,
        pymetis.CSRAdjacency(starts.astype(whole), others.astype(whole)),
        vweights=heaviness,
        eweights=faces.astype(whole),
    )
    labels = np.asarray(found.vertex_part, dtype=np.int64)
    first, number = np.unique(labels, return_index=True, return_inverse=True)[1:]
    order = np.argsort(first)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    result: Ints = rank[number]
    return result


def _graph(mesh: Mesh | MixedMesh) -> tuple[Ints, Ints, Ints]:
    """Return ``starts`` (ne + 1,), ``neighbours`` (n,) and ``faces`` (n,), the graph of elements.

    Neighbours of element e are ``neighbours[starts[e]:starts[e + 1]]``. ``faces`` has the number of
    faces that e shares with each neighbour.
    """
    count, inner = mesh.num_elements, inner_faces(mesh.parts)[0]
    one, other = np.concatenate([inner, inner[:, ::-1]]).T
    edges, faces = np.unique(one * count + other, return_counts=True)
    starts = np.searchsorted(edges, np.arange(count + 1, dtype=np.int64) * count)
    return starts, edges % count, faces


def _pymetis() -> Any:
    try:
        import pymetis
    except ImportError as error:
        raise MeshExtraError(
            f"partitions by METIS need the package pymetis ({error}): "
            "pip install pymetis, or choose the method 'curve'"
        ) from error
    return pymetis
