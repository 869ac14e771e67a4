"""What an operator of a peer is."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray


class PeerOperator(ABC):
    """An operator of a peer, applied to `femops.bench.peers.door.wave`, interpolated.

    Attributes
    ----------
    label : str
        Name, version and kind.
    x, y : (ndofs,) float64
        Vectors, in whatever order of dofs; y is written by `apply`.
    """

    label: str
    x: NDArray[np.float64]
    y: NDArray[np.float64]

    @abstractmethod
    def apply(self) -> None:
        """Set y = A x."""
