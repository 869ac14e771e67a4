"""States at which nonlinear forms are differentiated."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, final

import numpy as np
from numpy.typing import NDArray


class State(ABC):
    """A vector at which a nonlinear form is differentiated.

    Attributes
    ----------
    filled : bool
        Whether kernels compute what a derivative keeps at points, where the vector is; else it is
        computed with NumPy.
    setups : dict
        What all derivatives of one form share: splits by level, and programs that compute what is
        kept, with their data, by the nodes that are kept.
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

    @abstractmethod
    def points(
        self, form: Any, qdata_split: Any, dtype: np.dtype[Any], width: int
    ) -> NDArray[Any] | None:
        """Numbers that a form keeps at points, (nbatch, points, numbers, width).

        None where NumPy is to compute it.
        """


Fill = Callable[[Any, Any, np.dtype[Any], int], NDArray[Any] | None]


@final
class HostState(State):
    """A vector on the host.

    Parameters
    ----------
    l_vec : array
    setups : dict, optional
        See `State`.
    fill : callable, optional
        Computes what a form with this state keeps at points, or gives None.
    """

    filled = False

    def __init__(
        self,
        l_vec: NDArray[Any],
        setups: dict[Any, Any] | None = None,
        fill: Fill | None = None,
    ) -> None:
        self._l_vec, self._fill = l_vec, fill
        self.setups = {} if setups is None else setups

    @property
    def l_vec(self) -> NDArray[Any]:
        """See `State.l_vec`."""
        return self._l_vec

    def renewed(self) -> HostState:
        """See `State.renewed`: nothing that was computed of other coefficients."""
        return HostState(self._l_vec, None, self._fill)

    def points(
        self, form: Any, qdata_split: Any, dtype: np.dtype[Any], width: int
    ) -> NDArray[Any] | None:
        """See `State.points`."""
        return None if self._fill is None else self._fill(form, qdata_split, dtype, width)
