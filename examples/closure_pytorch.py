"""A closure: PyTorch learns how conductivity depends on temperature, through an unsteady solve.

The steps of the heat equation are implicit. A small network gives their conductivity from the
temperature before the step. It learns from temperatures that a known law gives. The gradient goes
back through all steps: femops differentiates the solves, PyTorch the network.
"""

import sys
from pathlib import Path

import numpy as np

import femops

try:
    import torch
except ImportError:
    sys.exit(print("this example needs PyTorch: see https://pytorch.org"))

import femops.torch

STEP, COUNT = 0.02, 5


def law(u):
    """The conductivity that is to be found."""
    return 0.2 + u**2


def main(epochs):
    """Train the network, and draw the conductivity that it gives."""
    V = femops.H1(femops.box((8,)), order=2)
    mass = femops.mass(V) * (1.0 / STEP)
    A = mass + femops.diffusion(V, femops.GridFunction(V, V.zeros() + 1.0))
    product, solve = femops.torch.operator(mass), femops.torch.solve(A, "kappa")
    start = torch.from_numpy(V.interpolate(lambda x: 1.0 + np.cos(np.pi * x[0])))

    def history(conductivity):
        u, states = start, []
        for _ in range(COUNT):
            u = solve(product(u), kappa=conductivity(u[:, None])[:, 0])
            states.append(u)
        return torch.stack(states)

    torch.manual_seed(0)
    layers = torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1), torch.nn.Softplus()
    measured, closure = history(law), torch.nn.Sequential(*layers).double()
    optimizer, losses = torch.optim.Adam(closure.parameters(), lr=0.03), []
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = ((history(closure) - measured) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    print(f"mean squared error {losses[0]:.1e} at first, {losses[-1]:.1e} after {epochs} steps")
    assert losses[-1] < 0.05 * losses[0]
    draw(closure)


def draw(closure):
    """The conductivity that was learnt beside the law."""
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return print("no picture: pip install matplotlib")
    u = torch.linspace(0.0, 2.0, 100, dtype=torch.float64)
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    axes.plot(u, law(u), color="#9ecae1", linewidth=5, label="law")
    axes.plot(u, closure(u[:, None]).detach(), color="#d94801", label="network")
    axes.set(xlabel="temperature", ylabel="conductivity")
    axes.legend(frameon=False)
    Path("out").mkdir(exist_ok=True)
    figure.savefig("out/closure_pytorch.png", dpi=120)
    return print("out/closure_pytorch.png")


if __name__ == "__main__":
    # "small" is for a first look: less training
    main(40 if "small" in sys.argv else 300)
