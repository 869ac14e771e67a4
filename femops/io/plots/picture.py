"""Base class of pictures, which PyVista or Matplotlib draws."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from femops.io.atomic import checked_path, replacing


class Picture(ABC):
    """Picture that `plot` returns. Notebooks show it.

    Attributes
    ----------
    figure : matplotlib.figure.Figure or pyvista.Plotter
        Object of the library, for your own changes.
    """

    figure: Any

    @abstractmethod
    def write_png(self, file: Path | BinaryIO) -> None:
        """Write the picture as PNG."""

    @abstractmethod
    def show(self) -> None:
        """Show the picture in a window, and wait until the window is closed.

        Raises
        ------
        MissingExtraError
            Matplotlib cannot open a window.
        """

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the picture to a PNG file.

        Parameters
        ----------
        path : path ending in .png

        Returns
        -------
        pathlib.Path
            The file, which appears under its name only when complete.

        Raises
        ------
        FileError
            The file cannot be written, or does not end in .png.
        """
        target = checked_path(path, ".png")
        with replacing(target) as temporary:
            self.write_png(temporary)
        return target

    def _repr_png_(self) -> bytes:
        """Return the picture as PNG for notebooks."""
        buffer = BytesIO()
        self.write_png(buffer)
        return buffer.getvalue()
