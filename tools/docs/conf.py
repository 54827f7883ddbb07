"""Sphinx's configuration of the site; `python -m tools.docs` makes what it reads."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(_ROOT))
_PROJECT = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))

project = "gymmesh"
version = release = str(_PROJECT["project"]["version"])
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]

# Markdown, with the anchors of headings that Git hosts make, too.
myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 6

# Code that leaves something out ("…") can't be coloured as a whole; it is shown all the same.
suppress_warnings = ["misc.highlighting_failure"]

# Docstrings: `name` is code, and types are written once, in the signature.
default_role = "code"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
python_use_unqualified_type_names = True

# Quotation marks alone: two dashes are how an option begins.
smartquotes_action = "q"

html_theme = "furo"
html_favicon = "favicon.svg"
html_title = f"gymmesh {version}"
html_show_sphinx = False
html_show_copyright = False
html_copy_source = False
html_domain_indices = False
html_static_path: list[str] = []


def setup(app: Any) -> None:
    """Sphinx calls it with its application."""
    from tools.docs.docstrings import rewritten

    def process(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
        lines[:] = rewritten(lines)

    app.connect("autodoc-process-docstring", process, priority=400)  # before napoleon's 500
