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


def product(space, function, u, points=8):
    """Sum over the elements of the integral of a form for a vector u, as a vector (size,).

    ``function(value (n, c), gradient (n, c, dim), x (n, dim))`` returns the factors of the test
    function (n, c) and of its gradient (n, c, dim).
    """
    mesh, dim, c = space.mesh, space.dim, space.ncomp
    x, w = collapsed(dim, points)
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
