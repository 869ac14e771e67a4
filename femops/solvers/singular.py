"""Likely cause of failed solves: the operator maps constants or rigid motions to zero."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from femops.geometry.bodies import bodies
from femops.operators import Operator
from femops.solvers.inner_products import Sums
from femops.spaces.base import Space
from femops.spaces.h1_l2 import L2

Vector = NDArray[Any]
# Bounds of the round-off of A v, times the machine's precision: for an entry, and for the norm.
# Measured for orders 1 to 8 on curved meshes, also with coefficients that jump by 1e8: 180, and 3.
_ENTRY, _NORM = 2000.0, 32.0
_HELD = 1e-12  # eigenvalues below this part of the largest are round-off of constrained dofs
_TRIALS = 3


def singular_cause(
    A: Operator, b: Vector, tolerance: float, form: str = "", advice: str = ""
) -> str:
    """Explain that A is singular, if it maps constants or rigid motions to zero. Collective.

    Only vectors that vanish at all constrained dofs are tried. A maps v to zero if A v is
    round-off, that is small compared with A r, where r is v times random numbers.

    Shapes: `b` (size,).
    """
    rng, sums = np.random.default_rng(0), Sums(A.space)
    found = null_vectors(A)
    if not found:
        return ""
    names = ", ".join(dict.fromkeys(name for name, _ in found))
    subject, name = (f"The Jacobian of {form}", form) if form else ("A", "A")
    text = f"{subject} is singular: it takes {names} to zero"
    part = max(abs(sums.dot(b, v)) / sums.norm(v) for _, v in found)
    on_both_sides = A.symmetric or all(_vanishes(A.T, v, sums, rng) for _, v in found)
    if on_both_sides and part <= tolerance:
        whole = f"{text}. But b has no part along them, so there are solutions. {advice}"
        return "" if form else whole.rstrip()
    text += ". "
    if A.space.comm.max(len(A.constraints.columns)):
        text += "Constrain a dof that they move."
        if "bodies" in names:
            text += (
                " Bodies share no vertices: if they should be one, join the faces that "
                "`femops mesh info` calls unjoined."
            )
    elif isinstance(A.space, L2):
        text += (
            "If fluxes are given on the whole boundary, the load must balance them "
            "(docs/boundary_conditions.md)."
            if any(term.fields.two_sided for _, term in A.summands)
            else "On an L2 space only integrals over faces couple the elements: take "
            "femops.interior_penalty for a diffusion, or add a mass."
        )
    else:
        then = "" if form else " and b = A.rhs(b, values)"
        text += (
            f"Was constrained() forgotten? Write {name} = {name}.constrained(V.boundary_dofs())"
            f"{then}. If fluxes are given on the whole boundary, the load must balance them "
            "(docs/boundary_conditions.md)."
        )
    if not form and on_both_sides:
        text += f" b has a part along them, of norm {part:.2g}, so no x solves A x = b."
    return text


def null_vectors(A: Operator) -> list[tuple[str, Vector]]:
    """Constants and rigid motions (size,) that A takes to zero, with their names. Collective."""
    rng, sums = np.random.default_rng(0), Sums(A.space)
    return [(name, v) for name, v in _motions(A) if _vanishes(A, v, sums, rng)]


def is_singular(A: Operator) -> bool:
    """True if A takes constants or rigid motions to zero, as far as products tell. Collective."""
    return bool(null_vectors(A))


def rigid_motions(A: Operator) -> list[tuple[str, Vector]]:
    """Constants and rotations (size,) of each field, with zeros at constrained dofs. Collective."""
    space, memory, first = A.space, A.space.memory, 0
    fields = [("", space)] if isinstance(space, Space) else list(space.spaces.items())
    held, found = memory.put(A.constraints.columns), list[tuple[str, Vector]]()
    for field, V in fields:
        for name, v in _rigid(V):
            whole = space.zeros(A.dtype)
            whole[first : first + V.size] = v
            whole[held] = 0.0
            found.append((f"{name} of {field}" if field else name, whole))
        first += V.size
    return found


def _motions(A: Operator) -> Iterator[tuple[str, Vector]]:
    """Yield constants and rigid motions that vanish at all constrained dofs, with their names."""
    space, memory = A.space, A.space.memory
    fields = [("", space)] if isinstance(space, Space) else list(space.spaces.items())
    first = 0
    for field, V in fields:
        columns = A.constraints.columns
        columns = columns[(columns >= first) & (columns < first + V.size)] - first
        held = memory.put(columns)
        names, vectors = zip(*_rigid(V), strict=True)
        at_held = np.array([memory.get(v[held]) for v in vectors]).reshape(len(vectors), -1)
        for name, weights in _unheld(names, space.comm.sum(at_held @ at_held.T)):
            v = sum(w * u for w, u in zip(weights.tolist(), vectors, strict=True) if w)
            v[held] = 0.0
            whole = space.zeros(A.dtype)
            whole[first : first + V.size] = v
            if space.comm.max(int(bool(whole.any()))):
                yield f"{name} of {field}" if field else name, whole
        for name, v in _of_bodies(V, columns):
            whole = space.zeros(A.dtype)
            whole[first : first + V.size] = v
            yield f"{name} of {field}" if field else name, whole
        first += V.size


def _rigid(V: Space) -> Iterator[tuple[str, Vector]]:
    """Yield constants of each component; also rotations if ncomp is the dimension."""
    for c in range(V.ncomp):
        name = f"constants of component {c}" if V.ncomp > 1 else "constants"
        yield name, V.interpolate(1.0 if V.ncomp == 1 else np.eye(V.ncomp)[c])
    if V.ncomp != V.dim:
        return
    for i in range(V.dim):
        for j in range(i):

            def turned(x: Vector, i: int = i, j: int = j) -> Vector:
                result = np.zeros_like(x)
                result[i], result[j] = x[j], -x[i]
                return result

            yield "rotations", V.interpolate(turned)


def _of_bodies(V: Space, held: NDArray[np.int64]) -> Iterator[tuple[str, Vector]]:
    """Yield constants of each component on the bodies without constrained dofs, if others have any.

    Ranks do not know the bodies of the whole mesh, so on several ranks there are none.
    """
    if V.comm.size > 1 or not len(held):
        return
    body, first = bodies(V.mesh), 0
    of_node = np.zeros(V.ndofs, dtype=np.int64)
    for part in V.parts:
        end = first + part.mesh.num_elements
        rows = np.repeat(body[first:end, np.newaxis], part.restriction.num_nodes, 1)
        of_node = np.maximum(of_node, part.restriction.assigned(rows))
        first = end
    free = np.ones((int(body.max(initial=0)) + 1, V.ncomp), dtype=bool)
    free[of_node[held // V.ncomp], held % V.ncomp] = False
    for c in range(V.ncomp):
        count = int(free[:, c].sum())
        if 0 < count < len(free):
            v = np.zeros((V.ndofs, V.ncomp))
            v[:, c] = free[of_node, c]
            name = f"constants of component {c}" if V.ncomp > 1 else "constants"
            yield f"{name} in {count} of {len(free)} bodies", V.memory.put(v.reshape(-1))


def _unheld(
    names: tuple[str, ...], gram: NDArray[np.float64]
) -> Iterator[tuple[str, NDArray[np.float64]]]:
    """Yield combinations of motions that vanish at the constrained dofs: a name and weights (k,).

    ``gram`` has the inner products of the vectors over the constrained dofs.
    """
    free = np.diag(gram) == 0.0
    for k in np.flatnonzero(free):
        yield names[k], np.eye(len(names))[k]
    some = np.flatnonzero(~free)
    if len(some) > 1:
        values, vectors = np.linalg.eigh(gram[np.ix_(some, some)])
        for k in np.flatnonzero(values <= _HELD * values[-1]):
            weights = np.zeros(len(names))
            weights[some] = vectors[:, k]
            yield "a rigid motion", weights


def _vanishes(A: Operator, v: Vector, sums: Sums, rng: np.random.Generator) -> bool:
    """True if A v is only round-off. Collective."""
    scale, product = _scale(A, v, rng), abs(A.apply(v))
    eps = float(np.finfo(A.dtype).eps)
    above = int(bool((product > _ENTRY * eps * scale).any()))
    return not A.space.comm.max(above) and sums.norm(product) <= _NORM * eps * sums.norm(scale)


def entry_round_off(A: Operator, v: Vector) -> Vector:
    """Bounds (size,) of the round-off in the entries of A v."""
    found: Vector = _ENTRY * float(np.finfo(A.dtype).eps) * _scale(A, v, np.random.default_rng(0))
    return found


def _scale(A: Operator, v: Vector, rng: np.random.Generator) -> Vector:
    """Sizes (size,) of the terms in A v: entries of A r, where r is v times random numbers."""
    xp, put = A.space.memory.xp, A.space.memory.put
    scale: Vector = xp.zeros_like(v)
    for _ in range(_TRIALS):
        factors = rng.uniform(-1.0, 1.0, len(v)).astype(A.dtype)
        scale = xp.maximum(scale, abs(A.apply(v * put(factors))))
    return scale
