"""Integrals over simplices by monomials and collapsed Gauss points, in NumPy alone."""

import itertools

import basix
import numpy as np


def monomials(dim, degree, x):
    """Values (n, m) and derivatives (dim, n, m) of all monomials of a degree at x (n, dim)."""
    powers = [e for e in itertools.product(range(degree + 1), repeat=dim) if sum(e) <= degree]
    e = np.array(powers)
    values = np.prod(x[:, None, :] ** e, axis=2)
    slopes = []
    for d in range(dim):
        lower = e.copy()
        lower[:, d] = np.maximum(lower[:, d] - 1, 0)
        slopes.append(e[:, d] * np.prod(x[:, None, :] ** lower, axis=2))
    return values, np.array(slopes)


def collapsed(dim, n):
    """Points (n**dim, dim) and weights of a simplex, by Duffy's map of Gauss points."""
    t, w = np.polynomial.legendre.leggauss(n)
    t, w = (1 + t) / 2, w / 2
    if dim == 1:
        return t[:, None], w
    inner, weights = collapsed(dim - 1, n)
    points = [np.column_stack([np.full(len(inner), s), (1 - s) * inner]) for s in t]
    return np.concatenate(points), np.concatenate(
        [a * (1 - s) ** (dim - 1) * weights for a, s in zip(w, t, strict=True)]
    )


def reference_nodes(dim, degree):
    """Nodes as basix has them, without femops."""
    kind = {1: basix.CellType.interval, 2: basix.CellType.triangle, 3: basix.CellType.tetrahedron}
    family, variant = basix.ElementFamily.P, basix.LagrangeVariant.gll_isaac
    return basix.create_element(family, kind[dim], degree, variant).points


def nodal(dim, degree, x):
    """Values (n, m) and derivatives (dim, n, m) of Lagrange's functions at x (n, dim)."""
    inverse = np.linalg.inv(monomials(dim, degree, reference_nodes(dim, degree))[0])
    values, slopes = monomials(dim, degree, x)
    return values @ inverse, slopes @ inverse


def product(space, function, u, points=8, rule=None):
    """Sum over the elements of the integral of a form for a vector u, as a vector (size,).

    ``rule`` has points (n, dim) and weights; by default collapsed Gauss points are taken.

    ``function(value (n, c), gradient (n, c, dim), x (n, dim))`` returns the factors of the test
    function (n, c) and of its gradient (n, c, dim).
    """
    mesh, dim, c = space.mesh, space.dim, space.ncomp
    x, w = rule or collapsed(dim, points)
    values, slopes = nodal(dim, space.order, x)
    of_map, map_slopes = nodal(dim, mesh.order, x)
    u, result = u.reshape(-1, c), np.zeros((space.ndofs, c))
    for e, nodes in enumerate(mesh.coordinates):
        jacobian = np.einsum("dnm,mi->nid", map_slopes, nodes)
        weights, inverse = w * abs(np.linalg.det(jacobian)), np.linalg.inv(jacobian)
        gradients = np.einsum("dnm,ndi->nmi", slopes, inverse)
        dofs = space.restriction.indices[e]
        here = np.einsum("nm,mc->nc", values, u[dofs])
        along = np.einsum("nmi,mc->nci", gradients, u[dofs])
        f, g = function(here, along, of_map @ nodes)
        result[dofs] += np.einsum("n,nm,nc->mc", weights, values, f)
        result[dofs] += np.einsum("n,nmi,nci->mc", weights, gradients, g)
    return result.reshape(-1)


def at_positions(space, u, element, x):
    """Values (n,) and gradients (n, dim) of u at positions x (n, dim) in a straight element."""
    corners = space.mesh.coordinates[element][: space.dim + 1]
    edges = (corners[1:] - corners[0]).T
    values, slopes = nodal(space.dim, space.order, (x - corners[0]) @ np.linalg.inv(edges).T)
    own = u[space.restriction.indices[element]]
    return values @ own, np.einsum("dnm,m,di->ni", slopes, own, np.linalg.inv(edges))


def face_sums(space, u, v, function, points=6):
    """Sums over the faces between elements, and over the outer ones, of a function of both fields.

    ``function(jumps, means, n, h)`` gets the jumps (u, v), the mean gradients (of u, of v), the
    normal and the heights (n,) of the elements on the face; on an outer face there is one element.
    """
    mesh, dim, faces = space.mesh, space.dim, {}
    for e, row in enumerate(mesh.elements.tolist()):
        for k in range(dim + 1):
            faces.setdefault(tuple(sorted(row[:k] + row[k + 1 :])), []).append((e, k))
    t, w = collapsed(dim - 1, points)
    totals = [0.0, 0.0]
    for sides in faces.values():
        e, k = sides[0]
        corners = mesh.coordinates[e][: dim + 1]
        apex, face = corners[k], np.delete(corners, k, axis=0)
        along = (face[1:] - face[0]).T
        area = np.sqrt(np.linalg.det(along.T @ along))
        n = np.linalg.svd(along)[0][:, -1]
        n = n if n @ (apex - face[0]) < 0 else -n
        x = face[0] + t @ along.T
        found = [[at_positions(space, one, side, x) for one in (u, v)] for side, _ in sides]
        heights = [abs(n @ (mesh.coordinates[side][j] - face[0])) for side, j in sides]
        signs = (1, -1)[: len(sides)]
        jumps = [
            sum(s * one[field][0] for s, one in zip(signs, found, strict=True)) for field in (0, 1)
        ]
        means = [np.mean([one[field][1] for one in found], axis=0) for field in (0, 1)]
        totals[len(sides) == 1] += area * (w * function(jumps, means, n, heights)).sum()
    return totals
