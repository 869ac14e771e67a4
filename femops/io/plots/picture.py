"""Base class of pictures, which PyVista or Matplotlib draws."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

from femops.io.atomic import checked_path, writing


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
    def write_html(self, file: BinaryIO) -> None:
        """Write the picture as a page whose viewer turns it.

        Raises
        ------
        FileError
            The library has no such pages.
        MissingExtraError
            A package that makes the page is missing.
        """

    @abstractmethod
    def show(self) -> None:
        """Show the picture in a window, and wait until the window is closed.

        Raises
        ------
        MissingExtraError
            Matplotlib cannot open a window.
        """

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the picture to a PNG file, or to a page that turns it in a browser.

        Parameters
        ----------
        path : path ending in .png or .html
            A page has all that it needs, 6 MB, and loads nothing. Only PyVista makes pages, with
            the extra ``interactive``.

        Returns
        -------
        pathlib.Path
            The file, which appears under its name only when complete.

        Raises
        ------
        FileError
            The file cannot be written, has another suffix, or is a page of a picture that
            Matplotlib draws.
        MissingExtraError
            A package that makes pages is missing.
        """
        target = checked_path(path, ".png", ".html")
        write = self.write_html if target.suffix.lower() == ".html" else self.write_png
        with writing(target) as file:
            write(file)
        return target

    def _repr_png_(self) -> bytes:
        """Return the picture as PNG for notebooks."""
        buffer = BytesIO()
        self.write_png(buffer)
        return buffer.getvalue()
