"""Uncertainty: the mean temperature of a plate whose conductivity is random, with JAX.

The logarithm of the conductivity is a sum of smooth modes with normally distributed factors.
`jax.vmap` solves for a batch of samples (Monte Carlo), and `jax.grad` gives the same spread from
one gradient, to first order in the factors.
"""

import sys
from pathlib import Path

import numpy as np
from scipy.stats import norm

import femops

try:
    import jax
except ImportError:
    sys.exit(print("this example needs JAX: pip install jax"))
import jax.numpy as jnp

import femops.jax

jax.config.update("jax_enable_x64", True)
MODES, SIZE = 4, 0.15


def modes(K):
    """Products of cosines; those of short waves have small amplitudes."""

    def mode(i, j):
        scale = 1.0 / (1.0 + i + j)
        return K.interpolate(lambda x: scale * np.cos(np.pi * i * x[0]) * np.cos(np.pi * j * x[1]))

    return jnp.array([mode(i, j) for i in range(MODES) for j in range(MODES)])


def main(samples):
    """Print the spread of the samples and that of the gradient, and draw a histogram."""
    mesh = femops.box((6, 6))
    V, K = femops.H1(mesh, order=4), femops.H1(mesh, order=2)
    one = femops.GridFunction(K, K.zeros() + 1.0)
    A = femops.diffusion(V, one).constrained(V.boundary_dofs())
    solve = femops.jax.solve(A, "kappa", preconditioner="multigrid")
    heat, shapes = jnp.asarray(A.rhs(femops.load(V, 1.0))), modes(K)

    def mean(factors):
        """Mean temperature: the load of a unit source is also the vector that integrates."""
        return heat @ solve(heat, kappa=jnp.exp(factors @ shapes))

    draws = SIZE * np.random.default_rng(3).standard_normal((samples, len(shapes)))
    found = np.asarray(jax.vmap(mean)(jnp.asarray(draws)))
    center, slope = jax.value_and_grad(mean)(jnp.zeros(len(shapes)))
    spread, linear = found.std(), SIZE * float(jnp.linalg.norm(slope))
    print(f"{samples} samples: {found.mean():.5f} +- {spread:.5f}, by the gradient {linear:.5f}")
    assert abs(spread / linear - 1.0) < 0.35
    draw(found, float(center), linear)


def draw(found, center, spread):
    """Histogram of the samples beside the normal distribution of the gradient."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return print("no picture: pip install matplotlib")
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    axes.hist(found, bins=20, density=True, color="#9ecae1", label="samples")
    x = np.linspace(found.min(), found.max(), 200)
    axes.plot(x, norm.pdf(x, center, spread), color="#d94801", label="gradient")
    axes.set_xlabel("mean temperature")
    axes.legend(frameon=False)
    Path("out").mkdir(exist_ok=True)
    figure.savefig("out/uncertainty_jax.png", dpi=120)
    return print("out/uncertainty_jax.png")


if __name__ == "__main__":
    # "small" is for a first look: few samples
    main(40 if "small" in sys.argv else 400)
