"""Remap: advection of discontinuous functions within bounds, on moving and fixed meshes.

The methods are those of CEED's proxy Remhos: Anderson, Dobrev, Kolev, Kuzmin, Quezada de Luna,
Rieben and Tomov, High-order local maximum principle preserving (MPP) discontinuous Galerkin finite
element method for the transport equation (J. Comput. Phys. 334, 2017); Hajduk, Kuzmin, Kolev and
Abgrall, Matrix-free subcell residual distribution for Bernstein finite element discretizations of
linear advection equations (Comput. Methods Appl. Mech. Engrg. 359, 2020).
"""

from femops.hydro.remap.advection import Advected, Advection
from femops.hydro.remap.meshes import ADVECTION_MESHES, advection_mesh
from femops.hydro.remap.problems import ADVECTION, AdvectionProblem, Box, advection_problem
from femops.hydro.remap.published import PUBLISHED, PublishedRun, verify_advection

__all__ = [
    "ADVECTION",
    "ADVECTION_MESHES",
    "PUBLISHED",
    "Advected",
    "Advection",
    "AdvectionProblem",
    "Box",
    "PublishedRun",
    "advection_mesh",
    "advection_problem",
    "verify_advection",
]
