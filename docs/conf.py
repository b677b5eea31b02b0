"""The site: `sphinx-build -W --keep-going -n docs docs/_build/html`, with mxsame[docs,notebooks] installed.

Nothing here needs the network, nor do the pages that come of it: mathematics is MathML, and fonts are the reader's own.
"""

from __future__ import annotations

import html
import re
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import inventories  # noqa: E402

import mxsame  # noqa: E402

project = "mxsame"
author = "the authors of mxsame"
copyright = f"{author}, Apache-2.0"
version = release = mxsame.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_click",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
nitpicky = True
default_role = "code"
smartquotes = False  # what stands in quotes is mostly a word to type
highlight_language = "python"

for notebook in (HERE.parent / "notebooks").glob("*.ipynb"):  # Sphinx reads what is below docs
    shutil.copy(notebook, HERE / "notebooks")
nb_execution_mode = "off"  # their outputs are in them; `nox -s notebooks` runs them

myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_inline", "deflist"]
myst_heading_anchors = 3

intersphinx_mapping = inventories.write()

READMES = {  # pages of the site, too: folder -> page
    folder: f"_generated/{folder.replace('/', '-')}.md"
    for folder in (
        "benchmarks",
        "benchmarks/results",
        "tests/results",
        "examples/c",
        "examples/distributed",
        "examples/hopper",
    )
}
for folder, page in READMES.items():
    shutil.copy(HERE.parent / folder / "README.md", HERE / page)

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_google_docstring = False
napoleon_use_param = False  # what follows a parameter's name is prose, not the name of a class
napoleon_use_ivar = True
napoleon_custom_sections = ["Inputs", "Outputs", "Returns", "Raises"]  # the same

html_theme = "furo"
html_title = f"mxsame {release}: Keras on MXNet"
html_logo = html_favicon = "_static/logo.svg"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#12736a", "color-brand-content": "#12736a"},
    "dark_css_variables": {"color-brand-primary": "#4fd1c5", "color-brand-content": "#4fd1c5"},
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def mathml(node: nodes.Element, as_block: bool) -> str:
    try:
        return tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        logging.getLogger(__name__).warning("%s in %r", error, node.astext(), location=node)
        return ""


def inline_math(translator: Any, node: nodes.math) -> None:
    translator.body.append(mathml(node, as_block=False))
    raise nodes.SkipNode


def block_math(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(translator.starttag(node, "div", CLASS="math"))
    if node["number"]:
        number = get_node_equation_number(translator, node)
        translator.body.append(f'<span class="eqno">({number})</span>')
    translator.body.append(mathml(node, as_block=True) + "</div>\n")
    raise nodes.SkipNode


def dashes(app: Sphinx, what: str, name: str, subject: Any, options: Any, lines: list[str]) -> None:
    """Between a parameter and what it is napoleon writes two hyphens, for smartquotes to make a dash of."""
    lines[:] = [line.replace(" -- ", " \N{EN DASH} ") for line in lines]


TYPES = {
    "NDArray": "mxnet.ndarray.NDArray",
    "Symbol": "mxnet.symbol.Symbol",
    "gluon.Block": "mxnet.gluon.Block",
    "gluon.HybridBlock": "mxnet.gluon.HybridBlock",
    "gluon.SymbolBlock": "mxnet.gluon.SymbolBlock",
    "numpy.ndarray": "numpy.ndarray",
    "numpy.dtype": "numpy.dtype",
}
TYPE = re.compile("|".join(rf"(?<![\w.]){re.escape(name)}(?!\w)" for name in sorted(TYPES, key=len, reverse=True)))
DECLARED = re.compile(r"(.*\*\* \()\*(.+)\*(\) \S.*)")  # as napoleon writes a parameter and its type
ERRORS = re.compile(r"^\w+Error(, \w+Error)*$")


def links(app: Sphinx, what: str, name: str, subject: Any, options: Any, lines: list[str]) -> None:
    """The types of parameters, and errors, as links to the documentation that has them."""
    for number, line in enumerate(lines):
        declared = DECLARED.match(line)
        if declared and TYPE.search(declared[2]):
            types = TYPE.sub(lambda match: f":class:`{match[0]} <{TYPES[match[0]]}>`", declared[2])
            lines[number] = f"{declared[1]}{types}{declared[3]}"
        elif ERRORS.match(line.strip()):
            lines[number] = re.sub(r"\w+", r":exc:`\g<0>`", line)


def examples(app: Sphinx, context: Any, lines: list[str]) -> None:
    """Commands that stand unwrapped in a help text come as verses of a line block; here they are code."""
    verses = [number for number, line in enumerate(lines) if line.startswith("| ")]
    if verses:
        commands = [f"   {lines[number][2:]}" for number in verses]
        lines[verses[0] : verses[-1] + 1] = [".. code-block:: sh", "", *commands]


def moved_pages(app: Sphinx, name: str, source: list[str]) -> None:
    """Notebooks and the pages of other folders are copied into the site, so links to and from them differ there."""
    for folder, page in READMES.items():
        source[0] = source[0].replace(f"](../../{folder}/README.md)", f"](/{page})")
    for folder, page in {"../../notebooks/": "../notebooks/", "../../docs/": "../", "../docs/": "../"}.items():
        source[0] = source[0].replace(f"]({folder}", f"]({page}")


SUBPAGES = {  # pages that the sidebar has below another
    "how-to/leave": ("how-to/onnx", "_generated/examples-c"),
    "how-to/gpu": ("_generated/examples-hopper",),
    "how-to/distributed": ("_generated/examples-distributed",),
}


def subpages(app: Sphinx, name: str, source: list[str]) -> None:
    if name in SUBPAGES:
        source[0] += "\n```{toctree}\n:hidden:\n\n" + "".join(f"/{page}\n" for page in SUBPAGES[name]) + "```\n"


def description(app: Sphinx, name: str, template: str, context: Any, doctree: Any) -> None:
    """What search engines show of a page, if it does not say so itself: its first paragraph, or its title."""
    if doctree and 'name="description"' not in context["metatags"]:
        paragraphs = (each for each in doctree.findall(nodes.paragraph) if not isinstance(each.parent, nodes.entry))
        first = next(paragraphs, None) or next(doctree.findall(nodes.title))
        text = html.escape(textwrap.shorten(first.astext(), 200, placeholder="..."))
        context["metatags"] += f'<meta name="description" content="{text}" />'


def types_without_a_page(app: Sphinx, env: Any, node: nodes.Element, text: nodes.Element) -> Any:
    """In a signature, the name of a type that no page describes is text; elsewhere it is a broken link."""
    while node is not None and not isinstance(node, addnodes.desc_signature):
        node = node.parent
    return text if node is not None else None


def names_of_several_types(app: Sphinx, doctree: nodes.document) -> None:
    """In a signature, `Written` may be either of two classes: it is text, not a link."""
    for link in list(doctree.findall(addnodes.pending_xref)):
        if link.get("reftarget") == "Written":
            link.replace_self(link.children)


def setup(app: Sphinx) -> None:
    app.connect("source-read", moved_pages)
    app.connect("source-read", subpages)
    app.connect("html-page-context", description)
    app.connect("doctree-read", names_of_several_types)
    app.connect("missing-reference", types_without_a_page)
    app.add_html_math_renderer("mathml", (inline_math, None), (block_math, None))
    app.connect("sphinx-click-process-description", examples)
    app.connect("autodoc-process-docstring", dashes, priority=600)  # napoleon's is 500
    app.connect("autodoc-process-docstring", links, priority=600)
