"""Convert docstrings for the site: their sections, single backticks and indented code."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.ext.napoleon import Config, GoogleDocstring


def _resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, content: nodes.Element
) -> nodes.Element | None:
    """Make a link of a name in single backticks if it is known, else code."""
    if node["reftype"] != "obj":
        return None
    python = env.domains.python_domain
    known = [name for name in python.objects if name.rpartition(".")[2] == node["reftarget"]]
    classes = [name for name in known if python.objects[name].objtype in ("class", "exception")]
    if not classes:
        return content
    args = (env, node["refdoc"], app.builder, "obj", min(classes, key=len), node, content)
    return python.resolve_xref(*args)


def _with_code(lines: list[str]) -> list[str]:
    """Return a docstring whose indented paragraphs are marked as code."""
    shown: list[str] = []
    for before, line in zip(["", *lines], lines, strict=False):
        written = next((each for each in reversed(shown) if each), "")
        if line.startswith("    ") and not before and not written.startswith("    "):
            shown += ["::", ""]
        shown.append(line)
    return shown


def _laws(kit: type) -> list[str]:
    """Return the laws of a conformance kit as a list; nothing for any other class."""
    laws = [name for name in vars(kit) if name.startswith("test_")]
    said = [f"- {name.removeprefix('test_').replace('_', ' ')}" for name in laws]
    return ["", "Laws:", "", *said, ""] if laws else []


def _skip(app: Sphinx, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Skip the test methods of a kit, which its list of laws names."""
    return True if name.startswith("test_") else None


def _sections(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Convert the sections of a docstring (Args, Raises); a value's docstring has none."""
    lines[:] = _with_code(lines)
    if what not in ("attribute", "data", "property"):
        lines[:] = GoogleDocstring(lines, Config(), app, what, name, obj, options).lines()
    if what == "class":
        lines += _laws(obj)


_SHOWN_AS = (
    (
        r"TypeAliasForwardRef\('([^']*)'\)",
        r"\1",
    ),  # an alias within a type, named as everywhere else
    (r", _\w+: (?:[^,()\[\]]|\[.*?\]+)*", ""),  # private arguments
    (r"= (<[^>]*>|[A-Z]\w*\([^()]*\))", "= ..."),  # a default that is an object
)


def _signature(app: Sphinx, what: str, name: str, obj: Any, options: Any, *said: str | None) -> Any:
    """Return the signature and the return type, shortened."""
    if getattr(obj, "_is_protocol", False):
        return "", None  # a protocol is not instantiated
    return tuple(text and _short(text) for text in said)


def _short(text: str) -> str:
    for pattern, instead in _SHOWN_AS:
        text = re.sub(pattern, instead, text)
    return text


def setup(app: Sphinx) -> None:
    """Register the extension with Sphinx."""
    app.connect("missing-reference", _resolve)
    app.connect("autodoc-process-docstring", _sections)
    app.connect("autodoc-skip-member", _skip)
    app.connect("autodoc-process-signature", _signature)
