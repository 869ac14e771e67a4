"""Exact solutions and published results that runs are held to."""
