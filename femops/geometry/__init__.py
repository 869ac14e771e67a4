"""Geometry: Jacobians, positions and points of elements and boundary faces."""
