"""A closure: PyTorch learns how conductivity depends on temperature, through an unsteady solve.

The heat equation is stepped by an implicit method, in which the conductivity is a small network's
function of the temperature before the step. The network is trained on the temperatures that a known
law gives. The gradient goes back through all steps: femops differentiates the solves, PyTorch the
network.
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


class Closure(torch.nn.Module):
    """A positive function of the temperature."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(1, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1), torch.nn.Softplus()
        ).double()

    def forward(self, u):
        """The conductivity at some temperatures."""
        return self.layers(u[:, None])[:, 0]


def main(epochs):
    """Train the network, and draw the conductivity that it gives."""
    torch.manual_seed(0)
    mesh = femops.box((8,))
    V = femops.H1(mesh, order=2)
    one = femops.GridFunction(V, V.zeros() + 1.0)
    A = femops.form(lambda u, k: {"value": u / STEP, "grad": k * u.grad}, V, k=one)
    solve = femops.torch.solve(A, "k")
    mass = femops.torch.operator(femops.mass(V) * (1.0 / STEP))

    def history(start, conductivity):
        states = [start]
        for _ in range(COUNT):
            before = states[-1]
            states.append(solve(mass(before), k=conductivity(before)))
        return torch.stack(states[1:])

    start = torch.from_numpy(V.interpolate(lambda x: 1.0 + np.cos(np.pi * x[0])))
    with torch.no_grad():
        measured = history(start, law)
    closure = Closure()
    optimizer = torch.optim.Adam(closure.parameters(), lr=0.03)
    losses = []
    for _ in range(epochs):
        optimizer.zero_grad()
        loss = ((history(start, closure) - measured) ** 2).mean()
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
    u = np.linspace(0.0, 2.0, 100)
    with torch.no_grad():
        learnt = closure(torch.from_numpy(u)).numpy()
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    axes.plot(u, law(u), color="#9ecae1", linewidth=5, label="law")
    axes.plot(u, learnt, color="#d94801", label="network")
    axes.set_xlabel("temperature")
    axes.set_ylabel("conductivity")
    axes.legend(frameon=False)
    Path("out").mkdir(exist_ok=True)
    figure.savefig("out/closure_pytorch.png", dpi=120)
    return print("out/closure_pytorch.png")


if __name__ == "__main__":
    # "small" is for a first look: less training
    main(40 if "small" in sys.argv else 300)
