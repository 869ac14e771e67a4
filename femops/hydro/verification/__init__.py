"""Exact solutions and published results, for comparison with runs."""
