"""Sphinx configuration."""

import importlib.util
import re
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

from numpydoc.xref import DEFAULT_LINKS

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from gallery import write_gallery  # noqa: E402

import femops  # noqa: E402

project = "femops"
author = "femops developers"
copyright = "femops developers, BSD-3-Clause"
version = release = installed_version("femops")

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "numpydoc"]
myst_enable_extensions = ["dollarmath", "deflist"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_mock_imports = [
    name for name in ("jax", "petsc4py", "torch") if importlib.util.find_spec(name) is None
]
autodoc_typehints = "none"  # docstrings state types with shapes, which is more
numpydoc_show_class_members = False  # autodoc lists them
numpydoc_xref_param_type = True  # a class named as a type is a link to its entry
numpydoc_xref_ignore = "all"  # that have no alias
DEFAULT_LINKS.clear()  # links to pages of Python and NumPy
numpydoc_xref_aliases = {
    path.rpartition(".")[2]: path
    for page in sorted((HERE / "api").glob("*.md"))
    for path in re.findall(r"^\.\. autoclass:: (.*)$", page.read_text(), re.MULTILINE)
} | {name: f"femops.errors.{name}" for name in dir(femops.errors) if name[0].isupper()}
default_role = "py:obj"  # a name in single backticks is a link to its entry, else code

exclude_patterns = ["_build"]
html_theme = "furo"
pygments_dark_style = "github-dark"  # the theme's own underlines modules like links
html_title = f"femops {version}"
html_css_files = ["femops.css"]


def _mathjax():
    """MathJax in one file, which draws its own glyphs, so that pages need no network."""
    package = importlib.util.find_spec("sphinx-mathjax-offline")
    return Path(package.origin).parent / "static" / "mathjax" / "tex-svg.js"


html_static_path = ["_static", str(_mathjax())]
mathjax_path = "tex-svg.js"


def _literal_signs(_app, _what, _name, _object, _options, lines):
    """Keep the bars of norms, |b|, and the stars of shapes, (*shape, n), from being read as markup.

    Code and maths stay.
    """
    example = False
    for k, line in enumerate(lines):
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        if example:
            continue
        parts = re.split(r"(``.*?``|:math:`.*?`)", line)
        parts[::2] = [re.sub(r"(?<!\\)(\||\*(?=\w+[,)]))", r"\\\1", part) for part in parts[::2]]
        lines[k] = "".join(parts)


def _short_signature(_app, _what, _name, _object, _options, signature, returned):
    """Types by their names, and nothing for the arguments that `__new__` of a base class takes."""
    if signature == "(*args, **kwargs)":
        return "", returned
    return signature and re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", signature), returned


def setup(app):
    """Register the above, before numpydoc reads the docstrings; run the examples."""
    app.connect("autodoc-process-docstring", _literal_signs, priority=100)
    app.connect("autodoc-process-signature", _short_signature)
    app.connect("builder-inited", lambda _app: write_gallery(HERE.parent / "examples", HERE))
