"""Sphinx configuration."""

import re
from importlib.metadata import version as installed_version

project = "femops"
author = "femops developers"
copyright = "femops developers, BSD-3-Clause"
version = release = installed_version("femops")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "numpydoc"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "none"  # docstrings state types with shapes, which is more
numpydoc_show_class_members = False  # autodoc lists them

exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"femops {version}"


def _literal_signs(_app, _what, _name, _object, _options, lines):
    """Keep the bars of norms, |b|, and the stars of shapes, (*shape, n), from being read as markup.

    Code and maths stay.
    """
    for k, line in enumerate(lines):
        parts = re.split(r"(``.*?``|:math:`.*?`)", line)
        parts[::2] = [re.sub(r"(?<!\\)(\||\*(?=\w+[,)]))", r"\\\1", part) for part in parts[::2]]
        lines[k] = "".join(parts)


def setup(app):
    """Register the above, before numpydoc reads the docstrings."""
    app.connect("autodoc-process-docstring", _literal_signs, priority=100)
