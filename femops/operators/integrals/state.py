"""States at which nonlinear forms are differentiated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, final

from numpy.typing import NDArray


class State(ABC):
    """A vector at which a nonlinear form is differentiated.

    Attributes
    ----------
    filled : bool
        Whether kernels compute what a derivative keeps at points, where the vector is; else it is
        computed with NumPy.
    setups : dict
        Programs that compute what a derivative keeps, and their data, by the nodes that are kept;
        those of all derivatives of one form.
    """

    filled: bool
    setups: dict[Any, Any]

    @property
    @abstractmethod
    def l_vec(self) -> NDArray[Any]:
        """The vector on the host, as `Space.l_vec` of its space gives it."""

    @abstractmethod
    def renewed(self) -> State:
        """The same vector, for a form with other coefficients."""


@final
class HostState(State):
    """A vector on the host.

    Parameters
    ----------
    l_vec : array
    """

    filled = False

    def __init__(self, l_vec: NDArray[Any]) -> None:
        self._l_vec, self.setups = l_vec, {}

    @property
    def l_vec(self) -> NDArray[Any]:
        """See `State.l_vec`."""
        return self._l_vec

    def renewed(self) -> HostState:
        """See `State.renewed`."""
        return self
