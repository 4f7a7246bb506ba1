"""The site of the documentation, made by Sphinx from the Markdown beside this file: `make docs`."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

import surefoot
import surefoot.tasks

project, author, version = "Surefoot", "the authors of Surefoot", surefoot.__version__
project_copyright = author

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
exclude_patterns = ["conf.py"]
highlight_language = "text"  # of blocks that name none

myst_heading_anchors = 3

# Docstrings are plain text with Google's sections and names in single backticks.
default_role = "code"
napoleon_numpy_docstring = False
napoleon_use_ivar = True
autodoc_mock_imports = ["optuna"]  # an extra; the page shows what is ours
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autosummary_generate = False
add_module_names = False
python_maximum_signature_line_length = 100

html_theme = "furo"
html_title = f"Surefoot {version}"
html_static_path = ["site"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}

PUBLIC = {name: f"{package.__name__}.{name}" for package in (surefoot.tasks, surefoot) for name in package.__all__}


def public_name(app: Sphinx, env: BuildEnvironment, node: Any, content: nodes.TextElement) -> nodes.reference | None:
    """A signature names a class by the module that it lives in; the reference has it under its public name."""
    target = PUBLIC.get(str(node.get("reftarget")).rpartition(".")[2])
    if node.get("refdomain") != "py" or target is None or app.builder is None:
        return None
    domain: Any = env.get_domain("py")
    return domain.resolve_xref(env, node["refdoc"], app.builder, "obj", target, node, content)


def plain_bars(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """|x| in a docstring is an absolute value, and not a substitution of reStructuredText."""
    lines[:] = [re.sub(r"(`[^`]*`)|\|", lambda found: found[1] or r"\|", line) for line in lines]


def setup(app: Sphinx) -> None:
    app.connect("missing-reference", public_name)
    app.connect("autodoc-process-docstring", plain_bars)
