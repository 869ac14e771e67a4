"""Geometry: Jacobians, positions and points of elements and boundary faces."""

from femops.geometry.boundary import BoundaryGeometry as BoundaryGeometry
from femops.geometry.jacobians import ElementClass as ElementClass
from femops.geometry.jacobians import Geometry as Geometry
from femops.geometry.jacobians import classify as classify

__all__ = ["BoundaryGeometry", "ElementClass", "Geometry", "classify"]
