"""Benchmarks of solvers: conjugate gradients, multigrid, eigenpairs."""
