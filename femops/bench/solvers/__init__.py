"""Solvers, timed: conjugate gradients, multigrid, eigenpairs."""
