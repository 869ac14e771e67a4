"""Matrices of NGSolve and MFEM on triangles and tetrahedra, by change of basis.

The values of their functions at our nodes are a matrix C. Then theirs is C^T A C, whatever their
functions and numbers are.
"""

import numpy as np
import pytest
from scipy.sparse import csr_array

import femops
from support.simplex_meshes import graded

CASES = [(dim, p) for dim in (2, 3) for p in (1, 2, 3, 4)]


def corners_of(mesh):
    """Vertices (nv, dim), and elements with positive determinants."""
    points = np.zeros((mesh.num_vertices, mesh.dim))
    points[mesh.elements] = mesh.coordinates[:, : mesh.dim + 1]
    elements = mesh.elements.copy()
    mirrored = np.linalg.det(points[elements[:, 1:]] - points[elements[:, :1]]) < 0
    elements[mirrored, -2:] = elements[mirrored, :-3:-1]
    return points, elements


def change_of_basis(V, corners, dofs, shapes, size):
    """Values (ndofs, size) of their functions at our nodes.

    ``corners[k]`` are the vertices (dim + 1, dim) of element k as they have them, ``dofs[k]`` its
    functions, and ``shapes(k, x)`` the values of these at a reference point as they have them.
    """
    x, result = V.dof_coordinates(), np.zeros((V.ndofs, size))
    for k, c in enumerate(corners):
        edges = (c[:-1] - c[-1]).T  # theirs: the last vertex is the origin
        for i in V.restriction.indices[k]:
            result[i] = 0.0
            result[i, dofs[k]] = shapes(k, np.linalg.solve(edges, x[i] - c[-1]))
    return result


def check(A, C, theirs):
    largest = np.abs(theirs).max()
    assert np.abs(C.T @ (A @ C) - theirs).max() < 1e-12 * largest
    assert np.abs(C.T @ (A.assemble() @ C) - theirs).max() < 1e-12 * largest


@pytest.mark.parametrize(("dim", "p"), CASES)
def test_matrices_of_ngsolve(dim, p):
    ng = pytest.importorskip("ngsolve", reason="needs the extra peers")
    import netgen.meshing as netgen

    mesh = graded(dim)
    points, elements = corners_of(mesh)
    made = netgen.Mesh()
    made.dim = dim
    numbers = [made.Add(netgen.MeshPoint(netgen.Pnt(*x, *[0.0] * (3 - dim)))) for x in points]
    face = made.Add(netgen.FaceDescriptor(surfnr=1, domin=1, bc=1)) if dim == 2 else 1
    kind = netgen.Element2D if dim == 2 else netgen.Element3D
    for row in elements:
        made.Add(kind(face, [numbers[k] for k in row]))
    theirs = ng.Mesh(made)

    W, vectors = ng.H1(theirs, order=p), ng.VectorH1(theirs, order=p)
    ids = [ng.ElementId(ng.VOL, k) for k in range(mesh.num_elements)]
    V = femops.H1(mesh, p)
    C = change_of_basis(
        V,
        [np.array([points[v.nr] for v in theirs[k].vertices]) for k in ids],
        [np.array(W.GetDofNrs(k)) for k in ids],
        lambda k, x: np.asarray(W.GetFE(ids[k]).CalcShape(*x)),
        W.ndof,
    )
    Cs = np.zeros((V.ndofs, dim, dim * W.ndof))
    for c in range(dim):
        Cs[:, c, c * W.ndof : (c + 1) * W.ndof] = C
    Cs = Cs.reshape(-1, dim * W.ndof)

    def matrix(integrand):
        A = ng.BilinearForm(integrand * ng.dx(bonus_intorder=4)).Assemble().mat
        values, columns, starts = A.CSR()
        given = values.NumPy().copy(), np.array(columns), np.array(starts)
        return csr_array(given, shape=(A.height, A.width)).toarray()

    rising, squares, n = 1 + ng.x * ng.x, lambda x: 1 + x[0] ** 2, p + 3
    tensor = np.array([[2, 0.5, 0.1], [0.5, 1, 0.3], [-0.1, 0.2, 3]])[:dim, :dim]
    beta = np.array([1, 0.5, -2])[:dim]
    u, v = W.TnT()
    flux = ng.CF(tuple(tensor.ravel()), dims=(dim, dim)) * ng.grad(u)
    for A, integrand in (
        (femops.mass(V, 3.0), 3.0 * u * v),
        (femops.mass(V, squares, quadrature=n), rising * u * v),
        (femops.diffusion(V, squares, quadrature=n), rising * ng.grad(u) * ng.grad(v)),
        (femops.diffusion(V, tensor), flux * ng.grad(v)),
        (femops.convection(V, beta), ng.CF(tuple(beta)) * ng.grad(u) * v),
    ):
        check(A, C, matrix(integrand))
    U = femops.H1(mesh, p, ncomp=dim)
    u, v = vectors.TnT()
    strains = ng.InnerProduct(ng.Sym(ng.Grad(u)), ng.Sym(ng.Grad(v)))
    for A, integrand in (
        (femops.elasticity(U, 2.0, 0.3), 2.0 * ng.div(u) * ng.div(v) + 0.6 * strains),
        (
            femops.elasticity(U, squares, lambda x: 2 + x[0], quadrature=n),
            rising * ng.div(u) * ng.div(v) + 2 * (2 + ng.x) * strains,
        ),
    ):
        check(A, Cs, matrix(integrand))


@pytest.mark.parametrize(("dim", "p"), CASES)
def test_matrices_of_mfem(dim, p):
    mfem = pytest.importorskip("mfem.ser", reason="needs the extra peers")
    mesh = graded(dim)
    points, elements = corners_of(mesh)
    theirs = mfem.Mesh(dim, len(points), len(elements))
    for x in points:
        theirs.AddVertex(*x)
    for row in elements.tolist():
        (theirs.AddTriangle if dim == 2 else theirs.AddTet)(*row)
    (theirs.FinalizeTriMesh if dim == 2 else theirs.FinalizeTetMesh)(1, 0, False)

    functions = mfem.H1_FECollection(p, dim)
    scalar = mfem.FiniteElementSpace(theirs, functions)
    vectors = mfem.FiniteElementSpace(theirs, functions, dim, mfem.Ordering.byVDIM)
    place = mfem.IntegrationPoint()

    def shapes(k, x):
        (place.Set2 if dim == 2 else place.Set3)(*x)
        element = scalar.GetFE(k)
        values = mfem.Vector(element.GetDof())
        element.CalcShape(place, values)
        return np.array(values.GetDataArray())

    def matrix(integrator, space=scalar):
        form = mfem.BilinearForm(space)
        form.AddDomainIntegrator(integrator)
        form.Assemble()
        form.Finalize()
        A = form.SpMat()
        given = (np.array(part()) for part in (A.GetDataArray, A.GetJArray, A.GetIArray))
        return csr_array(tuple(given), shape=(A.Height(), A.Width())).toarray()

    V, every = femops.H1(mesh, p), range(mesh.num_elements)
    C = change_of_basis(
        V,  # the first vertex is the origin
        [np.roll(points[list(theirs.GetElementVertices(k))], -1, axis=0) for k in every],
        [list(scalar.GetElementDofs(k)) for k in every],
        shapes,
        scalar.GetVSize(),
    )
    beta, constant = np.array([1, 0.5, -2])[:dim], mfem.ConstantCoefficient
    wind = mfem.VectorConstantCoefficient(mfem.Vector(beta.tolist()))
    for A, integrator in (
        (femops.mass(V), mfem.MassIntegrator()),
        (femops.diffusion(V, 2.5), mfem.DiffusionIntegrator(constant(2.5))),
        (femops.convection(V, beta), mfem.ConvectionIntegrator(wind)),
    ):
        check(A, C, matrix(integrator))
    U = femops.H1(mesh, p, ncomp=dim)
    integrator = mfem.ElasticityIntegrator(constant(2.0), constant(0.3))
    check(femops.elasticity(U, 2.0, 0.3), np.kron(C, np.eye(dim)), matrix(integrator, vectors))
