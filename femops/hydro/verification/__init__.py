"""Exact solutions and published results with which runs are compared."""
