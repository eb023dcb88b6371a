"""Sphinx settings of the site: `uv run --group docs sphinx-build -W -b html docs docs/_build`.

The pages are also read on a code host, so they are plain Markdown with links between files. `_ext` converts
them.
"""

from __future__ import annotations

import sys
from pathlib import Path

from memman.plugins import VERSION

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "memman"
copyright = "the authors of memman; Apache-2.0"  # noqa: A001 - Sphinx's name
version = release = VERSION
root_doc = "index"
exclude_patterns = ["_build", "README.md"]  # the content of the index
extensions = ["myst_parser", "sphinx_design", "sphinx.ext.autodoc", "site_pages", "site_docstrings"]
nitpicky = True
nitpick_ignore_regex = [
    # Documented elsewhere; `nitpicky` requires every other reference to resolve.
    (
        "py:class",
        r"(asyncio|threading|blinker|collections|concurrent|contextlib|datetime|http|logging|msgspec|os|pluggy|typing)\..*",
    ),
    ("py:class", r".*\.[A-Z]"),  # a type variable
    ("py:class", r"memman\.core\.core\.Core"),  # the inside of a manager
]

myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # an included page may start below the first level

default_role = "py:obj"  # docstrings name things in single backticks, as these pages do
add_module_names = False
toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
autodoc_type_aliases = {
    name: f"memman.{module}.{name}"
    for module, names in {
        "archive": "Packing Target",
        "entries": "Accuracy Content EntryType Part Role",
        "core.core": "Redact",
        "core.methods": "State",
        "archive.info": "OnConflict",
        "records": "Record ReplacementMethod",
        "testing.fakes": "Reply",
        "compression": "Stage Step",
    }.items()
    for name in names.split()
} | {"AsyncEvent": "asyncio.Event"}

html_theme = "furo"
html_title = "memman"
html_static_path = ["_static"]
html_css_files = ["memman.css"]
html_copy_source = False
html_show_sphinx = False
html_logo = html_favicon = "_static/memman.svg"
# The colours and type of the report (memman_cli/report/page/report.css), light and dark: one house.
COLOURS = {
    "color-background-primary": ("#ffffff", "#111214"),
    "color-background-secondary": ("#f8f7f5", "#141518"),
    "color-background-border": ("#e4e2dd", "#2c2e33"),
    "color-foreground-primary": ("#1d1c1a", "#ecebe8"),
    "color-foreground-secondary": ("#5f5c56", "#a5a29b"),
    "color-foreground-muted": ("#6b6862", "#a5a29b"),
    "color-brand-primary": ("#3b5bdb", "#8da2fb"),
    "color-brand-content": ("#3b5bdb", "#8da2fb"),
    "color-brand-visited": ("#3b5bdb", "#8da2fb"),
    "color-code-background": ("#f8f7f5", "#1a1b1e"),
    "color-code-foreground": ("#1d1c1a", "#ecebe8"),
    "color-inline-code-background": ("#f4f3f0", "#202226"),
    "color-api-name": ("#1d1c1a", "#ecebe8"),
    "color-api-pre-name": ("#6b6862", "#a5a29b"),
    "color-api-background-hover": ("#eef1fd", "#20263f"),
    "color-sidebar-link-text--top-level": ("#3f3d39", "#c6c4bf"),
    "color-sidebar-item-background--hover": ("#eef1fd", "#20263f"),
    "memman-edge": ("#c9d2f8", "#34406f"),
}
FONTS = {
    "font-stack": "Inter, system-ui, -apple-system, 'Segoe UI', Roboto, 'Noto Sans', sans-serif",
    "font-stack--monospace": "ui-monospace, 'SF Mono', 'Cascadia Mono', 'JetBrains Mono', "
    "'DejaVu Sans Mono', Menlo, Consolas, monospace",
}
html_theme_options = {
    "navigation_with_keys": True,
    "light_css_variables": FONTS | {name: light for name, (light, _) in COLOURS.items()},
    "dark_css_variables": {name: dark for name, (_, dark) in COLOURS.items()},
}
pygments_style = "friendly"
pygments_dark_style = "github-dark"
