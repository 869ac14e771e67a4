"""Sizes and q-function with which the skeletons are read, linted and tried.

``specialize`` replaces them. The names here are all that a specialised kernel takes from the
operator for which it is made.
"""

from femops_kernels.simd.compiling import inner
from femops_kernels.simd.lanes import Lane
from femops_kernels.simd.matrix import Matrix1D
from femops_kernels.simd.runs import equal_runs
from femops_kernels.simd.sides import ElementSide

LANE = Lane(8, "float64")
LANE_WIDTH = 8
LANE_BYTES = 64
# Lane vectors after which addresses share a set of the first-level cache. Planes are not so far
# apart, as all entries of a line across them would compete for one set.
PAGE = 64
REAL_BYTES = 8
DIM = 3
NCOMP_IN, NCOMP_OUT = 1, 1  # components of the field and of the test function
P_IN, P_OUT = 2, 2  # their nodes along x
NODES_IN, NODES_OUT = 8, 8  # all nodes of an element
RUNS_IN, RUNS_OUT = equal_runs(3, 2), equal_runs(3, 2)  # runs of nodes with consecutive dofs
SOURCES = (ElementSide(0, 0, 1, 0, 2, RUNS_IN),)  # fields, of which those above tell the first
TARGETS = (ElementSide(0, 0, 1, 0, 2, RUNS_OUT),)  # test functions
ALIKE = True  # a field and a test function of one block have one plan
SIGNED = False  # a number of a copied dof, or of a contribution, may be the complement: minus it
HANGING = True  # some side has hanging entities, see ``hanging.py``
# for each field and test function of a locally refined mesh (2 nodes, nodes): matrices to both
# halves of an edge, one after the other, else None; whether hanging nodes read zero
HALVES_IN, HALVES_OUT = (Matrix1D(((1.0, 0.0),) * 4),), (Matrix1D(((1.0, 0.0),) * 4),)
MASKED_IN, MASKED_OUT = (False,), (False,)
MINIMA, SUMS = (), ()  # components that are functionals, behind those of the test functions
Q1D = 2  # quadrature points per direction
POINTS = 8  # Q1D ** DIM, of faces Q1D ** (DIM - 1)
# the numbers that the q-function is given, in this order
NELEMENT = 0  # constant in an element
NJACOBIAN = 0  # DIM ** 2 or none: the Jacobian, by rows, from the modes of the geometry
NPOSITION = 0  # DIM or none: the position
NWEIGHT = 0  # 1 or none: the quadrature weight on the reference element
NCONSTANT = 0  # the same everywhere
NQDATA = 1  # stored at a quadrature point
STORED = Lane(8, "float64")  # how these are stored; LANE or narrower
STORED_BYTES = 64
VALUE_IN, VALUE_OUT = True, True  # the q-function reads u, writes v
SHORT = True  # the q-function is repeated for each point of a line
GRAD_IN, GRAD_OUT = False, False  # it reads ux, uy, uz, writes vx, vy, vz (reference derivatives)
# ranges of components: (first, one past the last, whether values are used as well as derivatives)
SLOPES_IN, SLOPES_OUT = (), ()
BY_ELEMENT = True  # results are added element by element, see ``by_element.py``
BY_CHUNK = False  # other work on the vectors is done for a chunk at once, not batch by batch
PREFETCH = True  # ask for the next batch's quadrature data while working on this one
FAR = 2**14  # bytes ahead that are prefetched to the second-level cache
ROWS_AHEAD = 1200  # with many vectors: rows from those worked on to those prefetched

B = Matrix1D(((1.0, 0.0), (0.0, 1.0)))
# collocated derivative at the quadrature points, (Q1D, Q1D), and its transpose
D = Matrix1D(((-1.0, 1.0), (-1.0, 1.0)))
DT = Matrix1D(((-1.0, -1.0), (1.0, 1.0)))
# interpolation of each field along x, y and z, (Q1D, nodes); transposed, of each test function
BASES, TRANSPOSED = ((B, B, B),), ((B, B, B),)
# for faces with derivatives: value and derivative at the low end of the last direction, (2, P_IN)
# for each field, and the transpose (P_OUT, 2) for each test function
ENDS_IN = (Matrix1D(((1.0, 0.0), (-1.0, 1.0))),)
ENDS_OUT = (Matrix1D(((1.0, -1.0), (0.0, 1.0))),)
# 1-D mass and stiffness matrix of each direction, (nodes of the test function, of the field)
MASS = (Matrix1D(((2.0, 1.0), (1.0, 2.0))),) * 3
STIFF = (Matrix1D(((1.0, -1.0), (-1.0, 1.0))),) * 3
G1D = 2  # modes of the geometry per direction; their values and slopes at the points
MODE = Matrix1D(((1.0, -0.5), (1.0, 0.5)))  # (Q1D, G1D)
SLOPE = Matrix1D(((0.0, 1.0), (0.0, 1.0)))
WEIGHTS = Matrix1D(((0.5, 0.5),))  # of the quadrature rule in one direction


@inner
def pointwise(u, ux, uy, uz, q):
    """Default q-function: mass."""
    return (q[0] * u[0],), ux, uy, uz
