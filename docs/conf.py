"""Sphinx configuration. What can be printed or drawn from the code is, by the modules in _ext."""

import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]
# Tutorials run in processes of their own: on one thread, with this source and our style of plots.
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])
os.environ["MATPLOTLIBRC"] = str(HERE / "_static" / "matplotlibrc")
for threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[threads] = "1"

import flows  # noqa: E402
import inventories  # noqa: E402
import members  # noqa: E402
import notebooks  # noqa: E402
import pictures  # noqa: E402
import tables  # noqa: E402

from fedprivacy import __version__ as release  # noqa: E402

GENERATED = HERE / "_generated"

project = "fedprivacy"
author = "the fedprivacy authors"
copyright = "the fedprivacy authors, Apache License 2.0"
version = release
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx-mathjax-offline",
]
exclude_patterns = ["_build", "_generated", "_ext", "notebooks"]
templates_path = ["_templates"]
html_theme = "furo"
html_title = f"fedprivacy {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "_static/favicon.svg"
myst_heading_anchors = 3
myst_enable_extensions = ["dollarmath", "deflist", "colon_fence"]
nb_execution_mode = "cache"
nb_execution_cache_path = str(HERE / "_build" / ".jupyter_cache")
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_timeout = 120
nb_merge_streams = True
# A class that two modules offer is one class: either link is right.
suppress_warnings = ["ref.python"]
autosummary_generate = True
autosummary_imported_members = True
autodoc_typehints = "description"
autodoc_mock_imports = ["opacus"]
autodoc_typehints_description_target = "documented"
autodoc_member_order = "bysource"
napoleon_use_ivar = True
napoleon_use_rtype = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_line_continuation_character = "\\"
intersphinx_mapping = inventories.write(GENERATED)

tables.write(GENERATED)
pictures.write(GENERATED)
flows.write(GENERATED)
notebooks.write(HERE / "tutorials", HERE / "notebooks")


def plain_bars(app, what, name, obj, options, lines):
    """Keep the bars of |x| in docstrings from being read as substitutions."""
    for i, line in enumerate(lines):
        pieces = line.split("``")
        pieces[::2] = [re.sub(r"(?<!\\)\|", r"\\|", piece) for piece in pieces[::2]]
        lines[i] = "``".join(pieces)


def right_way_back(app, pagename, templatename, context, doctree):
    """Mend links from source pages: viewcode takes all objects of a file for one module's."""
    if not pagename.startswith("_modules/"):
        return
    known = app.env.domains["py"].objects

    def mended(found):
        name = found[2]
        tail = name.removeprefix("fedprivacy.")
        right = [one for one in known if one.endswith(f".{tail}")] if name not in known else [name]
        if not right:
            return found[0]
        # Pages read by several processes may know a name as the other one of its two.
        page = app.builder.get_relative_uri(pagename, known[right[0]].docname)
        return f'{found[1]}{page}#{known[right[0]].node_id}"'

    back = r'(class="viewcode-back" href=")[^"#]*#([\w.]+)"'
    context["body"] = re.sub(back, mended, context["body"])


def skip(app, what, name, obj, skipped, options):
    """Leave internal members out of a class's page; None keeps Sphinx's own decision."""
    page = app.env.docname
    owner = page.removeprefix(members.GENERATED)
    module, _, kind = owner.rpartition(".")
    found = getattr(sys.modules.get(module), kind, None)
    bases = getattr(found, "__mro__", ())
    fields = {field for base in bases for field in vars(base).get("__annotations__", ())}
    return True if members.is_hidden(page, what, name, fields) else None


def shorten(app, pagename, templatename, context, doctree):
    """Shorten the sidebar of every page."""
    tree = "furo_navigation_tree"
    if tree in context:
        context[tree] = members.short_sidebar(context[tree])


def home_of(app, module, attribute):
    """Return the module whose source holds an object; of what is in a class, that of the class.

    By itself Sphinx takes a default's module, and with two processes what comes of that differs.
    """
    owner = getattr(sys.modules.get(module), attribute.split(".")[0], None)
    return getattr(owner, "__module__", None)


def setup(app):
    """Connect the hooks."""
    # It adds a file of scripts to every page and reads nothing, but does not say so.
    app.extensions["sphinx-mathjax-offline"].parallel_read_safe = True
    app.connect("html-page-context", right_way_back)
    app.connect("viewcode-follow-imported", home_of)
    app.connect("html-page-context", shorten, priority=900)
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-docstring", plain_bars)
